"""Converts canonical paged and contiguous caches to the layouts that aiter's kernels read, in torch and untimed.

A canonical cache is (pages, page, Hk, D) with a block table (B, pages per sequence), see `workloads.paged_cache`. x
below is the number of elements in 16 bytes. The layouts were read in aiter's sources (`aiter/ops/attention.py`,
`aiter/ops/mha.py`, `op_tests/test_pa.py`). Results are contiguous and may be views of the argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16


@dataclass(frozen=True)
class PageLists:
    """The pages that each sequence reads, as one list; all tensors are int32.

    indptr       (B + 1,): index of each sequence's first entry in `indices`, then the number of entries
    indices      pages of the first sequence in order, then those of the second, ...
    last_lens    (B,): keys in the last page of each sequence
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    last_lens: torch.Tensor


def running_sums(counts: Sequence[int], device: torch.device) -> torch.Tensor:
    """Returns (len(counts) + 1,) int32: 0, then the sum of the counts up to and including each."""
    import torch

    return torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32, device=device)


def page_lists(table: torch.Tensor, lengths: Sequence[int], page: int) -> PageLists:
    """Returns the block table as lists of pages, without the entries past the end of each sequence. `lengths`: in
    keys."""
    import torch

    counts = [-(-length // page) for length in lengths]
    indices = torch.cat([row[:count] for row, count in zip(table, counts, strict=True)])
    last = [length - (count - 1) * page for length, count in zip(lengths, counts, strict=True)]
    last_lens = torch.tensor(last, dtype=torch.int32, device=table.device)
    return PageLists(running_sums(counts, table.device), indices, last_lens)


def smaller_pages(table: torch.Tensor, page: int, unit: int) -> torch.Tensor:
    """Returns the block table of the same memory in pages of `unit`, not `page`, keys: (B, P) -> (B, P * page /
    unit)."""
    import torch

    parts = page // unit
    within = torch.arange(parts, dtype=table.dtype, device=table.device)
    return (table[:, :, None] * parts + within).reshape(table.shape[0], -1)


def contiguous_table(batch: int, seq_kv: int, device: torch.device) -> torch.Tensor:
    """Returns (B, Skv) int32: the block table of a contiguous cache (B, Skv, Hk, D) in pages of one key."""
    import torch

    return torch.arange(batch * seq_kv, dtype=torch.int32, device=device).view(batch, seq_kv)


def vector_keys(cache: torch.Tensor) -> torch.Tensor:
    """Rearranges (pages, page, Hk, D) to (pages, Hk, D / x, page, x), x being the elements in 16 bytes."""
    pages, page, kv_heads, head_dim = cache.shape
    x = VECTOR_BYTES // cache.element_size()
    return _permute_dims(cache.view(pages, page, kv_heads, head_dim // x, x), (0, 2, 3, 1, 4))


def transposed_values(cache: torch.Tensor) -> torch.Tensor:
    """Rearranges (pages, page, Hk, D) to (pages, Hk, D, page), so that the keys of a page are side by side."""
    return _permute_dims(cache, (0, 2, 3, 1))


def shuffled_values(cache: torch.Tensor) -> torch.Tensor:
    """Rearranges (pages, page, Hk, D) to (pages, Hk, page / x, D, x), x being the elements in 16 bytes: the same
    element of x keys lies side by side."""
    pages, page, kv_heads, head_dim = cache.shape
    x = VECTOR_BYTES // cache.element_size()
    return _permute_dims(cache.view(pages, page // x, x, kv_heads, head_dim), (0, 3, 1, 4, 2))


def heads_before_keys(cache: torch.Tensor) -> torch.Tensor:
    """Rearranges (pages, page, Hk, D) to (pages, Hk, page, D)."""
    return _permute_dims(cache, (0, 2, 1, 3))


def scale_of_every_key(scale: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Returns the one scale (1,) of a canonical cache repeated to (pages, Hk, page) fp32: one per key and head."""
    pages, page, kv_heads, _ = cache.shape
    return scale.view(1, 1, 1).expand(pages, kv_heads, page).contiguous()


def _permute_dims(tensor: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    """Returns the tensor permuted and contiguous. 8-bit formats are copied as bytes, which every device can do."""
    import torch

    if tensor.element_size() == 1:
        return tensor.view(torch.uint8).permute(dims).contiguous().view(tensor.dtype)
    return tensor.permute(dims).contiguous()
