from __future__ import annotations

import sys

from benchmarks.cli_start import LINES, OURS, seconds_of
from pytest_attnperf.cli.command_files import list_names


def test_starts_are_timed() -> None:
    """A first process is not counted, and every line begins a command that there is."""
    assert len(seconds_of((sys.executable, "-c", "pass"), 2)) == 2
    ours = [command[len(OURS)] for command in LINES.values() if command[: len(OURS)] == OURS]
    assert {word for word in ours if not word.startswith("-")} <= set(list_names())
    assert len(ours) == len(LINES) - 1
