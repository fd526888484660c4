"""What commands share: printing to a terminal, and writing reports to files."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.reports.html.sections import Section
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.reports.text.colour import Ink

PAGES = Path(".attnperf") / "pages"
"""Folder of pages that --open writes without --html."""


def say(text: str) -> None:
    """Prints a line to standard output and flushes it, so that the user sees progress at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def count_columns(unknown: int, least: int = 0) -> int:
    """Returns the terminal's width in columns, at least `least`. `unknown` is the width where there is no terminal."""
    return max(least, shutil.get_terminal_size((unknown, 24)).columns)


def write_text(text: str, file: str) -> None:
    """Writes a text and a line break into `file`, and says so on standard error; '-' prints it instead."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.text.figures import one_line

    if file == "-":
        sys.stdout.write(f"{text}\n")
    else:
        write_atomically(Path(file), f"{text}\n".encode("utf-8", "replace"))
        sys.stderr.write(f"written: {one_line(file, 1000)}\n")


def choose_ink(choice: str = "auto") -> Ink:
    """Returns colours for standard output, on or off by `choice`, a value of --color: 'auto', 'always' or 'never'."""
    import os

    from pytest_attnperf.reports.text.colour import Ink, wants_colour

    return Ink(on=wants_colour(sys.stdout, os.environ, choice))


def add_forms(parser: argparse.ArgumentParser) -> argparse.Action:
    """Adds to the parser option --report, for all reports in a folder, which it returns, and one per form, such as
    --markdown. Raises UsageError for a mistake in the list of forms."""
    from pytest_attnperf.reports.files.form_list import LISTED_IN, list_forms

    parser.set_defaults(forms_listed_in=LISTED_IN)
    folder = parser.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.html and the other forms into DIR"
    )
    for form in list_forms():
        title = form.title.replace("%", "%%")  # argparse fills in what follows a single one
        said = argparse.SUPPRESS if form.exported else f"write {title}; - prints it"
        parser.add_argument(f"--{form.name}", dest=form.name, metavar="FILE", help=said)
    return folder


def asked_forms(options: argparse.Namespace) -> dict[str, str]:
    """Returns form name -> file ('-' prints it) for each report form whose option the user gave."""
    from pytest_attnperf.reports.files.form_list import list_forms

    return {form.name: file for form in list_forms() if (file := getattr(options, form.name)) is not None}


def write_forms(joined: Joined, folder: Path | None, asked: Mapping[str, str], **shown: Any) -> list[str]:
    """Writes all reports into `folder` (None: none; `shown` goes into its page) and the `asked` forms to their files;
    the file '-' prints a form. Returns a line per file written. Raises UsageError, after writing all others, for forms
    that failed."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.files.folder import write_reports
    from pytest_attnperf.reports.files.form_list import list_forms

    told: list[str] = [] if folder is None else write_reports(folder, joined, **shown)
    failed: list[str] = []
    for form in (form for form in list_forms() if form.name in asked):
        try:
            content = form.encode_runs(joined)
        except UsageError as error:
            failed.append(str(error))
            continue
        if asked[form.name] == "-":
            sys.stdout.write(content.decode())
        else:
            write_atomically(Path(asked[form.name]), content)
            told.append(f"written: {Path(asked[form.name])}")
    if failed:
        raise UsageError("\n".join([*failed, *told]))
    return told


def add_page(parser: argparse.ArgumentParser) -> None:
    """Adds --html FILE and --open to the parser of a command that `write_page` can show as a page."""
    parser.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, with charts")
    parser.add_argument("--open", action="store_true", help=f"open it in a browser; without --html it is in {PAGES}")


def asks_page(options: argparse.Namespace) -> bool:
    """Returns whether options of `add_page` ask for a page: only then are its sections worth building."""
    return options.html is not None or options.open


def write_page(options: argparse.Namespace, name: str, title: str, sections: Sequence[Section]) -> None:
    """Writes the page that --html or --open ask for, if one does, and opens it; says so on standard error.

    `name` is the page's file name where --html gives none. Raises HtmlReportError if a library of pages is missing.
    """
    if asks_page(options):
        _write_document(options.html or PAGES / f"{name}.html", title, sections, opened=options.open)


def asks_report(options: argparse.Namespace) -> bool:
    """Returns whether options of `attnperf report` ask for a page."""
    return options.report is not None or options.open


def write_report_page(options: argparse.Namespace, name: str, title: str, sections: Sequence[Section]) -> None:
    """Writes a page of sections as report.html into the folder of --report, and opens it if --open asks for that.

    `name` is the page's file name among the pages of .attnperf where --report gives no folder. Raises as `write_page`.
    """
    from pytest_attnperf.reports.files.form_list import HTML

    path = PAGES / f"{name}.html" if options.report is None else options.report / HTML
    _write_document(path, title, sections, opened=options.open)


def _write_document(path: Path, title: str, sections: Sequence[Section], *, opened: bool) -> None:
    from pytest_attnperf.reports.html.document import write_document
    from pytest_attnperf.reports.text.figures import one_line

    write_document(path, title, sections)
    sys.stderr.write(f"written: {one_line(str(path), 1000)}\n")
    if opened:
        open_file(path)


def open_page(folder: Path) -> None:
    """Opens the folder's report.html in a browser. Prints its path, and says so, if there is no browser here."""
    from pytest_attnperf.reports.files.form_list import HTML

    open_file(folder / HTML)


def open_file(path: Path) -> None:
    """Opens a page in a browser. Prints its path, and says so, if there is no browser here."""
    import webbrowser

    from pytest_attnperf.reports.text.figures import one_line

    page = path.resolve()
    if not webbrowser.open(page.as_uri()):
        sys.stderr.write(f"there is no browser here; open this file in one: {one_line(str(page), 1000)}\n")
