"""What commands share: printing to a terminal, and writing reports to files."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.reports.text.colour import Ink


def say(text: str) -> None:
    """Prints a line to standard output and flushes it, so that the user sees progress at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def count_columns(unknown: int, least: int = 0) -> int:
    """Returns the terminal's width in columns, at least `least`. `unknown` is the width where there is no terminal."""
    return max(least, shutil.get_terminal_size((unknown, 24)).columns)


def choose_ink(choice: str = "auto") -> Ink:
    """Returns colours for standard output, on or off by `choice`, a value of --color: 'auto', 'always' or 'never'."""
    import os

    from pytest_attnperf.reports.text.colour import Ink, wants_colour

    return Ink(on=wants_colour(sys.stdout, os.environ, choice))


def add_forms(parser: argparse.ArgumentParser, folder: str = "--html") -> None:
    """Adds to the parser option `folder`, for all reports in a folder, and one per form, such as --markdown."""
    from pytest_attnperf.reports.files.forms import FORMS

    parser.add_argument(folder, type=Path, metavar="DIR", help="write report.html and the other forms into DIR")
    for form in FORMS:
        title = form.title.replace("%", "%%")  # argparse fills in what follows a single one
        try:
            parser.add_argument(f"--{form.name}", metavar="FILE", help=f"write {title}; - prints it")
        except argparse.ArgumentError:
            raise UsageError(
                f"form {form.name!r} in FORMS of pytest_attnperf/reports/files/forms.py: the command has an option "
                f"--{form.name} already; give the form another name"
            ) from None


def asked_forms(options: argparse.Namespace) -> dict[str, str]:
    """Returns form name -> file ('-' prints it) for each report form whose option the user gave."""
    from pytest_attnperf.reports.files.forms import FORMS

    return {form.name: file for form in FORMS if (file := getattr(options, form.name)) is not None}


def write_forms(joined: Joined, folder: Path | None, asked: Mapping[str, str], **shown: Any) -> list[str]:
    """Writes all reports into `folder` (None: none; `shown` goes into its page) and the `asked` forms to their files;
    the file '-' prints a form. Returns a line per file written."""
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.files.folder import write_reports
    from pytest_attnperf.reports.files.forms import FORMS

    told: list[str] = [] if folder is None else write_reports(folder, joined, **shown)
    for form in FORMS:
        file = asked.get(form.name)
        if file == "-":
            sys.stdout.write(form.encode_runs(joined).decode())
        elif file is not None:
            write_atomically(Path(file), form.encode_runs(joined))
            told.append(f"written: {Path(file)}")
    return told
