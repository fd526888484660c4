from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_attnperf.tools.profilers.file_forms import FORMS, describe_wanted_files, find_form, split_stem
from pytest_attnperf.tools.profilers.reading import read_profile

HEADERS = json.loads((Path(__file__).parents[2] / "data" / "profiles" / "headers.json").read_text())

ENTRIES = [
    (f"{tool}/{name}/{version}", version, columns)
    for tool in ("rocprofv3",)
    for name, versions in HEADERS[tool].items()
    for version, columns in versions.items()
]
ENTRIES += [(f"v1/{name}", name, columns) for name, columns in HEADERS["rocprof_v1"].items()]
ENTRIES += [(f"v2/{name}", name, columns) for name, columns in HEADERS["rocprofv2_file_plugin"].items()]
OTHER_ORDER = ("as written", "reversed")

FORM_NAMES = {
    "rocprofv3/kernel_trace": "rocprofv3 kernel_trace",
    "rocprofv3/kernel_stats|": "rocprofv3 stats",
    "rocprofv3/counter": "rocprofv3 counter_collection",
    "rocprofv3/memory": "rocprofv3 memory_copy_trace",
    "rocprofv3/agent": "rocprofv3 agent_info",
    "v1/results.stats": "rocprof v1 stats",
    "v1/results.csv": "rocprof v1 results",
    "v2/": "rocprof v2 results",
}
VALUES = {
    "Kind": "KERNEL_DISPATCH",
    "Agent_Type": "GPU",
    "Kernel_Name": "flash(float*, int)",
    "KernelName": "flash(float*, int) [clone .kd]",
    "Name": "flash(float*, int)",
    "Direction": "MEMORY_COPY_HOST_TO_DEVICE",
    "Counter_Name": "SQ_WAVES",
    "Start_Timestamp": "1000",
    "End_Timestamp": "1500",
    "BeginNs": "1000",
    "EndNs": "1500",
    "Calls": "1",
    "TotalDurationNs": "500",
}


@pytest.mark.parametrize("order", OTHER_ORDER)
@pytest.mark.parametrize(("entry", "version", "columns"), ENTRIES, ids=[entry[0] for entry in ENTRIES])
def test_every_header(tmp_path: Path, entry: str, version: str, columns: list[str], order: str) -> None:
    """Each list of columns is told by itself, in any order, and one row of it reads."""
    form = find_form(columns)
    assert form is not None
    assert form.name == next(name for begin, name in FORM_NAMES.items() if entry.startswith(begin))
    if form.name.endswith("agent_info"):
        return
    ordered = columns if order == "as written" else columns[::-1]
    path = tmp_path / "renamed.csv"
    row = [VALUES.get(name, "7") for name in ordered]
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in cells) for cells in (ordered, row)) + "\n")
    profile = read_profile(path)
    assert profile.problems == ()
    stats = sum(one.spread.total_ns for one in profile.stats)
    times = {"counter_collection": "Start_Timestamp" in columns}.get(form.name.rpartition(" ")[2], True)
    assert profile.dispatches.total_ns + stats == (500 if times else 0)
    if "Kernel_Name" in columns or "KernelName" in columns:
        assert {shape.name for shape in profile.dispatches.shapes} <= {"flash(float*, int)"}
        assert all(shape.grid_items is not None for shape in profile.dispatches.shapes)
    if entry.startswith("rocprofv3/kernel_trace/"):
        wanted_version = {"6.2": "ROCm 6.2", "6.3-6.4": "ROCm 6.3 or 6.4"}.get(version, "ROCm 7.0 or later")
        assert profile.sources[0].version.startswith(wanted_version)
        assert profile.sources[0].version.endswith("rocpd convert") == (version == "rocpd convert (7.0+)")


@pytest.mark.parametrize(
    ("stem", "prefix", "ending"),
    [
        ("run_kernel_trace", "run", "kernel_trace"),
        ("kernel_trace", "", "kernel_trace"),
        ("4711_agent_info", "4711", "agent_info"),
        ("a_b_hip_api_stats", "a_b", "hip_api_stats"),
        ("results.hip_stats", "results", ".hip_stats"),
        ("results.stats", "results", ".stats"),
        ("run_results", "run", "results"),
        ("results", "results", ""),
        ("mine", "mine", ""),
    ],
)
def test_prefixes(stem: str, prefix: str, ending: str) -> None:
    """What stands before a known ending is the run's."""
    assert split_stem(stem) == (prefix, ending)


def test_a_name_tells_where_columns_do_not() -> None:
    """A kernel trace without kernel names is still named as one, so that the missing column can be said."""
    form = find_form(["Start_Timestamp"], "run_kernel_trace")
    assert form is not None
    assert form.name == "rocprofv3 kernel_trace"
    assert find_form(["Start_Timestamp"], "run") is None


def test_what_is_looked_for() -> None:
    """Every known ending is in the text."""
    for form in FORMS:
        for ending in form.endings:
            assert f"{ending}.csv" in describe_wanted_files()
