"""Busy and idle times of dispatches, by one sweep over them in the order of their starts."""

from __future__ import annotations

import statistics
from array import array
from dataclasses import dataclass

from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.tools.profilers.dispatches import Dispatches


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
