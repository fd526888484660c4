"""A timer that does not exist is never replaced by another one, wherever it is named."""

from __future__ import annotations

import json

import pytest

from pytest_attnperf.cli import main
from pytest_attnperf.testing.project import FakeProject


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One stored case, which the fake device times by 'host'."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.store_baselines()
    return attnperf_project


@pytest.mark.parametrize(
    ("ini", "typed", "said"),
    [
        ("", "--attnperf-timer=evnt", "--attnperf-timer='evnt' is not known (did you mean 'event'?)"),
        ("", "--attnperf-timer=", "--attnperf-timer='' is not known"),
        ("", "--attnperf-timer=EVENT", "--attnperf-timer='EVENT' is not known"),
        ("", "--attnperf-override=timer=evnt", "--attnperf-override='timer=evnt': expected KEY=VALUE with KEY one of"),
        ("", "--attnperf-effort=timer=evnt", "timer"),
        ("attnperf_timer = evnt", "--attnperf", "attnperf_timer='evnt' is not known (did you mean 'event'?)"),
        ("addopts = --attnperf-timer=evnt", "--attnperf", "--attnperf-timer='evnt' is not known"),
    ],
)
def test_a_setting_that_names_no_timer_ends_the_run(project: FakeProject, ini: str, typed: str, said: str) -> None:
    """Typed, in the ini file or as an override: exit status 4 with the value and, of a timer, the known ones."""
    project.pytester.makeini(f"[pytest]\n{ini}\n")
    result = project.run("--attnperf", typed)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_a_worker_that_lacks_the_timer_breaks_the_case(project: FakeProject) -> None:
    """A process that has no timer of the requested name says so: the case is an ERROR, and no other timer is taken."""
    result = project.run("--attnperf", "--attnperf-timer=event")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.verdicts() == {"fake.a": "ERROR"}
    assert "'event' was asked for" in str(project.results()["cases"][0]["summary"])


def test_results_of_another_timer_are_not_compared(
    project: FakeProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A results file that names a timer that nobody knows does not pass `attnperf gate --strict`."""
    project.run("--attnperf")
    monkeypatch.chdir(project.path)
    path = project.path / ".attnperf/results.json"
    text = path.read_text()
    assert '"host"' in text
    path.write_text(text.replace('"host"', '"evnt"'))
    json.loads(path.read_text())
    assert main(["gate", "--results", str(path), "--strict"]) != 0
    assert "1 cases are INCOMPARABLE" in "".join(capsys.readouterr())
