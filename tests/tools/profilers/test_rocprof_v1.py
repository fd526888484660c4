from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.reading import read_profile

NEW = (
    "Index,KernelName,gpu-id,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,obj,SQ_WAVES,BeginNs,EndNs,DurationNs"
)
OLD = "Index,KernelName,gpu-id,grd,wgr,lds,scr,vgpr,sgpr,fbar,obj,DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs"
V2 = "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR"
V2 += ",Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES"


def written(path: Path, columns: str, *rows: str) -> Path:
    """A file of these lines."""
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("columns", "row", "accum"),
    [
        (NEW, '0,"f(int, int) [clone .kd]",2,1024,256,512,16,24,4,128,32,"0x0",8,100,160,60', 4),
        (OLD, '0,"f(int, int).kd",2,1024,256,512,16,24,128,0,"0x0",90,100,160,170,60', None),
        (V2, '1,2,1024,256,512,16,24,4,128,64,"f(int, int)",100,160,1,8', 4),
    ],
)
def test_columns_of_every_age(tmp_path: Path, columns: str, row: str, accum: int | None) -> None:
    """Registers, sizes and names are the same under every name; totals are one dimension."""
    profile = read_profile(written(tmp_path / "results.csv", columns, row))
    assert list(profile.dispatches) == [
        (
            KernelShape(
                "f(int, int)",
                agent="2",
                workgroup=(256, 1, 1),
                grid_items=(1024, 1, 1),
                lds_bytes=512,
                scratch_bytes=16,
                vgprs=24,
                accum_vgprs=accum,
                sgprs=128,
            ),
            100,
            160,
        )
    ]
    assert profile.dispatches.shapes[0].workgroups == 4
    assert profile.problems == ()
    assert profile.counters == (() if columns == OLD else (KernelCounter("f", 1024, "SQ_WAVES", 8.0, 1),))


def test_counters_are_medians(tmp_path: Path) -> None:
    """By kernel and grid; a cell that is no number is left out."""
    rows = [f'{n},"f",2,1024,256,0,0,8,0,128,32,"0x0",{value},{n},{n},0' for n, value in enumerate((9, 3, 4, "?"))]
    profile = read_profile(written(tmp_path / "results.csv", NEW, *rows))
    assert profile.counters == (KernelCounter("f", 1024, "SQ_WAVES", 4.0, 3),)


def test_statistics_beside(tmp_path: Path) -> None:
    """results.stats.csv and results.hip_stats.csv are of the run of results.csv; kernel names agree without suffix."""
    columns = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"'
    written(tmp_path / "results.csv", OLD, '0,"f.kd",2,1024,256,512,16,24,128,0,"0x0",90,100,160,170,60')
    written(tmp_path / "results.stats.csv", columns, '"f.kd",1,60,60,100.0')
    written(tmp_path / "results.hip_stats.csv", columns, '"hipFree",1,70,70,100.0')
    written(tmp_path / "results.copy_stats.csv", columns, '"CopyHostToDevice",1,80,80,100.0')
    profile = read_profile(tmp_path)
    assert profile.problems == ()
    assert sorted((row.domain, row.name, row.spread.total_ns) for row in profile.stats) == [
        ("api", "hipFree", 70),
        ("copy", "HOST_TO_DEVICE", 80),
        ("kernel", "f", 60),
    ]
