"""benchmarks/scale_store.py: how long a run waits for a large baseline store."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_both_layouts_are_measured() -> None:
    """A store is written as suites and as one file, in the layout that is opened without reading it whole."""
    command = [sys.executable, str(ROOT / "benchmarks" / "scale_store.py"), "--entries", "40", "--suites", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["40 entries in 4 files", "40 entries in 1 file"]
    figures = r"open [\d.]+ s, .*find [\d.]+ ms, worst of 1000 [\d.]+ ms; pool a suite [\d.]+ s, load it [\d.]+ s; peak"
    assert all(re.search(figures, line) for line in lines)
