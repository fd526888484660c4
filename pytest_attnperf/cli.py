"""The `attnperf` command. What needs kernels asks a worker; what is here reads files only."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_attnperf import __version__
from pytest_attnperf.errors import AttnperfError

EPILOG = """examples:
  attnperf report .attnperf/results.json     the tables of a stored run
  pytest --attnperf suites/                  make one

exit status: 0 done, 1 the run that is shown had failures, 2 the command or a file is off
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    parser = argparse.ArgumentParser(
        prog="attnperf",
        description="Companion of pytest-attnperf.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pytest-attnperf {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    report = commands.add_parser("report", help="print the tables and the closing lines of a results.json")
    report.add_argument("results", type=Path)
    options = parser.parse_args(arguments)
    try:
        return _report(options.results)
    except (AttnperfError, OSError) as error:
        print(f"attnperf: {error}", file=sys.stderr)
        return 2


def _report(path: Path) -> int:
    from pytest_attnperf.reports import json_results
    from pytest_attnperf.reports.tables import suite_table
    from pytest_attnperf.reports.terminal import closing_lines

    run = json_results.decode(path.read_bytes(), str(path))
    width = shutil.get_terminal_size((110, 24)).columns
    for suite in dict.fromkeys(case.key.suite for case in run.cases):
        print(suite)
        print(suite_table([case for case in run.cases if case.key.suite == suite], width=width))
        print()
    print("\n".join(closing_lines(run, str(path))))
    return 1 if any(case.fails for case in run.cases) else 0
