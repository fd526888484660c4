"""One process's blocks -> one `ProcessSummary`: the only step that may see single blocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pytest_attnperf.records import ProcessSummary, Samples

STORED_BLOCKS_MAX = 64
"""Raw blocks kept per process: enough to look at a distribution, small enough to live in git."""

STORED_DIGITS = 5
"""Significant digits kept: an error of at most 0.005 %, far below the 0.3 % between two processes."""


def summarise(samples: Samples, device_id: str = "", process: str = "") -> ProcessSummary:
    """Summarise the blocks of one process, in microseconds per call.

    Minimum and mean are of all blocks. Over several placements `median_us` is the mean of each placement's median:
    places differ by more than blocks do, and a median over all would jump between two groups of places. Of the blocks
    themselves at most STORED_BLOCKS_MAX are kept, evenly spaced in measured order, with the clock of each. The clock is
    the median over all.

    Raises ValueError when there are no blocks, one is not a finite positive number, or they do not divide into their
    placements.
    """
    blocks = samples.block_us
    if not blocks:
        raise ValueError(f"a process needs at least one block, got none from timer {samples.timer!r}")
    for index, block in enumerate(blocks):
        if not (math.isfinite(block) and block > 0):
            raise ValueError(
                f"block {index} of {len(blocks)} from timer {samples.timer!r} is {block} us per call; "
                "a time must be finite and positive"
            )
    return ProcessSummary(
        median_us=_stored(_centre(blocks, samples.placements)),
        min_us=_stored(min(blocks)),
        mean_us=_stored(statistics.fmean(blocks)),
        block_us=tuple(_stored(block) for block in _thinned(blocks)),
        calls_per_block=samples.calls_per_block,
        timer=samples.timer,
        device_id=device_id,
        process=process,
        placements=samples.placements,
        clock_mhz=_stored(statistics.median(samples.clock_mhz)) if samples.clock_mhz else None,
        block_clock_mhz=tuple(_stored(mhz) for mhz in _thinned(samples.clock_mhz))
        if len(samples.clock_mhz) == len(blocks)
        else (),
        settings=samples.settings,
    )


def _centre(blocks: Sequence[float], placements: int) -> float:
    if placements < 1 or len(blocks) % placements:
        raise ValueError(f"{len(blocks)} blocks do not divide into {placements} placements")
    each = len(blocks) // placements
    return statistics.fmean(statistics.median(blocks[i * each : (i + 1) * each]) for i in range(placements))


def _stored(value: float) -> float:
    return float(f"{value:.{STORED_DIGITS}g}")


def _thinned(blocks: Sequence[float]) -> Sequence[float]:
    """At most STORED_BLOCKS_MAX blocks, evenly spaced, the first and the last among them."""
    if len(blocks) <= STORED_BLOCKS_MAX:
        return blocks
    last = len(blocks) - 1
    return [blocks[round(kept * last / (STORED_BLOCKS_MAX - 1))] for kept in range(STORED_BLOCKS_MAX)]
