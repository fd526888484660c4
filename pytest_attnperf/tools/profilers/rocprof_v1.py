"""results.csv of rocprof v1, and of the file plugin of rocprof v2: one row per dispatch, its counters beside it.

v1 names registers arch_vgpr and accum_vgpr, older versions of it vgpr; grid and workgroup are totals in both.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict

from pytest_attnperf.records.counters import KernelCounter, plain_name
from pytest_attnperf.tools.profilers.csv_table import CsvTable, whole_number
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.file_part import FilePart, part_of
from pytest_attnperf.tools.profilers.forms import Form
from pytest_attnperf.tools.profilers.kernel_columns import END, GRID_TOTAL, NAME, START, KernelColumns
from pytest_attnperf.tools.profilers.timed_rows import add_rows

V1_COLUMNS = {
    "Index",
    "KernelName",
    "gpu-id",
    "queue-id",
    "queue-index",
    "pid",
    "tid",
    "grd",
    "wgr",
    "lds",
    "scr",
    "sgpr",
}
V1_COLUMNS |= {"arch_vgpr", "accum_vgpr", "vgpr", "fbar", "wave_size", "sig", "obj", "DispatchNs", "BeginNs", "EndNs"}
V1_COLUMNS |= {"CompleteNs", "DurationNs", "sgpr"}
V2_COLUMNS = {"Dispatch_ID", "GPU_ID", "Queue_ID", "PID", "TID", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup"}
V2_COLUMNS |= {"Scratch_Per_Workitem", "Arch_VGPR", "Accum_VGPR", "SGPR", "Wave_Size", "Kernel_Name", "Kernel_ID"}
V2_COLUMNS |= {"Start_Timestamp", "End_Timestamp", "Correlation_ID"}
NO_COUNTERS = V1_COLUMNS | V2_COLUMNS
"""Columns that describe a dispatch; every other one is a counter."""


def read_results(table: CsvTable, form: Form, builder: DispatchesBuilder) -> FilePart:
    """Every dispatch, and the medians of its counters where there are some."""
    columns = KernelColumns(table)
    start, end = table.first(*START), table.first(*END)
    rows, zero = add_rows(table, builder, columns.used, columns.shape, start, end)
    source, problems = part_of(table, form, rows)
    return FilePart(source, problems, counters=read_wide(table), zero=zero)


def read_wide(table: CsvTable) -> tuple[KernelCounter, ...]:
    """Counters that stand in columns of their own; a cell that is no number is left out."""
    names = [name for name in table.columns if name and name not in NO_COUNTERS]
    if not names:
        return ()
    kernel, grid = table.index(table.first(*NAME)), table.first(*GRID_TOTAL)
    values: dict[tuple[str, int | None, str], list[float]] = defaultdict(list)
    with CsvTable(table.path) as again:
        for row in again:
            items = whole_number(row[table.index(grid)].strip()) if grid else None
            for name in names:
                value = _decimal(row[table.index(name)])
                if math.isfinite(value):
                    values[plain_name(row[kernel]), items, name].append(value)
    return tuple(KernelCounter(*key, statistics.median(found), len(found)) for key, found in values.items())


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
