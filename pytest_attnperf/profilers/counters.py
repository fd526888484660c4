"""rocprofv3's counter_collection CSV: what each hardware counter said of a kernel, as the median over its dispatches.

Columns are found by name, because ROCm 6.2 to 7.2 write 15 to 18 of them in other orders; kernels are named as code
objects or demangled functions.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import defaultdict
from pathlib import Path

from pytest_attnperf.counter_records import KernelCounter, plain_name
from pytest_attnperf.errors import UsageError

NEEDED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
PROCESS = ("Process_Id", "Pid")
"""Names of the column that tells processes apart, whose dispatches have the same numbers."""

GRID = "Grid_Size"
"""Work-items of a dispatch."""


def read_counters(path: Path) -> tuple[KernelCounter, ...]:
    """Every counter of every kernel and grid, in the order of the file.

    Raises UsageError for a file that is no such CSV, naming the columns or the row.
    """
    rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig", errors="replace"), newline=""))
    columns = rows.fieldnames or []
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}; it has: {', '.join(columns) or 'none'}. Needed is the "
            "counter_collection CSV of rocprofv3 --pmc ... --output-format csv"
        )
    process = next((name for name in PROCESS if name in columns), "")
    found: dict[tuple[str, int | None, str], dict[tuple[str, str], float]] = defaultdict(dict)
    for row in rows:
        where = f"{path}:{rows.line_num}"
        value = _number(row["Counter_Value"], "Counter_Value", where)
        grid = int(_number(row[GRID], GRID, where)) if row.get(GRID) else None
        dispatch = (row.get(process, ""), row["Dispatch_Id"])
        values = found[plain_name(row["Kernel_Name"]), grid, row["Counter_Name"]]
        if dispatch in values:
            again = f"{row['Counter_Name']} of dispatch {row['Dispatch_Id']}"
            raise UsageError(f"{where}: {again} a second time; are several files joined?")
        values[dispatch] = value
    if not found:
        raise UsageError(f"{path} holds no counter: only the line of columns")
    return tuple(
        KernelCounter(kernel, grid, counter, statistics.median(values.values()), len(values))
        for (kernel, grid, counter), values in found.items()
    )


def _number(text: str | None, column: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{where}: {column} is {text!r}, which is no number; is the file cut short?")
    return value
