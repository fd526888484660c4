"""The parts of benchmarks/harness_overhead.py that decide and report; its figures are measured by running it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "harness_overhead.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("harness_overhead", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "harness_overhead", module)
    spec.loader.exec_module(module)
    return module


def _measure(monkeypatch: pytest.MonkeyPatch, program: Any, value: float) -> None:
    monkeypatch.setattr(program, "require_installed_plugin", lambda: None)
    monkeypatch.setattr(program, "collecting", lambda: [program.Figure("collecting", value, 1.0, "s", "once")])
    monkeypatch.setattr(program, "starting_up", list)
    monkeypatch.setattr(program, "worker", list)


@pytest.mark.parametrize(("value", "status", "mark"), [(0.5, 0, "ok"), (1.0, 1, "MISSED"), (float("nan"), 1, "MISSED")])
def test_missed_limit_is_the_exit_status(
    program: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: float,
    status: int,
    mark: str,
) -> None:
    """A figure at or beyond its limit, or no number, is marked and exits with 1; one below it exits with 0."""
    _measure(monkeypatch, program, value)
    monkeypatch.setattr(sys, "argv", ["harness_overhead.py"])
    assert program.main() == status
    printed = capsys.readouterr().out
    assert printed.startswith(mark)
    assert "limit 1 s" in printed


def test_json_holds_every_figure(program: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--json writes value, limit, unit, method and whether the limit is kept."""
    _measure(monkeypatch, program, 0.25)
    monkeypatch.setattr(sys, "argv", ["harness_overhead.py", "--json", str(tmp_path / "figures.json")])
    program.main()
    (row,) = json.loads((tmp_path / "figures.json").read_text())
    assert row == {"name": "collecting", "value": 0.25, "limit": 1.0, "unit": "s", "how": "once", "met": True}


def test_failing_command_stops_the_program(program: Any, tmp_path: Path) -> None:
    """A run that fails is no measurement: the program stops with its output."""
    with pytest.raises(SystemExit, match="ended with 3:\nwhat was printed"):
        program.timed(["-c", "print('what was printed'); raise SystemExit(3)"], tmp_path)


def test_missing_plugin_is_an_error(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the installed plugin the program stops with what to run, instead of measuring nothing."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    with pytest.raises(SystemExit, match=r"pytest-attnperf is not installed for .*; run `make setup`"):
        program.require_installed_plugin()
