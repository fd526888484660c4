from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.reports.files import folder, forms, json_results
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.testing.sample_runs import sample_run

Captured = pytest.CaptureFixture[str]


def test_every_form_is_written(tmp_path: Path) -> None:
    """A page, Markdown, JUnit and the results themselves, in a folder that is made; the terminal is told where."""
    run = sample_run(12)
    (said,) = folder.write_reports(tmp_path / "a" / "b", join_single(run))
    made = tmp_path / "a" / "b"
    names = [form.filename for form in forms.FORMS]
    assert said == f"report: {made}: {', '.join(['report.html', 'results.json', *names])}"
    assert {path.name for path in made.iterdir()} == {"report.html", "results.json", *names}
    assert json_results.decode((made / "results.json").read_bytes(), "results.json") == run
    assert (made / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert ET.parse(made / "junit.xml").getroot().tag == "testsuites"
    assert "attnperf" in (made / "report.md").read_text()


def test_results_of_several_runs_stay_apart(tmp_path: Path) -> None:
    """Each run leaves its own file, in the order of their start."""
    early = sample_run(3, product="one", started="2026-01-01T00:00:00+00:00")
    late = sample_run(3, product="two", started="2026-01-02T00:00:00+00:00")
    folder.write_reports(tmp_path, join_runs([("b", late), ("a", early)]))
    products = []
    for name in ("results-1.json", "results-2.json"):
        device = json_results.decode((tmp_path / name).read_bytes(), name).device
        products.append(device.product if device else None)
    assert products == ["one", "two"]


def test_without_the_extra_all_else_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library costs the page only, and its name and extra are said."""

    monkeypatch.setitem(sys.modules, "jinja2", None)
    written, said = folder.write_reports(tmp_path, join_single(sample_run(3)))
    assert "report.html" not in written
    assert said.startswith("report: report.html was not written: ")
    assert "pip install 'pytest-attnperf[html]'" in said
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", *(form.filename for form in forms.FORMS)}


def test_text_that_utf8_cannot_hold(tmp_path: Path) -> None:
    """Half a surrogate in a name, as a file system may give it, does not lose the report."""
    run = sample_run(1)
    object.__setattr__(run.cases[0], "summary", "half \ud800 a character")
    folder.write_html(tmp_path / "report.html", join_single(run))
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_new_form_is_one_line_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is in every folder, has an option of its own that the help lists, and is printed as -."""
    listed = forms.Form("added", "report.added", "100 % of cases", lambda joined: f"cases,{len(joined.cases)}\n")
    monkeypatch.setattr(forms, "FORMS", (*forms.FORMS, listed))
    (said,) = folder.write_reports(tmp_path, join_single(sample_run(3)))
    assert said.endswith(", report.added")
    assert (tmp_path / "report.added").read_text() == "cases,3\n"
    results = str(tmp_path / "results.json")
    assert main(["report", results, "--added", str(tmp_path / "own.added")]) == 0
    assert (tmp_path / "own.added").read_text() == "cases,3\n"
    assert main(["report", results, "--added", "-"]) == 0
    assert capsys.readouterr().out == "cases,3\n"
    for command in ("report", "gate"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "write 100 % of cases; - prints it" in " ".join(capsys.readouterr().out.split())


def test_every_form_has_a_name_and_a_file_of_its_own() -> None:
    """One option and one file each; none is the page or the results."""
    names, files = ([*kept] for kept in zip(*((form.name, form.filename) for form in forms.FORMS), strict=True))
    assert len({*names}) == len(names)
    assert len({*files, folder.HTML, folder.RESULTS}) == len(files) + 2


def test_a_form_that_gives_no_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A forgotten return, and a name that is an option already, are said with the form's name and what to do."""
    folder.write_reports(tmp_path, join_single(sample_run(3)))
    empty: Any = forms.Form("added", "a", "nothing", lambda joined: None)  # type: ignore[arg-type, return-value]
    listed = forms.FORMS
    for form, said in (
        (empty, "form 'added': render gave NoneType; return the file as text or bytes"),
        (forms.Form("html", "a", "a page", str), "has an option --html already; give the form another name"),
        (forms.Form("junit", "a", "JUnit", str), "has an option --junit already; give the form another name"),
    ):
        monkeypatch.setattr(forms, "FORMS", (*listed, form))
        assert main(["report", str(tmp_path / "results.json"), f"--{form.name}", "-"]) == 2
        assert said in capsys.readouterr().err
