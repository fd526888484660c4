"""benchmarks/profile_totals.py: its arithmetic; its profiles need a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "profile_totals.py"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("profile_totals", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "profile_totals", module)
    spec.loader.exec_module(module)
    return module


def test_totals_within_a_percent_agree(program: ModuleType) -> None:
    """A difference above 1 % is one, in either direction; nothing on either side is none."""
    assert program.Totals("c", 1000.0, 1009.0, 3).agrees
    assert not program.Totals("c", 1000.0, 1011.0, 3).agrees
    assert not program.Totals("c", 1000.0, 980.0, 3).agrees
    assert program.Totals("c", 0.0, 0.0, 0).agrees
    assert not program.Totals("c", 0.0, 5.0, 1).agrees


def test_lines_say_both_totals_and_how_many_agree(program: ModuleType) -> None:
    """Every case has its difference and its name, and the last line counts."""
    said = program.lines((program.Totals("a", 1e6, 1.001e6, 7), program.Totals("b", 1e6, 0.5e6, 7)))
    assert said[0].startswith("agree   +0.100 % torch       1000.0 us")
    assert said[1].startswith("DIFFER -50.000 %")
    assert said[2] == "1 of 2 within 1%"


def test_rows_of_the_host_are_not_counted_again(program: ModuleType) -> None:
    """A row of an operator repeats the time of the kernels that it launched."""
    device, host = "DeviceType.CUDA", "DeviceType.CPU"
    assert program.self_device_us(SimpleNamespace(device_type=device, self_device_time_total=5.0)) == 5.0
    assert program.self_device_us(SimpleNamespace(device_type=device, self_cuda_time_total=4.0)) == 4.0
    assert program.self_device_us(SimpleNamespace(device_type=host, self_device_time_total=5.0)) == 0.0


def test_a_difference_is_exit_status_1(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program fails where totals differ, and passes where they agree."""
    found = program.Totals("c", 1000.0, 500.0, 1)
    monkeypatch.setattr(program, "totals_of", lambda *arguments, **named: found)
    assert program.main(["--backend", "b", "--workload", "w"]) == 1
    found = program.Totals("c", 1000.0, 1000.0, 1)
    assert program.main(["--backend", "b", "--workload", "w"]) == 0
    assert "1 of 1 within 1%" in capsys.readouterr().out
    found = None
    assert program.main(["--backend", "b", "--workload", "w"]) == 1
    found = program.Totals("c", 0.0, 0.0, 0)
    assert program.main(["--backend", "b", "--workload", "w"]) == 1  # a GPU did something
    assert program.main(["--backend", "b", "--workload", "w", "--device", "cpu"]) == 0
