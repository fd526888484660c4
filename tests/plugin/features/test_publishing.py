"""What a run gives to others when it has ended: `--attnperf-report` and `--attnperf-history`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# What pytester sees imported for the first time within a run is forgotten after it, half of it at a bad moment.
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.ending import Ended
from pytest_attnperf.plugin.features.publishing import Publishing, history_url, report_folder
from pytest_attnperf.testing.project import FakeProject, full_results
from pytest_attnperf.testing.sample_runs import sample_run

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]

pytest.importorskip("sqlalchemy.dialects.sqlite.pysqlite", reason="the history needs sqlalchemy")
pytest.importorskip("vl_convert", reason="the page needs vl-convert-python")
pytest.importorskip("jinja2", reason="the page needs jinja2")


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One backend with a stored baseline, ten per cent slower now."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.a", time_us=110)
    return attnperf_project


def test_a_folder_of_reports(project: FakeProject) -> None:
    """`--attnperf-report=DIR` leaves a page, Markdown, JUnit and the results, whatever the verdict."""
    result = project.run("--attnperf", "--attnperf-report=out/today")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["report: *out/today: report.html, results.json, report.md, junit.xml"])
    folder = project.path / "out/today"
    assert "SLOWER" in (folder / "report.md").read_text()
    assert "SLOWER" in (folder / "report.html").read_text()
    assert full_results(folder / "results.json")["cases"][0]["verdict"] == "SLOWER"


def test_a_check_leaves_no_report(project: FakeProject) -> None:
    """A run that measures nothing has none, where the ini file names a folder for those that do."""
    project.pytester.makeini("[pytest]\nattnperf_report = out\n")
    project.run().assert_outcomes(passed=1)
    assert not (project.path / "out").exists()


def test_runs_are_appended_to_the_history(project: FakeProject) -> None:
    """Each run with `--attnperf-history` is one point of its cases, with commit, verdict and machine."""
    for _ in range(2):
        result = project.run("--attnperf", "--attnperf-history=history.sqlite", "--attnperf-report=out")
        result.stdout.fnmatch_lines(["history: 1 case appended to *history.sqlite*"])
    from pytest_attnperf.tools.history.store import open_store

    store = open_store(str(project.path / "history.sqlite"), read_only=True)
    (history,) = store.history("prefill/fake.a/prefill-b1-s64-h1-d16-f16")
    store.close()
    assert [point.verdict for point in history.points] == ["SLOWER", "SLOWER"]
    assert len({point.run_id for point in history.points}) == 2
    assert history.product == "fake1"


def test_a_file_that_is_no_history(project: FakeProject) -> None:
    """It is left as it is, that is said, and the run is not lost."""
    file = project.path / "notes.txt"
    file.write_text("my notes\n" * 500)
    result = project.run("--attnperf", "--attnperf-history=notes.txt")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["history: not written: *notes.txt*"])
    assert file.read_text() == "my notes\n" * 500


def test_a_folder_that_cannot_be_made(project: FakeProject) -> None:
    """Said, and the run is not lost."""
    (project.path / "out").write_text("a file")
    result = project.run("--attnperf", "--attnperf-report=out")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["report: not written: *out*"])


def test_a_history_that_fails_costs_no_report(project: FakeProject) -> None:
    """It is said; neither verdict nor results are lost, and the report is written, without the past of its cases."""
    result = project.run("--attnperf", "--attnperf-history=mongodb://x/y", "--attnperf-report=out")
    result.assert_outcomes(failed=1)
    assert (project.path / ".attnperf/results.json").exists()
    result.stdout.fnmatch_lines(["history: not written: *mongodb*", "report: *out: report.html*"])


def test_what_a_library_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in a report is said by its name, on one line, and reaches nobody's exit status."""

    def broken(*_args: Any, **_named: Any) -> list[str]:
        raise ValueError("odd\x1b[31m\nPASSED")

    monkeypatch.setattr(Publishing, "_write", broken)
    printed: list[str] = []
    publishing = Publishing(RunConfig(report="out", root=tmp_path))
    publishing.finish(Ended(sample_run(1), (), "", ()))
    publishing.show(SimpleNamespace(write_line=printed.append))
    assert printed == ["report: not written: ValueError: odd [31m PASSED"]


def test_the_folder_of_the_ini_file_is_one_of_rootdir(project: FakeProject) -> None:
    """What is typed is from where it is typed; what the project says is from its root."""
    project.pytester.makeini("[pytest]\nattnperf_report = made\n")
    project.run("--attnperf")
    assert (project.path / "made/report.md").exists()


@pytest.mark.parametrize(
    ("typed", "stored", "expected"),
    [
        ("h.sqlite", "", "/typed/h.sqlite"),
        (None, "h.sqlite", "/top/h.sqlite"),
        (None, "", ""),
        ("sqlite:///h.sqlite", "", "sqlite:///h.sqlite"),
        (None, "postgresql://x/y", "postgresql://x/y"),
        ("/abs/h.sqlite", "", "/abs/h.sqlite"),
    ],
)
def test_paths(typed: str | None, stored: str, expected: str) -> None:
    """What is typed is a path from where it was typed, what the project says one from its root; a URL is none."""
    given = {} if typed is None else {"history": typed, "report": typed}
    text = stored if typed is None else typed
    asked = RunConfig(history=text, report=text, typed=given, root=Path("/top"), typed_in=Path("/typed"))
    assert history_url(asked) == expected
    if "://" not in expected:
        assert report_folder(asked) == (Path(expected) if expected else None)


def test_a_report_of_a_run_that_fails_without_a_failing_case(attnperf_project: FakeProject) -> None:
    """Under strict the page and the Markdown say FAILED, and why, as the exit status does."""
    attnperf_project.backend("fake.a", time_us=100)
    result = attnperf_project.run("--attnperf", "--attnperf-strict", "--attnperf-report=out")
    assert result.ret == 1
    text = (attnperf_project.path / "out/report.md").read_text()
    assert text.startswith("### attnperf: FAILED: 1 without baseline")
    assert "No case failed, but the gate did: strict: 1 cases are NO" in text
    page = (attnperf_project.path / "out/report.html").read_text()
    assert ">Failed</span>" in page
    assert "No case failed, but the run did: strict: 1 cases are NO_BASELINE" in page
