"""Real files of rocprofv3 and rocprof: every one reads, and its totals are those of an independent sum."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.reading import read_profile

SAMPLES = Path(__file__).parents[2] / "data" / "profiles"
FILES = sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.csv"))


def rows_of(name: str) -> list[dict[str, str]]:
    """The file as the csv module reads it."""
    with (SAMPLES / name).open(newline="") as file:
        return list(csv.DictReader(file))


def sums(name: str, key: str, begin: str, end: str) -> dict[str, tuple[int, int]]:
    """(calls, nanoseconds) by the names in a column."""
    calls: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows_of(name):
        called = row[key].removesuffix(" [clone .kd]").removesuffix(".kd").removeprefix("MEMORY_COPY_")
        calls[called] += 1
        total[called] += int(row[end]) - int(row[begin])
    return {called: (calls[called], total[called]) for called in calls}


def read_sums(name: str) -> dict[str, tuple[int, int]]:
    """The same, as the reader says."""
    dispatches = read_profile(SAMPLES / name).dispatches
    found: dict[str, tuple[int, int]] = {}
    for shape, start, end in dispatches:
        calls, total = found.get(shape.name, (0, 0))
        found[shape.name] = (calls + 1, total + end - start)
    return found


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("kernel_trace.csv")])
def test_kernel_traces(name: str) -> None:
    """Calls and time of every kernel, and the sizes of its launches, are those of the file."""
    assert read_sums(name) == sums(name, "Kernel_Name", "Start_Timestamp", "End_Timestamp")
    rows = rows_of(name)
    shapes = {
        (row["Kernel_Name"], *(int(row[f"{what}_Size_{axis}"]) for what in ("Workgroup", "Grid") for axis in "XYZ"))
        for row in rows
    }
    read = read_profile(SAMPLES / name).dispatches.shapes
    assert {(shape.name, *(shape.workgroup or ()), *(shape.grid_items or ())) for shape in read} == shapes
    lds = "LDS_Block_Size" if "LDS_Block_Size" in rows[0] else "Group_Segment_Size"
    assert {(shape.name, shape.lds_bytes) for shape in read} == {(row["Kernel_Name"], int(row[lds])) for row in rows}
    vgprs = {shape.vgprs for shape in read}
    assert vgprs == {int(row["VGPR_Count"]) if "VGPR_Count" in row else None for row in rows}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("memory_copy_trace.csv")])
def test_copy_traces(name: str) -> None:
    """Copies of old and new versions have the same names, and are of the GPU's end."""
    assert read_sums(name) == sums(name, "Direction", "Start_Timestamp", "End_Timestamp")
    shapes = read_profile(SAMPLES / name).dispatches.shapes
    assert {(shape.name, shape.kind) for shape in shapes} == {("HOST_TO_DEVICE", "copy"), ("DEVICE_TO_HOST", "copy")}
    assert {shape.agent for shape in shapes} == {"Agent 4" if "rocm70" in name else "1"}


def test_rocprof_v1() -> None:
    """Dispatches of rocprof v1, and its own DurationNs."""
    name = "rocprof_v1/results.csv"
    found = read_sums(name)
    assert found == sums(name, "KernelName", "BeginNs", "EndNs")
    assert sum(total for _, total in found.values()) == sum(int(row["DurationNs"]) for row in rows_of(name))
    shapes = read_profile(SAMPLES / name).dispatches.shapes
    wanted = {(int(row["grd"]), int(row["wgr"]), int(row["lds"]), int(row["arch_vgpr"])) for row in rows_of(name)}
    read = {(shape.grid_items, shape.workgroup, shape.lds_bytes, shape.vgprs) for shape in shapes}
    assert read == {((grid, 1, 1), (group, 1, 1), lds, vgprs) for grid, group, lds, vgprs in wanted}
    assert {shape.agent for shape in shapes} == {"2"}


DOMAINS = {
    "hip_rocm64/01_stats.csv": "domain",
    "rocprofv3_rocm70/hip_domain_stats.csv": "domain",
    "hip_rocm64/02_stats.csv": "api",
    "rocprofv3_rocm63/hip_api_stats.csv": "api",
    "rocprofv3_rocm70/hip_api_stats.csv": "api",
}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("stats.csv")])
def test_stats(name: str) -> None:
    """Every row of a stats file, of the domain that its names tell, whatever the file is called."""
    stats = read_profile(SAMPLES / name).stats
    rows = rows_of(name)
    assert [(row.spread.calls, row.spread.total_ns) for row in stats] == [
        (int(row["Calls"]), int(row["TotalDurationNs"])) for row in rows
    ]
    assert [row.percentage for row in stats] == [float(row["Percentage"]) for row in rows]
    assert {row.domain for row in stats} == {DOMAINS.get(name, "kernel")}
    for row in stats:
        least, mean, most = row.spread.min_ns, row.spread.mean_ns, row.spread.max_ns
        assert mean is not None
        assert least is None or most is None or least <= mean <= most


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("counter_collection.csv")])
def test_counters(name: str) -> None:
    """Counters by kernel; times of the dispatches where the file has them."""
    profile = read_profile(SAMPLES / name)
    rows = rows_of(name)
    assert {counter.kernel for counter in profile.counters} <= {"addition_kernel<float>"} | {
        row["Kernel_Name"].partition("(")[0] for row in rows
    }
    assert {counter.median for counter in profile.counters} == {float(row["Counter_Value"]) for row in rows}
    if "Start_Timestamp" in rows[0]:
        assert read_sums(name) == sums(name, "Kernel_Name", "Start_Timestamp", "End_Timestamp")
        assert "read counters" in profile.notes[0]
    else:
        assert not profile.dispatches


VERSIONS = {
    "mi300a_rocm62/jacobi_kernel_trace.csv": "ROCm 6.2",
    "hip_rocm64/04_kernel_trace.csv": "ROCm 6.3 or 6.4",
    "rocprofv3_rocm63/kernel_trace.csv": "ROCm 6.3 or 6.4",
    "rocprofv3_rocm63/counter_collection.csv": "ROCm 6.3",
    "rocprofv3_rocm63/memory_copy_trace.csv": "ROCm 6.2 to 6.4",
    "rocprofv3_rocm70/kernel_trace.csv": "ROCm 7.0 or later",
    "rocprofv3_rocm70/memory_copy_trace.csv": "ROCm 7.0 or later",
    "rocprofv3_rocm70/counter_collection.csv": "ROCm 6.4 or later",
    "rocprof_v1/results.csv": "",
}


@pytest.mark.parametrize(("name", "version"), VERSIONS.items())
def test_versions(name: str, version: str) -> None:
    """Which ROCm wrote a file, by its columns."""
    assert read_profile(SAMPLES / name).sources[0].version == version


def test_devices() -> None:
    """MI300A: four CPUs and four GPUs; trace and devices are joined by node, beside the file or in its folder."""
    for path in (SAMPLES / "mi300a_rocm62", SAMPLES / "mi300a_rocm62/jacobi_kernel_trace.csv"):
        profile = read_profile(path)
        gpu = next(agent for agent in profile.agents if agent.name == "4")
        assert (gpu.kind, gpu.arch, gpu.product) == ("gpu", "gfx942", "AMD Instinct MI300A")
        assert (gpu.compute_units, gpu.wave_size) == (228, 64)
        assert [agent.kind for agent in profile.agents] == ["cpu"] * 4 + ["gpu"] * 4
        assert {shape.agent for shape in profile.dispatches.shapes} == {"4"}


def test_statistics_of_more_than_the_trace() -> None:
    """A trace that is cut short beside the statistics of the whole run is a problem, and the trace is used."""
    profile = read_profile(SAMPLES / "rocprof_v1")
    assert len(profile.dispatches) == 300
    (problem,) = profile.problems
    assert problem.path.endswith("whole_run.stats.csv")
    assert "19 of 20 names differ from the trace of the same run" in problem.text
    assert problem.text.endswith("files of different runs?")
    assert problem.used == "the trace is used"


def test_samples_of_several_runs() -> None:
    """Copies of another day are left out, said; renamed statistics of several runs are told apart."""
    profile = read_profile(SAMPLES / "rocprofv3_rocm63")
    assert {shape.kind for shape in profile.dispatches.shapes} == {"kernel"}
    assert "its copies are 8804374 s away from the kernels of the same run" in str(profile.problems[0])
    with pytest.raises(ProfileError, match=r"holds 4 runs.*01_stats \(rocprofv3 stats\), .*--run 01_stats$"):
        read_profile(SAMPLES / "hip_rocm64")
    assert read_profile(SAMPLES / "hip_rocm64", run="03").stats[0].spread.calls == 1000
