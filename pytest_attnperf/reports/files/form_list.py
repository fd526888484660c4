"""Reads FORMS, the list of report forms, and checks each line: an error names the form, the list's file and line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.raised import find_raise_place

if TYPE_CHECKING:
    from pytest_attnperf.reports.files.forms import Form

HTML, RESULTS = "report.html", "results.json"
"""In a folder of reports, beside the file of each form."""

LISTED_IN = "pytest_attnperf/reports/files/forms.py"
"""The list's file, for messages."""

TAKEN_NAMES = (
    *("help", "report", "html", "open", "history", "quiet", "verbose", "color", "results", "by", "out", "comment"),
    *("workload", "cpu", "over", "relative-to", "backends", "code", "profile", "write", "expect", "allow-commits"),
    *("strict", "no-strict", "comment-text", "verdict", "repo", "pull", "head-sha", "head-repo", "base-branch"),
    *("run-number", "run-attempt", "run-url", "name", "mode", "status", "author", "dry-run"),
    *("against", "artifact", "base", "baselines", "suite", "filtered", "tier", "commit", "device", "arch"),
    *("threshold", "floor-us", "fail-on", "json", "max-bytes", "command", "seconds"),
)
"""Options and arguments of `attnperf report` and `gate` that are no forms."""

_PATH = str(Path(__file__).with_name("forms.py"))
_OPTION_WORD = re.compile(r"[a-z][a-z0-9-]*")
_FILENAME = re.compile(r"\w[\w.-]*")
_TAKEN_FILES = re.compile(r"report\.html|results(-\d+)?\.json", re.IGNORECASE)


def list_forms() -> tuple[Form, ...]:
    """Returns the forms of FORMS. Raises UsageError for the first line that is no whole form, or whose option or file
    is taken."""
    try:
        from pytest_attnperf.reports.files import forms
    except Exception as error:  # any mistake in a line of the list, such as a missing field
        place = find_raise_place(error, _PATH) or _PATH
        raise UsageError(f"{place}: FORMS cannot be built: {type(error).__name__}: {error}") from error
    for number, form in enumerate(forms.FORMS):
        if problem := _find_problem(form, forms.FORMS[:number]):
            raise UsageError(f"{_PATH}:{_find_line(number)}: {problem}")
    return forms.FORMS


def list_files() -> list[str]:
    """Returns the names of all files in a folder of reports on one run."""
    return [HTML, RESULTS, *(form.filename for form in list_forms())]


def _find_problem(form: object, earlier: Sequence[Form]) -> str:
    """Returns what is wrong with an entry of FORMS, a sentence with its name; '' if it is right."""
    from pytest_attnperf.reports.files import forms

    if not isinstance(form, forms.Form):
        return f"FORMS has a {type(form).__name__}, {form!r:.80}; write Form(name, filename, title, render)"
    problem = _find_name_problem(form, earlier) or _find_file_problem(form, earlier) or _find_render_problem(form)
    return f"form {form.name!r}: {problem}" if problem else ""


def _find_name_problem(form: Any, earlier: Sequence[Form]) -> str:
    if not isinstance(form.name, str) or not _OPTION_WORD.fullmatch(form.name):
        return (
            f"the name {form.name!r} cannot be the option --NAME; use lower-case letters, digits and hyphens, e.g. "
            "'rst'. The order is Form(name, filename, title, render)"
        )
    if form.name in (*TAKEN_NAMES, *(other.name for other in earlier)):
        return f"a command has an option --{form.name} already; give the form another name"
    has_title = isinstance(form.title, str) and form.title
    return "" if has_title else f"the title is {form.title!r}; write a text for the help"


def _find_file_problem(form: Any, earlier: Sequence[Form]) -> str:
    if not isinstance(form.filename, str) or not _FILENAME.fullmatch(form.filename):
        return f"the filename is {form.filename!r}; write a name without a folder, e.g. 'report.rst'"
    others = {other.filename.lower(): f"form {other.name!r}" for other in earlier}
    owner = others.get(form.filename.lower(), "")
    if _TAKEN_FILES.fullmatch(form.filename):
        owner = "the folder of reports itself"
    return f"the file {form.filename} is written by {owner}; give the form another filename" if owner else ""


def _find_render_problem(form: Any) -> str:
    if not callable(form.render):
        return f"render is a {type(form.render).__name__}; name the function and do not call it"
    try:
        inspect.signature(form.render).bind(None)
    except TypeError as error:
        name = getattr(form.render, "__name__", "render")
        return f"{name}() must take one argument, the joined runs, but: {error}"
    except ValueError:  # a builtin without a signature
        return ""
    return ""


def _find_line(number: int) -> int:
    """Returns the line of entry `number` (from 0) of FORMS in its file; the line of FORMS if it is not there."""
    for node in ast.parse(Path(_PATH).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FORMS":
            entries = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
            return entries[number].lineno if number < len(entries) else node.lineno
    return 1
