"""Samples blocks of one process from a prepared timer."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.rejection import MAX_REJECTED_IN_A_ROW, CompileWatch
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers.base import Timer
from pytest_attnperf.records import Samples

if TYPE_CHECKING:
    from pytest_attnperf.measure.timing import HiddenCheck


def sample_blocks(timer: Timer, rule: StoppingRule, watch: CompileWatch, hidden: HiddenCheck | None = None) -> Samples:
    """Measures blocks until `rule` is finished; blocks in which `watch` saw a compilation or tuning are measured again.

    hidden   judges the result of one more block, which runs like all others; the caller reads its report

    Raises CaseFailedError if more than MAX_REJECTED_IN_A_ROW batches in a row were rejected.
    """
    blocks: list[float] = []
    clock_mhz: list[float] = []
    rejected = in_a_row = 0
    with _collector_paused():
        while not rule.is_finished:
            judged = hidden is not None and hidden.begin(len(blocks))
            before = watch.count
            batch = timer.measure(min(rule.pairs_wanted, timer.max_pairs))
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
