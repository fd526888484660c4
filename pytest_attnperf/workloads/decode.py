"""Attention decode: one to eight new tokens per sequence over a cache of keys and values, contiguous or in pages."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import loud_rows, paged_cache, planted_keys
from pytest_attnperf.workloads.base import DTYPE_BYTES, Unread
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import HEAD_DIM_MAX, Grammar, require_dtype, require_positive
from pytest_attnperf.workloads.paged_cache import CACHE_DTYPES
from pytest_attnperf.workloads.parts import Part, last_rows, take, take_along
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.quantisation import PER_TENSOR

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16")
QUERIES_MAX = 8
_SIZES = {"b": "batch", "q": "queries", "kv": "seq_kv", "h": "heads", "hk": "kv_heads", "d": "head_dim"}
_OPTIONAL = {"page": "page", "cap": "cap", "w": "window"}
_FLAGS = ("sinks", "ragged", "lse")


@dataclass(frozen=True)
class DecodeInputs:
    """The inputs of one problem by name; None for inputs that the problem does not have.

    q           (B, Q, H, D)
    k, v        (B, Skv, Hk, D), or pages (pages, page, Hk, D)
    table       block table (B, ceil(Skv / page)) int32
    seq_lens    (B,) int32
    sinks       (H,) fp32
    k_scale, v_scale    (1,) fp32
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor | None
    seq_lens: torch.Tensor
    sinks: torch.Tensor | None
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None


@dataclass(frozen=True)
class Decode(FamilyWorkload):
    """One decode problem; id e.g. `decode-b16-q4-kv8192-h32-hk8-d128-page16-cap30-bf16-kvf8e4m3-sinks-ragged`.

    batch      B
    seq_kv     Skv, room for keys per sequence, and the length of the longest sequence
    heads      H, query heads
    head_dim   D, at most 512
    queries    Q, new tokens per sequence, at most 8 (speculative decoding): the last keys are their own. Token i of a
               sequence of L keys sees key j iff j <= i + L - Q
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    page       0 for a contiguous cache, or keys per page, a power of two of at least 16
    cap        0, or c: a scaled score s becomes c tanh(s / c) before the mask
    window     0, or the largest number of keys a token sees, its own included
    dtype      'f32', 'f16' or 'bf16': q, 'out' and, unless kv_dtype is given, keys and values
    kv_dtype   '' or one of paged_cache.CACHE_DTYPES: storage format of keys and values, value = stored * scale
    sinks      one more logit per head in the denominator of the softmax, without a value
    ragged     lengths differ, see `lengths`; B is at least 2 then
    lse        also return the natural logarithm of the denominator, sink included

    Inputs, in this order, all contiguous: q (B, Q, H, D); k and v, (B, Skv, Hk, D) or with pages (pages, page, Hk, D);
    with pages the block table (B, ceil(Skv / page)) int32; seq_lens (B,) int32; with sinks (H,) fp32; with kv_dtype
    k_scale and v_scale, fp32 (1,). Slots that hold no key are not read (`unread`), see `paged_cache`.
    Outputs are 'out' (B, Q, H, D) and, with `lse`, 'lse' (B, H, Q) in fp32.

    Raises WorkloadError naming the field and what is allowed.
    """

    grammar = Grammar(
        family="decode",
        numbers={**_SIZES, **_OPTIONAL},
        required=("kv", "h", "d"),
        flags=_FLAGS,
        dtypes=DTYPES,
        choices={"kv_dtype": tuple(CACHE_DTYPES)},
        same={"kv_heads": "heads"},
        zeros=tuple(_OPTIONAL.values()),
        unsaid=(*_OPTIONAL.values(), "kv_dtype", *_FLAGS),
    )
    is_cold = True
    """Decode is cold: between two decode steps of a layer, the other layers read the whole model."""

    row_field = "batch"

    batch: int
    seq_kv: int
    heads: int
    head_dim: int
    queries: int = 1
    kv_heads: int = 0
    page: int = 0
    cap: int = 0
    window: int = 0
    dtype: str = "f16"
    kv_dtype: str = ""
    sinks: bool = False
    ragged: bool = False
    lse: bool = False

    def __post_init__(self) -> None:
        self._fill_in()
        require_positive("decode", ((name, getattr(self, name)) for name in _SIZES.values()))
        used = ((name, getattr(self, name)) for name in _OPTIONAL.values())
        require_positive("decode", ((name, value) for name, value in used if value != 0 or isinstance(value, bool)))
        require_dtype("decode", self.dtype, DTYPES)
        if self.page:
            paged_cache.require_page_size("decode", self.page)
        self._require_rule(
            not self.heads % self.kv_heads, f"heads must be a multiple of kv_heads={self.kv_heads}", "heads"
        )
        self._require_rule(self.head_dim <= HEAD_DIM_MAX, f"head_dim must be at most {HEAD_DIM_MAX}", "head_dim")
        self._require_rule(self.queries <= QUERIES_MAX, f"queries (q) must be at most {QUERIES_MAX}", "queries")
        self._require_rule(
            self.seq_kv >= self.queries, f"seq_kv (kv) must be at least queries={self.queries}, whose keys it holds",
            "seq_kv",
        )  # fmt: skip
        self._require_rule(
            self.kv_dtype in ("", *CACHE_DTYPES),
            f"kv_dtype must be one of {', '.join(CACHE_DTYPES)}, or ''",
            "kv_dtype",
        )
        self._require_rule(not self.ragged or self.batch > 1, "ragged needs batch (b) of at least 2", "batch")

    def _require_rule(self, holds: bool, rule: str, field: str) -> None:
        if not holds:
            raise WorkloadError(f"decode workload: {rule}, got {field}={getattr(self, field)!r}")

    def _implied_values(self) -> dict[str, object]:
        return {**super()._implied_values(), "queries": 1}

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """Number of keys of each sequence: Skv; if ragged, Skv for one random sequence, for the others uniform over Skv
        / 4 ... Skv, but at least `queries`. Drawn by B and Skv alone, so that the work is the same for every seed and
        feature."""
        if not self.ragged:
            return (self.seq_kv,) * self.batch
        rng = random.Random(f"decode lengths {self.batch} {self.seq_kv}")
        drawn = [max(self.queries, rng.randint(-(-self.seq_kv // 4), self.seq_kv)) for _ in range(self.batch)]
        drawn[rng.randrange(self.batch)] = self.seq_kv
        return tuple(drawn)

    @property
    def cache_dtype(self) -> str:
        """Workload dtype, one of DTYPE_BYTES, in which keys and values are stored."""
        return CACHE_DTYPES.get(self.kv_dtype, self.dtype)

    @property
    def keys_seen(self) -> int:
        """Number of keys of the whole batch that at least one new token sees."""
        most = self.window + self.queries - 1 if self.window else self.seq_kv
        return sum(min(length, most) for length in self.lengths)

    @property
    def visible_pairs(self) -> int:
        """Number of (new token, key) pairs of one head that the mask lets through, over the whole batch."""
        last = range(self.queries)
        limit = self.window or self.seq_kv
        return sum(min(length - back, limit) for length in self.lengths for back in last)

    @property
    def flops(self) -> float:
        """FLOPs: 4 head_dim per visible pair and head: half for q k^T, half for the product with v; softmax is not
        counted."""
        return float(4 * self.head_dim * self.visible_pairs * self.heads)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, the keys and values that a token sees, their entries of the block table, lengths, sinks
        and scales read once; out and lse written once."""
        rows = self.batch * self.queries * self.heads
        cache = 2 * self.keys_seen * self.kv_heads * self.head_dim * DTYPE_BYTES[self.cache_dtype]
        words = self.batch + (self.heads if self.sinks else 0) + (2 if self.kv_dtype else 0) + (rows if self.lse else 0)
        if self.page:
            words += -(-self.keys_seen // self.page)
        return float(2 * rows * self.head_dim * DTYPE_BYTES[self.dtype] + cache + 4 * words)

    def _conventions(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if self.kv_dtype:
            said["quantisation"] = f"keys and values {PER_TENSOR}"
        if self.ragged:
            said["lengths"] = list(self.lengths)
        return {**said, "scale": "1/sqrt(head_dim)", "mask_alignment": "bottom-right"}

    def split_inputs(self, inputs: Tensors) -> DecodeInputs:
        """Returns `inputs`, in the order of `Decode`, as fields with names; None for those that the problem does not
        have."""
        left = list(inputs)
        q, k, v = (left.pop(0) for _ in range(3))
        table = left.pop(0) if self.page else None
        seq_lens = left.pop(0)
        sinks = left.pop(0) if self.sinks else None
        k_scale, v_scale = left if self.kv_dtype else (None, None)
        return DecodeInputs(q, k, v, table, seq_lens, sinks, k_scale, v_scale)

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the slots of both caches that hold no key: past the end of a sequence, or in a page that none
        owns."""
        parts = self.split_inputs(inputs)
        mask = paged_cache.find_unused_slots(parts.k, parts.table, parts.seq_lens)
        return (Unread(1, "k", mask), Unread(2, "v", mask))

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes the inputs on `device`: q, keys and values from N(0, 1), sinks from N(ln Skv, 1). Such a sink weighs
        about as much as all keys. Block tables hold the pages in an order drawn from the seed. With `planted`, rows of
        q and the length of some keys of every sequence change so that single keys dominate."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (self.batch, self.queries, self.heads, self.head_dim)
        key_shape = (self.batch, self.seq_kv, self.kv_heads, self.head_dim)
        q, k, v = (
            torch.randn(shape, generator=generator, device=device) for shape in (query_shape, key_shape, key_shape)
        )
        sinks = torch.randn(self.heads, generator=generator, device=device) + math.log(self.seq_kv)
        if planted:
            for b, length in enumerate(self.lengths):
                rows = slice(b, b + 1)
                loud = b == seed % self.batch and not self.cap and loud_rows.can_have_loud_row(self.dtype, lse=self.lse)
                planted_keys.plant_keys(
                    q[rows], k[rows, :length], causal=True, seed=seed + b, window=self.window, loud=loud
                )
        (k, k_scale), (v, v_scale) = (paged_cache.store(tensor, self.cache_dtype) for tensor in (k, v))
        seq_lens = paged_cache.make_seq_lens(self.lengths, device)
        if self.page:
            table = paged_cache.make_block_table(self.lengths, self.page, seed, device)
            k, v = (paged_cache.scatter(tensor, self.lengths, table, self.page) for tensor in (k, v))
            addressed: Tensors = (table, seq_lens)
        else:
            paged_cache.poison_past(k, self.lengths)
            paged_cache.poison_past(v, self.lengths)
            addressed = (seq_lens,)
        scales = (k_scale, v_scale) if k_scale is not None and v_scale is not None else ()
        return (q.to(self.stored_as), k, v, *addressed, *((sinks,) if self.sinks else ()), *scales)

    def take_rows(self, rows: Sequence[int]) -> Part:
        """Returns the problem of these sequences, by number and in this order, over room for the longest of them. Pages
        of the cache stay where they are."""
        lengths = tuple(self.lengths[row] for row in rows)
        part = replace(self, batch=len(rows), seq_kv=max(lengths), ragged=self.ragged and len(rows) > 1)
        vars(part)["lengths"] = lengths  # those drawn for a batch of this size are others
        per_sequence = -(-part.seq_kv // self.page) if self.page else part.seq_kv

        def take_inputs(whole: Tensors) -> Tensors:
            q, k, v, *rest = whole
            if not self.page:
                k, v = (take(tensor[:, :per_sequence], rows, 0) for tensor in (k, v))
            else:
                rest[0] = take(rest[0][:, :per_sequence], rows, 0)
            rest[bool(self.page)] = take(rest[bool(self.page)], rows, 0)
            return (take(q, rows, 0), k, v, *rest)

        return replace(take_along(part, rows, {}, self.row_outputs), inputs=take_inputs)

    def take_chunk(self) -> Part | None:
        """Returns the last new tokens of each sequence with all of its keys, as a problem; None for a single token."""
        if self.queries < 2:
            return None
        rows = last_rows(self.queries)
        part = replace(self, queries=len(rows))
        vars(part)["lengths"] = self.lengths
        return take_along(part, rows, {0: 1}, {"out": 1, "lse": 2})

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in fp64 on a CPU and for f32, on a GPU for f16 and bf16 in fp32 without TF32; one
        sequence at a time."""
        return self._compute_attention(self.split_inputs(inputs), reference_dtype(inputs[:3]))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in the workload's dtype: dequantised keys, scores and weights are rounded to
        it."""
        return self._compute_attention(self.split_inputs(inputs), inputs[0].dtype)

    def _compute_attention(self, parts: DecodeInputs, dtype: torch.dtype) -> Outputs:
        import torch

        wide = torch.float64 if dtype == torch.float64 else torch.float32
        out = torch.empty(parts.q.shape, dtype=dtype, device=parts.q.device)
        lse = torch.empty(self.batch, self.heads, self.queries, dtype=wide, device=parts.q.device)
        sinks = None if parts.sinks is None else parts.sinks.to(dtype)
        rules = ScoreRules(self.cap, self.window)
        with full_fp32_matmul(), torch.no_grad():
            for b, length in enumerate(self.lengths):
                k, v = (
                    paged_cache.load(self._read_keys(tensor, parts.table, b, length), scale, dtype)
                    for tensor, scale in ((parts.k, parts.k_scale), (parts.v, parts.v_scale))
                )
                out[b], lse[b] = attend(parts.q[b].to(dtype), k, v, sinks, rules)
        return {"out": out, "lse": lse} if self.lse else {"out": out}

    @staticmethod
    def _read_keys(cache: torch.Tensor, table: torch.Tensor | None, b: int, length: int) -> torch.Tensor:
        return cache[b, :length] if table is None else paged_cache.gather_one(cache, table, b, length)


@dataclass(frozen=True)
class ScoreRules:
    """Changes to scores before the softmax.

    cap       0, or c: a scaled score s becomes c tanh(s / c), as in Gemma 2 (arXiv:2408.00118, section 2)
    window    0, or the largest number of keys a query sees, its own included
    """

    cap: int
    window: int


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, rules: ScoreRules
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes q (Q, H, D), k and v (L, Hk, D), sinks (H,) or None, of one dtype -> out (Q, H, D) in it, lse (H, Q).

    Query i is at position L - Q + i, and sees the keys up to its own. A sink is one more logit in the denominator of
    every query of its head, without a value (gpt-oss, arXiv:2508.10925). `lse` is the natural logarithm of that
    denominator, sink included, in fp32 or wider.
    """
    import torch

    (queries, heads, head_dim), (length, kv_heads, _) = q.shape, k.shape
    stacked = q.permute(1, 0, 2).reshape(kv_heads, heads // kv_heads * queries, head_dim)
    scores = torch.matmul(stacked, k.permute(1, 2, 0)) * (1.0 / math.sqrt(head_dim))
    scores = scores.view(heads, queries, length)
    if rules.cap:
        scores = torch.tanh(scores / rules.cap) * rules.cap
    scores = scores.masked_fill(~visible_keys(queries, length, rules.window, q.device), float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(heads, queries, 1)], dim=-1)
    lse = torch.logsumexp(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :length]
    out = torch.matmul(weights.reshape(kv_heads, -1, length), v.permute(1, 0, 2))
    return out.view(heads, queries, head_dim).permute(1, 0, 2), lse


def visible_keys(queries: int, length: int, window: int, device: torch.device) -> torch.Tensor:
    """Returns a bool mask (Q, L), True where one of the last Q positions sees a key; with `window` only its last
    `window` keys."""
    import torch

    position = torch.arange(length - queries, length, device=device)[:, None]
    key = torch.arange(length, device=device)[None, :]
    return (key <= position) & (key > position - window) if window else key <= position
