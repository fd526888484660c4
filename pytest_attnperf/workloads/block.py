"""One attention layer: projection to q, k and v, rotation, a growing cache, attention over it, output projection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_math, block_inputs
from pytest_attnperf.workloads.base import Unread
from pytest_attnperf.workloads.block_inputs import BlockInputs
from pytest_attnperf.workloads.decode import QUERIES_MAX, Decode
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_dtype, require_grouped_heads, require_positive
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype, wide_dtype
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rope import THETA, require_pairs, rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import InPlace

DTYPES = ("f32", "f16", "bf16")
_TABLE_BYTES = 4


@dataclass(frozen=True)
class Block(FamilyWorkload):
    """One call of an attention layer; id e.g. `block-b1-s1-p4095-room8192-e4096-h32-hk8-d128-f16-bias`.

    batch      B
    seq        S, new tokens per sequence, at positions past ... past + S - 1 of every sequence
    heads      H, query heads
    head_dim   D, even, at most 512
    past       positions of the cache that are filled before the call
    room       positions of the cache; 0 means past + S
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    hidden     E, elements of a token, at least 2; 0 means H D
    dtype      'f32', 'f16' or 'bf16': everything but cos and sin
    bias       the projection to q, k and v has a bias
    out_bias   the output projection has a bias
    hostref    inputs are drawn on the CPU, planting included, and copied, and the reference is computed there in fp64:
               a GPU's result is then compared with a CPU's. On a CPU it changes nothing
    regime     '' or one of block_inputs.REGIMES: values that are difficult for a kernel
    layers     calls of the layer one after the other, on prompts (`past` 0) and ordinary values: x + out of one is x of
               the next. They share weights, as ALBERT's do (arXiv:1909.11942), and the rows of the caches, so what a
               stack holds at a time beyond its inputs is what one layer needs

    Inputs are contiguous: x (B, S, E); w_qkv ((H + 2 Hk) D, E), whose rows are the query heads, then the key heads,
    then the value heads; w_out (E, H D); with `bias` b_qkv ((H + 2 Hk) D); with `out_bias` b_out (E); k_cache and
    v_cache (B, room, Hk, D); cos and sin fp32 (room, D / 2), a row per position. The steps, with y W^T for a projection
    as in torch.nn.Linear:

        q, k, v = x w_qkv^T + b_qkv, cut into heads
        q, k    rotated by their positions: pairs (i, i + D / 2), as `workloads.rope.rotate`
        k, v    written to rows past ... past + S - 1 of the caches, so a cache holds rotated keys
        a       softmax(q k^T / sqrt(D)) v over the cache; the token at position t sees keys 0 ... t
        out     a (B, S, H D) w_out^T + b_out

    Outputs are 'out' (B, S, E), and 'k' and 'v' (B, S, Hk, D), the new rows of the caches, all of the last layer. A
    call changes only these rows (`in_place`), and reads none of them before writing it, so a second call gives the
    same. Before the first call, rows `past` and later hold large values, and NaN
    and Inf in planted inputs (`unread`).

    Raises WorkloadError naming the field and what is allowed.
    """

    grammar = Grammar(
        family="block",
        numbers={
            "b": "batch",
            "s": "seq",
            "p": "past",
            "room": "room",
            "e": "hidden",
            "h": "heads",
            "hk": "kv_heads",
            "d": "head_dim",
            "l": "layers",
        },
        required=("s", "h", "d"),
        flags=("bias", "out_bias", "hostref"),
        dtypes=DTYPES,
        choices={"regime": tuple(block_inputs.REGIMES)},
        same={"kv_heads": "heads"},
        zeros=("past", "room", "kv_heads", "hidden"),
        unsaid=("bias", "out_bias", "hostref", "regime"),
    )

    batch: int
    seq: int
    heads: int
    head_dim: int
    past: int = 0
    room: int = 0
    kv_heads: int = 0
    hidden: int = 0
    dtype: str = "f16"
    bias: bool = False
    hostref: bool = False
    regime: str = ""
    out_bias: bool = False
    layers: int = 1

    def __post_init__(self) -> None:
        sizes = ("batch", "seq", "heads", "head_dim", "layers")
        require_positive("block", ((name, getattr(self, name)) for name in sizes))
        for name in self.grammar.zeros:
            _require_count(name, getattr(self, name))
        self._fill_in()
        require_dtype("block", self.dtype, DTYPES)
        if self.hidden < 2:
            raise WorkloadError(
                f"block workload: hidden must be at least 2, got {self.hidden}: an output token of one element proves "
                "nothing, and the large tokens of a check would overflow the dtype"
            )
        if self.room < self.past + self.seq:
            raise WorkloadError(
                f"block workload: cache too small: room must be at least past + seq = {self.past} + {self.seq} = "
                f"{self.past + self.seq}, got room={self.room}"
            )
        require_grouped_heads("block", self.heads, self.kv_heads)
        require_pairs("block", self.head_dim)
        block_inputs.require_regime(self.regime, self.dtype)
        if self.layers > 1 and (self.past or self.regime):
            raise WorkloadError(
                f"block workload: layers={self.layers} is for prompts of ordinary values, without p and a regime, got "
                f"p={self.past}{f' and {self.regime}' * bool(self.regime)}: each layer would need rows of its own"
            )

    def _fill_in(self) -> None:
        self._set_field("room", self.room or self.past + self.seq)
        self._set_field("hidden", self.hidden or self.heads * self.head_dim)
        super()._fill_in()

    @property
    def is_decode(self) -> bool:
        """True if the call adds at most QUERIES_MAX tokens to a cache that was filled before, so that its attention is
        a decode."""
        return self.past > 0 and self.seq <= QUERIES_MAX

    @property
    def length(self) -> int:
        """Positions that are filled after the call: past + S."""
        return self.past + self.seq

    @property
    def cache_state(self) -> str:
        """'cold' for decode, whose weights and cache the other layers evict from every cache, else 'hot'."""
        return "cold" if self.is_decode else "hot"

    def _implied_values(self) -> dict[str, object]:
        return {**super()._implied_values(), "room": self.length, "hidden": self.heads * self.head_dim, "layers": 1}

    def definition(self) -> dict[str, Any]:
        """Returns the definition; a single layer is not said, because entries that are older than the field lack it."""
        return {name: value for name, value in super().definition().items() if (name, value) != ("layers", 1)}

    def _option_words(self) -> list[str]:
        """Returns the words of the id after its dtype: the flags that are set, then the regime."""
        return sorted(super()._option_words(), key=lambda word: word == self.regime)

    @property
    def attention(self) -> Prefill | Decode:
        """The attention inside the layer as a workload: a causal prefill of S queries over `length` keys, or the decode
        of S tokens over a cache of `room`, of which the first `length` keys exist."""
        sizes = (self.batch, self.room if self.is_decode else self.seq, self.heads, self.head_dim)
        if self.is_decode:
            return Decode(*sizes, queries=self.seq, kv_heads=self.kv_heads, dtype=self.dtype)
        return Prefill(*sizes, seq_kv=self.length, kv_heads=self.kv_heads, dtype=self.dtype, causal=True)

    @property
    def rows_qkv(self) -> int:
        """Rows of w_qkv: (H + 2 Hk) D."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def visible_pairs(self) -> int:
        """Number of (new token, key) pairs of one head and sequence: each token sees the filled keys, earlier new ones,
        and its own."""
        return self.seq * self.past + self.seq * (self.seq + 1) // 2

    @property
    def flops(self) -> float:
        """FLOPs of all layers: 2 per weight and token for both projections, 4 head_dim per visible pair and head for
        attention; rotation, biases, softmax and sums of layers are not counted."""
        projections = 2 * self.batch * self.seq * self.hidden * (self.rows_qkv + self.heads * self.head_dim)
        attention = 4 * self.head_dim * self.visible_pairs * self.heads * self.batch
        return float(self.layers * (projections + attention))

    @property
    def bytes_min(self) -> float:
        """Least bytes moved, by any number of layers: x, weights, biases, the filled rows of both caches and the table
        rows of the new positions read once; out and the new rows of both caches written once. Intermediate results need
        not be moved."""
        tokens = self.batch * self.seq
        weights = self.hidden * (self.rows_qkv + self.heads * self.head_dim)
        weights += self.rows_qkv * self.bias + self.hidden * self.out_bias
        caches = 2 * self.batch * self.length * self.kv_heads * self.head_dim
        elements = 2 * tokens * self.hidden + weights + caches
        return float(elements * self.element_bytes + self.seq * self.head_dim * _TABLE_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {
            "pairs": "(i, i + head_dim / 2)",
            "theta": THETA,
            "scale": "1/sqrt(head_dim)",
            "mask_alignment": "bottom-right",
            "cached_keys": "rotated",
        }

    @property
    def in_place(self) -> InPlace:
        """Inputs that a call may write to: both caches, in the rows of the new tokens."""
        first = 3 + self.bias + self.out_bias
        return {number: partial(_new_rows, start=self.past, stop=self.length) for number in (first, first + 1)}

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the rows of both caches that hold no key before the call: it writes some, and reads none of them
        before."""
        parts, first = self.split_inputs(inputs), 3 + self.bias + self.out_bias
        return (
            Unread(first, "k_cache", find_rows_from(self.past, parts.k_cache)),
            Unread(first + 1, "v_cache", find_rows_from(self.past, parts.v_cache)),
        )

    def split_inputs(self, inputs: Tensors) -> BlockInputs:
        """Returns `inputs`, in the order of `Block`'s docstring, by name; b_qkv and b_out are None without a bias."""
        x, w_qkv, w_out, *others = inputs
        b_qkv = others.pop(0) if self.bias else None
        b_out = others.pop(0) if self.out_bias else None
        return BlockInputs(x, w_qkv, w_out, b_qkv, b_out, *others)

    @property
    def unplanted(self) -> str:
        """Why `planted` changes no input; '' where it does."""
        return f"inputs of the regime {self.regime} are the values themselves" if self.regime else ""

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes x, weights, caches and tables on `device`; their distributions are those of
        `block_inputs.make_inputs`. With `planted`, rows of x make single keys dominate. A regime is never planted:
        `planted` changes nothing there."""
        return block_inputs.make_inputs(self, seed, device, planted=planted)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out', 'k' and 'v': on a CPU or for f32 in fp64, else (f16, bf16 on a GPU) in fp32 without TF32;
        with `hostref` in fp64 on the CPU."""
        return _compute_reference(self, inputs)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out', 'k' and 'v' with the result of every step rounded to the workload's dtype."""
        return _compute_plain(self, inputs)


def find_rows_from(first: int, cache: torch.Tensor) -> torch.Tensor:
    """Returns a mask (1, room, 1, ...) of a cache (B, room, ...), True in the rows from `first` on."""
    import torch

    rows = torch.arange(cache.shape[1], device=cache.device) >= first
    return rows.view(1, -1, *(1 for _ in cache.shape[2:]))


def _new_rows(cache: torch.Tensor, *, start: int, stop: int) -> torch.Tensor:
    return cache[:, start:stop]


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        meant = {"past": "positions already filled", "room": "past + seq", "kv_heads": "heads"}
        zero = meant.get(name, "heads * head_dim")
        allowed = f"a count of {zero}, 0 or more" if name == "past" else f"a positive integer, or 0 for {zero}"
        raise WorkloadError(f"block workload: {name} must be {allowed}, got {value!r}")


TOKENS_AT_ONCE = 8192
"""Rows of one product: 8192 times (H + 2 Hk) D in fp32 are 200 MB in LLaMA-3 8B."""


def _compute_reference(block: Block, inputs: Tensors) -> Outputs:
    """Computes 'out', 'k' and 'v' in `reference_dtype`; with `hostref` from copies on the CPU, and copies them back."""
    device = inputs[0].device
    if block.hostref:
        inputs = tuple(tensor.cpu() for tensor in inputs)
    # Tables are fp32 in every dtype, so they do not decide the precision of the rest.
    dtype = reference_dtype(inputs[:-2])
    return {name: output.to(device) for name, output in _compute_layers(block, inputs, dtype).items()}


def _compute_plain(block: Block, inputs: Tensors) -> Outputs:
    """Computes 'out', 'k' and 'v' in the workload's dtype: products are summed in fp32 and rounded once, rotation is
    fp32 and rounded once, attention rounds as `attention_math.compute_plain` does."""
    return _compute_layers(block, inputs, inputs[0].dtype)


def _compute_layers(block: Block, inputs: Tensors, dtype: torch.dtype) -> Outputs:
    """Computes 'out', 'k' and 'v' of the last layer. Sums between layers are rounded to `dtype`, as every step is."""
    parts = block.split_inputs(inputs)
    found = _compute_layer(block, parts, dtype)
    for _ in range(block.layers - 1):
        parts = parts._replace(x=parts.x.to(dtype) + found["out"])
        found = _compute_layer(block, parts, dtype)
    return found


def _compute_layer(block: Block, parts: BlockInputs, dtype: torch.dtype) -> Outputs:
    """Computes 'out', 'k' and 'v' of one layer: each step in fp32, or in fp64 if `dtype` is fp64, with its result
    rounded to `dtype`."""
    import torch

    with full_fp32_matmul(), torch.no_grad():
        qkv = project_tokens(parts.x, parts.w_qkv, parts.b_qkv, dtype)
        heads = qkv.view(block.batch, block.seq, -1, block.head_dim)
        q, k, v = torch.split(heads, [block.heads, block.kv_heads, block.kv_heads], dim=2)
        cos, sin = (table[block.past : block.length] for table in (parts.cos, parts.sin))
        q, k = (_rotate_heads(part, cos, sin, dtype) for part in (q, k))
        attended, problem = torch.empty_like(q), attention_math.AttentionProblem(causal=True, lse=False)
        for b in range(block.batch):
            keys, values = (
                torch.cat([cache[b : b + 1, : block.past].to(dtype), new[b : b + 1]], dim=1)
                for cache, new in ((parts.k_cache, k), (parts.v_cache, v))
            )
            attended[b] = attention_math.compute_plain(q[b : b + 1], keys, values, problem)["out"][0]
        out = project_tokens(attended.flatten(2), parts.w_out, parts.b_out, dtype)
        return {"out": out, "k": k.contiguous(), "v": v.contiguous()}


def project_tokens(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """Computes x (B, S, K) times weight (N, K) transposed, plus bias (N,) -> (B, S, N) in `dtype`."""
    import torch

    wide = wide_dtype(dtype)
    tokens, columns = x.flatten(0, 1), weight.to(wide).t()
    out = torch.empty((len(tokens), len(weight)), dtype=dtype, device=x.device)
    for start in range(0, len(tokens), TOKENS_AT_ONCE):
        rows = slice(start, start + TOKENS_AT_ONCE)
        product = tokens[rows].to(wide) @ columns
        out[rows] = product if bias is None else product.add_(bias.to(wide))
    return out.view(*x.shape[:2], -1)


def _rotate_heads(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rotates x (B, S, H, D), one sequence at a time, and returns it in `dtype`."""
    import torch

    wide = wide_dtype(dtype)
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    for b, one in enumerate(x):
        out[b] = rotate(one.to(wide), cos.to(wide), sin.to(wide), interleaved=False)
    return out
