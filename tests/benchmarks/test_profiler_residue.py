"""benchmarks/profiler_residue.py: its arithmetic; its processes need a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "profiler_residue.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("profiler_residue", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "profiler_residue", module)
    spec.loader.exec_module(module)
    return module


def test_the_difference_comes_with_its_standard_error(program: ModuleType) -> None:
    """1 % between means, each from processes 1 % apart: the error is sqrt(2 * 1.01^2 / 3) of a percent, about 0.8."""
    line = program.residue_line("case", [99.0, 100.0, 101.0], [100.0, 101.0, 102.0])
    assert " 100.000 ->   101.000 us   +1.00 % (standard error 0.82 %, 3 and 3 processes)" in line


def test_cases_are_ones_that_exist(program: ModuleType) -> None:
    """Each names a registered backend and a workload that parses."""
    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.workloads.families import parse_workload

    registry = Registry()
    kernels.register(registry)
    for name, identity in program.CASES:
        assert parse_workload(identity).id == identity
        assert registry.get(name).name == name
