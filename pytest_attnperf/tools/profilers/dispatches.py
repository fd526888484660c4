"""Many dispatches, stored by column: a million rows take about 20 MB, without an object per row. One sweep over them,
ordered by start, finds when the GPU worked and when it waited."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import eq, lt

from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.records.time_units import format_ns


@dataclass(frozen=True, eq=False)
class Dispatches:
    """Kernels, copies and memory sets ordered by their start; row i is element i of every column.

    shapes     each distinct shape once
    shape      index into `shapes`
    start_ns   nanoseconds, as `end_ns`; one clock per profile
    queues     streams or queues that they ran on, as a reader calls them ('stream 7'); the first, '', is an unknown one
    queue      index into `queues`
    """

    shapes: tuple[KernelShape, ...] = ()
    shape: array[int] = field(default_factory=lambda: array("i"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    queues: tuple[str, ...] = ("",)
    queue: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.shape)

    def __iter__(self) -> Iterator[tuple[KernelShape, int, int]]:
        """Yields (shape, start_ns, end_ns) of each dispatch, ordered by start."""
        for index, start, end in zip(self.shape, self.start_ns, self.end_ns, strict=True):
            yield self.shapes[index], start, end

    def select_range(self, begin: int, end: int) -> Dispatches:
        """Returns the dispatches from index `begin` up to `end`, which keep the numbers of their shapes."""
        columns = (self.shape[begin:end], self.start_ns[begin:end], self.end_ns[begin:end])
        return Dispatches(self.shapes, *columns, self.queues, self.queue[begin:end])

    def durations_by_shape(self) -> list[array[int]]:
        """Returns an array for each element of `shapes`: the ns of every dispatch of that shape, ordered by start."""
        found: list[array[int]] = [array("q") for _ in self.shapes]
        for index, start, end in zip(self.shape, self.start_ns, self.end_ns, strict=True):
            found[index].append(end - start)
        return found

    @property
    def total_ns(self) -> int:
        """Sum of all durations in ns; overlapping ones count in full."""
        return sum(self.end_ns) - sum(self.start_ns)


class DispatchesBuilder:
    """Collects dispatches in any order."""

    def __init__(self) -> None:
        self._numbers: dict[KernelShape, int] = {}
        self._shape: array[int] = array("i")
        self._start: array[int] = array("q")
        self._end: array[int] = array("q")
        self._queues: dict[str, int] = {"": 0}
        self._queue: array[int] = array("i")

    def number_of(self, shape: KernelShape) -> int:
        """Returns the number of a shape for `add`; a new shape gets the next number."""
        return self._numbers.setdefault(shape, len(self._numbers))

    def queue_number_of(self, queue: str) -> int:
        """Returns the number of a stream or queue for `add`; '', an unknown one, has 0."""
        return self._queues.setdefault(queue, len(self._queues))

    def add(self, number: int, start_ns: int, end_ns: int, queue: int = 0) -> None:
        """Adds one dispatch of the shape that `number_of` gave this number, on a queue by its number."""
        self._shape.append(number)
        self._start.append(start_ns)
        self._end.append(end_ns)
        self._queue.append(queue)

    def __len__(self) -> int:
        return len(self._shape)

    def build(self) -> Dispatches:
        """Returns all dispatches, ordered by start and then end."""
        starts, ends, queues = self._start, self._end, tuple(self._queues)
        if all(map(lt, starts, islice(starts, 1, None))):
            return Dispatches(tuple(self._numbers), self._shape[:], starts[:], ends[:], queues, self._queue[:])
        order = sorted(range(len(starts)), key=starts.__getitem__)
        ordered = array("q", map(starts.__getitem__, order))
        if any(map(eq, ordered, islice(ordered, 1, None))):
            order.sort(key=ends.__getitem__)
            order.sort(key=starts.__getitem__)
        return Dispatches(
            shapes=tuple(self._numbers),
            shape=array("i", map(self._shape.__getitem__, order)),
            start_ns=ordered,
            end_ns=array("q", map(ends.__getitem__, order)),
            queues=queues,
            queue=array("i", map(self._queue.__getitem__, order)),
        )


@dataclass(frozen=True)
class Timeline:
    """Busy and idle times in ns over all devices and queues of a profile; overlapping time counts once.

    span_ns      from the first start to the last end
    busy_ns      time in which at least one dispatch ran
    work_ns      sum of durations; overlapping ones count in full
    gaps         number of times in which nothing ran between two dispatches
    median_gap_ns, longest_gap_ns   of these, None if there are none
    """

    span_ns: int
    busy_ns: int
    work_ns: int
    gaps: int
    median_gap_ns: float | None = None
    longest_gap_ns: int | None = None

    @property
    def idle_ns(self) -> int:
        """Nanoseconds within the span in which nothing ran: the sum of all gaps."""
        return self.span_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        """Nanoseconds by which the sum of durations exceeds the busy time."""
        return self.work_ns - self.busy_ns

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the span; 0 for an empty one."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0

    def __str__(self) -> str:
        text = f"the GPU idles for {self.idle_share:.1%} of the {format_ns(self.span_ns)} from first start to last end"
        if self.median_gap_ns is not None and self.longest_gap_ns is not None:
            text += (
                f": {self.gaps:,} gaps between dispatches, median {format_ns(self.median_gap_ns)}, "
                f"longest {format_ns(self.longest_gap_ns)}"
            )
        if self.overlap_ns:
            text += f"; dispatches overlap by {format_ns(self.overlap_ns)}"
        return text


def compute_timeline(dispatches: Dispatches) -> Timeline | None:
    """Returns how long dispatches, ordered by start, kept the GPU busy or idle; None without dispatches."""
    if not len(dispatches):
        return None
    first = dispatches.start_ns[0]
    reached, busy = first, 0
    gaps = array("q")
    for start, end in zip(dispatches.start_ns, dispatches.end_ns, strict=True):
        if start > reached:
            gaps.append(start - reached)
            busy += end - start
            reached = end
        elif end > reached:
            busy += end - reached
            reached = end
    return Timeline(
        span_ns=reached - first,
        busy_ns=busy,
        work_ns=dispatches.total_ns,
        gaps=len(gaps),
        median_gap_ns=statistics.median(gaps) if gaps else None,
        longest_gap_ns=max(gaps, default=None),
    )
