"""What one file adds to a profile."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Problem, Source, StatsRow
from pytest_attnperf.tools.profilers.agents import AgentRow
from pytest_attnperf.tools.profilers.csv_table import CsvTable
from pytest_attnperf.tools.profilers.forms import Form, version_of


@dataclass(frozen=True)
class FilePart:
    """One file that was read; its dispatches are in the builder that the reader was given.

    zero            dispatches of no duration
    api_begin_ns    of a trace of host calls: when the first one began
    """

    source: Source
    problems: tuple[Problem, ...] = ()
    stats: tuple[StatsRow, ...] = ()
    counters: tuple[KernelCounter, ...] = ()
    agents: tuple[AgentRow, ...] = ()
    zero: int = 0
    api_begin_ns: int | None = None


def part_of(table: CsvTable, form: Form, rows: int, name: str = "") -> tuple[Source, tuple[Problem, ...]]:
    """How a file is listed, and what is wrong with it, an absence of rows included."""
    problems = table.problems.finished(rows)
    if not rows and not problems:
        nothing = "holds no row below the line of columns; did the program launch kernels while it was traced?"
        problems = (Problem(str(table.path), nothing),)
    return Source(str(table.path), name or form.name, version_of(form, table.columns), rows), problems
