"""One layer of multi-head latent attention (DeepSeek-V3, arXiv:2412.19437, section 2.1.1) over caches that grow.

It is the forward pass of class `MLA` in DeepSeek-V3's `inference/model.py`, whose names of weights it keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import mla_block_inputs, mla_block_math
from pytest_attnperf.workloads.base import DTYPE_BYTES, Unread
from pytest_attnperf.workloads.block import find_rows_from
from pytest_attnperf.workloads.block_scales import BLOCK, BLOCK_DTYPE, count_blocks
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_positive_or_none
from pytest_attnperf.workloads.mla import DECODE_QUERIES_MAX, DTYPES, Mla
from pytest_attnperf.workloads.precision import reference_dtype
from pytest_attnperf.workloads.rmsnorm import EPS
from pytest_attnperf.workloads.rope import THETA, require_pairs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import InPlace

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class MlaBlock(FamilyWorkload):
    """One call of a layer; id e.g. `mla_block-b1-s1-p4095-e7168-h16-q1536-d128-r64-c512-bf16-fp8w`.

    batch        B
    seq          S, new tokens per sequence, at positions past ... past + S - 1 of every sequence
    hidden       E, elements of a token, at least 2
    heads        H
    nope_dim     D, the part of a query and of a key that is not rotated
    rope_dim     R, even, the rotated part, which all heads' keys share
    latent_dim   C, kv_lora_rank: the row that keys and values of all heads are projected from
    q_rank       Q, q_lora_rank: the row that queries are projected from; 0 if they are projected from the token
    value_dim    Dv; 0 means D
    past, room   positions of the caches that are filled before the call, and that they have; room 0 means past + S
    dtype        'f16', 'bf16' or 'f32': everything but cos, sin and scales, and but weights with `fp8w`
    mask         scores get an additive input mask; it alone says which keys a token sees, in place of the causal mask
    fp8w         weights are f8e4m3, with one fp32 scale for each block of 128 x 128 (`block_scales`)
    expanded     the caches hold keys and values of heads, as those of DeepSeek's attn_impl 'naive', not latents

    Inputs, contiguous, in the order of `tensor_names`: x (B, S, E); wq_a (Q, E), wq_b (H (D + R), Q) or, without Q, wq
    (H (D + R), E); wkv_a (C + R, E); wkv_b (H (D + Dv), C), by head W_UK above W_UV; wo (E, H Dv); q_norm (Q) and
    kv_norm (C); with `fp8w` a scale of each weight; kv_cache (B, room, C) and pe_cache (B, room, R), or k_cache (B,
    room, H, D + R) and v_cache (B, room, H, Dv); cos and sin fp32 (room, R / 2); with `mask` mask (S, past + S), finite
    or -inf. The steps, with y W^T for a projection, T = past + S, and `norm` RMSNorm of a row with eps 1e-6:

        q_nope, q_pe   norm(x wq_a^T) wq_b^T, or x wq^T, by head
        c, k_pe        x wkv_a^T, cut; then c = norm(c), while k_pe is not normalised
        q_pe, k_pe     rotated by their positions: pairs (2 i, 2 i + 1), as in `apply_rotary_emb`
        caches         rows past ... T - 1 become c and k_pe; expanded: k = [W_UK c, k_pe] and v = W_UV c of every head
        a              softmax([q_nope, q_pe] k^T / sqrt(D + R) + mask) v over the first T rows
        out            a (B, S, H Dv) wo^T

    Without `mask` the token at position t sees keys 0 ... t. Latent caches give the same keys and values of heads as
    expanded ones; whether a backend projects them up or absorbs W_UK and W_UV is its own choice. YaRN's factor of the
    scores (mscale) is left out: it is 1 up to a model's first context length, and a constant beyond.

    Outputs are 'out' (B, S, E) and the new rows of the caches: 'kv' (B, S, C) and 'pe' (B, S, R), or 'k' and 'v'. A
    call changes only these rows (`in_place`), and reads none of them before writing it. Before the first call, rows
    `past` and later hold large values, and NaN
    and Inf in planted inputs (`unread`).

    Raises WorkloadError naming the field and what is allowed.
    """

    grammar = Grammar(
        family="mla_block",
        numbers={
            "b": "batch",
            "s": "seq",
            "p": "past",
            "room": "room",
            "e": "hidden",
            "h": "heads",
            "q": "q_rank",
            "d": "nope_dim",
            "dv": "value_dim",
            "r": "rope_dim",
            "c": "latent_dim",
        },
        required=("s", "e", "h", "d", "r", "c"),
        flags=("mask", "fp8w", "expanded"),
        dtypes=DTYPES,
        same={"value_dim": "nope_dim"},
        zeros=("past", "room", "q_rank"),
        unsaid=("mask", "fp8w", "expanded"),
    )

    batch: int
    seq: int
    hidden: int
    heads: int
    nope_dim: int
    rope_dim: int
    latent_dim: int
    q_rank: int = 0
    value_dim: int = 0
    past: int = 0
    room: int = 0
    dtype: str = "f16"
    mask: bool = False
    fp8w: bool = False
    expanded: bool = False

    def __post_init__(self) -> None:
        require_positive_or_none("mla_block", ((name, getattr(self, name)) for name in self.grammar.zeros))
        super().__post_init__()
        require_pairs("mla_block", self.rope_dim, "rope_dim")
        if self.hidden < 2:
            raise WorkloadError(
                f"mla_block workload: hidden must be at least 2, got {self.hidden}: an output token of one element "
                "proves nothing"
            )
        if self.room < self.length:
            raise WorkloadError(
                f"mla_block workload: cache too small: room must be at least past + seq = {self.past} + {self.seq} = "
                f"{self.length}, got room={self.room}"
            )

    def _fill_in(self) -> None:
        self._set_field("room", self.room or self.past + self.seq)
        super()._fill_in()

    def _implied_values(self) -> dict[str, object]:
        return {**super()._implied_values(), "room": self.length}

    @property
    def length(self) -> int:
        """T, positions that are filled after the call: past + S."""
        return self.past + self.seq

    @property
    def is_decode(self) -> bool:
        """True if the call adds at most DECODE_QUERIES_MAX tokens to caches that were filled before."""
        return self.past > 0 and self.seq <= DECODE_QUERIES_MAX

    @property
    def cache_state(self) -> str:
        """'cold' for decode, whose weights and caches the other layers evict from every cache, else 'hot'."""
        return "cold" if self.is_decode else "hot"

    @property
    def attention(self) -> Mla:
        """The attention inside the layer, over latents; causal unless one token, or a mask, makes that superfluous."""
        return Mla(
            self.batch,
            self.seq,
            self.heads,
            self.nope_dim,
            self.rope_dim,
            self.latent_dim,
            seq_kv=self.length,
            value_dim=self.value_dim,
            dtype=self.dtype,
            causal=self.seq > 1 and not self.mask,
        )

    @property
    def key_dim(self) -> int:
        """D + R, elements of a head's query and key."""
        return self.nope_dim + self.rope_dim

    @property
    def weight_shapes(self) -> dict[str, tuple[int, int]]:
        """Name -> (outputs, inputs) of each projection, in the order of the inputs."""
        queries = self.heads * self.key_dim
        first = {"wq_a": (self.q_rank, self.hidden), "wq_b": (queries, self.q_rank)}
        return {
            **(first if self.q_rank else {"wq": (queries, self.hidden)}),
            "wkv_a": (self.latent_dim + self.rope_dim, self.hidden),
            "wkv_b": (self.heads * (self.nope_dim + self.value_dim), self.latent_dim),
            "wo": (self.hidden, self.heads * self.value_dim),
        }

    @property
    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of both caches."""
        if self.expanded:
            sizes = {"k_cache": (self.heads, self.key_dim), "v_cache": (self.heads, self.value_dim)}
            return {name: (self.batch, self.room, *size) for name, size in sizes.items()}
        widths = {"kv_cache": self.latent_dim, "pe_cache": self.rope_dim}
        return {name: (self.batch, self.room, width) for name, width in widths.items()}

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the inputs in their order."""
        weights = tuple(self.weight_shapes)
        norms = ("q_norm", "kv_norm") if self.q_rank else ("kv_norm",)
        scales = tuple(f"{name}_scale" for name in weights) if self.fp8w else ()
        return ("x", *weights, *norms, *scales, *self.cache_shapes, "cos", "sin", *(("mask",) if self.mask else ()))

    def name_inputs(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Returns `inputs` by name. Raises ValueError if their number is wrong."""
        return dict(zip(self.tensor_names, inputs, strict=True))

    @property
    def flops(self) -> float:
        """FLOPs: 2 per weight and token for the projections around attention, and those of `attention`, the cheaper
        form, which has wkv_b; expanded: wkv_b for the new tokens, and 2 (D + R + Dv) per visible pair and head. With a
        mask every pair counts. Norms, rotation, scales and softmax do not."""
        tokens = self.batch * self.seq
        around = sum(rows * columns for name, (rows, columns) in self.weight_shapes.items() if name != "wkv_b")
        if not self.expanded:
            return 2.0 * tokens * around + self.attention.flops
        rows, columns = self.weight_shapes["wkv_b"]
        pairs = self.batch * self.heads * self.attention.visible_pairs
        return 2.0 * (tokens * (around + rows * columns) + pairs * (self.key_dim + self.value_dim))

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: x, weights with their scales, norms, mask, the filled rows of both caches and the table
        rows of the new positions read once; out and the new rows of both caches written once."""
        tokens, shapes = self.batch * self.seq, self.weight_shapes.values()
        per_position = sum(_count(shape[2:]) for shape in self.cache_shapes.values())
        elements = 2 * tokens * self.hidden + self.q_rank + self.latent_dim + self.batch * self.length * per_position
        elements += self.seq * self.length if self.mask else 0
        weights = sum(map(_count, shapes)) * (DTYPE_BYTES[BLOCK_DTYPE] if self.fp8w else self.element_bytes)
        floats = self.seq * self.rope_dim + (sum(_count(count_blocks(shape)) for shape in shapes) if self.fp8w else 0)
        return float(elements * self.element_bytes + weights + floats * _FLOAT_BYTES)

    def _conventions(self) -> dict[str, Any]:
        scales = {"weights": f"stored {BLOCK_DTYPE} * fp32 scale of its {BLOCK} x {BLOCK} block"} if self.fp8w else {}
        return {
            "pairs": "(2 i, 2 i + 1)",
            "theta": THETA,
            "eps": EPS,
            "scale": "1/sqrt(nope_dim + rope_dim)",
            "mask_alignment": "given" if self.mask else "bottom-right",
            "cached": "keys and values of heads" if self.expanded else "normalised latents, rotated k_pe",
            **scales,
        }

    @property
    def in_place(self) -> InPlace:
        """Inputs that a call may write to: both caches, in the rows of the new tokens."""
        numbers = map(self.tensor_names.index, self.cache_shapes)
        return {number: partial(_new_rows, start=self.past, stop=self.length) for number in numbers}

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the rows of both caches that hold no key before the call: it writes some, and reads none of them
        before."""
        given = self.name_inputs(inputs)
        return tuple(
            Unread(self.tensor_names.index(name), name, find_rows_from(self.past, given[name]))
            for name in self.cache_shapes
        )

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes x, weights, caches, tables and mask on `device`; their distributions are those of
        `mla_block_inputs.make_inputs`. With `planted`, rows of x make single keys dominate."""
        return mla_block_inputs.make_inputs(self, seed, device, planted=planted)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes the outputs in the naive form, by keys and values of every head: on a CPU or for f32 in fp64, else
        (f16, bf16 on a GPU) in fp32 without TF32."""
        return mla_block_math.compute_layer(self, inputs, reference_dtype(self._inputs_of_dtype(inputs)))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes the outputs in the naive form, with the result of every step rounded to the workload's dtype."""
        return mla_block_math.compute_layer(self, inputs, inputs[0].dtype)

    def _inputs_of_dtype(self, inputs: Tensors) -> Tensors:
        """Returns the inputs that are of the workload's dtype: tables and scales are fp32 in every dtype."""
        return tuple(tensor for tensor in inputs if tensor.dtype == inputs[0].dtype)


def _new_rows(cache: torch.Tensor, *, start: int, stop: int) -> torch.Tensor:
    return cache[:, start:stop]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
