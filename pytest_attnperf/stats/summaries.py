"""Summarises one process's blocks as a `ProcessSummary`, the only step that may use single blocks; checks answers.

A worker may belong to another tree or a container, and its answers reach statistics, baselines and results.json. One
accepted NaN would end the run, or lose the file with every other case's result. So `Worker.decode_answer` checks here.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_attnperf.records import ErrorFigures, ProcessSummary, Rotation, Samples
from pytest_attnperf.records.pairs import Turn, TurnPlan

STORED_BLOCKS_MAX = 96
"""Raw blocks kept per process: all that it measures by default, so that its time can be recomputed from them."""

STORED_DIGITS = 5
"""Significant digits kept: an error of at most 0.005 %, far below the 0.3 % between two processes."""

DISTURBED = 0.1
"""Share of the median of its place; cache states differ by 2 to 5 %, for one of 16 kernels by 9 % (`l2_draws.py`)."""

CHANGED_IN = {"graph": 2}
"""By timer, the method version since which its times are comparable; all other timers have version 1."""


def method_of(timer: str) -> str:
    """Returns the version of a timer's method, e.g. '2' for 'graph'; times of another version are INCOMPARABLE."""
    return str(CHANGED_IN.get(timer, 1))


def summarise_process(samples: Samples, device_id: str = "", process: str = "") -> ProcessSummary:
    """Summarises the blocks of one process, in microseconds per call.

    Minimum and mean are over all blocks. `median_us` is their `centre_of`. At most STORED_BLOCKS_MAX blocks are kept,
    evenly spaced in measured order, with the clock of each. The clock is the median over all.

    Raises ValueError if there are no blocks, one is not finite and positive, or they do not divide into placements.
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
        median_us=_round_digits(centre_of(blocks, samples.placements)),
        min_us=_round_digits(min(blocks)),
        mean_us=_round_digits(statistics.fmean(blocks)),
        block_us=tuple(_round_digits(block) for block in _thin_evenly(blocks)),
        calls_per_block=samples.calls_per_block,
        timer=samples.timer,
        device_id=device_id,
        process=process,
        placements=samples.placements,
        clock_mhz=_round_digits(statistics.median(samples.clock_mhz)) if samples.clock_mhz else None,
        block_clock_mhz=tuple(_round_digits(mhz) for mhz in _thin_evenly(samples.clock_mhz))
        if len(samples.clock_mhz) == len(blocks)
        else (),
        settings=samples.settings,
        throttled_s=samples.throttled_s,
    )


def centre_of(blocks: Sequence[float], placements: int) -> float:
    """Returns the time of a process: the median of its blocks, or their mean if there are several memory placements.

    Placements and cache states differ by more than blocks do and form groups: a median would jump from one to another.
    A block counts as at most 10 % (DISTURBED) off the median of its placement, so no single one moves the mean much.

    Raises ValueError if the number of blocks is no multiple of `placements`.
    """
    if placements < 1 or len(blocks) % placements:
        raise ValueError(f"{len(blocks)} blocks do not divide into {placements} placements")
    if placements == 1:
        return statistics.median(blocks)
    each = len(blocks) // placements
    return statistics.fmean(
        min(max(block, middle * (1 - DISTURBED)), middle * (1 + DISTURBED))
        for place in range(placements)
        for middle in [statistics.median(blocks[place * each : (place + 1) * each])]
        for block in blocks[place * each : (place + 1) * each]
    )


def _round_digits(value: float) -> float:
    return float(f"{value:.{STORED_DIGITS}g}")


def _thin_evenly(blocks: Sequence[float]) -> Sequence[float]:
    """Returns at most STORED_BLOCKS_MAX blocks, evenly spaced, including the first and the last."""
    if len(blocks) <= STORED_BLOCKS_MAX:
        return blocks
    last = len(blocks) - 1
    return [blocks[round(kept * last / (STORED_BLOCKS_MAX - 1))] for kept in range(STORED_BLOCKS_MAX)]


REMEMBERS = 4.0
"""Slowdown on changing inputs that no honest kernel reaches: writing the inputs may move others out of the last-level
cache, which is at most 3.2 times as fast as memory (MI300X: 17.2 against 5.3 TB/s)."""


def is_slower_rotated(rotation: Rotation) -> bool:
    """Returns whether a call on changing inputs is slower than on fixed ones by more than caching and noise allow."""
    return rotation.rotating_us - rotation.noise_us > REMEMBERS * rotation.same_us


US_LEAST, US_MOST = 1e-6, 1e12
"""Microseconds per call: from a picosecond to eleven days. Ratios of such times neither overflow nor vanish."""

MHZ_MOST = 1e6
WHOLE_MOST = 2**63 - 1
"""The largest whole number that a file of results holds."""


def reason_not_believable(answer: Any) -> str:
    """Returns why a worker's answer cannot be true (a time of 0, NaN); '' if it can. It is a record or maps to records.

    Error figures of a check may be NaN and infinite, because a wrong output is.
    """
    return next(_odd_numbers(answer, ""), "") or next(_odd_times(answer), "")


def _odd_numbers(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where} is {value}, which is not a finite number"
    elif isinstance(value, int):
        if abs(value) > WHOLE_MOST:
            yield f"{where} has more than 63 bits"
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if not (isinstance(value, ErrorFigures) and isinstance(item, float)):
                yield from _odd_numbers(item, f"{where}.{field.name}".lstrip("."))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _odd_numbers(item, f"{where}[{str(key)[:40]!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for index, item in enumerate(value):
            if not isinstance(item, str):
                yield from _odd_numbers(item, f"{where}[{index}]")


def _odd_times(answer: Any) -> Iterator[str]:
    """Yields a sentence for each impossible time, clock or count in a worker's answer; statistics divide by these."""
    if isinstance(answer, Mapping):
        for item in answer.values():
            yield from _odd_times(item)
    elif isinstance(answer, Samples):
        yield from _odd_us(answer.block_us)
        yield from _odd_clocks(answer.clock_mhz)
        yield from _not_counts(calls_per_block=answer.calls_per_block)
        try:
            summarise_process(answer)
        except ValueError as error:
            yield str(error)
    elif isinstance(answer, Turn):
        yield from _odd_us([answer.us])
        yield from _odd_clocks([] if answer.clock_mhz is None else [answer.clock_mhz])
    elif isinstance(answer, Rotation):
        yield from _odd_us([answer.same_us])
    elif isinstance(answer, TurnPlan):
        yield from _not_counts(places=answer.places, calls_per_block=answer.calls_per_block)
        yield from _odd_us([answer.call_us])


def _odd_us(times_us: Sequence[float]) -> Iterator[str]:
    limits = f"times are from {US_LEAST:g} to {US_MOST:g} us"
    yield from (f"a time of {us} us per call; {limits}" for us in times_us if not US_LEAST <= us <= US_MOST)


def _odd_clocks(clocks_mhz: Sequence[float]) -> Iterator[str]:
    yield from (f"a clock of {mhz} MHz" for mhz in clocks_mhz if not 0 < mhz <= MHZ_MOST)


def _not_counts(**counts: int) -> Iterator[str]:
    yield from (f"{name} is {count}, must be at least 1" for name, count in counts.items() if count < 1)
