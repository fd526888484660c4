"""Statistics of rocprofv3 and rocprof v1: one row per kernel, API function, direction of copies, or whole domain."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.records.profiles import Problem, Spread, StatsRow
from pytest_attnperf.tools.profilers.csv_table import CsvTable, whole_number
from pytest_attnperf.tools.profilers.kernel_columns import clean_name

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
"""By which two totals of one kernel may differ, relative: rounding, nothing else."""

Total = tuple[int, int]
"""(calls, nanoseconds)."""


def direction(name: str) -> str:
    """A direction of copying, the same from every version: HOST_TO_DEVICE."""
    name = name.strip().removeprefix("MEMORY_COPY_")
    if re.fullmatch(r"Copy\w+To\w+", name):
        return "_TO_".join(part.upper() for part in name.removeprefix("Copy").split("To"))
    return name


def read_stats(table: CsvTable) -> tuple[StatsRow, ...]:
    """Every row whose calls and total are numbers."""
    found: list[tuple[str, Spread, float | None]] = []
    for values in table:
        row = dict(zip(table.columns, values, strict=True))
        wrong = [name for name in ("Calls", "TotalDurationNs") if whole_number(row[name].strip()) is None]
        if wrong:
            text = f"is {row[wrong[0]][:40]!r}, wanted is a whole number"
            table.problems.add(table.line, text, column=wrong[0], kind=f"{wrong[0]} is no number")
            continue
        spread = Spread(
            int(row["Calls"]),
            int(row["TotalDurationNs"]),
            min_ns=whole_number(row.get("MinNs", "").strip()),
            max_ns=whole_number(row.get("MaxNs", "").strip()),
            stddev_ns=_decimal(table, row, "StdDev"),
        )
        found.append((row["Name"], spread, _decimal(table, row, "Percentage")))
    domain = domain_of([name for name, _, _ in found], table.path)
    clean = direction if domain == "copy" else clean_name
    return tuple(StatsRow(domain, clean(name), spread, percentage) for name, spread, percentage in found)


def domain_of(names: Sequence[str], path: Path) -> str:
    """What the rows are about: 'domain' and 'copy' by their names, 'api' by these or the file's name, else 'kernel'."""
    stem = path.stem
    if names and all(DOMAINS.fullmatch(name) for name in names):
        return "domain"
    if stem.endswith("copy_stats") or (names and all(DIRECTION.fullmatch(name) for name in names)):
        return "copy"
    if stem.endswith(API_STEMS):
        return "api"
    called_kernels = stem.endswith("kernel_stats")
    return "api" if names and not called_kernels and all(API.fullmatch(name) for name in names) else "kernel"


def disagreements(path: str, rows: Sequence[StatsRow], traced: Mapping[str, Total]) -> tuple[Problem, ...]:
    """One problem where a stats file does not say what the trace of the same run says."""
    told = {row.name: (row.spread.calls, row.spread.total_ns) for row in rows}
    differing = [name for name in sorted(told.keys() | traced.keys()) if not _equal(told.get(name), traced.get(name))]
    if not differing:
        return ()
    name = differing[0]
    text = (
        f"{len(differing)} of {len(told.keys() | traced.keys())} names do not agree with the trace beside it; "
        f"{name!r}: {_words(told.get(name))} here, {_words(traced.get(name))} in the trace; files of different runs?"
    )
    return (Problem(path, text, "the trace is used"),)


def _equal(told: Total | None, traced: Total | None) -> bool:
    if told is None or traced is None:
        return False
    return told[0] == traced[0] and abs(told[1] - traced[1]) <= TOLERANCE * max(told[1], traced[1])


def _words(total: Total | None) -> str:
    return "not there" if total is None else f"{total[0]} calls, {total[1]} ns"


def _decimal(table: CsvTable, row: Mapping[str, str], column: str) -> float | None:
    text = row.get(column, "").strip()
    try:
        value = float(text) if text else math.nan
    except ValueError:
        wrong = f"is {text[:40]!r}, wanted is a number; it counts as unknown"
        table.problems.add(table.line, wrong, column=column, kind=f"{column} is no number", lost=False)
        return None
    return value if math.isfinite(value) else None
