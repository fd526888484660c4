"""Cases that the base side of `--attnperf-against` does not have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s128-h1-d16-f16"
THIRD = "prefill-b1-s256-h1-d16-f16"


@pytest.fixture
def project(attnperf_project: FakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """One backend and one suite, committed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    attnperf_project.backend("fake.a", time_us=100)
    git(attnperf_project.path, "init", "-q")
    (attnperf_project.path / ".gitignore").write_text(".attnperf/\n__pycache__/\n")
    commit(attnperf_project)
    return attnperf_project


def git(folder: Path, *words: str) -> None:
    """Run git as nobody in particular."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *who, *words], cwd=folder, env=environment, capture_output=True, check=True)


def commit(project: FakeProject) -> None:
    """Commit everything."""
    git(project.path, "add", "-A")
    git(project.path, "commit", "-qm", "x")


def suite_goes(project: FakeProject) -> None:
    """Commit a tree whose only suite has gone, and make a new one, uncommitted."""
    (project.path / "suites/test_prefill.py").unlink()
    (project.path / "suites/README").write_text("none yet")
    commit(project)
    project.suite([OTHER], name="test_more.py")


def gate(project: FakeProject, *words: str, base: str = "HEAD") -> pytest.RunResult:
    """Gate against the last commit, strictly."""
    return project.run("--attnperf", f"--attnperf-against={base}", "--attnperf-pairs=3", "--attnperf-strict", *words)


def said(project: FakeProject) -> dict[str, tuple[str, bool]]:
    """Suite and workload -> verdict, and whether it is new."""
    cases = project.results()["cases"]
    return {f"{case['key']['suite']}/{case['key']['workload']}": (case["verdict"], case["new"]) for case in cases}


def test_a_new_suite_beside_an_old_one(project: FakeProject) -> None:
    """Its cases, and a new one of an old suite, are proven, timed and called new, and fail no strict run; an unchanged
    case is compared as ever, and nothing is said to have vanished."""
    project.suite([WORKLOAD, THIRD])
    project.suite([OTHER], name="test_more.py")
    result = gate(project, "-v")
    assert result.ret == 0, result.stdout.str()
    assert said(project) == {
        f"prefill/{WORKLOAD}": ("SAME", False),
        f"prefill/{THIRD}": ("NO_BASELINE", True),
        f"more/{OTHER}": ("NO_BASELINE", True),
    }
    assert all(case["median_us"] > 0 for case in project.results()["cases"])
    shown = result.stdout.str()
    assert shown.count(" NEW ") == 2
    assert shown.count("NO_BASELINE, new") == 2
    assert "it was not checked" not in shown
    result.stdout.fnmatch_lines(["2 new, 1 same on *"])
    result.stdout.fnmatch_lines(["2 new in this revision: not in HEAD (*), so proven and timed, and compared with *"])
    assert project.results()["findings"] == []


def test_a_run_of_new_suites_alone(project: FakeProject) -> None:
    """Of a revision without any file of the run nothing is gated, the closing line says why, and a strict run passes. A
    wrong case fails all the same."""
    suite_goes(project)
    result = gate(project)
    assert result.ret == 0, result.stdout.str()
    assert said(project) == {f"more/{OTHER}": ("NO_BASELINE", True)}
    result.stdout.fnmatch_lines(["gated 0 of 1, because all that were timed are new in this revision: not in HEAD (*"])
    result.stdout.no_fnmatch_line("*nothing was compared with a baseline*")
    project.backend("fake.a", time_us=100, fault="wrong")
    result = gate(project)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*INCORRECT: more/fake.a/*"])


def test_a_renamed_suite_is_a_finding(project: FakeProject) -> None:
    """A slower case in a file of another name is called new, and the file that vanished is a finding, red under strict.
    Where only a part is selected nobody looks, and that is said."""
    (project.path / "suites/test_prefill.py").rename(project.path / "suites/test_renamed.py")
    project.backend("fake.a", time_us=150)
    result = gate(project)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "finding: suites/test_prefill.py exists on base side HEAD (*) and not here: its cases were removed or*",
            "exit status 1: strict: 1 findings",
        ]
    )
    result = gate(project, "-k", "fake")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["it was not checked whether new cases are renamed old ones, because only some cases were selected: *"]
    )


def test_a_baseline_is_not_forgotten(project: FakeProject) -> None:
    """A case that the base side lacks is held against its baseline where one is stored: slower is slower."""
    project.store_baselines()
    suite_goes(project)
    project.suite([WORKLOAD])
    project.backend("fake.a", time_us=150)
    assert gate(project, "-k", "prefill.py").ret == 1
    assert said(project) == {f"prefill/{WORKLOAD}": ("SLOWER", False)}


def test_a_candidate_and_a_strange_folder_need_the_suite(project: FakeProject, tmp_path: Path) -> None:
    """What is measured must be there; and a folder that is no tree of this project is no base side."""
    suite_goes(project)
    result = gate(project, "--attnperf-candidate=rev:HEAD")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the candidate HEAD (*) lacks the suite: suites/test_more.py is not there*"])
    strange = tmp_path.parent / f"{tmp_path.name}-strange"
    strange.mkdir()
    result = gate(project, base=str(strange))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the directory *-strange lacks the suite: suites/test_more.py is not there*"])
