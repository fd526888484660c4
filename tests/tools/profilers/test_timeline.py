from __future__ import annotations

import statistics
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder
from pytest_attnperf.tools.profilers.timeline import timeline_of

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=12)


def _dispatches(rows: list[tuple[int, int]]) -> Dispatches:
    builder = DispatchesBuilder()
    number = builder.number_of(KernelShape("k"))
    for start, duration in rows:
        builder.add(number, start, start + duration)
    return builder.dispatches()


@given(pairs)
@settings(max_examples=100, deadline=None)
def test_busy_time_is_every_nanosecond_counted(rows: list[tuple[int, int]]) -> None:
    """The union of intervals, counted nanosecond by nanosecond, is the busy time; the rest of the span is gaps."""
    found = timeline_of(_dispatches(rows))
    assert found is not None
    busy = {now for start, duration in rows for now in range(start, start + duration)}
    assert found.busy_ns == len(busy)
    assert found.span_ns == max(start + duration for start, duration in rows) - min(start for start, _ in rows)
    assert found.work_ns == sum(duration for _, duration in rows)
    assert found.idle_ns + found.busy_ns == found.span_ns
    assert found.overlap_ns == found.work_ns - len(busy)


def test_gaps_are_counted_between_dispatches() -> None:
    """Two gaps of 5 and 20 ns; what begins where something ends, or within it, leaves none."""
    found = timeline_of(_dispatches([(100, 10), (110, 5), (112, 1), (120, 10), (150, 10)]))
    assert found is not None
    assert (found.gaps, found.median_gap_ns, found.longest_gap_ns) == (2, statistics.median([5, 20]), 20)
    assert (found.busy_ns, found.span_ns, found.overlap_ns) == (35, 60, 1)
    assert "idles for 41.7% of the 6e-05 ms" in str(found)
    assert "2 gaps between dispatches, median 0.0125 us, longest 0.02 us; dispatches overlap by 1e-06 ms" in str(found)


def test_no_dispatch_no_timeline() -> None:
    """Without dispatches there is nothing to say, and without gaps no gap is said."""
    assert timeline_of(Dispatches()) is None
    alone = timeline_of(Dispatches((KernelShape("k"),), array("i", [0]), array("q", [5]), array("q", [5])))
    assert alone is not None
    assert (alone.idle_share, alone.median_gap_ns, alone.longest_gap_ns) == (0.0, None, None)
    assert "gap" not in str(alone)
