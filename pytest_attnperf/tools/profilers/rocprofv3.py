"""rocprofv3's CSV files of ROCm 6.2 to 7.x, `rocpd convert`'s included: traces, counters, statistics, devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.profiles import KernelShape, Spread, StatsRow
from pytest_attnperf.tools.profilers.agents import read_agents
from pytest_attnperf.tools.profilers.counters import PROCESS, read_counters
from pytest_attnperf.tools.profilers.csv_table import CsvTable, Problems
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_part import FilePart, part_of
from pytest_attnperf.tools.profilers.forms import (
    AGENTS,
    API_TRACE,
    COPY_TRACE,
    COUNTERS,
    KERNEL_TRACE,
    STATS,
    V1_STATS,
    Form,
)
from pytest_attnperf.tools.profilers.kernel_columns import KernelColumns, Report
from pytest_attnperf.tools.profilers.stats_files import direction, read_stats
from pytest_attnperf.tools.profilers.timed_rows import BEYOND, LONGEST_NS, add_rows, tell_duration, tell_times

TIMES = ("Start_Timestamp", "End_Timestamp")
STATS_NAMES = {"kernel": "kernel_stats", "copy": "memory_copy_stats", "api": "api_stats", "domain": "domain_stats"}


def read_kernels(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """A trace of kernels."""
    columns = KernelColumns(table)
    rows, zero = add_rows(table, builder, columns.used, columns.shape, *TIMES)
    return FilePart(*part_of(table, form, rows), zero=zero)


def read_copies(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """A trace of copies, whose device is the destination, or the source where that is the host."""
    used: list[str] = [
        name for name in ("Direction", "Source_Agent_Id", "Destination_Agent_Id") if name in table.columns
    ]

    def shape_of(values: Sequence[str], report: Report) -> KernelShape:
        row: dict[str, str] = dict(zip(used, values, strict=True))
        name = direction(row["Direction"])
        end = "Source_Agent_Id" if name.startswith("DEVICE_TO") else "Destination_Agent_Id"
        return KernelShape(name, kind="copy", agent=row.get(end, ""))

    rows, zero = add_rows(table, builder, used, shape_of, *TIMES)
    return FilePart(*part_of(table, form, rows), zero=zero)


@dataclass
class _Sum:
    calls: int = 0
    total: int = 0
    squares: int = 0
    least: int = LONGEST_NS
    most: int = 0

    def add(self, duration: int) -> None:
        self.calls += 1
        self.total += duration
        self.squares += duration * duration
        self.least = min(self.least, duration)
        self.most = max(self.most, duration)

    def spread(self) -> Spread:
        """Exact sums, so that nothing cancels."""
        spread = self.calls * self.squares - self.total * self.total
        deviation = math.sqrt(spread / (self.calls * (self.calls - 1))) if self.calls > 1 else None
        return Spread(self.calls, self.total, min_ns=self.least, max_ns=self.most, stddev_ns=deviation)


def read_api(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """A trace of host calls, summed up by function. Ranges that the program marked itself are left out."""
    function, (start, end) = table.index("Function"), (table.index(name) for name in TIMES)
    domain = table.index("Domain") if "Domain" in table.columns else None
    sums: dict[str, _Sum] = {}
    first: int | None = None
    for row in table:
        if domain is not None and row[domain].startswith("MARKER"):
            continue
        try:
            begin, finish = int(row[start]), int(row[end])
        except ValueError:
            tell_times(table, row, *TIMES)
            continue
        if not (0 <= begin <= finish < BEYOND and finish - begin <= LONGEST_NS):
            tell_duration(table, begin, finish, *TIMES)
            continue
        sums.setdefault(row[function], _Sum()).add(finish - begin)
        first = begin if first is None else min(first, begin)
    rows = sum(one.calls for one in sums.values())
    stats = tuple(StatsRow("api", name, one.spread()) for name, one in sums.items())
    return FilePart(*part_of(table, form, rows), stats=stats, api_begin_ns=first)


class _FirstRows(CsvTable):
    """Rows of a counter file, of each dispatch the first: it has one per counter."""

    def __iter__(self) -> Iterator[list[str]]:
        columns = [self.index(name) for name in (*PROCESS, "Dispatch_Id") if name in self.columns]
        seen: set[tuple[str, ...]] = set()
        for row in super().__iter__():
            dispatch = tuple(row[column] for column in columns)
            if dispatch not in seen:
                seen.add(dispatch)
                yield row


def read_counted(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """Counters, and the times of each dispatch where the file has them."""
    problems = Problems(table.path)

    def report(line: int, text: str) -> None:
        problems.add(line, text, kind="no counter")

    counters = read_counters(table.path, report)
    rows = sum(counter.dispatches for counter in counters)
    zero, found = 0, problems.finished(rows)
    if all(name in table.columns for name in TIMES):
        with _FirstRows(table.path) as once:
            columns = KernelColumns(once)
            dispatches, zero = add_rows(once, builder, columns.used, columns.shape, *TIMES)
        told = {problem.line for problem in found}
        found += tuple(problem for problem in once.problems.finished(dispatches) if problem.line not in told)
    source, nothing = part_of(table, form, rows)
    return FilePart(source, found or nothing, counters=counters, zero=zero)


def read_statistics(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """Statistics, of rocprof v1 too."""
    stats = read_stats(table)
    name = form.name if form is V1_STATS or not stats else f"rocprofv3 {STATS_NAMES[stats[0].domain]}"
    return FilePart(*part_of(table, form, len(stats), name), stats=stats)


def read_devices(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """The devices of the machine."""
    agents = tuple(read_agents(table))
    return FilePart(*part_of(table, form, len(agents)), agents=agents)


READERS: dict[str, Callable[[CsvTable, Form, DispatchesBuilder], FilePart]] = {
    KERNEL_TRACE.name: read_kernels,
    COPY_TRACE.name: read_copies,
    API_TRACE.name: read_api,
    COUNTERS.name: read_counted,
    STATS.name: read_statistics,
    V1_STATS.name: read_statistics,
    AGENTS.name: read_devices,
}
