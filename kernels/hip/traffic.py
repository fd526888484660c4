"""Counts the bytes of global memory that a step of the ladder names in its loads and stores: its traffic.

Caches serve a part of it, so it is no floor, and no counter of a device shows it. What lanes of one wave read from one
address at once counts once, as it is one transaction. Derived from the loops of the .hip files, for one head of D
dimensions, 2 bytes an element and 4 a score:

    all          2 D per row of q and of out, 4 per row of lse
    naive        per wave 2 D for each key that its last row sees, of k and of v; per visible (row, key) 4, written
                 D / Q_PART times, read D / Q_PART times in all, and D / OUT_PART times for the output
    others       per workgroup 2 D for each key of the tiles up to the last key that a row sees, of k and of v
    lds_tiles    also 4 per (row, key of these tiles), written once, and per visible (row, key), read three times
"""

from __future__ import annotations

from collections.abc import Iterable

from kernels.hip.steps import Config, LadderStep
from pytest_attnperf.workloads.prefill import Prefill

ELEMENT_BYTES, SCORE_BYTES = 2, 4
Q_PART_MAX, OUT_PART_MAX = 64, 32
"""Most elements of a row that a thread of step 1 holds at a time, of q and of its output."""

SCORE_READS = 3
"""How often step 2 reads the score of a visible key: for the largest, the sum and the weight."""


def count_traffic_bytes(step: LadderStep, workload: Prefill, config: Config, rows: int, wave: int) -> int:
    """Returns the bytes that one call of `step` loads from and stores to global memory.

    rows   query rows of a workgroup
    wave   lanes of a wave; 1 counts the loads of each lane of step 1 by itself
    """
    if "BLOCK_N" in step.constants:
        blocks = range(0, workload.seq_q, rows)
        per_head = sum(_count_workgroup(step, workload, config["BLOCK_N"], first, rows) for first in blocks)
    else:
        per_head = _count_naive(workload, min(wave, rows))
    own = 2 * ELEMENT_BYTES * workload.seq_q * workload.head_dim + SCORE_BYTES * workload.seq_q * workload.lse
    return workload.batch * workload.heads * (per_head + own)


def _count_naive(workload: Prefill, wave: int) -> int:
    """Returns the bytes of k, v and scores that step 1 moves for one head."""
    dim, visible = workload.head_dim, [_visible_keys(workload, row) for row in range(workload.seq_q)]
    shared = sum(max(visible[first : first + wave]) for first in range(0, workload.seq_q, wave))
    passes = 2 * (dim // _part_of_row(dim, Q_PART_MAX)) + dim // _part_of_row(dim, OUT_PART_MAX)
    return 2 * ELEMENT_BYTES * dim * shared + SCORE_BYTES * passes * sum(visible)


def _count_workgroup(step: LadderStep, workload: Prefill, block_n: int, first: int, rows: int) -> int:
    """Returns the bytes of k, v and, in step 2, scores that the workgroup from row `first` on moves."""
    own = range(first, min(first + rows, workload.seq_q))
    last = _visible_keys(workload, own[-1])
    tiles = min(-(-last // block_n) * block_n, workload.seq_kv)
    found = 2 * ELEMENT_BYTES * workload.head_dim * tiles
    return found + (SCORE_BYTES * _count_scores(workload, own, tiles) if step.scratch else 0)


def _count_scores(workload: Prefill, rows: Iterable[int], tiles: int) -> int:
    """Returns how many scores step 2 writes and reads for `rows`, over `tiles` keys of whole tiles."""
    return sum(tiles + SCORE_READS * _visible_keys(workload, row) for row in rows)


def _visible_keys(workload: Prefill, row: int) -> int:
    return max(0, row + 1 + workload.seq_kv - workload.seq_q) if workload.causal else workload.seq_kv


def _part_of_row(dim: int, most: int) -> int:
    """Returns the largest multiple of 8 up to `most` that divides `dim`: PartOfRow of 01_naive.hip."""
    return next(part for part in range(most, 0, -8) if dim % part == 0)
