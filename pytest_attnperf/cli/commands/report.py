"""`attnperf report`: prints the tables of stored runs again, or writes a page, Markdown or JUnit XML of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.cli.output import add_forms, asked_forms, choose_ink, count_columns, write_forms
from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.files.form_list import list_files

if TYPE_CHECKING:
    from pytest_attnperf.reports.run.joined import Joined

GROUP = "first hour"
ORDER = 30
SUMMARY = "show stored results: tables, a page, Markdown or JUnit"
DESCRIPTION = "Prints and writes reports of stored runs."

WIDTH = 110
"""Columns if no terminal tells its width."""

BASELINES = Path("baselines")
SHOWN_POINTS = 200

EPILOG = f"""RESULTS are files that pytest --attnperf wrote, from one or more machines and architectures; or
stored baselines (baselines/sm_90/h200/prefill.json, or the folder). The report of a baseline says that nothing was
measured for it.

reports in DIR: {", ".join(list_files())}

examples:
  attnperf report .attnperf/results.json                      the tables again
  attnperf report results.json --html DIR                     all of them into DIR
  attnperf report mi300x.json h200.json --markdown - >> "$GITHUB_STEP_SUMMARY"
  attnperf report baselines/sm_90/h200/prefill.json --html DIR

exit status: 0 done, 1 a run has failures, 2 the command or a file is invalid, a report could
not be made, or an extra for the page is missing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf report` to its parser."""
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS", help="results.json files, or baselines")
    add_forms(parser)
    parser.add_argument("--history", default="", metavar="URL|FILE", help="show each case's history in the page")
    parser.add_argument("-q", "--quiet", action="count", default=0, help="only what needs attention; -qq: one line")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show every row and more columns")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="use colours; auto: on a terminal without NO_COLOR, in a pipe with FORCE_COLOR (default: auto)",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the reports, or writes them by option. Returns 1 if a test failed, 2 if a report could not be made, else
    0. Raises UsageError for invalid options; ResultsFileError, BaselineError and HistoryError for an invalid file."""
    from pytest_attnperf.plugin.report_inputs import read_runs
    from pytest_attnperf.reports.files.folder import has_gaps

    if options.history and options.html is None:
        raise UsageError("--history is shown only in the page: add --html DIR")
    joined = read_runs(options.results)
    if not _write_asked_forms(joined, options):
        sys.stdout.write(f"{_render_text(joined, options)}\n")
    if options.html is not None and has_gaps(options.html):
        return 2
    return 1 if joined.has_failed else 0


def _render_text(joined: Joined, options: argparse.Namespace) -> str:
    from pytest_attnperf.reports.run.run_text import run_text

    width, verbosity = count_columns(WIDTH), options.verbose - options.quiet
    return run_text(joined, width=width, ink=choose_ink(options.color), verbosity=verbosity)


def _write_asked_forms(joined: Joined, options: argparse.Namespace) -> bool:
    """Writes the forms that options ask for, and names files on standard error. Returns False if none is asked for."""
    from pytest_attnperf.plugin.report_inputs import ceilings_of, histories_of
    from pytest_attnperf.reports.run.terminal import TEXT_LIMIT
    from pytest_attnperf.reports.text.figures import one_line

    shown: dict[str, Any] = {}
    if options.html is not None:
        shown["histories"] = histories_of(joined, options.history, SHOWN_POINTS) if options.history else ()
        shown["ceilings"] = ceilings_of(joined, [BASELINES])
    asked = asked_forms(options)
    for line in write_forms(joined, options.html, asked, **shown):
        sys.stderr.write(f"{one_line(line, TEXT_LIMIT)}\n")
    return options.html is not None or bool(asked)
