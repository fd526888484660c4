"""What commands share that measure by starting pytest: running it to its end, and saying why it gave no ratio."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_attnperf.reports.text.figures import one_line, safe_lines
from pytest_attnperf.results import CaseResult

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in a shell."""

CLOSING_LIMIT_S = 15.0
"""Seconds that an interrupted pytest gets to end its workers before SIGTERM, and again before SIGKILL."""

LOG_LINES = 25

Execute = Callable[[Sequence[str], Path], int]
"""(command, log) -> exit status. Runs a command to its end and writes everything it prints to the log."""


def keep_pytest_options(parser: argparse.ArgumentParser) -> None:
    """Makes the parser put the words after `--` into `pytest_options`.

    A positional argument cannot: argparse leaves it empty as soon as an option stands between it and the others.
    """
    parse = parser.parse_known_args

    def split(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:end], namespace)
        if unknown:
            parser.error(f"unknown: {' '.join(unknown)}; give options of pytest after --")
        found.pytest_options = words[end + 1 :]
        return found, unknown

    parser.parse_known_args = split  # type: ignore[method-assign,assignment]


def execute(command: Sequence[str], log: Path) -> int:
    """Runs a command with its output in the file `log`, and returns its exit status. If interrupted, it gives the
    command time to end its workers and release its GPU, then kills it if need be, and raises the interruption."""
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            _end_process(process)
            raise


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Waits CLOSING_LIMIT_S for a process that Ctrl-C has reached too; terminates it, waits again, and kills it."""
    try:
        process.wait(CLOSING_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(CLOSING_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    finally:
        if process.poll() is None:
            process.kill()


def describe_no_results(status: int, log: Path) -> str:
    """Returns why a pytest left no results: its first error in one line, then the end of its output."""
    lines = safe_lines(log.read_text(errors="replace"), LOG_LINES) if log.exists() else []
    errors = [line for line in lines if line.startswith(("ERROR", "E  ", "INTERNALERROR"))]
    told = errors[:1] or [line for line in lines if line.strip()][-1:] or ["it printed nothing"]
    return "\n".join((f"pytest ended with {status} and left no results: {told[0].strip()}", *lines))


def describe_no_ratio(case: CaseResult) -> str:
    """Returns why a measurement of a case has no pairs: its verdict and summary, then its last reason lines."""
    reasons = "\n".join(reason for reason in case.reasons if reason != case.summary)
    return "\n".join((f"{case.verdict.value}: {one_line(case.summary)}", *safe_lines(reasons, LOG_LINES))).rstrip()
