"""Finds the columns that describe a kernel, as rocprof v1, v2 and v3 name them. A size in one column is a total."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_attnperf.records.profiles import KernelShape, Size3
from pytest_attnperf.tools.profilers.csv_table import CsvTable, parse_whole_number

NAME = ("Kernel_Name", "KernelName")
AGENT = ("Agent_Id", "GPU_ID", "gpu-id")
START = ("Start_Timestamp", "BeginNs")
END = ("End_Timestamp", "EndNs")
GRID_TOTAL = ("Grid_Size", "grd")

NUMBERS: dict[str, tuple[str, ...]] = {
    "lds_bytes": ("LDS_Block_Size", "Group_Segment_Size", "LDS_Per_Workgroup", "lds"),
    "scratch_bytes": ("Scratch_Size", "Private_Segment_Size", "Scratch_Per_Workitem", "scr"),
    "vgprs": ("VGPR_Count", "Arch_VGPR", "arch_vgpr", "vgpr"),
    "accum_vgprs": ("Accum_VGPR_Count", "Accum_VGPR", "accum_vgpr"),
    "sgprs": ("SGPR_Count", "SGPR", "sgpr"),
}
SIZES: dict[str, tuple[str, tuple[str, ...]]] = {
    "workgroup": ("Workgroup_Size", ("Workgroup_Size", "wgr")),
    "grid_items": ("Grid_Size", GRID_TOTAL),
}
"""Field -> stem of its columns _X, _Y and _Z, and names of a column with the total."""

NAMELESS = "(no name)"
"""Name of a kernel whose name is empty."""

SUFFIXES = (" [clone .kd]", ".kd")
"""Suffixes that tools add, because the name is that of the kernel's descriptor."""

Report = Callable[[str, str], None]
"""Function that takes a column and what is wrong with it."""


class KernelColumns:
    """Columns of one table that describe a kernel. used: their names; the kernel's name comes first."""

    def __init__(self, table: CsvTable) -> None:
        self._numbers = {field: name for field, names in NUMBERS.items() if (name := table.find_column(*names))}
        self._sizes: dict[str, tuple[str, ...]] = {}
        for field, (stem, totals) in SIZES.items():
            three = tuple(f"{stem}_{axis}" for axis in "XYZ")
            if all(name in table.columns for name in three):
                self._sizes[field] = three
            elif total := table.find_column(*totals):
                self._sizes[field] = (total,)
        self._agent = table.find_column(*AGENT)
        names = [table.find_column(*NAME), self._agent, *self._numbers.values()]
        names += [name for columns in self._sizes.values() for name in columns]
        self.used: tuple[str, ...] = tuple(name for name in names if name)

    def read_shape(self, values: Sequence[str], report: Report) -> KernelShape:
        """Returns the kernel, device, size and resources of one row, whose `values` belong to the columns `used`.

        A size or count that is not a whole number becomes None, and an empty name NAMELESS; both call `report`."""
        of = dict(zip(self.used, values, strict=True))
        numbers = {field: _parse_number(of, column, report) for field, column in self._numbers.items()}
        sizes = {field: _parse_size(of, columns, report) for field, columns in self._sizes.items()}
        name = clean_name(values[0])
        if "\0" in values[0]:
            report(self.used[0], "the name holds NUL bytes")
        if not name.strip():
            report(self.used[0], f"is {values[0][:40]!r}, expected a name; it is called {NAMELESS!r}")
            name = NAMELESS
        return KernelShape(name, agent=of.get(self._agent, ""), **numbers, **sizes)  # type: ignore[arg-type]


def clean_name(name: str) -> str:
    """Returns a kernel's name without a descriptor's suffix ('.kd', ' [clone .kd]'), and with '�' for NUL bytes."""
    name = name.replace("\0", "�")
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _parse_number(values: dict[str, str], column: str, report: Report) -> int | None:
    text = values[column].strip()
    number = parse_whole_number(text)
    if number is None and text:
        report(column, f"is {text[:40]!r}, expected a whole number; it counts as unknown")
    return number


def _parse_size(values: dict[str, str], columns: Sequence[str], report: Report) -> Size3 | None:
    found = [_parse_number(values, column, report) for column in columns]
    x, y, z = (*found, 1, 1)[:3]
    return None if x is None or y is None or z is None else (x, y, z)
