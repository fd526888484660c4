"""The demonstration of `make attnperf` without a GPU: few cases, ordered so that nothing disturbs what is timed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "examples" / "demo"

MOST_CASES = 40
"""With more it does not end within 90 s on two cores."""


@pytest.fixture(scope="module")
def items() -> list[str]:
    """Ids of the tests without a GPU, in the order in which they run."""
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:randomly", "--attnperf-device=cpu", str(DEMO)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [line.partition("[")[2] for line in done.stdout.splitlines() if line.startswith("examples/demo/")]


def test_it_is_small(items: list[str]) -> None:
    """At most 40 cases, and one code object of a kernel for one architecture."""
    built = Counter(item.partition("-")[0] for item in items if item.endswith("-gfx942]"))
    assert 30 <= len(items) <= MOST_CASES
    assert set(built.values()) == {1}


def test_what_is_timed_comes_first(items: list[str]) -> None:
    """Native kernels, then those that are interpreted or emulated, then compiled ones: compilers start behind the first
    and work beside the second."""
    kinds = [
        "built" if item.endswith("-gfx942]") else "timed" if "native." in item.partition("-")[0] else "proven"
        for item in items
    ]
    assert kinds == sorted(kinds, key=["timed", "proven", "built"].index)
    assert len(set(kinds)) == 3
    proven = {
        item.partition("-")[0].partition(".")[0] for item, kind in zip(items, kinds, strict=True) if kind == "proven"
    }
    assert {"triton", "hip"} <= proven


def test_the_makefile_runs_it() -> None:
    """Without a GPU `make attnperf` runs this folder and no other."""
    flags = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("CPU_FLAGS"))
    assert [word for word in flags.split()[2:] if not word.startswith("--")] == ["examples/demo"]
