from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import KernelShape
from pytest_attnperf.tools.profilers.reading import read_profile
from pytest_attnperf.tools.profilers.rocprofv3 import find_domain, normalise_direction

API = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
COPIES = "Kind,Direction,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
COUNTERS = "Correlation_Id,Dispatch_Id,Agent_Id,Process_Id,Grid_Size,Kernel_Name,Workgroup_Size,VGPR_Count,Counter_Name"
COUNTERS += ",Counter_Value,Start_Timestamp,End_Timestamp"
STATS = "Name,Calls,TotalDurationNs,MinNs"
TRACE = "Kernel_Name,Start_Timestamp,End_Timestamp\nflash,100,200\n"

COLUMNS = "Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev"


def write(folder: Path, **files: str) -> Path:
    """CSV files by name."""
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def api(*rows: tuple[str, int, int], domain: str = "HIP_RUNTIME_API") -> str:
    """An API trace of (function, start, end)."""
    return "\n".join([API, *(f"{domain},{name},1,1,1,{start},{end}" for name, start, end in rows)]) + "\n"


def test_an_api_trace_is_summed_up(tmp_path: Path) -> None:
    """Calls, total, least, most and standard deviation by function, and when the first one began."""
    times = (5, 9, 40, 2)
    calls = [("hipMalloc", 50 * n, 50 * n + ns) for n, ns in enumerate(times)]
    profile = read_profile(write(tmp_path, a_hip_api_trace=api(("hipFree", 90, 91), *calls), a_kernel_trace=TRACE))
    free, malloc = profile.stats
    assert (free.domain, free.name, free.spread.calls, free.spread.stddev_ns) == ("api", "hipFree", 1, None)
    assert (malloc.spread.calls, malloc.spread.total_ns, malloc.spread.min_ns, malloc.spread.max_ns) == (4, 56, 2, 40)
    assert malloc.spread.stddev_ns == pytest.approx(statistics.stdev(times))
    assert profile.api_begin_ns == 0
    assert profile.dispatches.total_ns == 100


def test_an_api_trace_goes_before_its_statistics(tmp_path: Path) -> None:
    """They are not added up; where they differ it is said; functions that only they have are kept."""
    write(
        tmp_path, a_hip_api_trace=api(("hipFree", 90, 91)), a_hip_api_stats=f"{STATS}\nhipFree,1,1,1\nhipInit,1,7,7\n"
    )
    profile = read_profile(tmp_path)
    assert [(row.name, row.spread.total_ns) for row in profile.stats] == [("hipFree", 1), ("hipInit", 7)]
    assert profile.problems == ()
    write(tmp_path, a_hip_api_stats=f"{STATS}\nhipFree,3,9,1\n")
    (problem,) = read_profile(tmp_path).problems
    assert "'hipFree': 3 calls, 9 ns here, 1 calls, 1 ns in the trace" in problem.text


def test_marked_ranges_are_no_host_calls(tmp_path: Path) -> None:
    """Ranges that a program marks enclose calls; HIP and HSA enclose each other, which is said."""
    marked = api(("step", 1, 900), domain="MARKER_CORE_API").splitlines()[1]
    write(tmp_path, a_hip_api_trace=api(("hipFree", 90, 95)) + marked, a_hsa_api_trace=api(("hsa_signal_wait", 91, 94)))
    profile = read_profile(tmp_path)
    assert sorted(row.name for row in profile.stats) == ["hipFree", "hsa_signal_wait"]
    assert profile.notes == ("HIP and HSA calls are both traced: HIP calls HSA, so their times overlap",)


def test_broken_rows_of_an_api_trace(tmp_path: Path) -> None:
    """They are left out, with their lines, their columns and what stands there."""
    write(tmp_path, trace=api(("hipFree", 90, 95), ("hipFree", 9, 5)) + "HIP,hipFree,1,1,1,x,5\n")
    profile = read_profile(tmp_path)
    assert profile.stats[0].spread.calls == 1
    assert [(problem.line, problem.column, problem.text) for problem in profile.problems] == [
        (3, "End_Timestamp", "ends 4 ns before it starts (Start_Timestamp 9, End_Timestamp 5)"),
        (4, "Start_Timestamp", "is 'x', expected a whole number of nanoseconds"),
    ]


def test_copies_beside_kernels(tmp_path: Path) -> None:
    """They are dispatches of the GPU's end, in the order of time; their statistics are needless, and checked."""
    rows = "MEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,Agent 0,Agent 4,1,50,60\nMEMORY_COPY,DEVICE_TO_HOST,4,0,1,250,260\n"
    stats = f"{STATS}\nMEMORY_COPY_HOST_TO_DEVICE,1,10,10\nMEMORY_COPY_DEVICE_TO_HOST,1,11,10\n"
    write(tmp_path, a_kernel_trace=TRACE, a_memory_copy_trace=f"{COPIES}\n{rows}", a_memory_copy_stats=stats)
    profile = read_profile(tmp_path)
    assert [(shape.name, shape.kind, shape.agent, start) for shape, start, _ in profile.dispatches] == [
        ("HOST_TO_DEVICE", "copy", "Agent 4", 50),
        ("flash", "kernel", "", 100),
        ("DEVICE_TO_HOST", "copy", "4", 250),
    ]
    assert profile.stats == ()
    assert ["'DEVICE_TO_HOST': 1 calls, 11 ns here" in problem.text for problem in profile.problems] == [True]


def counted(*rows: tuple[int, str, object, int]) -> str:
    """A counter file of (dispatch, counter, value, end); every dispatch begins at 100."""
    lines = (f'1,{dispatch},4,77,512,"f(int)",256,8,{name},{value},100,{end}' for dispatch, name, value, end in rows)
    return "\n".join([COUNTERS, *lines]) + "\n"


def test_times_of_counter_files(tmp_path: Path) -> None:
    """Each dispatch counts once, however many counters it has; a trace beside it goes before."""
    write(tmp_path, a_counter_collection=counted((1, "A", 5, 110), (1, "B", 7, 110), (2, "A", 9, 130)))
    profile = read_profile(tmp_path)
    assert profile.counters == (KernelCounter("f", 512, "A", 7.0, 2), KernelCounter("f", 512, "B", 7.0, 1))
    assert (len(profile.dispatches), profile.dispatches.total_ns) == (2, 40)
    shape = profile.dispatches.shapes[0]
    assert (shape.workgroup, shape.grid_items, shape.vgprs, shape.agent) == ((256, 1, 1), (512, 1, 1), 8, "4")
    assert profile.notes[0] == "times are of a run that read counters: this slows kernels, and none overlap"
    write(tmp_path, a_kernel_trace=TRACE)
    profile = read_profile(tmp_path)
    assert (profile.dispatches.total_ns, len(profile.counters)) == (100, 2)


def test_broken_rows_of_a_counter_file(tmp_path: Path) -> None:
    """A value that is no number, a second value and a row cut short are left out; the others are used."""
    text = counted((1, "A", 5, 110), (2, "A", "many", 120), (1, "A", 6, 110), (3, "A", 9, 130)) + '1,4,4,77,512,"f'
    profile = read_profile(write(tmp_path, a_counter_collection=text))
    assert profile.counters == (KernelCounter("f", 512, "A", 7.0, 2),)
    assert [(problem.line, problem.text.partition(",")[0]) for problem in profile.problems] == [
        (3, "Counter_Value is 'many'"),
        (4, "A of dispatch 1 a second time; are several files joined?"),
        (6, "Counter_Value is None"),
    ]
    padded = counted((1, "A", 5, 110)).replace(",Counter", ", Counter")
    assert read_profile(write(tmp_path, a_counter_collection=padded)).counters[0].median == 5
    write(tmp_path, a_counter_collection=counted(), a_kernel_trace=TRACE)
    (problem,) = read_profile(tmp_path).problems
    assert "holds no row below the line of columns" in problem.text


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


@pytest.mark.parametrize(
    ("names", "file", "domain"),
    [
        (["flash"], "x.csv", "kernel"),
        (["hipMalloc", "hipFree"], "x.csv", "api"),
        (["__hipRegisterFunction"], "x.csv", "api"),
        (["hsa_queue_create"], "x.csv", "api"),
        (["hipLaunch", "flash"], "x.csv", "kernel"),
        (["hipKernel"], "x_kernel_stats.csv", "kernel"),
        (["anything"], "x_hip_api_stats.csv", "api"),
        (["anything"], "x_hip_stats.csv", "api"),
        (["MEMORY_COPY_HOST_TO_DEVICE"], "x.csv", "copy"),
        (["DEVICE_TO_HOST"], "x_memory_copy_stats.csv", "copy"),
        (["KERNEL_DISPATCH", "HIP_API", "MEMORY_COPY", "HSA_API"], "x_kernel_stats.csv", "domain"),
        (["HIP_RUNTIME_API_EXT"], "x.csv", "domain"),
        ([], "x_kernel_stats.csv", "kernel"),
    ],
)
def test_domains(names: list[str], file: str, domain: str) -> None:
    """What rows are about, by their names, and where these do not decide by the file's."""
    assert find_domain(names, Path(file)) == domain


@pytest.mark.parametrize("name", ["MEMORY_COPY_HOST_TO_DEVICE", "HOST_TO_DEVICE", "CopyHostToDevice"])
def test_directions(name: str) -> None:
    """One name for one direction."""
    assert normalise_direction(name) == "HOST_TO_DEVICE"


def test_numbers_as_rocprofv3_writes_them(tmp_path: Path) -> None:
    """Percentages with exponents; what is no number is unknown or, of calls and totals, leaves the row out."""
    path = tmp_path / "x_kernel_stats.csv"
    rows = (
        "a,2,30,15.000000,4.671e-04,10,20,7.071068",
        "b,1,5,5.0,x,5,5,0.00000000e+00",
        "c,1,?,5.0,1,5,5,0",
        "d,1e3,5,,,,,",
    )
    path.write_text("\n".join([COLUMNS, *rows]))
    profile = read_profile(path)
    first, second = profile.stats
    assert (first.percentage, second.percentage, second.spread.stddev_ns) == (4.671e-04, None, 0.0)
    assert (first.spread.min_ns, first.spread.max_ns, first.spread.mean_ns) == (10, 20, 15.0)
    assert first.spread.median_ns is None
    assert [str(problem).removeprefix(f"{path}:") for problem in profile.problems] == [
        "3: column Percentage: is 'x', expected a number; it counts as unknown; the row is used",
        "4: column TotalDurationNs: is '?', expected a whole number; the row is left out, the other 2 rows are used",
        "5: column Calls: is '1e3', expected a whole number; the row is left out, the other 2 rows are used",
    ]
