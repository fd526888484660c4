"""`--attnperf-against`: the second look against a base side, typed as a user types it, on the fake device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

PAIRS = "--attnperf-pairs=3"
IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


@pytest.fixture
def base(attnperf_project: FakeProject, tmp_path: Path) -> Path:
    """A copy of the project as it is now, beside it: `change` may make it differ."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.script["process_sd"] = 0.002
    attnperf_project.write()
    folder = tmp_path.parent / f"{tmp_path.name}-base"
    shutil.copytree(attnperf_project.path, folder)
    return folder


def change(base: Path, **script: object) -> None:
    """Script the base side's `fake.a`."""
    path = base / "fake_device.json"
    content = json.loads(path.read_text())
    content["backends"]["fake.a"] = {"time_us": 100, **script}
    path.write_text(json.dumps(content))


def git(folder: Path, *words: str) -> str:
    """Run git in a folder."""
    answer = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **IDENTITY}, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def test_slower_than_base(attnperf_project: FakeProject, base: Path) -> None:
    """A case without a baseline that is slower than the base directory's fails, and says by how much."""
    attnperf_project.backend("fake.a", time_us=105)
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SLOWER*", "*interleaved in 3 pairs*", "*cases settled by A B B A against*"])
    case = attnperf_project.results()["cases"][0]
    assert len(case["pairs"]) == 3
    assert 1.045 < case["ratio"] < 1.055
    assert len({pair["base_process"] for pair in case["pairs"]}) == 3


def test_same_as_base(attnperf_project: FakeProject, base: Path) -> None:
    """Unchanged code against its own copy is SAME, and a note says that both sides ran the same files."""
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert result.ret == 0, result.stdout.str()
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "SAME"
    assert any("the same files" in note for note in case["notes"])


def test_suspect_is_cleared(attnperf_project: FakeProject, base: Path) -> None:
    """A day on which everything is slower than stored makes a suspect, and the base side, as slow, clears it."""
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=110)
    change(base, time_us=110)
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert result.ret == 0, result.stdout.str()
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "SAME"
    assert any("the toolchain or chance, not the code" in reason for reason in case["reasons"]), case["reasons"]


def test_no_suspect_no_pairs(attnperf_project: FakeProject, base: Path) -> None:
    """A case that the stored baseline settles takes no pairs; with --attnperf-interleave=all it does."""
    attnperf_project.store_baselines()
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.results()["cases"][0]["pairs"] == []
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS, "--attnperf-interleave=all")
    assert len(attnperf_project.results()["cases"][0]["pairs"]) == 3


def test_one_sided_cases(attnperf_project: FakeProject, base: Path) -> None:
    """A case of this tree alone is NO_BASELINE; one of the base side alone is a finding that names it."""
    content = json.loads((base / "fake_device.json").read_text())
    content["backends"]["fake.gone"] = {"time_us": 50}
    (base / "fake_device.json").write_text(json.dumps(content))
    attnperf_project.backend("fake.new", time_us=10)
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.verdicts() == {"fake.a": "SAME", "fake.new": "NO_BASELINE"}
    result.stdout.fnmatch_lines(["*finding: prefill/fake.gone/*exists on base side*and not here*"])


def test_no_longer_supported(attnperf_project: FakeProject, base: Path) -> None:
    """A backend that calls unsupported what the base side runs fails."""
    attnperf_project.backend("fake.a", supported=["no such dtype"])
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unsupported now, but base side * runs it: no such dtype*"])


def test_base_raises(attnperf_project: FakeProject, base: Path) -> None:
    """A kernel that fails to build on the base side makes the case INCOMPARABLE, and the text names the side."""
    change(base, fault="prepare")
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.verdicts() == {"fake.a": "INCOMPARABLE"}
    result.stdout.fnmatch_lines(["*INCOMPARABLE*base side*scripted compile error in kernel fake_kernel.cu:7*"])


def test_base_is_wrong(attnperf_project: FakeProject, base: Path) -> None:
    """A base side that computes wrong results is no measure of time: INCOMPARABLE."""
    change(base, fault="wrong")
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "INCOMPARABLE"
    assert "the base side is incorrect" in case["summary"]


def test_base_does_not_import(attnperf_project: FakeProject, base: Path) -> None:
    """A base side whose conftest raises is an ERROR that names the side and quotes its log."""
    (base / "conftest.py").write_text("import a_module_that_is_not_there\n")
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ERROR*", "*base side*died during 'start'*", "*a_module_that_is_not_there*"])


def test_base_that_holds_a_copy_of_the_plugin(attnperf_project: FakeProject, base: Path) -> None:
    """A base tree that puts a plugin of its own first on the path is measured by the working tree's."""
    (base / "tox.ini").write_text("[pytest]\npythonpath = .\n")
    (base / "pytest_attnperf").mkdir()
    (base / "pytest_attnperf" / "__init__.py").write_text("raise RuntimeError('the copy of the base tree ran')\n")
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.verdicts() == {"fake.a": "SAME"}


def test_base_crashes_in_a_turn(attnperf_project: FakeProject, base: Path) -> None:
    """A process of the base side that aborts is named with its log, and the run goes on."""
    change(base, fault="crash")
    attnperf_project.backend("fake.b", time_us=50)
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.verdicts()["fake.a"] == "ERROR"
    result.stdout.fnmatch_lines(["*base side*SIGABRT*"])


def test_base_lacks_the_suite(attnperf_project: FakeProject, base: Path) -> None:
    """A directory without the selected suite is a usage error before anything is measured."""
    shutil.rmtree(base / "suites")
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*suites/test_prefill.py*"])


def test_other_workload_on_base(attnperf_project: FakeProject, base: Path) -> None:
    """Another device identity on the base side is INCOMPARABLE, and the field is named."""
    path = base / "fake_device.json"
    content = json.loads(path.read_text())
    content["backends"]["fake.a"]["timer"] = "event"
    path.write_text(json.dumps(content))
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "INCOMPARABLE"
    assert "timer: event on the base side, host here" in case["summary"]


def test_revision_beside_a_dirty_tree(
    attnperf_project: FakeProject, base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A revision is measured from a tree of its own; the dirty working tree and its index stay as they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    project = attnperf_project
    git(project.path, "init", "-q", "-b", "main")
    git(project.path, "add", "conftest.py", "fake_device.json", "suites")
    git(project.path, "commit", "-q", "-m", "fast")
    project.backend("fake.a", time_us=105)
    before = git(project.path, "status", "--porcelain", "--untracked-files=no")
    result = project.run("--attnperf", "--attnperf-against=main", PAIRS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*against main (*, interleaved in 3 pairs*"])
    assert git(project.path, "status", "--porcelain", "--untracked-files=no") == before
    assert git(project.path, "worktree", "list").count("\n") == 0


def test_unknown_revision(attnperf_project: FakeProject, base: Path) -> None:
    """What is neither revision, directory, interpreter nor command is a usage error that repeats it."""
    result = attnperf_project.run("--attnperf", "--attnperf-against=no-such-thing", PAIRS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no-such-thing*"])


def test_another_interpreter(attnperf_project: FakeProject, base: Path) -> None:
    """An interpreter runs the same tree, and is named in the verdict."""
    result = attnperf_project.run("--attnperf", f"--attnperf-against={sys.executable}", PAIRS)
    assert result.ret == 0, result.stdout.str()
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "SAME"
    assert "python" in case["against"]


def test_command_that_speaks_the_protocol(attnperf_project: FakeProject, base: Path) -> None:
    """Any command that starts `attnperf worker` can be the base side, as a container would."""
    change(base, time_us=90)
    command = f"{sys.executable} -m pytest_attnperf.cli worker --rootdir {base}"
    result = attnperf_project.run("--attnperf", f"--attnperf-against={command}", PAIRS)
    result.assert_outcomes(failed=1)
    assert attnperf_project.results()["cases"][0]["ratio"] > 1.09


def test_candidate_of_another_tree(attnperf_project: FakeProject, base: Path) -> None:
    """Two trees can be held against each other without checking out either."""
    slow = base.parent / f"{base.name}-slow"
    shutil.copytree(base, slow)
    change(slow, time_us=120)
    result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", f"--attnperf-candidate={slow}", PAIRS)
    result.assert_outcomes(failed=1)
    assert attnperf_project.results()["cases"][0]["ratio"] > 1.18


def test_policy_is_read_from_the_base(attnperf_project: FakeProject, base: Path) -> None:
    """An edited baseline of this tree is not what a case is held against where the base side has one."""
    attnperf_project.store_baselines()
    shutil.copytree(attnperf_project.path / "baselines", base / "baselines")
    attnperf_project.backend("fake.a", time_us=50)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    case = attnperf_project.results()["cases"][0]
    assert case["verdict"] == "SAME"
    assert case["baseline_us"] == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--update-baselines", "--attnperf-against=."), "measures the working tree only"),
        (("--attnperf", "--attnperf-candidate=."), "needs --attnperf-against"),
        (("--attnperf", "--attnperf-against=.", "--attnperf-isolate=none"), "needs processes of its own"),
        (("--attnperf", "--attnperf-accept=wanted"), "it needs --update-baselines"),
        (("--update-baselines", "--attnperf-calibrate=3"), "drop one"),
        (("--attnperf", "--attnperf-against=.", "--attnperf-pairs=1"), "at least 2"),
        (("--attnperf", "--attnperf-against=.", "--attnperf-interleave=some"), "choose one of"),
        (("--attnperf", "--attnperf-timer=sundial"), "choose one of"),
    ],
)
def test_contradictions(attnperf_project: FakeProject, base: Path, words: tuple[str, ...], said: str) -> None:
    """Options that another would not heed are usage errors that say which."""
    result = attnperf_project.run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_workload_is_named(attnperf_project: FakeProject, base: Path) -> None:
    """The key of the case is the same on both sides, whatever file it stands in."""
    attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
    assert attnperf_project.results()["cases"][0]["key"]["workload"] == WORKLOAD
