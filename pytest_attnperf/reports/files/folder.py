"""Writes a folder of reports: report.html, a file of each form, and the results that they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.form_list import HTML, RESULTS, list_files, list_forms
from pytest_attnperf.reports.files.forms import Form
from pytest_attnperf.reports.run.joined import Joined

if TYPE_CHECKING:
    from pytest_attnperf.reports.html.sections import Section

Ceilings = Mapping[str, Sequence[Ceiling]]


def write_reports(
    folder: Path,
    joined: Joined,
    *,
    histories: Sequence[CaseHistory] = (),
    ceilings: Ceilings | None = None,
    sections: Sequence[Section] = (),
) -> list[str]:
    """Writes all reports and results of the runs into `folder`, creating it; returns lines on what was written.
    `sections` stand in the page behind the cases.

    A form that fails, or a page whose extra libraries are missing, leaves the other files written; its older file is
    removed because it would not match them, and a line gives the reason. Several runs are written as results-1.json,
    results-2.json and so on, in the order of their start.
    """
    names = [RESULTS] if len(joined.runs) == 1 else [f"results-{n}.json" for n in range(1, len(joined.runs) + 1)]
    for name, run in zip(names, joined.runs, strict=True):
        json_results.write(folder / name, run)
    failures = {form.filename: _write_form(folder / form.filename, form, joined) for form in list_forms()}
    written = [*names, *(name for name, failure in failures.items() if not failure)]
    said = [f"report: {name} was not written: {failure}" for name, failure in failures.items() if failure]
    try:
        write_html(folder / HTML, joined, histories=histories, ceilings=ceilings, sections=sections)
        written.insert(0, HTML)
    except AttnperfError as error:
        (folder / HTML).unlink(missing_ok=True)
        said.append(f"report: {HTML} was not written: {error}")
    return [f"report: {folder}: {', '.join(written)}", *said]


def _write_form(path: Path, form: Form, joined: Joined) -> str:
    """Writes a form to `path` and returns ''; if it fails, removes an older file there and returns why."""
    try:
        write_atomically(path, form.encode_runs(joined))
    except UsageError as error:
        path.unlink(missing_ok=True)
        return str(error)
    return ""


def has_gaps(folder: Path) -> bool:
    """Tells whether the page or the file of a form is missing in a folder that `write_reports` has written."""
    return not all((folder / name).exists() for name in list_files() if name != RESULTS)


def write_html(
    path: Path,
    joined: Joined,
    *,
    histories: Sequence[CaseHistory] = (),
    ceilings: Ceilings | None = None,
    sections: Sequence[Section] = (),
) -> None:
    """Writes the HTML page to `path`, with `sections` behind the cases. Raises HtmlReportError if a library that it
    needs is missing."""
    from pytest_attnperf.reports.html.page import render_page

    text = render_page(joined, histories=histories, ceilings=ceilings or {}, sections=sections)
    write_atomically(path, text.encode("utf-8", "replace"))
