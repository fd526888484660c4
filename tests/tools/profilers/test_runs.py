from __future__ import annotations

from pathlib import Path

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.reading import read_profile
from pytest_attnperf.tools.profilers.runs import files_below, runs_of

TRACE = "Kernel_Name,Agent_Id,Start_Timestamp,End_Timestamp\nflash,Agent 4,10,{end}\n"
STATS = "Name,Calls,TotalDurationNs,MinNs\nflash,1,{total},1\n"
AGENTS = "Node_Id,Logical_Node_Id,Agent_Type,Name\n4,4,GPU,gfx942\n"


def write(folder: Path, **files: str) -> Path:
    """Files by name; '__' stands for '/', and '.csv' is added."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_processes_are_runs(tmp_path: Path) -> None:
    """rocprofv3 leaves files of every process in a folder per host; one that only knows devices is no run."""
    write(
        tmp_path,
        host__11_kernel_trace=TRACE.format(end=20),
        host__11_agent_info=AGENTS,
        host__12_kernel_trace=TRACE.format(end=30),
        host__13_agent_info=AGENTS,
    )
    with pytest.raises(ProfileError) as caught:
        read_profile(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds 2 runs, which are not one profile: host/11 (rocprofv3 agent_info, rocprofv3 kernel_trace), "
        "host/12 (rocprofv3 kernel_trace); choose one with --run PREFIX, as in --run host/11"
    )
    for wish in ("host/12", "12"):
        profile = read_profile(tmp_path, run=wish)
        assert profile.dispatches.total_ns == 20
        assert profile.name == f"{tmp_path.name}: host/12"
    assert [agent.arch for agent in read_profile(tmp_path, run="11").agents] == ["gfx942"]


def test_wishes_that_do_not_fit(tmp_path: Path) -> None:
    """One that fits several runs, and one that fits none."""
    write(tmp_path, **{f"b{n}_kernel_trace": TRACE.format(end=20) for n in range(30)})
    with pytest.raises(ProfileError, match=r"--run b fits 30 runs: b0 .*b1 ") as caught:
        read_profile(tmp_path, run="b")
    assert str(caught.value).endswith("and 10 more; name one of them")
    with pytest.raises(ProfileError, match=r"holds no run 'c'; there are: b0"):
        read_profile(tmp_path, run="c")
    assert read_profile(tmp_path, run="b2").dispatches.total_ns == 10


def test_renamed_files_of_one_run(tmp_path: Path) -> None:
    """Their columns say what they are; they are one run as long as no form comes twice."""
    write(tmp_path, trace=TRACE.format(end=20), sums=STATS.format(total=10), gpus=AGENTS)
    profile = read_profile(tmp_path)
    assert [source.form for source in profile.sources] == [
        "rocprofv3 kernel_trace",
        "rocprofv3 kernel_stats",
        "rocprofv3 agent_info",
    ]
    assert profile.problems == ()
    write(tmp_path, again=TRACE.format(end=30))
    with pytest.raises(ProfileError, match=r"holds 3 runs.*: again \(rocprofv3 kernel_trace\), sums .*, trace "):
        read_profile(tmp_path)
    assert read_profile(tmp_path, run="again").dispatches.total_ns == 20


def test_renamed_files_beside_one_run(tmp_path: Path) -> None:
    """A renamed file joins the only run of its folder."""
    write(tmp_path, run_kernel_trace=TRACE.format(end=20), gpus=AGENTS)
    assert [agent.name for agent in read_profile(tmp_path).agents] == ["Agent 4"]


def test_what_is_ignored(tmp_path: Path) -> None:
    """Files of others, and those of the profiler that say nothing of time, do not disturb; they are counted."""
    write(
        tmp_path,
        run_kernel_trace=TRACE.format(end=20),
        shopping="item,price\nmilk,1\n",
        empty="",
        run_memory_allocation_trace="Kind,Operation,Agent_Id,Allocation_Size,Start_Timestamp,End_Timestamp\n",
        run_marker_api_trace="Domain,Function,Start_Timestamp,End_Timestamp\nMARKER_CORE_API,step,1,900\n",
    )
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("hello")
    found = files_below(tmp_path)
    assert [run.name for run in runs_of(found.files)] == ["run"]
    assert (found.ignored, found.broken) == (5, ())
    assert read_profile(tmp_path).stats == ()


def test_statistics_that_do_not_agree(tmp_path: Path) -> None:
    """Calls and total of every kernel must be those of the trace; the domain's sum, too."""
    write(tmp_path, a_kernel_trace=TRACE.format(end=20), a_kernel_stats=STATS.format(total=10))
    assert read_profile(tmp_path).problems == ()
    write(tmp_path, a_kernel_stats=STATS.format(total=11))
    write(tmp_path, a_domain_stats=STATS.format(total=12).replace("flash", "KERNEL_DISPATCH"))
    kernels, domains = sorted(read_profile(tmp_path).problems, key=lambda problem: problem.path, reverse=True)
    assert str(kernels) == (
        f"{tmp_path / 'a_kernel_stats.csv'}: 1 of 1 names do not agree with the trace beside it; 'flash': 1 calls, "
        "11 ns here, 1 calls, 10 ns in the trace; files of different runs?; the trace is used"
    )
    assert "'KERNEL_DISPATCH': 1 calls, 12 ns here, 1 calls, 10 ns in the trace" in domains.text


def test_statistics_alone(tmp_path: Path) -> None:
    """Without a trace there are statistics, and no dispatches."""
    profile = read_profile(write(tmp_path, a_kernel_stats=STATS.format(total=11)))
    assert (len(profile.dispatches), [row.spread.total_ns for row in profile.stats]) == (0, [11])
