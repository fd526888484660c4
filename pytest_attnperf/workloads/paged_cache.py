"""Keys and values in pages: block tables, dense sequences to pages and back, 8-bit caches, and checks of tables.

A paged cache is (pages, page_size, Hk, D). Key j of sequence b is at cache[table[b, j // page_size], j % page_size],
with the block table (B, pages_per_sequence) int32 and lengths seq_lens (B,) int32, as in PagedAttention
(arXiv:2309.06180). Slots that no sequence owns hold `poison_value`, which is large but finite. In planted inputs of
floating-point caches they hold NaN and Inf (see `garbage`), because a pool of pages is never cleared: a kernel must not
multiply them, not even by zero. Keys of a sequence that a window hides are not among them: they were written, and a
kernel may load them if it gives them no weight.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import FORMATS, dequantise, quantise

if TYPE_CHECKING:
    import torch

CACHE_DTYPES = {"kvf8e4m3": "f8e4m3", "kvf8e4m3fnuz": "f8e4m3fnuz", "kvi8": "i8"}
"""Word of an id -> workload dtype of keys and values, with one scale each, while queries are wider."""

POISON = 512.0
"""A key of this value scores hundreds with most queries, but q k^T stays finite in fp16 for head_dim up to 512."""


def require_page_size(family: str, page_size: int) -> None:
    """Raises WorkloadError unless `page_size` is a power of two of at least 16, so that pages fit the tiles of keys."""
    if page_size < 16 or page_size & (page_size - 1):
        raise WorkloadError(f"{family} workload: page must be a power of two of at least 16, got {page_size}")


def page_counts(lengths: Sequence[int], page_size: int) -> list[int]:
    """Returns how many pages each sequence of `lengths` keys needs."""
    return [-(-length // page_size) for length in lengths]


def count_pages(lengths: Sequence[int], page_size: int) -> int:
    """Returns the number of pages of the cache: those that sequences own, and one that no sequence owns."""
    return sum(page_counts(lengths, page_size)) + 1


def make_block_table(lengths: Sequence[int], page_size: int, seed: int, device: str) -> torch.Tensor:
    """Returns the block table (B, pages_per_sequence) int32: the pages of each sequence, in an order drawn from the
    seed. Entries past the end of a sequence name the page that no sequence owns."""
    import torch

    counts = page_counts(lengths, page_size)
    order = list(range(count_pages(lengths, page_size)))
    random.Random(seed).shuffle(order)
    spare = order.pop()
    rows, first = [], 0
    for count in counts:
        rows.append(order[first : first + count] + [spare] * (max(counts) - count))
        first += count
    return torch.tensor(rows, dtype=torch.int32, device=device)


def make_seq_lens(lengths: Sequence[int], device: str) -> torch.Tensor:
    """Returns the lengths as a tensor (B,) int32 on `device`."""
    import torch

    return torch.tensor(lengths, dtype=torch.int32, device=device)


def store(dense: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (`dense`, fp32 keys or values, in the dtype; its scale), the scale in fp32 (1,) for 8 bits, else None."""
    import torch

    if dtype in FORMATS:
        return quantise(dense, dtype)
    return dense.to(getattr(torch, TORCH_DTYPES[dtype])), None


def load(stored: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Returns stored keys or values in `dtype`: times `scale`, if there is one, in fp32 or wider, then rounded once."""
    import torch

    if scale is None:
        return stored.to(dtype)
    return dequantise(stored, scale, torch.promote_types(dtype, torch.float32)).to(dtype)


def poison_value(dtype: torch.dtype) -> float:
    """Returns the value that fills slots without a key: POISON, or the largest value of an 8-bit format."""
    names = [name for name, torch_name in TORCH_DTYPES.items() if str(dtype) == f"torch.{torch_name}"]
    return FORMATS[names[0]].largest_finite if names and names[0] in FORMATS else POISON


def poison_past(dense: torch.Tensor, lengths: Sequence[int]) -> None:
    """Overwrites, in place, the slots of (B, S, Hk, D) past the end of their sequence with `poison_value`."""
    import torch

    slots = torch.arange(dense.shape[1], device=dense.device)
    ends = torch.tensor(lengths, device=dense.device)
    filled = torch.full((), poison_value(dense.dtype), device=dense.device).to(dense.dtype)
    _as_bytes(dense)[slots[None, :] >= ends[:, None]] = _as_bytes(filled)


def scatter(dense: torch.Tensor, lengths: Sequence[int], table: torch.Tensor, page_size: int) -> torch.Tensor:
    """Returns a cache of `count_pages` pages (pages, page_size, Hk, D) with stored keys or values (B, S, Hk, D) at the
    places that `table` gives; all other slots hold `poison_value`."""
    import torch

    pages = count_pages(lengths, page_size)
    filled = torch.full((), poison_value(dense.dtype), device=dense.device).to(dense.dtype)
    cache = filled.expand(pages, page_size, *dense.shape[2:]).contiguous()
    for b, count in enumerate(page_counts(lengths, page_size)):
        owned = filled.expand(count * page_size, *dense.shape[2:]).contiguous()
        owned[: lengths[b]] = dense[b, : lengths[b]]
        _as_bytes(cache)[table[b, :count].long()] = _as_bytes(owned).view(count, page_size, *dense.shape[2:])
    return cache


def find_unused_slots(cache: torch.Tensor, table: torch.Tensor | None, seq_lens: torch.Tensor) -> torch.Tensor:
    """Returns a mask of the slots that hold no key, True there: pages that no sequence owns, and slots past the end of
    a sequence.

    cache       pages (pages, page_size, Hk, D), or without `table` (B, room, Hk, D)
    seq_lens    (B,)

    The mask is (pages, page_size, 1, 1), or (B, room, 1, 1).
    """
    import torch

    page_size = cache.shape[1]
    keys = torch.arange(page_size * (1 if table is None else table.shape[1]), device=cache.device)
    used = keys[None, :] < seq_lens[:, None]
    if table is not None:
        owned, used = used, torch.zeros(cache.shape[:2], dtype=torch.bool, device=cache.device)
        used[table.long()[:, keys // page_size][owned], (keys % page_size).expand_as(owned)[owned]] = True
    return ~used[..., None, None]


def gather(cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Returns keys or values (B, P * page_size, Hk, D) of all sequences from a cache (pages, page_size, Hk, D) and a
    block table (B, P); slots past the end hold anything. One torch operator, and the host does not read the device, so
    that it can be part of a timed call."""
    batch, per_sequence = table.shape
    taken = _as_bytes(cache)[table.long()].view(batch, per_sequence * cache.shape[1], *cache.shape[2:])
    return taken.view(cache.dtype)


def gather_one(cache: torch.Tensor, table: torch.Tensor, b: int, length: int) -> torch.Tensor:
    """Returns the first `length` keys or values (length, Hk, D) of sequence b from a cache in pages."""
    count = -(-length // cache.shape[1])
    return gather(cache, table[b : b + 1, :count])[0, :length]


def require_block_table(block_table: torch.Tensor, seq_lens: torch.Tensor, pages: int, page_size: int) -> None:
    """Raises UsageError for a wrong block table or wrong lengths, naming argument, entry and allowed range.

    block_table    (B, pages_per_sequence) int32, entries 0 ... pages - 1; those past the end of a sequence may be
                   anything
    seq_lens       (B,) int32, 1 ... pages_per_sequence * page_size
    Reads both on the host, so call it during preparation only.
    """
    import torch

    if block_table.dim() != 2 or block_table.dtype != torch.int32:
        raise UsageError(f"block_table must be int32 (B, pages_per_sequence), got {_format_tensor(block_table)}")
    batch, per_sequence = block_table.shape
    if seq_lens.shape != (batch,) or seq_lens.dtype != torch.int32:
        raise UsageError(f"seq_lens must be int32 ({batch},) as block_table has rows, got {_format_tensor(seq_lens)}")
    lengths = seq_lens.cpu()
    room = per_sequence * page_size
    _require_range("seq_lens", lengths, (lengths < 1) | (lengths > room), f"1 to {room}, {per_sequence} pages")
    table = block_table.cpu()
    used = torch.arange(per_sequence)[None, :] * page_size < lengths[:, None]
    _require_range("block_table", table, used & ((table < 0) | (table >= pages)), f"0 to {pages - 1}")


def _require_range(name: str, values: torch.Tensor, wrong: torch.Tensor, allowed: str) -> None:
    if bool(wrong.any()):
        index = tuple(wrong.nonzero()[0].tolist())
        entry = ", ".join(map(str, index))
        raise UsageError(f"{name}[{entry}] is {int(values[index])}, allowed is {allowed}")


def _format_tensor(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a uint8 view of 8-bit formats, which torch does not index on every device; other tensors unchanged."""
    import torch

    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
