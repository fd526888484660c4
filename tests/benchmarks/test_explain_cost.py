"""benchmarks/explain_cost.py: what it times, on a file of a few cases."""

from __future__ import annotations

import runpy
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "explain_cost.py"


def test_each_way_of_asking_is_timed_as_a_process() -> None:
    """One process each, with a median, the largest, and CPU seconds of every way."""
    lines = runpy.run_path(str(PROGRAM))["cost"](5, 1).splitlines()
    assert lines[0].startswith("5 cases, ")
    assert [len(line.rsplit(maxsplit=3)) for line in lines[3:]] == [4, 4, 4, 4]
    assert all(float(cell) > 0 for line in lines[3:] for cell in line.rsplit(maxsplit=3)[1:])
