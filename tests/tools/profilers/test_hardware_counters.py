from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Launch
from pytest_attnperf.records.counters import KernelCounter, count_work_items, filter_by_launches, plain_name
from pytest_attnperf.tools.profilers.hardware_counters import read_counters

OLD = (
    "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Name,Workgroup_Size,"
    "LDS_Block_Size,Scratch_Size,VGPR_Count,SGPR_Count,Counter_Name,Counter_Value"
)
"""Of ROCm 6.2."""

NEW = (
    "Pid,Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,Workgroup_Size,"
    "LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,Counter_Name,Counter_Value,Start_Timestamp,"
    "End_Timestamp"
)
"""Of ROCm 7, as `rocpd convert` writes it."""

FLASH = Launch("flash", grid=(8, 2, 1), block=(128, 1, 1))


def written(folder: Path, columns: str, *rows: dict[str, object]) -> Path:
    """A file with these columns; what a row does not say is 0."""
    lines = [",".join(f'"{row.get(name, 0)}"' for name in columns.split(",")) for row in rows]
    path = folder / "run_counter_collection.csv"
    path.write_text("\n".join([columns, *lines]) + "\n")
    return path


def row(dispatch: int, value: object, kernel: str = "flash", **others: object) -> dict[str, object]:
    """One counter of one dispatch."""
    return {
        "Dispatch_Id": dispatch,
        "Kernel_Name": kernel,
        "Grid_Size": 2048,
        "Counter_Name": "SQ_INSTS_VMEM_RD",
        "Counter_Value": value,
        **others,
    }


@pytest.mark.parametrize("columns", [OLD, NEW, "Counter_Value,Counter_Name,Kernel_Name,Dispatch_Id"])
def test_columns_are_found_by_name(tmp_path: Path, columns: str) -> None:
    """Old and new files, and columns in any order, give the median over the dispatches."""
    path = written(tmp_path, columns, row(1, 90), row(3, 100), row(2, 700.5), row(1, 5, Counter_Name="SQ_WAVES"))
    grid = 2048 if "Grid_Size" in columns else None
    assert read_counters(path) == (
        KernelCounter("flash", grid, "SQ_INSTS_VMEM_RD", 100.0, 3),
        KernelCounter("flash", grid, "SQ_WAVES", 5.0, 1),
    )


def test_kernels_and_grids_are_apart(tmp_path: Path) -> None:
    """One name with two grids is two kinds of work; dispatches of two processes are not one."""
    rows = (row(1, 10), row(1, 20, Process_Id=9), row(2, 30, Grid_Size=64), row(3, 40, "void other(float*)"))
    found = read_counters(written(tmp_path, OLD, *rows))
    assert [(one.kernel, one.grid_items, one.median, one.dispatches) for one in found] == [
        ("flash", 2048, 15.0, 2),
        ("flash", 64, 30.0, 1),
        ("other", 2048, 40.0, 1),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column Dispatch_Id, Kernel_Name, Counter_Name, Counter_Value; it has: none. Give the"),
        ("Name,Calls\nflash,3\n", "it has: Name, Calls. Give the counter_collection CSV of rocprofv3"),
        ("Dispatch_Id,Kernel_Name,Counter_Value\n1,flash,3\n", "has no column Counter_Name; it has"),
        (f"{OLD}\n", "holds no counter: only the line of columns"),
        ("Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,f,SQ,many\n", ":2: Counter_Value is 'many', which is"),
        ("Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,f,SQ,nan\n", ":2: Counter_Value is 'nan', which is no"),
        (
            "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,f,SQ\n",
            ":2: Counter_Value is None, which is no number",
        ),
        (
            "Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,f,SQ,1\n1,f,SQ,2\n",
            ":3: SQ of dispatch 1 a second time; are several files joined?",
        ),
    ],
)
def test_what_is_off_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Missing columns, no rows, no number and two values of one dispatch are errors with the place."""
    path = tmp_path / "counters.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_counters(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("flash", "flash"),
        ("flash.kd", "flash"),
        ("flash [clone .kd]", "flash"),
        ("void flash(unsigned short const*, int) [clone .kd]", "flash"),
    ],
)
def test_names_are_bare(name: str, plain: str) -> None:
    """What profilers put around a name is taken off."""
    assert plain_name(name) == plain


@pytest.mark.parametrize(
    ("launch", "items", "matches"),
    [
        (FLASH, 2048, True),
        (FLASH, None, True),
        (FLASH, 64, False),
        (Launch("flash", block=(128, 1, 1)), 64, True),
        (Launch("flash", "copy", grid=(2048,)), 2048, False),
        (Launch("other", grid=(8, 2, 1), block=(128, 1, 1)), 2048, False),
    ],
)
def test_counters_belong_to_launches_of_their_name_and_grid(launch: Launch, items: int | None, matches: bool) -> None:
    """Where either side does not say its grid, the name decides."""
    counter = KernelCounter("flash", items, "SQ_WAVES", 1.0, 1)
    assert filter_by_launches([counter], [launch]) == ([counter] if matches else [])


def test_work_items_of_a_launch() -> None:
    """Threads of all blocks; unknown without grid or block."""
    assert count_work_items(FLASH) == 2048
    assert count_work_items(Launch("flash", grid=(8, 1, 1))) is None


def test_a_row_that_is_no_csv(tmp_path: Path) -> None:
    """An error with the line; with somewhere to report it, the other rows are read."""
    path = written(tmp_path, OLD, row(1, 90), row(2, 91, kernel="x" * 200_000), row(3, 92))
    with pytest.raises(UsageError, match=r"counter_collection.csv:3: cannot be read as CSV: field larger than"):
        read_counters(path)
    reported: list[tuple[int, str]] = []
    (counter,) = read_counters(path, lambda line, text: reported.append((line, text)))
    assert (counter.median, counter.dispatches) == (91.0, 2)
    assert [line for line, _ in reported] == [3]
