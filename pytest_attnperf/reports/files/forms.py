"""The forms in which reports are written. A new form is one file, its import here and one line of `FORMS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.raised import find_raise_place
from pytest_attnperf.reports.files.csv_table import render_csv
from pytest_attnperf.reports.files.junit_xml import render_junit
from pytest_attnperf.reports.files.markdown import render_summary
from pytest_attnperf.reports.run.joined import Joined


@dataclass(frozen=True)
class Form:
    """One form of report. The HTML page is not among them: it needs more than runs, and libraries of an extra.

    name      of the option `--NAME FILE`
    filename  in a folder of reports
    title     name of the form in the help
    render    returns the whole file as text or bytes
    exported  `attnperf export --to NAME` writes it; `--NAME FILE` is an old spelling, which no help shows
    """

    name: str
    filename: str
    title: str
    render: Callable[[Joined], str | bytes]
    exported: bool = False

    def encode_runs(self, joined: Joined) -> bytes:
        """Returns the report of these runs in this form, as bytes of a file; '?' replaces what UTF-8 lacks. Raises
        UsageError with the form's name, and file and line of its error, if `render` fails or returns no file."""
        try:
            made = self.render(joined)
        except Exception as error:  # a mistake in the form: the other reports must not be lost by it
            place = find_raise_place(error) or "in render"
            raise UsageError(f"form {self.name!r}: {place}: {type(error).__name__}: {error}") from error
        if not isinstance(made, (str, bytes)):
            raise UsageError(f"form {self.name!r}: render gave {type(made).__name__}; return the file as text or bytes")
        return made if isinstance(made, bytes) else made.encode("utf-8", "replace")


FORMS = (
    Form("markdown", "report.md", "Markdown for a pull request", render_summary),
    Form("junit", "junit.xml", "JUnit XML", render_junit),
    Form("csv", "results.csv", "CSV, a row per case", render_csv, exported=True),
)
