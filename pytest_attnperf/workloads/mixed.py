"""Attention of one step of a serving engine: prompts, chunks of prompts and single tokens over a paged K/V cache."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import loud_rows, paged_cache, planted_keys
from pytest_attnperf.workloads.attention_math import SCORE_BYTES_CPU, SCORE_BYTES_GPU, count_pairs
from pytest_attnperf.workloads.base import DTYPE_BYTES, Unread
from pytest_attnperf.workloads.batch_spec import BatchPart, format_batch, parse_batch
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_grouped_heads, require_head_dim, require_positive_or_none
from pytest_attnperf.workloads.parts import Part, last_of_each, last_rows, take
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.quantisation import PER_TENSOR

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f16", "bf16")
CACHES = ("kvf8e4m3", "kvi8")
"""Words of `paged_cache.CACHE_DTYPES` that this family accepts."""
CHUNK_BYTES = 1 << 30
"""Largest block of gathered keys that a reference holds at once, in its own precision."""
_INT32_BYTES = 4
_FP32_BYTES = 4
_BATCH = r"[0-9]*q[0-9][0-9a-z_]*"


@dataclass(frozen=True)
class Mixed(FamilyWorkload):
    """One launch over sequences of different sizes; id e.g. `mixed-2q2k_8q1s1k-h32-hk8-d128-page16-bf16`.

    batch      the sequences, in order, as `batch_spec` reads them: B sequences with T query tokens in total
    heads      H, query heads
    head_dim   D, at most 512
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    dtype      f16 or bf16: dtype of q, out and, without `cache`, keys and values
    page       keys per page of the cache, a power of two of at least 16
    window     largest number of keys a token sees, its own included, 0 for all: position - window < key <= position
    cap        soft cap c of the scaled scores, s -> c tanh(s / c), or 0 for none
    cache      '' or one of CACHES: the 8-bit format that keys and values are stored in, with one scale each
    sinks      one more score per query head in the denominator of the softmax

    The masks are causal, bottom-right aligned per sequence: token i of a sequence of q tokens and s keys is at position
    i + s - q and sees the keys up to it, its own included.

    Inputs, contiguous: q (T, H, D); k_cache and v_cache (pages, page, Hk, D); block_table (B, pages_per_sequence)
    int32; cu_seqlens_q (B + 1,) int32, the first token of each sequence, and T; seq_lens (B,) int32, the keys of each
    sequence; with `sinks` sinks (H,) fp32; with `cache` k_scale and v_scale, (1,) fp32, value = stored * scale. For
    the block table and unused slots, which are not read (`unread`), see `paged_cache`. The output is 'out' (T, H, D).

    Raises WorkloadError naming the field for a batch that does not parse, sizes that are not positive integers, heads
    that kv_heads does not divide, another dtype or cache, too large a head_dim, and invalid page sizes.
    """

    grammar = Grammar(
        family="mixed",
        numbers={"h": "heads", "hk": "kv_heads", "d": "head_dim", "page": "page", "w": "window", "cap": "cap"},
        required=("batch", "h", "d"),
        flags=("sinks",),
        dtypes=DTYPES,
        id_required=(),
        choices={"cache": CACHES},
        texts={"batch": ("batch", _BATCH), "": ("batch", _BATCH)},
        same={"kv_heads": "heads"},
        zeros=("window", "cap"),
    )
    is_cold = True
    """It is cold: other layers' caches were read since this layer's."""

    row_field = "batch"

    batch: str
    heads: int
    head_dim: int
    kv_heads: int = 0
    dtype: str = "f16"
    page: int = 16
    window: int = 0
    cap: int = 0
    cache: str = ""
    sinks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        paged_cache.require_page_size("mixed", self.page)
        require_grouped_heads("mixed", self.heads, self.kv_heads)
        require_head_dim("mixed", self.head_dim)
        require_positive_or_none("mixed", [("window", self.window), ("cap", self.cap)])
        if self.cache and self.cache not in CACHES:
            raise WorkloadError(f"mixed workload: cache must be '' or one of {', '.join(CACHES)}, got {self.cache!r}")

    def _fill_in(self) -> None:
        self._set_field("batch", format_batch(parse_batch(self.batch)))
        super()._fill_in()

    @classmethod
    def parse_line(cls, text: str) -> Self:
        """Returns the workload of a line such as `2q2k,8q1s1k,h=32,hk=8,d=128,bf16`; parts of the batch are joined in
        order. Defaults: page=16, dtype=f16. Raises WorkloadError for an invalid line."""
        return super().parse_line(_join_batch_words(text))

    def _first_words(self) -> list[str]:
        return [self.batch]

    @functools.cached_property
    def parts(self) -> tuple[BatchPart, ...]:
        """The batch as parts: each is a number of sequences with equal lengths."""
        return parse_batch(self.batch)

    @property
    def seqs_q(self) -> tuple[int, ...]:
        """Number of query tokens of each sequence, in order."""
        return tuple(part.q for part in self.parts for _ in range(part.count))

    @property
    def seqs_kv(self) -> tuple[int, ...]:
        """Number of keys of each sequence, in order."""
        return tuple(part.kv for part in self.parts for _ in range(part.count))

    @property
    def tokens(self) -> int:
        """T, the number of query tokens of all sequences."""
        return sum(part.count * part.q for part in self.parts)

    @property
    def cache_dtype(self) -> str:
        """Workload dtype, one of DTYPE_BYTES, in which keys and values are stored."""
        return paged_cache.CACHE_DTYPES[self.cache] if self.cache else self.dtype

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head, over all sequences, that the masks let through: a token at position
        p sees min(p + 1, window) keys."""
        return sum(
            part.count * (count_pairs(part.kv, self.window) - count_pairs(part.kv - part.q, self.window))
            for part in self.parts
        )

    @property
    def flops(self) -> float:
        """FLOPs: 4 head_dim per visible pair and head: half for q k^T, half for the product with v; softmax is not
        counted."""
        return float(4 * self.head_dim * self.heads * self.visible_pairs)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, keys and values that a token sees, their pages' entries of the block table,
        cu_seqlens_q, seq_lens, sinks and scales read once, and out written once."""
        seen = [(part, min(part.kv, part.q + self.window - 1) if self.window else part.kv) for part in self.parts]
        keys = sum(part.count * count for part, count in seen)
        entries = sum(
            part.count * ((part.kv - 1) // self.page - (part.kv - count) // self.page + 1) for part, count in seen
        )
        q_and_out = 2 * self.tokens * self.heads * self.head_dim * DTYPE_BYTES[self.dtype]
        cached = 2 * keys * self.kv_heads * self.head_dim * DTYPE_BYTES[self.cache_dtype]
        lengths = (2 * len(self.seqs_q) + 1) * _INT32_BYTES
        extras = (self.heads if self.sinks else 0) + (2 if self.cache else 0)
        return float(q_and_out + cached + entries * _INT32_BYTES + lengths + extras * _FP32_BYTES)

    def _conventions(self) -> dict[str, Any]:
        said = {"quantisation": PER_TENSOR} if self.cache else {}
        return {**said, "scale": "1/sqrt(head_dim)", "mask_alignment": "bottom-right"}

    def unread(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the slots of both caches that hold no key: past the end of a sequence, or in a page that none
        owns."""
        mask = paged_cache.find_unused_slots(inputs[1], inputs[3], inputs[5])
        return (Unread(1, "k_cache", mask), Unread(2, "v_cache", mask))

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws q, keys and values from N(0, 1) on `device`, pages in an order drawn from the seed; sinks N(0, 1). With
        `planted`, single keys are made to dominate rows of q in every sequence. The sinks of every other head are
        raised by the logarithm of the longest sequence, so that they hold about as much weight as its keys."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        lengths = self.seqs_kv
        q = torch.randn((self.tokens, self.heads, self.head_dim), generator=generator, device=device)
        dense_shape = (len(lengths), max(lengths), self.kv_heads, self.head_dim)
        k, v = (torch.randn(dense_shape, generator=generator, device=device) for _ in range(2))
        sinks = torch.randn(self.heads, generator=generator, device=device) if self.sinks else None
        if planted:
            for number, (part, tokens, sequences) in enumerate(self.iterate_slices()):
                queries = q[tokens].view(part.count, part.q, self.heads, self.head_dim)
                keys = k[sequences, : part.kv]
                loud = number == seed % len(self.parts) and not self.cap and loud_rows.can_have_loud_row(self.dtype)
                planted_keys.plant_keys(queries, keys, causal=True, seed=seed + number, window=self.window, loud=loud)
            if sinks is not None:
                sinks[::2] += math.log(max(lengths))
        table = paged_cache.make_block_table(lengths, self.page, seed, device)
        (k_stored, k_scale), (v_stored, v_scale) = (paged_cache.store(dense, self.cache_dtype) for dense in (k, v))
        caches = (paged_cache.scatter(stored, lengths, table, self.page) for stored in (k_stored, v_stored))
        starts = self._make_starts(device)
        extras = (tensor for tensor in (sinks, k_scale, v_scale) if tensor is not None)
        return (q.to(self.stored_as), *caches, table, starts, paged_cache.make_seq_lens(lengths, device), *extras)

    @property
    def row_count(self) -> int:
        """Number of sequences, each of which is computed independently of the others."""
        return len(self.seqs_q)

    def take_rows(self, rows: Sequence[int]) -> Part:
        """Returns the problem of these sequences, by number and in this order; pages of the cache stay where they
        are."""
        return self._take_sequences(rows, chunk=False)

    def take_chunk(self) -> Part | None:
        """Returns the last query tokens of each sequence with all of its keys; None if each has a single one."""
        return None if max(self.seqs_q) < 2 else self._take_sequences(range(self.row_count), chunk=True)

    def _take_sequences(self, numbers: Sequence[int], *, chunk: bool) -> Part:
        tokens = last_of_each(self.seqs_q, numbers, chunk=chunk)
        lengths = ((len(last_rows(self.seqs_q[n])) if chunk else self.seqs_q[n], self.seqs_kv[n]) for n in numbers)
        part = replace(self, batch=format_batch(BatchPart(1, q, kv) for q, kv in lengths))

        def take_inputs(whole: Tensors) -> Tensors:
            q, k_cache, v_cache, table, _, seq_lens, *extras = whole
            pages = take(table[:, : -(-max(part.seqs_kv) // self.page)], numbers, 0)
            starts = part._make_starts(str(q.device))
            return (take(q, tokens, 0), k_cache, v_cache, pages, starts, take(seq_lens, numbers, 0), *extras)

        return Part(part, take_inputs, lambda whole: {"out": take(whole["out"], tokens, 0)})

    def _make_starts(self, device: str) -> torch.Tensor:
        import torch

        return torch.tensor([0, *itertools.accumulate(self.seqs_q)], dtype=torch.int32, device=device)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' in fp64 on a CPU, in fp32 without TF32 on a GPU; dequantises 8-bit keys and values in that
        precision. Processes sequences of one size together, as many at once as CHUNK_BYTES and the scores allow."""
        return self._compute_attention(inputs, reference_dtype(inputs[:1]))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' with everything stored in the dtype of q, including dequantised keys and values."""
        return self._compute_attention(inputs, inputs[0].dtype)

    def iterate_slices(self) -> Iterator[tuple[BatchPart, slice, slice]]:
        """Yields (part of the batch, slice of its tokens in q, slice of its sequences in the block table), in order."""
        token = sequence = 0
        for part in self.parts:
            tokens, sequences = part.count * part.q, part.count
            yield part, slice(token, token + tokens), slice(sequence, sequence + sequences)
            token, sequence = token + tokens, sequence + sequences

    def _compute_attention(self, inputs: Tensors, dtype: torch.dtype) -> Outputs:
        import torch

        q, k_cache, v_cache, table, _, _, *extras = inputs
        sinks = extras[0] if self.sinks else None
        scales = extras[-2:] if self.cache else (None, None)
        out = torch.empty(q.shape, dtype=dtype, device=q.device)
        key_bytes = self.kv_heads * self.head_dim * dtype.itemsize
        with torch.no_grad(), full_fp32_matmul():
            for part, tokens, sequences in self.iterate_slices():
                shape = (part.count, part.q, self.heads, self.head_dim)
                queries, results = q[tokens].view(shape), out[tokens].view(shape)
                pages = table[sequences, : -(-part.kv // self.page)]
                at_once = max(1, CHUNK_BYTES // (part.kv * key_bytes))
                for some in (slice(first, first + at_once) for first in range(0, part.count, at_once)):
                    k, v = (
                        paged_cache.load(paged_cache.gather(cache, pages[some])[:, : part.kv], scale, dtype)
                        for cache, scale in zip((k_cache, v_cache), scales, strict=True)
                    )
                    results[some] = compute_attention(
                        queries[some].to(dtype), k, v, window=self.window, cap=self.cap, sinks=sinks
                    )
        return {"out": out}


def _join_batch_words(line: str) -> str:
    """Joins the words of a line that are parts of the batch, and puts them first: '2q2k,h=8,q1k' -> '2q2k_q1k,h=8'."""
    words = [word.strip() for word in line.split(",")]
    parts = [word for word in words if re.fullmatch(_BATCH, word)]
    return ",".join([*(["_".join(parts)] if parts else []), *(word for word in words if word not in parts)])


def compute_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    window: int = 0,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes q (b, Sq, H, D), k and v (b, Skv, Hk, D), of one dtype, Sq <= Skv -> out (b, Sq, H, D) of that dtype.

    Row i sees the keys up to i + Skv - Sq, the last `window` of them unless that is 0. With `cap` c a scaled score s
    becomes c tanh(s / c) (Gemma 2, arXiv:2408.00118), unless c is 0. `sinks` (H,) are scores of one more key per head,
    whose value is 0 (gpt-oss, arXiv:2508.10925). Chunks of rows keep scores within SCORE_BYTES_CPU or _GPU.
    """
    import torch

    (batch, seq_q, heads, _), seq_kv = q.shape, k.shape[1]
    limit = SCORE_BYTES_CPU if q.device.type == "cpu" else SCORE_BYTES_GPU
    rows = max(1, limit // (batch * heads * seq_kv * q.element_size()))
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    out = torch.empty_like(q)
    for first in range(0, seq_q, rows):
        chunk = q[:, first : first + rows].transpose(1, 2)
        hidden = hidden_keys(first + seq_kv - seq_q, chunk.shape[2], seq_kv, window, q.device)
        out[:, first : first + rows] = _attention_rows(chunk, keys, values, hidden, cap, sinks).transpose(1, 2)
    return out


def hidden_keys(position: int, rows: int, keys: int, window: int, device: torch.device) -> torch.Tensor:
    """Returns a bool mask (rows, keys), True where a row does not see a key. Row r sees its own key, `position` + r,
    and those before it; with a `window` above 0 only the last `window` of them."""
    import torch

    key = torch.arange(keys, device=device)[None, :]
    last = position + torch.arange(rows, device=device)[:, None]
    return (key > last) | (key <= last - window) if window else key > last


def _attention_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    hidden: torch.Tensor,
    cap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Computes q (b, H, rows, D), k and v (b, Hk, Skv, D) -> (b, H, rows, D); True in `hidden` (rows, Skv) masks a
    pair. `cap` and `sinks` as in `compute_attention`."""
    import torch

    batch, heads, rows, head_dim = q.shape
    kv_heads, seq_kv = k.shape[1], k.shape[2]
    # Heads that share a key head are stacked into rows of one product, so k and v are never repeated.
    stacked = q.reshape(batch, kv_heads, heads // kv_heads * rows, head_dim)
    scores = torch.matmul(stacked, k.transpose(-1, -2)).view(batch, heads, rows, seq_kv).mul_(1.0 / math.sqrt(head_dim))
    if cap:
        scores.div_(cap).tanh_().mul_(cap)
    scores.masked_fill_(hidden, float("-inf"))
    if sinks is not None:
        sink = sinks.to(scores.dtype)[None, :, None, None].expand(batch, heads, rows, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    weights = weights.reshape(batch, kv_heads, heads // kv_heads * rows, seq_kv)
    return torch.matmul(weights, v).view(batch, heads, rows, head_dim)
