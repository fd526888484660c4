"""Reads rocprofv3's CSV files of ROCm 6.2 to 7.x, also those of `rocpd convert`: traces, counters, statistics, devices.

Also reads results.csv of rocprof v1, and of the file plugin of rocprof v2: one row per dispatch with its counters. v1
names registers arch_vgpr and accum_vgpr, older versions of it vgpr; grid and workgroup are totals in both.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.records.counters import KernelCounter, plain_name
from pytest_attnperf.records.profiles import KernelShape, Problem, Spread, StatsRow
from pytest_attnperf.tools.profilers.agents import read_agents
from pytest_attnperf.tools.profilers.csv_table import CsvTable, Problems, parse_whole_number
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_forms import (
    V1_STATS,
    CsvForm,
    FilePart,
    make_source,
)
from pytest_attnperf.tools.profilers.hardware_counters import PROCESS, read_counters
from pytest_attnperf.tools.profilers.kernel_columns import (
    END,
    GRID_TOTAL,
    NAME,
    START,
    KernelColumns,
    Report,
    clean_name,
)
from pytest_attnperf.tools.profilers.timed_rows import (
    BEYOND,
    LONGEST_NS,
    add_rows,
    report_bad_duration,
    report_bad_times,
)

TIMES = ("Start_Timestamp", "End_Timestamp")
STATS_NAMES = {"kernel": "kernel_stats", "copy": "memory_copy_stats", "api": "api_stats", "domain": "domain_stats"}

V1_COLUMNS = {
    *("Index", "KernelName", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgr", "lds", "scr", "sgpr"),
    *("arch_vgpr", "accum_vgpr", "vgpr", "fbar", "wave_size", "sig", "obj", "DispatchNs", "BeginNs", "EndNs"),
    *("CompleteNs", "DurationNs"),
}
V2_COLUMNS = {"Dispatch_ID", "GPU_ID", "Queue_ID", "PID", "TID", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup"}
V2_COLUMNS |= {"Scratch_Per_Workitem", "Arch_VGPR", "Accum_VGPR", "SGPR", "Wave_Size", "Kernel_Name", "Kernel_ID"}
V2_COLUMNS |= {"Start_Timestamp", "End_Timestamp", "Correlation_ID"}
NO_COUNTERS = V1_COLUMNS | V2_COLUMNS
"""Columns that describe a dispatch; every other one is a counter."""

DOMAINS = re.compile(
    r"KERNEL_DISPATCH|MEMORY_COPY|MEMORY_ALLOCATION|SCRATCH_MEMORY|COUNTER_COLLECTION|PAGE_MIGRATION"
    r"|(?:HIP|HSA|MARKER|RCCL|ROCDECODE|ROCJPEG|OMPT|KFD)(?:_[A-Z]+)*_API(?:_EXT)?|OMPT"
)
API = re.compile(r"(?:__)?hip[A-Z]\w*|hsa_\w+")
DIRECTION = re.compile(
    r"(?:MEMORY_COPY_)?(?:NONE|(?:HOST|DEVICE)_TO_(?:HOST|DEVICE))|Copy(?:Host|Device)To(?:Host|Device)"
)
API_STEMS = ("hip_api_stats", "hip_stats", "hsa_api_stats", "hsa_stats")

TOLERANCE = 0.001
"""Largest relative difference of two totals of one kernel, for rounding."""

Total = tuple[int, int]
"""(calls, nanoseconds)."""


def read_kernels(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Adds the kernels of a kernel_trace CSV to `builder`; returns the file's source, problems and calls of 0 ns."""
    columns = KernelColumns(table)
    rows, zero = add_rows(table, builder, columns.used, columns.read_shape, *TIMES)
    return FilePart(*make_source(table, form, rows), zero=zero)


def read_copies(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Adds the copies of a memory_copy_trace CSV to `builder`; returns the rest of its content. A copy's device is the
    destination, or the source if the destination is the host."""
    used: list[str] = [
        name for name in ("Direction", "Source_Agent_Id", "Destination_Agent_Id") if name in table.columns
    ]

    def shape_of(values: Sequence[str], report: Report) -> KernelShape:
        row: dict[str, str] = dict(zip(used, values, strict=True))
        name = normalise_direction(row["Direction"])
        end = "Source_Agent_Id" if name.startswith("DEVICE_TO") else "Destination_Agent_Id"
        return KernelShape(name, kind="copy", agent=row.get(end, ""))

    rows, zero = add_rows(table, builder, used, shape_of, *TIMES)
    return FilePart(*make_source(table, form, rows), zero=zero)


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

    def make_spread(self) -> Spread:
        """Returns the spread of the added durations, without median; from exact sums, so that no digits cancel."""
        spread = self.calls * self.squares - self.total * self.total
        deviation = math.sqrt(spread / (self.calls * (self.calls - 1))) if self.calls > 1 else None
        return Spread(self.calls, self.total, min_ns=self.least, max_ns=self.most, stddev_ns=deviation)


def read_api(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Returns an API trace's calls summed up by function, and the first start. Leaves out ranges that the program
    marked itself (domain MARKER...)."""
    function, (start, end) = table.column_index("Function"), (table.column_index(name) for name in TIMES)
    domain = table.column_index("Domain") if "Domain" in table.columns else None
    sums: dict[str, _Sum] = {}
    first: int | None = None
    for row in table:
        if domain is not None and row[domain].startswith("MARKER"):
            continue
        try:
            begin, finish = int(row[start]), int(row[end])
        except ValueError:
            report_bad_times(table, row, *TIMES)
            continue
        if not (0 <= begin <= finish < BEYOND and finish - begin <= LONGEST_NS):
            report_bad_duration(table, begin, finish, *TIMES)
            continue
        sums.setdefault(row[function], _Sum()).add(finish - begin)
        first = begin if first is None else min(first, begin)
    rows = sum(one.calls for one in sums.values())
    stats = tuple(StatsRow("api", name, one.make_spread()) for name, one in sums.items())
    return FilePart(*make_source(table, form, rows), stats=stats, api_begin_ns=first)


class _FirstRows(CsvTable):
    """A counter file that yields only the first row of each dispatch, because it has a row per counter."""

    def __iter__(self) -> Iterator[list[str]]:
        columns = [self.column_index(name) for name in (*PROCESS, "Dispatch_Id") if name in self.columns]
        seen: set[tuple[str, ...]] = set()
        for row in super().__iter__():
            dispatch = tuple(row[column] for column in columns)
            if dispatch not in seen:
                seen.add(dispatch)
                yield row


def read_counted(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Returns the counters of a counter_collection CSV, and adds its dispatches to `builder` if it has their times."""
    problems = Problems(table.path)

    def report(line: int, text: str) -> None:
        problems.add(line, text, kind="no counter")

    counters = read_counters(table.path, report)
    rows = sum(counter.dispatches for counter in counters)
    zero, found = 0, problems.list_problems(rows)
    if all(name in table.columns for name in TIMES):
        with _FirstRows(table.path) as once:
            columns = KernelColumns(once)
            dispatches, zero = add_rows(once, builder, columns.used, columns.read_shape, *TIMES)
        told = {problem.line for problem in found}
        found += tuple(problem for problem in once.problems.list_problems(dispatches) if problem.line not in told)
    source, nothing = make_source(table, form, rows)
    return FilePart(source, found or nothing, counters=counters, zero=zero)


def read_statistics(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Returns the content of a *_stats CSV of rocprofv3 or rocprof v1: calls and times by name."""
    stats = _read_stats(table)
    name = form.name if form is V1_STATS or not stats else f"rocprofv3 {STATS_NAMES[stats[0].domain]}"
    return FilePart(*make_source(table, form, len(stats), name), stats=stats)


def read_devices(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Returns the content of an agent_info CSV: the devices of the machine."""
    agents = tuple(read_agents(table))
    return FilePart(*make_source(table, form, len(agents)), agents=agents)


def read_results(table: CsvTable, form: CsvForm, builder: DispatchesBuilder) -> FilePart:
    """Adds the dispatches of a results.csv of rocprof v1 or v2 to `builder`; returns the medians of its counters."""
    columns = KernelColumns(table)
    start, end = table.find_column(*START), table.find_column(*END)
    rows, zero = add_rows(table, builder, columns.used, columns.read_shape, start, end)
    source, problems = make_source(table, form, rows)
    return FilePart(source, problems, counters=_read_wide(table), zero=zero)


def _read_wide(table: CsvTable) -> tuple[KernelCounter, ...]:
    """Returns the medians by kernel and grid of a results.csv's counters, which have a column each; () if none."""
    names = [name for name in table.columns if name and name not in NO_COUNTERS]
    if not names:
        return ()
    kernel, grid = table.column_index(table.find_column(*NAME)), table.find_column(*GRID_TOTAL)
    values: dict[tuple[str, int | None, str], list[float]] = defaultdict(list)
    with CsvTable(table.path) as again:
        for row in again:
            items = parse_whole_number(row[table.column_index(grid)].strip()) if grid else None
            for name in names:
                value = _parse_decimal(row[table.column_index(name)])
                if math.isfinite(value):
                    values[plain_name(row[kernel]), items, name].append(value)
    return tuple(KernelCounter(*key, statistics.median(found), len(found)) for key, found in values.items())


def _parse_decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def normalise_direction(name: str) -> str:
    """Spells a copy's direction as HOST_TO_DEVICE; versions of rocprof also write CopyHostToDevice, with prefixes."""
    name = name.strip().removeprefix("MEMORY_COPY_")
    if re.fullmatch(r"Copy\w+To\w+", name):
        return "_TO_".join(part.upper() for part in name.removeprefix("Copy").split("To"))
    return name


def _read_stats(table: CsvTable) -> tuple[StatsRow, ...]:
    """Returns the rows of a stats file whose calls and total are whole numbers; others become problems of `table`."""
    found: list[tuple[str, Spread, float | None]] = []
    for values in table:
        row = dict(zip(table.columns, values, strict=True))
        wrong = [name for name in ("Calls", "TotalDurationNs") if parse_whole_number(row[name].strip()) is None]
        if wrong:
            text = f"is {row[wrong[0]][:40]!r}, expected a whole number"
            table.problems.add(table.line, text, column=wrong[0], kind=f"{wrong[0]} is no number")
            continue
        spread = Spread(
            int(row["Calls"]),
            int(row["TotalDurationNs"]),
            min_ns=parse_whole_number(row.get("MinNs", "").strip()),
            max_ns=parse_whole_number(row.get("MaxNs", "").strip()),
            stddev_ns=_optional_decimal(table, row, "StdDev"),
        )
        found.append((row["Name"], spread, _optional_decimal(table, row, "Percentage")))
    domain = find_domain([name for name, _, _ in found], table.path)
    clean = normalise_direction if domain == "copy" else clean_name
    return tuple(StatsRow(domain, clean(name), spread, percentage) for name, spread, percentage in found)


def find_domain(names: Sequence[str], path: Path) -> str:
    """Returns what the rows of a *_stats CSV are, by their names and the file's: 'domain' (sums by kind of work),
    'copy', 'api' (host functions) or else 'kernel'."""
    stem = path.stem
    if names and all(DOMAINS.fullmatch(name) for name in names):
        return "domain"
    if stem.endswith("copy_stats") or (names and all(DIRECTION.fullmatch(name) for name in names)):
        return "copy"
    if stem.endswith(API_STEMS):
        return "api"
    called_kernels = stem.endswith("kernel_stats")
    return "api" if names and not called_kernels and all(API.fullmatch(name) for name in names) else "kernel"


def find_disagreements(path: str, rows: Sequence[StatsRow], traced: Mapping[str, Total]) -> tuple[Problem, ...]:
    """Returns one problem if a stats file and the trace of its run differ in names, calls or time; () if not."""
    told = {row.name: (row.spread.calls, row.spread.total_ns) for row in rows}
    differing = [
        name for name in sorted(told.keys() | traced.keys()) if not _is_equal(told.get(name), traced.get(name))
    ]
    if not differing:
        return ()
    name = differing[0]
    text = (
        f"{len(differing)} of {len(told.keys() | traced.keys())} names differ from the trace of the same run; "
        f"{name!r}: {_format_total(told.get(name))} here, {_format_total(traced.get(name))} in the trace; "
        "files of different runs?"
    )
    return (Problem(path, text, "the trace is used"),)


def _is_equal(told: Total | None, traced: Total | None) -> bool:
    if told is None or traced is None:
        return False
    return told[0] == traced[0] and abs(told[1] - traced[1]) <= TOLERANCE * max(told[1], traced[1])


def _format_total(total: Total | None) -> str:
    return "absent" if total is None else f"{total[0]} calls, {total[1]} ns"


def _optional_decimal(table: CsvTable, row: Mapping[str, str], column: str) -> float | None:
    text = row.get(column, "").strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        wrong = f"is {text[:40]!r}, expected a number; it counts as unknown"
        table.problems.add(table.line, wrong, column=column, kind=f"{column} is no number", lost=False)
        return None
    return value if math.isfinite(value) else None
