"""What every reader gives, whatever wrote the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, Problem, Source, StatsRow
from pytest_attnperf.tools.profilers.dispatches import Dispatches


@dataclass(frozen=True)
class Profile:
    """One run under a profiler, of all files that it left.

    dispatches   kernels, copies and memory sets of the traces; empty where only statistics are there
    stats        rows of *_stats files; of the kernels they serve only where there is no trace, or to check it
    counters     hardware counters, medians over the dispatches of a kernel and grid
    problems     what could not be used, and what could
    notes        what a reader of the result must know, a sentence each
    api_begin_ns   when the first host call of an API trace began, on the clock of the dispatches; None without one
    """

    name: str
    sources: tuple[Source, ...]
    dispatches: Dispatches = field(default_factory=Dispatches)
    stats: tuple[StatsRow, ...] = ()
    agents: tuple[Agent, ...] = ()
    counters: tuple[KernelCounter, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    api_begin_ns: int | None = None
