"""benchmarks/unusual_honest.py: honest kernels that are unlike others are accused of nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = BENCHMARKS / "unusual_honest.py"
LEAST = 30


def loaded(name: str) -> Any:
    """A module of the folder, by its file."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


honest, KERNELS = loaded("unusual_honest"), loaded("unusual_kernels").UNUSUAL


@pytest.mark.parametrize("kernel", KERNELS, ids=[one.name for one in KERNELS])
def test_an_unusual_kernel_is_right(kernel: Any) -> None:
    """On inputs as they are drawn and on planted ones."""
    count = honest.counted(kernel, range(1, 2), timed=False)
    assert (count.decisions, count.incorrect, count.first_problem) == (2, 0, "")


@pytest.mark.soak
@pytest.mark.parametrize("kernel", KERNELS, ids=[one.name for one in KERNELS])
def test_an_unusual_kernel_is_accused_of_nothing(kernel: Any) -> None:
    """Neither of being wrong for 20 seeds, nor of remembering its results."""
    count = honest.counted(kernel, range(1, 21), timed=True)
    assert (count.incorrect, count.suspicious) == (0, 0), count.first_problem


def test_there_are_enough_of_them() -> None:
    """Each has a name of its own."""
    assert len({one.name for one in KERNELS}) == len(KERNELS) >= LEAST


def test_the_program_counts() -> None:
    """A line per kernel, and the sum."""
    command = [sys.executable, str(PROGRAM), "--seeds=1", "--timed", "--kernel", "gather", "expanded"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kernels: 0 of 4 decisions INCORRECT, 0 SUSPICIOUS" in done.stdout
