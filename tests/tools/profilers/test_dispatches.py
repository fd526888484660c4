from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder

SHAPES = [KernelShape(name) for name in "abc"]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9))))
def test_any_order_becomes_that_of_time(rows: list[tuple[int, int, int]]) -> None:
    """Rows come ordered by start, then end; nothing is lost, and durations by shape add up."""
    builder = DispatchesBuilder()
    for shape, start, length in rows:
        builder.add(builder.number_of(SHAPES[shape]), start, start + length)
    dispatches = builder.build()
    found = [(shape.name, start, end) for shape, start, end in dispatches]
    assert sorted(found) == sorted((SHAPES[shape].name, start, start + length) for shape, start, length in rows)
    times = [(start, end) for _, start, end in found]
    assert times == sorted(times)
    assert dispatches.total_ns == sum(map(sum, dispatches.durations_by_shape())) == sum(row[2] for row in rows)


def test_what_was_built_does_not_change() -> None:
    """Adding to the builder later leaves it alone."""
    builder = DispatchesBuilder()
    builder.add(builder.number_of(SHAPES[0]), 1, 2)
    dispatches = builder.build()
    builder.add(builder.number_of(SHAPES[1]), 3, 4)
    assert (len(dispatches), dispatches.shapes) == (1, (SHAPES[0],))
    assert len(Dispatches()) == Dispatches().total_ns == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["", "stream 1", "stream 2"]))))
def test_a_dispatch_keeps_its_queue(rows: list[tuple[int, str]]) -> None:
    """Each row has its queue after sorting, and in a part of them."""
    builder = DispatchesBuilder()
    for start, queue in rows:
        builder.add(builder.number_of(SHAPES[0]), start, start + 1, builder.queue_number_of(queue))
    dispatches = builder.build()
    found = [
        (start, dispatches.queues[queue]) for start, queue in zip(dispatches.start_ns, dispatches.queue, strict=True)
    ]
    assert sorted(found) == sorted(rows)
    part = dispatches.select_range(1, 3)
    assert [part.queues[queue] for queue in part.queue] == [queue for _, queue in found[1:3]]
