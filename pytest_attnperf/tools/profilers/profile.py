"""The common result of all readers, and the merging of the files of one run with checks against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, Problem, ProfileSource, StatsRow
from pytest_attnperf.tools.profilers.agents import match_agents
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder
from pytest_attnperf.tools.profilers.file_forms import COPY_TRACE, FilePart
from pytest_attnperf.tools.profilers.rocprofv3 import Total, find_disagreements

APART_S = 3600.0
"""Seconds between copies and kernels from which they belong to different runs."""

DOMAIN_KINDS = {"KERNEL_DISPATCH": "kernel", "MEMORY_COPY": "copy"}


@dataclass(frozen=True)
class Profile:
    """One run under a profiler, from all files that it wrote.

    dispatches   kernels, copies and memory sets of the traces; empty if there are only statistics
    stats        rows of *_stats files; for kernels they are used only without a trace, or to check it
    counters     hardware counters, medians over the dispatches of a kernel and grid
    problems     what could not be used, and what is used instead
    notes        sentences that a reader of the result needs
    api_begin_ns   start of the first host call of an API trace, on the clock of the dispatches; None without one
    """

    name: str
    sources: tuple[ProfileSource, ...]
    dispatches: Dispatches = field(default_factory=Dispatches)
    stats: tuple[StatsRow, ...] = ()
    agents: tuple[Agent, ...] = ()
    counters: tuple[KernelCounter, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    api_begin_ns: int | None = None


@dataclass
class RunParts:
    """Collects the files of one run.

    traced     kernels of its kernel trace
    copies     copies of its copy trace
    counted    kernels of a counter file, used if there is no kernel trace
    """

    name: str
    traced: DispatchesBuilder = field(default_factory=DispatchesBuilder)
    copies: DispatchesBuilder = field(default_factory=DispatchesBuilder)
    counted: DispatchesBuilder = field(default_factory=DispatchesBuilder)
    parts: list[FilePart] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, part: FilePart) -> None:
        """Adds the content of one file, and its problems."""
        self.parts.append(part)
        self.problems += part.problems

    def build_profile(self) -> Profile:
        """Returns the profile of all added files. Raises ProfileError if they hold neither a time nor a counter."""
        dispatches = self._merge_dispatches()
        counters = tuple(counter for part in self.parts for counter in part.counters)
        stats = self._merge_stats(dispatches)
        if not dispatches and not counters and not stats:
            found = "; ".join(map(str, self.problems[:6])) or "no file has times"
            raise ProfileError(f"{self.name}: nothing can be used: {found}")
        self._note_times(dispatches)
        begins = [part.api_begin_ns for part in self.parts if part.api_begin_ns is not None]
        return Profile(
            self.name,
            tuple(part.source for part in self.parts),
            dispatches,
            stats,
            self._match_agents(dispatches),
            counters,
            tuple(self.problems),
            tuple(self.notes),
            min(begins, default=None),
        )

    def _merge_dispatches(self) -> Dispatches:
        kernels = self.traced
        if len(self.counted) and not len(self.traced):
            kernels = self.counted
            self.notes.append("times are of a run that read counters: this slows kernels, and none overlap")
        copies, ordered = self.copies.build(), kernels.build()
        apart_s = _apart_ns(copies, ordered) / 1e9
        if not copies or apart_s > APART_S:
            if copies:
                text = f"its copies are {apart_s:.0f} s away from the kernels of the same run; files of different runs?"
                path = next(part.source.path for part in self.parts if part.source.form == COPY_TRACE.name)
                self.problems.append(Problem(path, text, "the copies are left out, the kernels are used"))
            return ordered
        for (shape, start, end), queue in zip(copies, copies.queue, strict=True):
            kernels.add(kernels.number_of(shape), start, end, kernels.queue_number_of(copies.queues[queue]))
        return kernels.build() if ordered else copies

    def _merge_stats(self, dispatches: Dispatches) -> tuple[StatsRow, ...]:
        """Returns the sums of API traces and the rows of *_stats files, without copies and API calls that a trace has.
        Rows that disagree with a trace become problems."""
        api = [row for part in self.parts if part.api_begin_ns is not None for row in part.stats]
        calls = {row.name: (row.spread.calls, row.spread.total_ns) for row in api}
        kept = list(api)
        traced = _sum_by_name(dispatches) if len(api) < sum(len(part.stats) for part in self.parts) else {}
        for part in self.parts:
            rows, path = part.stats, part.source.path
            if not rows or part.api_begin_ns is not None:
                continue
            domain = rows[0].domain
            if domain == "domain":
                rows_of = [row for row in rows if DOMAIN_KINDS.get(row.name) in traced]
                sums = {row.name: _add_totals(traced[DOMAIN_KINDS[row.name]]) for row in rows_of}
                self._compare_stats(path, rows_of, sums)
            elif domain in traced:
                self._compare_stats(path, rows, traced[domain])
            elif domain == "api" and any(row.name in calls for row in rows):
                shared = {row.name for row in rows} & calls.keys()
                self._compare_stats(
                    path, [row for row in rows if row.name in shared], {name: calls[name] for name in shared}
                )
                kept += [row for row in rows if row.name not in calls]
                continue
            if domain != "copy" or domain not in traced:
                kept += rows
        return tuple(kept)

    def _compare_stats(self, path: str, rows: Sequence[StatsRow], traced: dict[str, Total]) -> None:
        self.problems += find_disagreements(path, rows, traced)

    def _note_times(self, dispatches: Dispatches) -> None:
        zero = sum(part.zero for part in self.parts)
        if zero:
            self.notes.append(f"{zero} dispatches have no duration: they count as calls of 0 ns")
        overlapping = _count_overlaps(dispatches)
        if overlapping:
            self.notes.append(
                f"{overlapping} of {len(dispatches)} dispatches begin before an earlier one of the same device has "
                "ended: the sum of durations exceeds the elapsed time"
            )
        names = {row.name for part in self.parts if part.api_begin_ns is not None for row in part.stats}
        if any(name.startswith("hsa_") for name in names) and any(name.startswith("hip") for name in names):
            self.notes.append("HIP and HSA calls are both traced: HIP calls HSA, so their times overlap")

    def _match_agents(self, dispatches: Dispatches) -> tuple[Agent, ...]:
        rows = tuple(row for part in self.parts for row in part.agents)
        if not rows:
            return ()
        used = {shape.agent for shape in dispatches.shapes if shape.agent}
        agents, unknown = match_agents(rows, used)
        path = next(part.source.path for part in self.parts if part.agents)
        there = ", ".join(agent.name for agent in agents)
        for name in unknown:
            text = f"has no device {name!r}, which dispatches name; it has: {there}"
            self.problems.append(Problem(path, text, "their times are used, their device is unknown"))
        return agents


def _apart_ns(one: Dispatches, other: Dispatches) -> int:
    """Returns the ns from the end of one trace to the begin of the other; 0 if they overlap or one is empty."""
    if not one or not other:
        return 0
    return max(0, one.start_ns[0] - max(other.end_ns), other.start_ns[0] - max(one.end_ns))


def _sum_by_name(dispatches: Dispatches) -> dict[str, dict[str, Total]]:
    """Returns kind ('kernel', 'copy', ...) -> name -> (calls, nanoseconds)."""
    found: dict[str, dict[str, Total]] = defaultdict(dict)
    for shape, durations in zip(dispatches.shapes, dispatches.durations_by_shape(), strict=True):
        if durations:
            calls, total = found[shape.kind].get(shape.name, (0, 0))
            found[shape.kind][shape.name] = (calls + len(durations), total + sum(durations))
    return found


def _add_totals(totals: dict[str, Total]) -> Total:
    return sum(calls for calls, _ in totals.values()), sum(ns for _, ns in totals.values())


def _count_overlaps(dispatches: Dispatches) -> int:
    """Counts dispatches that begin before an earlier one of their device has ended."""
    devices = {name: number for number, name in enumerate(sorted({shape.agent for shape in dispatches.shapes}))}
    device_of = [devices[shape.agent] for shape in dispatches.shapes]
    ended = [0] * len(devices)
    count = 0
    for shape, start, end in zip(dispatches.shape, dispatches.start_ns, dispatches.end_ns, strict=True):
        device = device_of[shape]
        if start < ended[device]:
            count += 1
        if end > ended[device]:
            ended[device] = end
    return count
