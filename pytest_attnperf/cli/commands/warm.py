"""`attnperf warm`: builds, compiles and tunes every selected case before a timed run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GROUP = "first hour"
ORDER = 20
SUMMARY = "build, compile and tune every selected case before a timed run"
DESCRIPTION = "Builds, compiles and tunes every selected case before a timed run, with progress and time left."
USAGE = "attnperf warm [-h] [ARGUMENT OF PYTEST ...]"

SUITES = "suites"
WITH_VALUE = frozenset({"-k", "-m", "-c", "-p", "-o", "-W"})
"""Options of pytest whose value is a separate word that is not a path of tests."""

EPILOG = """All arguments after warm go to pytest, which selects cases as in a run. Default path: suites/, else the
current folder. It is the same as pytest --attnperf-warm. Nothing is timed, and cases have no time limit unless given.
The slowest cases are opened again in a fresh process, to show the time that every later process needs.

examples:
  attnperf warm
  attnperf warm suites/test_prefill.py -k triton
  attnperf warm --attnperf-backend=aiter.triton && pytest --attnperf suites/

exit status: 0 every case is ready, or unsupported here; 1 one could not be built, or is wrong; 2 the command
is invalid, or there is no case; 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Makes the parser of `attnperf warm` keep every word but --help in `pytest_arguments`."""
    parser.set_defaults(pytest_arguments=[])
    _give_all_to_pytest(parser)


def _give_all_to_pytest(parser: argparse.ArgumentParser) -> None:
    """Makes the parser put every word except -h and --help into `pytest_arguments`.

    A positional argument cannot: argparse leaves it empty if an option comes first.
    """
    parse = parser.parse_known_args

    def keep(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        found, _ = parse([word for word in words if word in ("-h", "--help")], namespace)
        found.pytest_arguments = words
        return found, []

    parser.parse_known_args = keep  # type: ignore[method-assign,assignment]


def run(options: argparse.Namespace) -> int:
    """Builds, compiles, tunes and proves the cases that pytest's arguments select; times none. Returns 0 if all are
    ready or unsupported, 1 if not, 130 if interrupted, else 2."""
    from pytest_attnperf.plugin.own_pytest import warm

    return warm(_with_path(options.pytest_arguments))


def _with_path(words: Sequence[str]) -> list[str]:
    """Returns the words for pytest; without a path among them, adds suites/ if it exists, else '.'."""
    alone = [word for before, word in zip(["", *words], words, strict=False) if before not in WITH_VALUE]
    named = any(not word.startswith("-") and os.path.exists(word.partition("::")[0]) for word in alone)
    return [*words] if named else [*words, SUITES if Path(SUITES).is_dir() else "."]
