"""Options that belong together: those that need another option, the tests to collect, and old spellings."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import UsageError

RESULTS = Path(".attnperf") / "results.json"
"""Where pytest --attnperf writes results, unless told otherwise: what commands read if no file is named."""


HISTORY, HISTORY_VARIABLE = ".attnperf/history.sqlite", "ATTNPERF_HISTORY"
"""The usual store of earlier runs, and the environment variable that names another one."""


class DependentOptions:
    """A group of options that are valid only with another option, under a heading of their own in the help.

    argparse leaves out those that were not given, so that `settle` can tell.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, needed: str, allows: Callable[[argparse.Namespace], bool]
    ) -> None:
        """Adds the group. `needed` is the other option as it is typed; `allows` tells whether it was."""
        self.needed = needed
        self._allows = allows
        self._group = parser.add_argument_group(f"with {needed}")
        self._declared: dict[str, tuple[str, Any]] = {}

    def add(self, flag: str, *, default: Any = None, **kept: Any) -> argparse.Action:
        """Declares an option as argparse's `add_argument` does, and returns it."""
        action = self._group.add_argument(flag, default=argparse.SUPPRESS, **kept)
        self._declared[action.dest] = flag, default
        return action

    def settle(self, options: argparse.Namespace) -> None:
        """Sets the options that were not given to their defaults. Raises UsageError for one that was, without the
        option that it needs."""
        for dest, (flag, default) in self._declared.items():
            if not hasattr(options, dest):
                setattr(options, dest, default)
            elif not self._allows(options):
                raise UsageError(f"{flag} needs {self.needed}; add that, or drop {flag}")


def settle_all(options: argparse.Namespace, groups: Iterable[DependentOptions]) -> None:
    """Sets defaults of all groups. Raises UsageError for an option that was given without what it needs."""
    for group in groups:
        group.settle(options)


def add_old_spelling(parser: argparse.ArgumentParser, old: str, action: argparse.Action) -> None:
    """Lets the parser take option `old` for the option `action`; no help shows it."""
    parser.add_argument(
        old,
        action=type(action),
        dest=action.dest,
        nargs=action.nargs,
        type=action.type or str,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def add_tests(parser: argparse.ArgumentParser, default: str = "", usual: str = "suites/, else .") -> None:
    """Adds option --tests: the test files or folders that pytest collects for a command."""
    tests = parser.add_argument("--tests", default=default, metavar="PATH", help=f"tests to collect (default: {usual})")
    add_old_spelling(parser, "--suite", tests)


def add_results(parser: argparse.ArgumentParser) -> argparse.Action:
    """Adds option --results, the file of a run, and returns it."""
    return parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE", help=f"results of a run (default: {RESULTS})"
    )


def parse_count(text: str) -> int:
    """Reads an option's value that is a count. Raises ArgumentTypeError for what is no whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
