"""benchmarks/kill_writers.py: kill -9 while files are written, and writers that write at the same time."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "kill_writers.py"


def test_nothing_is_torn_or_lost(capsys: pytest.CaptureFixture[str]) -> None:
    """20 kills over all kinds of files leave the old or the new version, and 4 writers x 10 updates are all there."""
    program: dict[str, Any] = runpy.run_path(str(PROGRAM))
    assert program["main"](["--kills=20", "--writers=4", "--updates=10"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[:6]] == ["merge", "accept", "results", "ceilings", "object", "journal"]
    assert sum(int(line.split()[1]) for line in said[:6]) == 20
    assert said[-2].endswith(": 0 lost")


def test_a_torn_file_is_found(tmp_path: Path) -> None:
    """A writer that writes in place is caught by some kill."""
    program: dict[str, Any] = runpy.run_path(str(PROGRAM))
    contents = [bytes([65 + version]) * 20_000_000 for version in range(program["VERSIONS"])]
    path = tmp_path / "torn"
    path.write_bytes(contents[0])
    target = program["Target"]("torn", lambda n: path.write_bytes(contents[n]), path, tuple(contents))
    tally, dice = program["Tally"](), program["random"].Random(1)
    for _ in range(20):
        if not tally.problems:
            program["kill_target"](target, dice, tally)
    assert tally.problems
