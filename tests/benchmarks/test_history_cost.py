"""benchmarks/history_cost.py: what a history costs, what concurrent writers lose, how often changes are invented."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "history_cost.py"


@pytest.fixture
def program() -> dict[str, Any]:
    """Its functions; it fills stores of 25 cases here."""
    found = runpy.run_path(str(PROGRAM))
    found["fill"].__globals__["CASES"] = 25
    return found


def test_one_case_of_a_filled_store_is_asked_for(
    program: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cold and warm; the last run holds what is left of the rows."""
    program["print_query_cost"](tmp_path / "a.sqlite", 260)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("260 measurements of 25 cases, ")
    assert [line.split()[0] for line in lines[3:5]] == ["cold", "warm"]
    assert lines[5].startswith("listing 25 cases")


def test_rates_of_change_points_are_printed(program: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A step of 3 % is found in each of two series, a drift in none."""
    program["print_changes"](2)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["step", "before", "point", "50", "of", "100", "0.3%", "3.0%", "100.00%", "(2)"] in rows
    assert rows[-1][-2:] == ["0.00%", "(0)"]


def test_what_two_writers_stored_is_counted() -> None:
    """All of it is there, and the program says so by its exit status."""
    command = [sys.executable, str(PROGRAM), "--writers", "2", "--runs", "2", "--cases", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "measurements: 20 of 20; cases: 5 of 5; writers that failed: 0" in done.stdout
