from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.tools.profilers.reading import read_profile
from pytest_attnperf.tools.profilers.stats_files import direction, domain_of

COLUMNS = "Name,Calls,TotalDurationNs,AverageNs,Percentage,MinNs,MaxNs,StdDev"


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
    assert domain_of(names, Path(file)) == domain


@pytest.mark.parametrize("name", ["MEMORY_COPY_HOST_TO_DEVICE", "HOST_TO_DEVICE", "CopyHostToDevice"])
def test_directions(name: str) -> None:
    """One name for one direction."""
    assert direction(name) == "HOST_TO_DEVICE"


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
        "3: column Percentage: is 'x', wanted is a number; it counts as unknown; the row is used",
        "4: column TotalDurationNs: is '?', wanted is a whole number; the row is left out, the other 2 rows are used",
        "5: column Calls: is '1e3', wanted is a whole number; the row is left out, the other 2 rows are used",
    ]
