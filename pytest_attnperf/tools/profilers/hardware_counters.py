"""Reads rocprofv3's counter_collection CSV: each hardware counter of a kernel, as the median over its dispatches.

Columns are found by name, because ROCm 6.2 to 7.2 write 15 to 18 of them in different orders. Kernel names are those of
code objects or demangled functions.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.counters import KernelCounter, plain_name
from pytest_attnperf.records.regular_file import read_regular

NEEDED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
PROCESS = ("Process_Id", "Pid")
"""Names of the column of the process. It is needed because dispatch numbers repeat between processes."""

GRID = "Grid_Size"
"""Column with the work-items of a dispatch."""

BYTES_MAX = 1 << 30
"""Largest file that is read, because all of it is held in memory."""


def read_counters(path: Path, report: Callable[[int, str], None] | None = None) -> tuple[KernelCounter, ...]:
    """Returns the median of every counter of every kernel and grid, in the order of the file.

    Raises UsageError, with the columns or the row, for a file that is too large or no counter_collection CSV. `report`
    takes a line number and an error: with it, bad rows are left out instead, and a file without rows is no error."""
    text = read_regular(path, BYTES_MAX).decode("utf-8-sig", errors="replace")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    columns = [name.strip() for name in rows.fieldnames or []]
    rows.fieldnames = columns
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}; it has: {', '.join(columns) or 'none'}. Give the "
            "counter_collection CSV of rocprofv3 --pmc ... --output-format csv"
        )
    process = next((name for name in PROCESS if name in columns), "")
    found: dict[tuple[str, int | None, str], dict[tuple[str, str], float]] = defaultdict(dict)
    for row in _read_rows(rows, path, report):
        wrong = _add_row(found, row, row.get(process) or "")
        if wrong and report is None:
            raise UsageError(f"{path}:{rows.line_num}: {wrong}")
        if wrong and report is not None:
            report(rows.line_num, wrong)
    if not found and report is None:
        raise UsageError(f"{path} holds no counter: only the line of columns; give rocprofv3 counters by --pmc")
    return tuple(
        KernelCounter(kernel, grid, counter, statistics.median(values.values()), len(values))
        for (kernel, grid, counter), values in found.items()
    )


def _read_rows(
    rows: csv.DictReader[str], path: Path, report: Callable[[int, str], None] | None
) -> Iterator[dict[str, str | None]]:
    broken = ""
    while not broken or report is not None:
        if broken and report is not None:
            report(rows.reader.line_num, broken)
        try:
            yield from rows
        except csv.Error as error:
            broken = f"cannot be read as CSV: {error}"
        else:
            return
    raise UsageError(f"{path}:{rows.reader.line_num}: {broken}")


def _add_row(
    found: dict[tuple[str, int | None, str], dict[tuple[str, str], float]], row: dict[str, str | None], process: str
) -> str:
    """Adds the counter value of a CSV row to `found`, by kernel, grid and counter; returns what is wrong, or ''."""
    value, grid = _parse_number(row["Counter_Value"]), _parse_number(row.get(GRID) or "0")
    if value is None or grid is None:
        column = "Counter_Value" if value is None else GRID
        return f"{column} is {row[column]!r}, which is no number; is the file cut short?"
    dispatch = (process, row["Dispatch_Id"] or "")
    items = int(grid) if row.get(GRID) else None
    values = found[plain_name(row["Kernel_Name"] or ""), items, row["Counter_Name"] or ""]
    if dispatch in values:
        again = f"{row['Counter_Name']} of dispatch {row['Dispatch_Id']}"
        return f"{again} a second time; are several files joined?"
    values[dispatch] = value
    return ""


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
