"""Writes a folder of reports: report.html, a file of each form, and the results that they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.files import forms, json_results
from pytest_attnperf.reports.run.joined import Joined

HTML, RESULTS = "report.html", "results.json"

Ceilings = Mapping[str, Sequence[Ceiling]]


def write_reports(
    folder: Path, joined: Joined, *, histories: Sequence[CaseHistory] = (), ceilings: Ceilings | None = None
) -> list[str]:
    """Writes all reports and results of the runs into `folder`, creating it; returns lines on what was written.

    The page needs libraries of an extra. Without them the other files are written, an older page is removed because it
    would not match them, and a line gives the reason. Several runs are written as results-1.json, results-2.json and so
    on, in the order of their start.
    """
    names = [RESULTS] if len(joined.runs) == 1 else [f"results-{n}.json" for n in range(1, len(joined.runs) + 1)]
    for name, run in zip(names, joined.runs, strict=True):
        json_results.write(folder / name, run)
    for form in forms.FORMS:
        write_atomically(folder / form.filename, form.encode_runs(joined))
    written = [*names, *(form.filename for form in forms.FORMS)]
    said: list[str] = []
    try:
        write_html(folder / HTML, joined, histories=histories, ceilings=ceilings)
        written.insert(0, HTML)
    except AttnperfError as error:
        (folder / HTML).unlink(missing_ok=True)
        said.append(f"report: {HTML} was not written: {error}")
    return [f"report: {folder}: {', '.join(written)}", *said]


def write_html(
    path: Path, joined: Joined, *, histories: Sequence[CaseHistory] = (), ceilings: Ceilings | None = None
) -> None:
    """Writes the HTML page to `path`. Raises HtmlReportError if a library that the page needs is missing."""
    from pytest_attnperf.reports.html.page import render_page

    text = render_page(joined, histories=histories, ceilings=ceilings or {})
    write_atomically(path, text.encode("utf-8", "replace"))
