"""benchmarks/kernel_ratios.py: what a ratio is, and that none is silently left out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kernels
from pytest_attnperf.backends import Registry
from pytest_attnperf.workloads.families import parse_workload

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "kernel_ratios.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("kernel_ratios", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_ratios"] = module
    spec.loader.exec_module(module)
    return module


def test_speed_is_their_time_over_ours(program: ModuleType) -> None:
    """The median over the turns of the other's time over ours, whatever the bytes."""
    turns = [(10.0, 12.0), (10.0, 30.0), (20.0, 22.0)]
    assert program.ratio("speed", turns, None, None) == pytest.approx(1.2)


def test_bandwidth_counts_bytes(program: ModuleType) -> None:
    """Half the bytes in half the time is the same bandwidth."""
    assert program.ratio("bandwidth", [(5.0, 10.0)], 1e9, 2e9) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="know their bytes"):
        program.ratio("bandwidth", [(5.0, 10.0)], None, 2e9)


def test_a_missed_ratio_and_a_missing_one_say_so(program: ModuleType) -> None:
    """Below what is wanted is MISSED; a side that could not run is no ratio, with its reason."""
    low = program.Result("a", "x", "y", "speed", 1.2, ratio=1.1, ours_us=2.0, against_us=2.2)
    none = program.Result("b", "x", "y", "speed", 1.2, why="ValueError: wrong")
    assert "1.100, wanted 1.2: MISSED" in program.line(low)
    assert program.line(none) == "b: none, ValueError: wrong"
    assert not none.met
    assert program.table([low, none]).count("MISSED") == 2


def test_every_side_is_a_registered_backend_and_a_workload_of_its_family(program: ModuleType) -> None:
    """No ratio names a backend or a workload that does not exist."""
    registry = Registry()
    kernels.register(registry)
    for wanted in program.WANTED:
        for case in (wanted.ours, wanted.against):
            name, _, text = case.partition("/")
            assert parse_workload(text).family in registry.get(name).families
    assert len({wanted.name for wanted in program.WANTED}) == len(program.WANTED)


def test_says_that_it_needs_a_gpu() -> None:
    """Without a GPU the program ends with one line saying so; an unknown word names what there is."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; the program would measure for minutes")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert (done.returncode, "needs a GPU that torch can use" in done.stderr) == (2, True)
    done = subprocess.run([sys.executable, str(PROGRAM), "teapot"], capture_output=True, text=True, check=False)
    assert "no ratio's name holds teapot; there are: triton.flash d128" in done.stderr
