"""benchmarks/history_scale.py: what a history in PostgreSQL takes at the size of a team."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "history_scale.py"


def test_a_small_share_is_measured_with_its_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every figure has its line, and no plan scans all measurements."""
    program = runpy.run_path(str(PROGRAM))
    for name, value in {"CASES": 20, "RUNS": 200, "CALLS": 2, "EVERY_S": 7200.0}.items():
        monkeypatch.setitem(program["main"].__globals__, name, value)
    try:
        import postgres_server

        postgres_server.find_programs()
    except SystemExit as error:
        pytest.skip(str(error))
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "--share", "2", "--shape", "wide", "--at", "/tmp"])
    program["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("wide: 20 cases, 100 runs, ")
    named = (
        "page of a case ",
        "list of cases",
        "append of a run of 20 cases",
        "prune of a day",
        "prune by --keep-runs",
    )
    assert all(any(line.startswith(name) for line in lines) for name in named)
    assert "plan of list: no measurement is read" in lines
