"""Rotary position embedding of queries and keys (Su et al. 2021, RoFormer, arXiv:2104.09864)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import HEAD_DIM_MAX, Grammar
from pytest_attnperf.workloads.precision import reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16")
THETA = 10000.0
"""Base of the frequencies, as in RoFormer and LLaMA."""
_TABLE_BYTES = 4


@dataclass(frozen=True)
class Rope(FamilyWorkload):
    """Rotation of all queries and keys of a batch; id e.g. `rope-b4-s4096-h32-hk8-d128-f16-interleaved`.

    batch         B
    seq           S, tokens per sequence; token s has position s
    heads         H, query heads
    kv_heads      Hk, key heads; 0 means H
    head_dim      D, even, at most 512
    dtype         'f32', 'f16' or 'bf16': q, k and outputs
    interleaved   elements 2 i and 2 i + 1 of a head are a pair (a, b), as in GPT-J; otherwise i and i + D / 2, as in
                  GPT-NeoX and LLaMA's implementation in transformers

    Pair i of token s becomes (a cos[s, i] - b sin[s, i], b cos[s, i] + a sin[s, i]). Inputs are (q, k, cos, sin): q
    (B, S, H, D), k (B, S, Hk, D), cos and sin (S, D / 2) in fp32, contiguous. Outputs are 'q' and 'k', of the shapes
    of q and k. It is timed cold.

    Raises WorkloadError naming the field for sizes that are not positive integers, an odd or too large head_dim and
    another dtype.
    """

    grammar = Grammar(
        family="rope",
        numbers={"b": "batch", "s": "seq", "h": "heads", "hk": "kv_heads", "d": "head_dim"},
        required=("s", "h", "d"),
        flags=("interleaved",),
        dtypes=DTYPES,
        same={"kv_heads": "heads"},
    )
    is_cold = True
    """It is cold: it makes one pass over the output of a projection."""

    row_field, row_inputs = "batch", 2
    row_outputs: ClassVar[Mapping[str, int]] = {"q": 0, "k": 0}

    batch: int
    seq: int
    heads: int
    head_dim: int
    kv_heads: int = 0
    dtype: str = "f16"
    interleaved: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_pairs("rope", self.head_dim)

    @property
    def elements(self) -> int:
        """Number of elements of q and k together."""
        return self.batch * self.seq * (self.heads + self.kv_heads) * self.head_dim

    @property
    def flops(self) -> float:
        """FLOPs: 3 per element: two products and a sum."""
        return float(3 * self.elements)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, k, cos and sin read once, both outputs written once."""
        return float(2 * self.elements * self.element_bytes + self.seq * self.head_dim * _TABLE_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {"pairs": "(2 i, 2 i + 1)" if self.interleaved else "(i, i + head_dim / 2)", "theta": THETA}

    unplanted: ClassVar[str] = "every element affects an output"
    """Why `planted` changes no input, for the name of the check."""

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws q and k from N(0, 1), and makes the tables cos and sin of position * 10000^(-2 i / D). `planted`
        changes nothing: every element of an output depends on two of an input, so that a lost one shows anyway."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        q, k = (
            torch.randn((self.batch, self.seq, heads, self.head_dim), generator=generator, device=device).to(
                self.stored_as
            )
            for heads in (self.heads, self.kv_heads)
        )
        return (q, k, *make_tables(self.seq, self.head_dim, device))

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'q' and 'k' in fp64 (on a GPU for f16 and bf16: fp32); one sequence at a time."""
        import torch

        q, k, cos, sin = inputs
        dtype = reference_dtype((q, k))

        def rotate_all(x: torch.Tensor) -> torch.Tensor:
            rotated = (rotate(one.to(dtype), cos.to(dtype), sin.to(dtype), self.interleaved) for one in x)
            return torch.stack(list(rotated))

        return {"q": rotate_all(q), "k": rotate_all(k)}

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'q' and 'k' with products and sums in fp32, as the tables are, and rounds once to the dtype."""
        import torch

        q, k, cos, sin = inputs

        def rotate_all(x: torch.Tensor) -> torch.Tensor:
            return torch.stack([rotate(one.float(), cos, sin, self.interleaved).to(x.dtype) for one in x])

        return {"q": rotate_all(q), "k": rotate_all(k)}


def require_pairs(family: str, head_dim: int, name: str = "head_dim") -> None:
    """Raises WorkloadError, calling the field `name`, for a head dimension that is odd (elements are rotated in pairs)
    or above HEAD_DIM_MAX."""
    if head_dim % 2 or head_dim > HEAD_DIM_MAX:
        raise WorkloadError(
            f"{family} workload: {name} must be even, because elements are rotated in pairs, and at most "
            f"{HEAD_DIM_MAX}, got {head_dim}"
        )


def make_tables(positions: int, head_dim: int, device: str | torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tables of the rotation, cos and sin of position * THETA^(-2 i / D), each (positions, D / 2) in
    fp32."""
    import torch

    pair = torch.arange(head_dim // 2, dtype=torch.float64, device=device)
    position = torch.arange(positions, dtype=torch.float64, device=device)
    angle = position[:, None] * THETA ** (-2.0 * pair / head_dim)
    return angle.cos().float(), angle.sin().float()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Returns x (..., S, H, D) with each pair of elements rotated by cos and sin (S, D / 2), in torch's common dtype of
    the three. Pairs are (2 i, 2 i + 1) if `interleaved`, else (i, i + D / 2)."""
    import torch

    cos, sin = cos[:, None, :], sin[:, None, :]  # (S, 1, D / 2)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    pairs = (a * cos - b * sin, b * cos + a * sin)
    return torch.stack(pairs, dim=-1).flatten(-2) if interleaved else torch.cat(pairs, dim=-1)
