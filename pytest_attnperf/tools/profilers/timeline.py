"""When the GPU worked and when it waited: one sweep over the dispatches in the order they began."""

from __future__ import annotations

import statistics
from array import array
from dataclasses import dataclass

from pytest_attnperf.tools.profilers.dispatches import Dispatches


@dataclass(frozen=True)
class Timeline:
    """Nanoseconds. All devices and queues of a profile together: where two work at once, the time counts once.

    span_ns      from the first start to the last end
    busy_ns      in which at least one dispatch ran
    work_ns      durations added up, overlapping ones each in full
    gaps         times in which nothing ran between two dispatches
    median_gap_ns, longest_gap_ns   of these, None where there are none
    """

    span_ns: int
    busy_ns: int
    work_ns: int
    gaps: int
    median_gap_ns: float | None = None
    longest_gap_ns: int | None = None

    @property
    def idle_ns(self) -> int:
        """Within the span, in which nothing ran: all gaps added up."""
        return self.span_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        """By which the durations added up exceed the time in which something ran."""
        return self.work_ns - self.busy_ns

    @property
    def idle_share(self) -> float:
        """Of the span; 0 for an empty one."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0

    def __str__(self) -> str:
        text = (
            f"the GPU idles for {self.idle_share:.1%} of the {self.span_ns / 1e6:.6g} ms from first start to last end"
        )
        if self.median_gap_ns is not None and self.longest_gap_ns is not None:
            text += (
                f": {self.gaps:,} gaps between dispatches, median {self.median_gap_ns / 1e3:.4g} us, "
                f"longest {self.longest_gap_ns / 1e3:.4g} us"
            )
        if self.overlap_ns:
            text += f"; dispatches overlap by {self.overlap_ns / 1e6:.4g} ms"
        return text


def timeline_of(dispatches: Dispatches) -> Timeline | None:
    """Of dispatches ordered by their start, as `Dispatches` are; None without any."""
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
