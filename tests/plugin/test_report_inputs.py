from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.plugin import report_inputs
from pytest_attnperf.plugin.config import RunConfig
from pytest_attnperf.plugin.ending import Ended
from pytest_attnperf.plugin.report_inputs import (
    Publishing,
    ceilings_of,
    histories_of,
    history_url,
    read_run,
    read_runs,
    report_folder,
)
from pytest_attnperf.records import DeviceInfo, Verdict
from pytest_attnperf.reports.files import forms, json_results
from pytest_attnperf.reports.files.json_results import ResultsFileError
from pytest_attnperf.reports.run.joined import Joined, join_single
from pytest_attnperf.reports.run.overview import STORED
from pytest_attnperf.testing.project import FakeProject, full_results
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[2]
PREFILL = ROOT / "baselines/sm_90/h200/prefill.json"


def test_several_files_are_one_report(tmp_path: Path) -> None:
    """Results of two machines are joined, each case with its own device."""
    for product in ("one", "two"):
        json_results.write(tmp_path / f"{product}.json", sample_run(3, product=product))
    joined = read_runs([tmp_path / "two.json", tmp_path / "one.json"])
    assert joined.devices == ("sm_90/two", "sm_90/one")
    assert len(joined.cases) == 6


def test_stored_baselines_are_shown_as_recorded() -> None:
    """A file of baselines is a run of RECORDED cases with the stored processes, the work, and where it was measured."""
    run = read_run(PREFILL)
    assert {case.verdict for case in run.cases} == {Verdict.RECORDED}
    assert run.mode == STORED
    assert run.device is not None
    assert (run.device.arch, run.device.product, run.device.compute_units) == ("sm_90", "h200", 132)
    case = next(case for case in run.cases if case.key.entry == "native.sdpa_flash/prefill-b4-s4096-h8-d256-f16-causal")
    assert len(case.first) >= 7
    assert case.figures is not None
    assert case.figures.flops
    assert case.median_us
    assert "nothing was measured" in run.notes[0]


def test_a_workload_that_means_something_else_now_has_no_figures(tmp_path: Path) -> None:
    """An entry whose stored definition is not this version's is shown with its time, and without rates."""
    text = PREFILL.read_text().replace('"head_dim":256', '"head_dim":255')
    assert text != PREFILL.read_text()
    path = tmp_path / "prefill.json"
    path.write_text(text)
    figures = {case.key.workload: case.figures for case in read_run(path).cases}
    assert figures["prefill-b4-s4096-h8-d256-f16-causal"] is None


def test_a_folder_of_baselines() -> None:
    """Every suite of a product is read; compiled kernels and published reports are no part of it."""
    joined = read_runs([PREFILL.parent])
    assert {shown.case.key.suite for shown in joined.cases} > {"prefill", "decode"}


def test_a_folder_without_files(tmp_path: Path) -> None:
    """It is an error that says what to name."""
    with pytest.raises(UsageError, match="holds no results and no stored times; name a results file"):
        read_runs([tmp_path])


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 99}', '{"entries": 3, "suite": 1}', "\x00\xff"])
def test_what_is_no_results_file(tmp_path: Path, text: str) -> None:
    """Named with its path, whatever it holds."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ResultsFileError, match=r"x\.json"):
        read_run(path)


def test_a_broken_file_of_baselines(tmp_path: Path) -> None:
    """It is read as what it claims to be, and refused."""
    path = tmp_path / "x.json"
    path.write_text('{"suite": 1, "entries": {}, "environments": {}}')
    with pytest.raises(BaselineError, match=r"x\.json: field `schema`"):
        read_run(path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read."""
    monkeypatch.setattr(json_results, "BYTES_MAX", 10)
    path = tmp_path / "x.json"
    path.write_text(" " * 11)
    with pytest.raises(UsageError, match="has 11 bytes; at most 10 are read"):
        read_run(path)


def test_ceilings_are_of_the_very_device(tmp_path: Path) -> None:
    """A calibrated device brings measured ceilings and the data sheet's; one that is not in the table brings none."""
    run = replace(sample_run(5), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    found = ceilings_of(join_single(run), [ROOT / "baselines"])
    kinds = {(ceiling.what, ceiling.kind) for ceiling in found["sm_90/h200"]}
    assert {("f16 matrix", "measured"), ("f16 matrix", "peak"), ("DRAM", "measured")} <= kinds
    only_peaks = ceilings_of(join_single(run), [tmp_path])
    assert {ceiling.kind for ceiling in only_peaks["sm_90/h200"]} == {"peak"}
    assert ceilings_of(join_single(sample_run(5)), [ROOT / "baselines"]) == {}


def test_unsound_ceilings_are_left_out(tmp_path: Path) -> None:
    """A report is not lost by a broken calibration."""
    folder = tmp_path / "sm_90/h200/ceilings"
    folder.mkdir(parents=True)
    (folder / "132.json").write_text("{")
    run = replace(sample_run(5), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    assert {ceiling.kind for ceiling in ceilings_of(join_single(run), [tmp_path])["sm_90/h200"]} == {"peak"}


def test_a_calibration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of ten thousand cases."""
    found: list[DeviceInfo] = []
    monkeypatch.setattr(report_inputs, "_find_calibrated", lambda device, roots: found.append(device))
    run = replace(sample_run(50), device=DeviceInfo("cuda", "sm_90", "h200", compute_units=132))
    assert ceilings_of(join_single(run), [ROOT / "baselines"])["sm_90/h200"]
    assert len(found) == 1


def test_histories_are_of_the_very_cases(tmp_path: Path) -> None:
    """A case that the store does not hold has no past, also where its name is a part of those of others."""
    store = pytest.importorskip("pytest_attnperf.tools.history.history_store", reason="the history needs sqlalchemy")
    pytest.importorskip("ruptures", reason="change points need ruptures")
    url = str(tmp_path / "h.sqlite")
    with store.open_store(url) as opened:
        for day in (1, 2, 3):
            opened.append(sample_run(4, seed=day, started=f"2026-01-0{day}T00:00:00Z", verdicts=[Verdict.SAME]))
    run = sample_run(4, verdicts=[Verdict.SAME])
    first, second, *others = run.cases
    part = replace(first, key=replace(first.key, workload=first.key.workload[:-3]))
    shown = join_single(replace(run, cases=(part, second, *others)))
    histories = histories_of(shown, url, 2)
    assert [history.case for history in histories] == [str(case.key) for case in (second, *others)]
    assert {len(history.points) for history in histories} == {2}
    assert histories_of(join_single(sample_run(4, product="another")), url, 2) == []


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
    result.stdout.fnmatch_lines(["report: *out/today: report.html, results.json, report.md, junit.xml, results.csv"])
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
    from pytest_attnperf.tools.history.history_store import open_store

    store = open_store(str(project.path / "history.sqlite"), read_only=True)
    (history,) = store.load_history("prefill/fake.a/prefill-b1-s64-h1-d16-f16")
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
    """Refused before anything is measured; one that fails at the end is said, and the run is not lost."""
    (project.path / "out").write_text("a file")
    assert project.run("--attnperf", "--attnperf-report=out").ret == pytest.ExitCode.USAGE_ERROR
    (project.path / "taken" / "report.html").mkdir(parents=True)
    result = project.run("--attnperf", "--attnperf-report=taken")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["report: not written: *report.html*"])


def test_a_history_that_fails_costs_no_report(project: FakeProject) -> None:
    """It is said; neither verdict nor results are lost, and the report is written, without the past of its cases."""
    (project.path / "notes.db").write_text("no database " * 100)
    result = project.run("--attnperf", "--attnperf-history=notes.db", "--attnperf-report=out")
    result.assert_outcomes(failed=1)
    assert (project.path / ".attnperf/results.json").exists()
    result.stdout.fnmatch_lines(["history: not written: *notes.db*", "report: *out: report.html*"])


def test_what_a_library_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in a report is said by its name, on one line, and reaches nobody's exit status."""

    def broken(*_args: Any, **_named: Any) -> list[str]:
        raise ValueError("odd\x1b[31m\nPASSED")

    monkeypatch.setattr(Publishing, "_write_report", broken)
    printed: list[str] = []
    publishing = Publishing(RunConfig(report="out", root=tmp_path))
    publishing.after_run(Ended(sample_run(1), (), "", ()))
    publishing.print_at_end(SimpleNamespace(write_line=printed.append))
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


def render_keys(joined: Joined) -> str:
    """Has a typing error."""
    return str(joined.kee)  # type: ignore[attr-defined]


def test_a_form_that_fails_costs_its_own_file_only(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with the file and line of its error; the other reports are written."""
    monkeypatch.setattr(forms, "FORMS", (*forms.FORMS, forms.Form("rst", "report.rst", "a text", render_keys)))
    result = project.run("--attnperf", "--attnperf-report=out")
    place = f"*report.rst was not written: form 'rst': {__file__}:*: AttributeError: 'Joined' object has no *'kee'*"
    result.stdout.fnmatch_lines(["report: *out: *report.md, junit.xml, results.csv", place])
    assert (project.path / "out" / "junit.xml").exists()


def test_a_mistake_in_the_list_of_forms_ends_a_run_that_wants_reports(
    project: FakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is measured; a run without reports goes on."""
    monkeypatch.setattr(forms, "FORMS", (*forms.FORMS, forms.Form("rst", "../report.rst", "a text", render_keys)))
    result = project.run("--attnperf", "--attnperf-report=out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*forms.py:*: form 'rst': the filename is '../report.rst'; write a name without*"])
    assert not (project.path / "out").exists()
    project.run("--attnperf").assert_outcomes(failed=1)
