"""benchmarks/read_trace.py: the trace that it makes is one, and its limits are kept by a small one."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "read_trace.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("read_trace", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "read_trace", module)
    spec.loader.exec_module(module)
    return module


def test_the_made_trace(program: ModuleType, tmp_path: Path) -> None:
    """22 columns, 60 kernels in 3 sizes, rows out of order, and the total that is said."""
    path = tmp_path / "made.csv"
    total = program.write_trace(path, 3000)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3000
    assert {len(row) for row in rows} == {22}
    assert len({(row["Kernel_Name"], row["Grid_Size_X"]) for row in rows}) == 180
    starts = [int(row["Start_Timestamp"]) for row in rows]
    assert starts != sorted(starts)
    assert sum(int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in rows) == total


def test_a_small_trace_is_read(program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every row is read, and the total is right; the limits, those of an idle machine, are not asked for."""
    monkeypatch.setattr(sys, "argv", ["read_trace.py", "--rows", "500", "--json", str(tmp_path / "figures.json")])
    monkeypatch.setattr(program, "TOTAL_LIMIT_S", 1e9)
    monkeypatch.setattr(program, "MEMORY_LIMIT_MB", 1e9)
    assert program.main() == 0
    assert '"rows": 500' in (tmp_path / "figures.json").read_text()
