"""Samples blocks of one process from a prepared timer."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.rejection import MAX_REJECTED_IN_A_ROW, CompileWatch
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.timer import Timer
from pytest_attnperf.records import Samples

if TYPE_CHECKING:
    from pytest_attnperf.measure.timing import HiddenCheck

CALL_US_LEAST = 1e-3
"""No device makes a call in less than a nanosecond."""

LONGER_MOST, JUDGED_US = 10.0, 100_000.0
"""Blocks that a timer reports as longer than so many times the time that it took for them, and in sum than 0.1 s, are
in another unit: measured blocks are a part of that time."""

SHORTER_MOST = 100.0
"""On a CPU a call takes about as long as the fastest of the calls before it was timed. Other units differ by 1,000."""


def sample_blocks(timer: Timer, rule: StoppingRule, watch: CompileWatch, hidden: HiddenCheck | None = None) -> Samples:
    """Measures blocks until `rule` is finished; blocks in which `watch` saw a compilation or tuning are measured again.

    hidden   judges the result of one more block, which runs like all others; the caller reads its report

    Raises CaseFailedError if more than MAX_REJECTED_IN_A_ROW batches in a row were rejected, or as `measure_pairs`.
    """
    blocks: list[float] = []
    clock_mhz: list[float] = []
    rejected = in_a_row = 0
    with _collector_paused():
        while not rule.is_finished:
            judged = hidden is not None and hidden.begin(len(blocks))
            before = watch.count
            batch = measure_pairs(timer, min(rule.pairs_wanted, timer.max_pairs))
            if judged and hidden is not None:
                hidden.end()
                continue
            if watch.count == before:
                in_a_row = 0
                blocks += batch
                clock_mhz += timer.clock_mhz
                for per_call_us in batch:
                    rule.add(per_call_us * timer.calls_per_block)
                continue
            rejected += len(batch)
            in_a_row += 1
            if in_a_row > MAX_REJECTED_IN_A_ROW:
                raise CaseFailedError(
                    f"recompiles in every sample: {rejected} blocks were measured and each compiled something "
                    f"({watch.description or 'nothing that has a name'}); fix the shapes, dtypes or Python values that "
                    "change from call to call, or compile for them in prepare()"
                )
    return Samples(
        block_us=tuple(blocks),
        calls_per_block=timer.calls_per_block,
        timer=timer.name,
        cache_state=timer.cache_state,
        rejected_blocks=rejected,
        note=timer.note,
        clock_mhz=tuple(clock_mhz) if len(clock_mhz) == len(blocks) else (),
    )


def measure_pairs(timer: Timer, pairs: int) -> list[float]:
    """Runs `pairs` pairs of blocks; returns us per call of each measured block. Raises CaseFailedError if the timer
    returns something else, or times that cannot be microseconds."""
    started_ns = clocks.first()
    times = timer.measure(pairs)
    took_us = (clocks.first() - started_ns) / 1e3
    said = f"timer {timer.name!r}: measure({pairs}) returned"
    wanted = "return a list of microseconds per call, one per pair"
    if not isinstance(times, list) or not all(isinstance(one, (float, int)) for one in times):
        raise CaseFailedError(f"{said} {_describe_kinds(times)}; {wanted}")
    if len(times) != pairs:
        raise CaseFailedError(f"{said} {len(times)} times; {wanted}")
    if not all(one >= CALL_US_LEAST for one in times):
        raise CaseFailedError(f"{said} {min(times):.3g} us per call, less than any device needs for a call; {wanted}")
    blocks_us = sum(times) * timer.calls_per_block
    if blocks_us > max(LONGER_MOST * took_us, JUDGED_US):
        raise CaseFailedError(
            f"{said} {max(times):.3g} us per call, {blocks_us:.3g} us for all calls of its blocks, but it took only "
            f"{took_us:.3g} us; {wanted}"
        )
    return times


def _describe_kinds(times: object) -> str:
    if not isinstance(times, list):
        return type(times).__name__
    return f"a list of {', '.join(dict.fromkeys(type(one).__name__ for one in times))}"


def require_reachable(samples: Samples, direct_us: float) -> None:
    """Raises CaseFailedError if the samples of a CPU timer are more than SHORTER_MOST times shorter than `direct_us`,
    the fastest call before they were timed; 0 for not known."""
    shortest_us = min(samples.block_us)
    if shortest_us * SHORTER_MOST < direct_us:
        raise CaseFailedError(
            f"timer {samples.timer!r} reports {shortest_us:.3g} us per call, but the fastest call before took "
            f"{direct_us:.3g} us: its times are no microseconds per call, or the call does less work when it is timed"
        )


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Disables Python's cycle collector, which may run for milliseconds, during the blocks."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
