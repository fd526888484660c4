"""benchmarks/scale_collection.py: how long many cases take to collect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_cases_and_plain_tests_are_collected_by_whole_processes() -> None:
    """Both projects are written and collected, each line has its figures, and a limit that was not kept is status 1."""
    script = str(ROOT / "benchmarks" / "scale_collection.py")
    command = [sys.executable, script, "--cases=100", "--suites=5", "--backends=4", "--limit=0.001"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    figures = r"[\d.]+ s, [\d.]+ s of CPU, \d+ MB"
    assert re.search(f"^100 cases: {figures}\n100 plain tests: {figures}\na case costs", done.stdout)
    assert done.stdout.endswith("slower than 0.001 s\n")
