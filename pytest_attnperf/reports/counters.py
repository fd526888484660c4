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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Launch

NEEDED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
PROCESS = ("Process_Id", "Pid")
"""Names of the column that tells processes apart, whose dispatches have the same numbers."""

GRID = "Grid_Size"
"""Work-items of a dispatch."""

_SUFFIXES = (" [clone .kd]", ".kd")


@dataclass(frozen=True)
class KernelCounter:
    """One counter of one kernel and grid.

    grid_items    work-items of its dispatches; None where the file does not say
    median        of its values over `dispatches`
    """

    kernel: str
    grid_items: int | None
    counter: str
    median: float
    dispatches: int

    def counts(self, launch: Launch) -> bool:
        """Whether it was read of such a launch: the same name, and as many work-items where both are known."""
        if launch.kind != "kernel" or plain_name(launch.name) != self.kernel:
            return False
        items = work_items(launch)
        return self.grid_items is None or items is None or items == self.grid_items


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


def of_launches(counters: Iterable[KernelCounter], launches: Iterable[Launch]) -> list[KernelCounter]:
    """Those that were read of one of these launches."""
    every = tuple(launches)
    return [counter for counter in counters if any(counter.counts(launch) for launch in every)]


def plain_name(kernel: str) -> str:
    """A kernel's name without what tools put around it: 'void flash(float*) [clone .kd]' -> 'flash'."""
    for suffix in _SUFFIXES:
        kernel = kernel.removesuffix(suffix)
    return kernel.partition("(")[0].removeprefix("void ").strip()


def work_items(launch: Launch) -> int | None:
    """Threads of a whole launch; None where its grid or block is not known."""
    if not launch.grid or not launch.block:
        return None
    count = 1
    for size in (*launch.grid, *launch.block):
        count *= size
    return count
