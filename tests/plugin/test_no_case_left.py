"""A strict gate that a selection leaves without any case is not green, however cases were left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.cli import main
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s128-h1-d16-f16"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Two stored cases in two files, a backend without a case, and an ordinary test."""
    for name in ("fake.a", "fake.b", "fake.c"):
        attnperf_project.backend(name, time_us=100)
    attnperf_project.suite([WORKLOAD], ", backends=['fake.a']")
    attnperf_project.suite([OTHER], ", backends=['fake.b']", name="test_more.py")
    attnperf_project.store_baselines()
    (attnperf_project.path / "suites/test_plain.py").write_text("def test_plain():\n    pass\n")
    return attnperf_project


def gate(project: FakeProject, *typed: str) -> pytest.RunResult:
    """A strict gate, as it is typed."""
    gated = ("-p", "no:randomly", "--attnperf", "--attnperf-strict")
    return project.pytester.runpytest_subprocess(*gated, *typed, timeout=120)


@pytest.mark.parametrize(
    "typed",
    [
        ("-k", "plain"),
        ("-k", "nothing_of_that_name"),
        ("-m", "nothing"),
        ("--lf", "--lfnf=none"),
        ("--attnperf-changed", "-k", "plain"),
        ("--deselect=suites/test_prefill.py", "--deselect=suites/test_more.py"),
        ("--ignore=suites/test_prefill.py", "--ignore=suites/test_more.py"),
        ("-k", "plain", "-p", "no:cacheprovider"),
    ],
)
def test_options_that_leave_no_case(project: FakeProject, typed: tuple[str, ...]) -> None:
    """Exit status 1 although an ordinary test passes, and a line says how many cases were collected, or are stored."""
    result = gate(project, *typed)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = [line for line in result.outlines if line.startswith("exit status 1: ")]
    assert said, result.stdout.str()
    assert "gated 0 of 2 cases collected" in said[0] or "baselines are stored for more, prefill" in said[0]
    assert project.run("--attnperf", "--no-attnperf-strict", *typed).ret in (0, 5)


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        (("--attnperf-backend=fake.c",), 4, "--attnperf-backend=fake.c selects no case: "),
        (("--attnperf-workload=m=64,n=64,k=64,f16",), 4, "selects no case: the selected tests are of prefill"),
        (("--attnperf-backend=fake.a", "-k", "plain"), 1, "strict: gated 0 of 1 case collected"),
    ],
)
def test_our_selections_that_leave_no_case(
    project: FakeProject, typed: tuple[str, ...], status: int, said: str
) -> None:
    """A backend that exists but has no case, and a workload of no test, are usage errors; beside -k the run fails."""
    result = gate(project, *typed)
    assert result.ret == status
    assert said in result.stderr.str() + result.stdout.str()


def test_a_workload_without_a_baseline_gates_nothing(project: FakeProject) -> None:
    """A typed workload that nothing is stored for is judged, and compared with nothing."""
    result = gate(project, "--attnperf-workload=b=1,s=77,h=1,d=16,f16", "suites")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["exit status 1: strict: gated 0 of 2"])


def test_cases_that_are_all_left_to_nightly_runs(attnperf_project: FakeProject) -> None:
    """A run of a tier that takes none of its cases has gated nothing; the line names the tier that takes them."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.suite([WORKLOAD], ", tier='nightly'")
    attnperf_project.store_baselines()
    (attnperf_project.path / "suites/test_plain.py").write_text("def test_plain():\n    pass\n")
    result = gate(attnperf_project, "suites")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["exit status 1: strict: gated 0 of 1 case collected*--attnperf-tier=nightly*"])
    assert gate(attnperf_project, "--attnperf-tier=nightly", "suites").ret == pytest.ExitCode.OK


def test_a_run_that_stops_at_a_failure_is_told_apart(project: FakeProject) -> None:
    """With -x the cases behind the first failure have no verdict, and are not said to be gone."""
    project.backend("fake.b", time_us=150)
    result = gate(project, "-x", "suites/test_more.py", "suites/test_prefill.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "has no verdict" not in result.stdout.str()


def test_a_hook_that_runs_a_test_itself_is_named(project: FakeProject) -> None:
    """The case that got no verdict is a finding with its key; the other one is judged."""
    project.conftest(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    return True if 'test_prefill.py' in item.nodeid else None\n"
    )
    result = gate(project, "suites")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"finding: prefill/fake.a/{WORKLOAD} has no verdict: *"])
    assert project.verdicts() == {"fake.b": "SAME"}


def test_ordinary_files_and_tests_that_are_named_pass(project: FakeProject) -> None:
    """A run that names files or tests without a case was never asked to gate any."""
    assert gate(project, "suites/test_plain.py").ret == pytest.ExitCode.OK
    assert gate(project, "suites/test_plain.py::test_plain").ret == pytest.ExitCode.OK


def test_a_filter_of_the_ini_file_hides_nothing(project: FakeProject) -> None:
    """A stored case that `addopts` deselects is a finding; typed on the command line the same filter is none."""
    project.pytester.makeini("[pytest]\naddopts = -k 'not test_prefill.py'\n")
    result = gate(project, "suites")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"finding: prefill/fake.a/{WORKLOAD} has a baseline but no case*"])
    project.pytester.makeini("[pytest]\n")
    assert gate(project, "-k", "not test_prefill.py", "suites").ret == pytest.ExitCode.OK


def test_the_environment_of_a_job_may_filter(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTEST_ADDOPTS is set by who starts the run, not by the change: a filter there is one that was typed."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k 'not test_prefill.py'")
    assert gate(project, "suites").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ["nothing", "no fields", "no case", "no case and none selected"])
def test_gate_of_results_without_a_case(
    project: FakeProject, name: str, strict: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty file, and one whose cases were taken out, do not pass `attnperf gate`; under strict none does."""
    project.run("--attnperf")
    monkeypatch.chdir(project.path)
    path = project.path / ".attnperf/results.json"
    stored: dict[str, Any] = json.loads(path.read_text())
    texts = {
        "nothing": "",
        "no fields": "{}",
        "no case": json.dumps({**stored, "cases": []}),
        "no case and none selected": json.dumps({**stored, "cases": [], "selected": 0, "gated": 0}),
    }
    path.write_text(texts[name])
    status = main(["gate", "--results", str(path), "--strict" if strict else "--no-strict"])
    said = "".join(capsys.readouterr())
    assert (status != 0) is (strict or name != "no case and none selected"), said
    assert said
