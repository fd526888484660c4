from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.cli.program import build_whole_parser, main
from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.files import folder, forms
from pytest_attnperf.reports.files.form_list import TAKEN_NAMES, list_files, list_forms
from pytest_attnperf.reports.files.forms import FORMS, Form
from pytest_attnperf.reports.run.joined import Joined, join_single
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[3]
Captured = pytest.CaptureFixture[str]


def render_keys(joined: Joined) -> str:
    """Has a typing error."""
    return "".join(shown.case.kee for shown in joined.cases)  # type: ignore[attr-defined]


def render_two(joined: Joined, title: str) -> str:
    """Wants more than there is."""
    return title


def form_of(name: Any = "rst", filename: Any = "report.rst", title: Any = "a title", render: Any = render_keys) -> Form:
    """A form that is right but for what is given."""
    return Form(name, filename, title, render)


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Puts a line at the end of the list."""
    return lambda line: monkeypatch.setattr(forms, "FORMS", (*FORMS, line))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (form_of(filename="report.md"), "form 'rst': the file report.md is written by form 'markdown'; give the form"),
        (form_of(filename="Results.json"), "form 'rst': the file Results.json is written by the folder of reports"),
        (form_of(filename="results-2.json"), "the file results-2.json is written by the folder of reports itself"),
        (form_of(filename="junit.xml"), "form 'rst': the file junit.xml is written by form 'junit'"),
        (
            form_of(filename="../report.rst"),
            "form 'rst': the filename is '../report.rst'; write a name without a folder",
        ),
        (form_of(filename=""), "form 'rst': the filename is ''; write a name without a folder, e.g. 'report.rst'"),
        (form_of("my rst"), "form 'my rst': the name 'my rst' cannot be the option --NAME; use lower-case letters"),
        (form_of("--rst"), "form '--rst': the name '--rst' cannot be the option --NAME"),
        (form_of("report.rst", "rst"), "e.g. 'rst'. The order is Form(name, filename, title, render)"),
        (form_of(None), "form None: the name None cannot be the option --NAME"),
        (form_of("json"), "form 'json': a command has an option --json already; give the form another name"),
        (form_of("junit"), "form 'junit': a command has an option --junit already; give the form another name"),
        (form_of(title=render_keys, render="a"), "form 'rst': the title is <function render_keys at"),
        (form_of(render="text"), "form 'rst': render is a str; name the function and do not call it"),
        (form_of(render=render_two), "form 'rst': render_two() must take one argument, the joined runs, but: missing"),
        (form_of(render=lambda: ""), "form 'rst': <lambda>() must take one argument, the joined runs, but: too many"),
        (("rst", "report.rst", "a", render_keys), "FORMS has a tuple, ('rst', 'report.rst', 'a'"),
        (render_keys, "FORMS has a function, <function render_keys at "),
    ],
)
def test_a_mistake_in_a_line_is_named(add: Callable[[Any], None], line: Any, said: str, capsys: Captured) -> None:
    """With the form, file and line of the list, and what to write instead; every command ends with that sentence."""
    add(line)
    for command in ("report", "gate"):
        assert main([command, "--help"]) == 2
        err = capsys.readouterr().err
        assert re.match(r"attnperf: \S+/reports/files/forms\.py:\d+: ", err)
        assert said in err
        assert err.count("\n") == 1


def test_the_line_of_an_entry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the entry, not of the list."""
    monkeypatch.setattr(forms, "FORMS", (FORMS[0], form_of("out")))
    lines = Path(forms.__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if 'Form("junit"' in line)
    with pytest.raises(UsageError, match=rf"forms\.py:{number}: form 'out': "):
        list_forms()


def test_taken_names_are_all_options_of_the_commands() -> None:
    """Every other option and argument of a command with reports is taken, and nothing else is."""
    kinds = next(one for one in build_whole_parser()._actions if isinstance(one, argparse._SubParsersAction))
    found = {"command"}
    for command in ("report", "gate"):
        for action in kinds.choices[command]._actions:
            found |= {word.lstrip("-") for word in action.option_strings if word.startswith("--")} or {action.dest}
    assert found - {form.name for form in FORMS} == {*TAKEN_NAMES}


def test_a_name_with_a_hyphen_is_an_option(add: Callable[[Any], None], tmp_path: Path, capsys: Captured) -> None:
    """Its file is printed like any other's."""
    folder.write_reports(tmp_path, join_single(sample_run(1)))
    add(form_of("two-words", render=lambda joined: "here\n"))
    assert main(["report", str(tmp_path / "results.json"), "--two-words", "-"]) == 0
    assert capsys.readouterr().out == "here\n"


def test_a_render_that_fails_costs_its_own_file_only(
    add: Callable[[Any], None], tmp_path: Path, capsys: Captured
) -> None:
    """The form, and the file and line of its error, are named; the others are written, and the status is 2."""
    add(form_of())
    (tmp_path / "report.rst").write_text("of an older run")
    place = rf"form 'rst': {re.escape(__file__)}:\d+: AttributeError: 'CaseResult' object has no attribute 'kee'"
    written, said = folder.write_reports(tmp_path, join_single(sample_run(1)))
    assert re.fullmatch(f"report: report.rst was not written: {place}", said)
    assert written.endswith(": report.html, results.json, report.md, junit.xml, results.csv")
    assert not (tmp_path / "report.rst").exists()
    results = str(tmp_path / "results.json")
    assert main(["report", results, "--rst", "-", "--junit", str(tmp_path / "own.xml")]) == 2
    assert re.fullmatch(rf"attnperf: {place}\nwritten: \S+own\.xml\n", capsys.readouterr().err)
    assert (tmp_path / "own.xml").exists()
    assert main(["report", results, "--report", str(tmp_path / "b")]) == 2
    assert re.search(place, capsys.readouterr().err)
    assert (tmp_path / "b/report.md").exists()


def test_an_error_outside_of_python_names_the_form(add: Callable[[Any], None], tmp_path: Path) -> None:
    """A builtin that fails has no line."""
    add(form_of(render=ord))
    _, said = folder.write_reports(tmp_path, join_single(sample_run(1)))
    assert said.startswith("report: report.rst was not written: form 'rst': in render: TypeError: ord() expected")


def test_an_option_of_no_form_is_answered_with_the_list(capsys: Captured) -> None:
    """A forgotten line: the options, the nearest one, and where forms are listed."""
    with pytest.raises(SystemExit) as ended:
        main(["report", "results.json", "--rst", "-", "--mrkdown", "-"])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "unrecognized arguments: --rst - --mrkdown -; did you mean --markdown?\n" in err
    assert "\noptions: --help, --report, --markdown, --junit, --open, --history" in err
    assert err.endswith("\nforms of a report are listed in FORMS of pytest_attnperf/reports/files/forms.py\n")


@pytest.mark.parametrize(
    ("page", "before", "behind"), [("README.md", "also writes ", "; "), ("docs/results-format.md", "report=out ", "\n")]
)
def test_pages_list_every_file(page: str, before: str, behind: str) -> None:
    """And no file that is not written."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [part.partition(behind)[0] for part in text.split(before)[1:] if "report.html" in part.partition(behind)[0]]
    assert len(found) == 1
    listed = {*re.findall(r"\b[\w-]+\.\w+\b", found[0])}
    assert listed == {*list_files()}, f"{page}: list {', '.join(list_files())} behind {before!r}"
