"""`attnperf warm`: build, compile and tune every selected case in a step of its own, ahead of a timed run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUITES = "suites"
WITH_VALUE = frozenset({"-k", "-m", "-c", "-p", "-o", "-W"})
"""Options of pytest whose value is a word of its own, and no path that selects tests."""

EPILOG = """What stands behind warm is given to pytest, so that cases are selected as in a run; without a path it is
suites/, or the current folder. It is the same as pytest --attnperf-warm. Nothing is timed and no case limit holds but
one that is typed. The slowest cases are opened again in a fresh process: what that still pays, every later process
will.

examples:
  attnperf warm
  attnperf warm suites/test_prefill.py -k triton
  attnperf warm --attnperf-backend=aiter.triton && pytest --attnperf suites/

exit status: 0 every case is ready, or unsupported here; 1 one could not be built, or is wrong; 2 the command is
off, or there is no case; 130 interrupted
"""


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "warm",
        help="build, compile and tune every selected case ahead of a timed run",
        description="Build, compile and tune every selected case ahead of a timed run, with progress and time left.",
        usage="attnperf warm [-h] [ARGUMENT OF PYTEST ...]",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(pytest_arguments=[])
    _give_all_to_pytest(parser)


def _give_all_to_pytest(parser: argparse.ArgumentParser) -> None:
    """Put every word into `pytest_arguments` but a request for help.

    A positional argument cannot: argparse gives it nothing where an option comes first.
    """
    parse = parser.parse_known_args

    def keep(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        found, _ = parse([word for word in words if word in ("-h", "--help")], namespace)
        found.pytest_arguments = words
        return found, []

    parser.parse_known_args = keep  # type: ignore[method-assign,assignment]


def run(options: argparse.Namespace) -> int:
    """Let pytest warm; its exit status as the one of a command. pytest says itself what is off."""
    from pytest_attnperf.plugin.own_pytest import warm

    return warm(_with_path(options.pytest_arguments))


def _with_path(words: Sequence[str]) -> list[str]:
    """The words, and where no path is among them, the one that is meant."""
    alone = [word for before, word in zip(["", *words], words, strict=False) if before not in WITH_VALUE]
    named = any(not word.startswith("-") and os.path.exists(word.partition("::")[0]) for word in alone)
    return [*words] if named else [*words, SUITES if Path(SUITES).is_dir() else "."]
