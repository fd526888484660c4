"""Rotary position embedding of queries and keys (Su et al. 2021, RoFormer, arXiv:2104.09864)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES
from pytest_attnperf.workloads.fields import Grammar, id_words, require_dtype, require_positive
from pytest_attnperf.workloads.precision import reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16")
HEAD_DIM_MAX = 512
THETA = 10000.0
"""Base of the frequencies, RoFormer's and LLaMA's."""
_TABLE_BYTES = 4
_GRAMMAR = Grammar(
    family="rope",
    numbers={"b": "batch", "s": "seq", "h": "heads", "hk": "kv_heads", "d": "head_dim"},
    required=("s", "h", "d"),
    flags=("interleaved",),
    dtypes=DTYPES,
)


@dataclass(frozen=True)
class Rope:
    """Rotation of all queries and keys of a batch; id e.g. `rope-b4-s4096-h32-hk8-d128-f16-interleaved`.

    batch         B
    seq           S, tokens per sequence; token s has position s
    heads         H, query heads
    kv_heads      Hk, key heads; 0 means H
    head_dim      D, even, at most 512
    dtype         'f32', 'f16' or 'bf16': q, k and outputs
    interleaved   which elements of a head are a pair (a, b): 2 i and 2 i + 1, as GPT-J; otherwise i and i + D / 2, as
                  GPT-NeoX and LLaMA's implementation in transformers

    Pair i of token s becomes (a cos[s, i] - b sin[s, i], b cos[s, i] + a sin[s, i]). Inputs are (q, k, cos, sin): q
    (B, S, H, D), k (B, S, Hk, D), cos and sin (S, D / 2) in fp32, contiguous. Outputs are 'q' and 'k', of the shapes
    of q and k. It is timed cold.

    Raises WorkloadError naming the field for sizes that are not positive integers, an odd or too large head_dim and
    another dtype.
    """

    batch: int
    seq: int
    heads: int
    head_dim: int
    kv_heads: int = 0
    dtype: str = "f16"
    interleaved: bool = False

    def __post_init__(self) -> None:
        # Equal problems must be equal and hash equal, however they were written.
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads == 0 else self.kv_heads)
        require_positive("rope", ((name, getattr(self, name)) for name in _GRAMMAR.numbers.values()))
        require_dtype("rope", self.dtype, DTYPES)
        if self.head_dim % 2 or self.head_dim > HEAD_DIM_MAX:
            raise WorkloadError(
                f"rope workload: head_dim must be even, for elements are rotated in pairs, and at most {HEAD_DIM_MAX}, "
                f"got {self.head_dim}"
            )

    @classmethod
    def parse(cls, text: str) -> Rope:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**_GRAMMAR.parse_id(text))
        if workload.id != text:
            raise WorkloadError(f"rope workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def parse_line(cls, text: str) -> Rope:
        """The workload of a line such as `b=4,s=4096,h=32,hk=8,d=128,bf16`, fields in any order; b is 1 and dtype f16
        unless given. Raises WorkloadError."""
        return cls(**{"batch": 1, **_GRAMMAR.parse_line(text)})

    @property
    def family(self) -> str:
        """'rope'."""
        return "rope"

    @property
    def cache_state(self) -> str:
        """'cold': it is one pass over what a projection has written."""
        return "cold"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; hk is left out where it is h."""
        numbers = (
            ("b", self.batch),
            ("s", self.seq),
            ("h", self.heads),
            ("hk", self.kv_heads if self.kv_heads != self.heads else None),
            ("d", self.head_dim),
        )
        flags = [flag for flag in _GRAMMAR.flags if getattr(self, flag)]
        return "-".join(["rope", *id_words(numbers), self.dtype, *flags])

    @property
    def elements(self) -> int:
        """Of q and k together."""
        return self.batch * self.seq * (self.heads + self.kv_heads) * self.head_dim

    @property
    def flops(self) -> float:
        """3 per element: two products and a sum."""
        return float(3 * self.elements)

    @property
    def bytes_min(self) -> float:
        """q, k, cos and sin read once, both outputs written once."""
        return float(2 * self.elements * DTYPE_BYTES[self.dtype] + self.seq * self.head_dim * _TABLE_BYTES)

    def definition(self) -> dict[str, Any]:
        """Every field, which pairs are rotated, and the base of the frequencies, as builtins."""
        pairs = "(2 i, 2 i + 1)" if self.interleaved else "(i, i + head_dim / 2)"
        return {"family": self.family, **asdict(self), "pairs": pairs, "theta": THETA}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """q and k from N(0, 1), and tables of position * 10000^(-2 i / D).

        Every element of an output depends on two elements of an input, so that a lost one shows without planting.
        """
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        q, k = (
            torch.randn((self.batch, self.seq, heads, self.head_dim), generator=generator, device=device).to(dtype)
            for heads in (self.heads, self.kv_heads)
        )
        pair = torch.arange(self.head_dim // 2, dtype=torch.float64, device=device)
        position = torch.arange(self.seq, dtype=torch.float64, device=device)
        angle = position[:, None] * THETA ** (-2.0 * pair / self.head_dim)
        return q, k, angle.cos().float(), angle.sin().float()

    def reference(self, inputs: Tensors) -> Outputs:
        """fp64 on a CPU and for f32, fp32 on a GPU for f16 and bf16; a sequence at a time."""
        import torch

        q, k, cos, sin = inputs
        dtype = reference_dtype((q, k))

        def whole(x: torch.Tensor) -> torch.Tensor:
            rotated = (rotate(one.to(dtype), cos.to(dtype), sin.to(dtype), self.interleaved) for one in x)
            return torch.stack(list(rotated))

        return {"q": whole(q), "k": whole(k)}

    def plain(self, inputs: Tensors) -> Outputs:
        """With the tables in fp32, as they are given, so products and sums are fp32, and rounded once."""
        import torch

        q, k, cos, sin = inputs

        def whole(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([rotate(one.float(), cos, sin, self.interleaved).to(x.dtype) for one in x])

        return {"q": whole(q), "k": whole(k)}


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x (..., S, H, D) rotated by cos and sin (S, D / 2), in torch's common dtype of the three."""
    import torch

    cos, sin = cos[:, None, :], sin[:, None, :]  # (S, 1, D / 2)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    pairs = (a * cos - b * sin, b * cos + a * sin)
    return torch.stack(pairs, dim=-1).flatten(-2) if interleaved else torch.cat(pairs, dim=-1)
