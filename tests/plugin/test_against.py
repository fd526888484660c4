"""`--attnperf-against`: the second look against a base side, typed as a user types it, on the fake device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Look:
    """What a run against a base side said and left."""

    result: pytest.RunResult
    cases: dict[str, dict[str, Any]]

    def failed(self) -> set[str]:
        """Backends whose tests failed."""
        lines = self.result.stdout.lines
        return {
            found[1] for line in lines if (found := re.match(r"FAILED \S+::test_prefill\[(fake\.\w+)-prefill", line))
        }


HERE: dict[str, dict[str, Any]] = {
    "fake.slow": {"time_us": 105},
    "fake.same": {"time_us": 100},
    "fake.new": {"time_us": 10},
    "fake.refuses": {"time_us": 100, "supported": ["no such dtype"]},
    "fake.built": {"time_us": 100},
    "fake.right": {"time_us": 100},
    "fake.timer": {"time_us": 100},
    "fake.threads": {"time_us": 100, "settings": "threads 8"},
}
THERE: dict[str, dict[str, Any]] = {
    **{name: {"time_us": 100} for name in HERE if name != "fake.new"},
    "fake.gone": {"time_us": 50},
    "fake.built": {"time_us": 100, "fault": "prepare"},
    "fake.right": {"time_us": 100, "fault": "wrong"},
    "fake.timer": {"time_us": 100, "timer": "event"},
    "fake.threads": {"time_us": 100, "settings": "torch's defaults"},
}
_LOOKS: list[Look] = []
"""The look of `HERE` against `THERE`, once it was taken: each test reads another case of it."""


@pytest.fixture
def look(attnperf_project: FakeProject, base: Path) -> Look:
    """Backends that differ from the base side's, or do not, in one run."""
    if not _LOOKS:
        attnperf_project.script["backends"] = HERE
        attnperf_project.write()
        script(base, THERE)
        result = attnperf_project.run("--attnperf", f"--attnperf-against={base}", PAIRS)
        cases = {case["key"]["backend"]: case for case in attnperf_project.results()["cases"]}
        _LOOKS.append(Look(result, cases))
    return _LOOKS[0]


def script(base: Path, backends: Mapping[str, object]) -> None:
    """Script backends of the base side: these alone."""
    path = base / "fake_device.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"backends": backends}))


def change(base: Path, **how: object) -> None:
    """Script the base side's `fake.a`, its only backend."""
    script(base, {"fake.a": {"time_us": 100, **how}})


def git(folder: Path, *words: str) -> str:
    """Run git in a folder."""
    answer = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **IDENTITY}, capture_output=True, text=True, check=True
    )
    return answer.stdout.strip()


def test_slower_than_base(look: Look) -> None:
    """A case without a baseline that is slower than the base directory's fails, and says by how much."""
    assert look.result.ret == 1
    assert look.failed() == {"fake.slow", "fake.refuses"}
    look.result.stdout.fnmatch_lines(
        ["*SLOWER: prefill/fake.slow/*", "*interleaved in 3 pairs*", "*cases settled by A B B A against*"]
    )
    case = look.cases["fake.slow"]
    assert case["verdict"] == "SLOWER"
    assert len(case["pairs"]) == 3
    assert 1.045 < case["ratio"] < 1.055
    assert len({pair["base_process"] for pair in case["pairs"]}) == 3


def test_same_as_base(look: Look) -> None:
    """Unchanged code against its own copy is SAME, and a note says that both sides ran the same files."""
    case = look.cases["fake.same"]
    assert case["verdict"] == "SAME"
    assert any("the same files" in note for note in case["notes"])


def test_one_sided_cases(look: Look) -> None:
    """A case of this tree alone is NO_BASELINE; one of the base side alone is a finding that names it."""
    assert look.cases["fake.new"]["verdict"] == "NO_BASELINE"
    assert "fake.gone" not in look.cases
    look.result.stdout.fnmatch_lines(["*finding: prefill/fake.gone/*exists on base side*and not here*"])


def test_no_longer_supported(look: Look) -> None:
    """A backend that calls unsupported what the base side runs fails."""
    assert "fake.refuses" in look.failed()
    assert look.cases["fake.refuses"]["verdict"] == "UNSUPPORTED"
    look.result.stdout.fnmatch_lines(["*unsupported now, but base side * times it: no such dtype*"])


def test_base_raises(look: Look) -> None:
    """A kernel that fails to build on the base side makes the case INCOMPARABLE, and the text names the side."""
    assert look.cases["fake.built"]["verdict"] == "INCOMPARABLE"
    look.result.stdout.fnmatch_lines(
        ["*INCOMPARABLE: prefill/fake.built/*base side*scripted compile error in kernel fake_kernel.cu:7*"]
    )


def test_base_is_wrong(look: Look) -> None:
    """A base side that computes wrong results is no measure of time: INCOMPARABLE."""
    case = look.cases["fake.right"]
    assert case["verdict"] == "INCOMPARABLE"
    assert "the base side is incorrect" in case["summary"]


def test_other_timer_on_base(look: Look) -> None:
    """Another device identity on the base side is INCOMPARABLE, and the field is named."""
    case = look.cases["fake.timer"]
    assert case["verdict"] == "INCOMPARABLE"
    assert "timer: event on the base side, host here" in case["summary"]


def test_other_settings_on_base(look: Look) -> None:
    """Another number of threads than on the base side is INCOMPARABLE, and both are named."""
    case = look.cases["fake.threads"]
    assert case["verdict"] == "INCOMPARABLE"
    assert "settings of torch: torch's defaults on the base side, threads 8 here" in case["summary"]


def test_workload_is_named(look: Look) -> None:
    """The key of the case is the same on both sides, whatever file it stands in."""
    assert {case["key"]["workload"] for case in look.cases.values()} == {WORKLOAD}


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
        (("--attnperf", "--attnperf-against=.", "--attnperf-isolate=none"), "needs separate processes"),
        (("--attnperf", "--attnperf-accept=wanted"), "needs --update-baselines"),
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
