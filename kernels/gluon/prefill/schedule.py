"""Which program works off which blocks of query rows: planned on the host, so that all end at about the same time.

A GPU's own order starts a program where another ends, and what one does at its end and the next at its beginning is
not hidden by products. Here there is one program a multiprocessor, and its blocks are dealt beforehand. No Triton is
imported.
"""

from __future__ import annotations

import functools
import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from kernels.triton.prefill.launch import PrefillSizes

CACHED_BYTES = 16 << 20
"""K and V that programs read at a time: a third of an H200's L2 cache of 50 MB, half of which is far from a program."""
BLOCK_COST = 2
"""What a block costs beside its tiles of keys, in such tiles: Q, the first product and the result."""


@functools.lru_cache(maxsize=64)
def deal_blocks(heads: int, tiles: tuple[int, ...], programs: int, heads_at_once: int) -> tuple[tuple[int, ...], ...]:
    """Returns, for each program, the numbers of its blocks, head * len(tiles) + block, in their order.

    heads            of all sequences
    tiles            of keys, for each block of a head
    heads_at_once    whose keys and values fit the cache together: their blocks are dealt before those of the next

    Among these, the blocks with most tiles go first, each to the program that has least to do.
    """
    longest_first = sorted(range(len(tiles)), key=lambda block: -tiles[block])
    dealt: list[list[int]] = [[] for _ in range(min(programs, heads * len(tiles)))]
    loads = [(0, program) for program in range(len(dealt))]
    for first in range(0, heads, heads_at_once):
        for block in longest_first:
            for head in range(first, min(first + heads_at_once, heads)):
                load, program = loads[0]
                heapq.heapreplace(loads, (load + tiles[block] + BLOCK_COST, program))
                dealt[program].append(head * len(tiles) + block)
    return tuple(map(tuple, dealt))


def count_tiles(seq_q: int, seq_kv: int, block_m: int, block_n: int, *, causal: bool) -> tuple[int, ...]:
    """Returns the tiles of keys of each block of rows under a bottom-right mask; at least one, if all is masked."""
    ends = [min(start + block_m + seq_kv - seq_q, seq_kv) if causal else seq_kv for start in range(0, seq_q, block_m)]
    return tuple(-(-max(end, 1) // block_n) for end in ends)


def schedule_of(q: torch.Tensor, shape: PrefillSizes, block_m: int, block_n: int, *, causal: bool) -> torch.Tensor:
    """Returns (programs, 1 + most) int32 on q's device: how many blocks a program works off, and which."""
    import torch

    programs = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else 2
    tiles = count_tiles(shape.seq_q, shape.seq_kv, block_m, block_n, causal=causal)
    group = shape.heads // shape.kv_heads
    cached = CACHED_BYTES // (2 * shape.seq_kv * shape.head_dim * q.element_size())
    return _table(shape.batch * shape.heads, tiles, programs, max(1, cached) * group, q.device)


@functools.lru_cache(maxsize=64)
def _table(heads: int, tiles: tuple[int, ...], programs: int, heads_at_once: int, device: torch.device) -> torch.Tensor:
    import torch

    dealt = deal_blocks(heads, tiles, programs, heads_at_once)
    most = max(map(len, dealt))
    rows = [[len(blocks), *blocks, *[0] * (most - len(blocks))] for blocks in dealt]
    return torch.tensor(rows, dtype=torch.int32, device=device)
