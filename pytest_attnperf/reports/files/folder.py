"""A folder of reports: report.html, report.md, junit.xml, and the results they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.joined import Joined

HTML, MARKDOWN, JUNIT, RESULTS = "report.html", "report.md", "junit.xml", "results.json"

Ceilings = Mapping[str, Sequence[Ceiling]]


def write(
    folder: Path, joined: Joined, *, histories: Sequence[CaseHistory] = (), ceilings: Ceilings | None = None
) -> list[str]:
    """Write every report into `folder`, which is made; what the terminal is told of it, a line each.

    The page needs libraries of an extra: without them the other files are written, an older page is removed, which
    would not belong to them, and the reason is said. Several runs leave their results as results-1.json,
    results-2.json, in the order of their start.
    """
    from pytest_attnperf.reports.files.junit_xml import junit
    from pytest_attnperf.reports.files.markdown import summary

    names = [RESULTS] if len(joined.runs) == 1 else [f"results-{n}.json" for n in range(1, len(joined.runs) + 1)]
    for name, run in zip(names, joined.runs, strict=True):
        json_results.write(folder / name, run)
    write_atomically(folder / MARKDOWN, summary(joined).encode("utf-8", "replace"))
    write_atomically(folder / JUNIT, junit(joined))
    written = [*names, MARKDOWN, JUNIT]
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
    """Write the page. Raises HtmlReportError where a library that it needs is missing."""
    from pytest_attnperf.reports.html.page import page

    text = page(joined, histories=histories, ceilings=ceilings or {})
    write_atomically(path, text.encode("utf-8", "replace"))
