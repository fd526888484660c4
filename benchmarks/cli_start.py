"""Seconds that commands take before they do anything: whole processes, medians.

    .venv/bin/python benchmarks/cli_start.py [--runs N]

Every line is one command line, run N times (10) after one run that is not counted; 'python -c pass' is what the
interpreter takes by itself. Wall seconds: other work on the machine counts.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from tabulate import tabulate

OURS = (sys.executable, "-m", "pytest_attnperf.cli")
LINES: dict[str, tuple[str, ...]] = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "attnperf --version": (*OURS, "--version"),
    "attnperf --help": (*OURS, "--help"),
    "attnperf report --help": (*OURS, "report", "--help"),
    "attnperf bisect --help": (*OURS, "bisect", "--help"),
    "attnperf completion --cases": (*OURS, "completion", "--cases"),
    "attnperf completion bash": (*OURS, "completion", "bash"),
}


def seconds_of(command: tuple[str, ...], runs: int) -> list[float]:
    """Wall seconds of a command's processes, without those of a first one."""
    taken = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return taken[1:]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How long commands take to start.")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="behind each median (default %(default)s)")
    runs = parser.parse_args().runs
    rows = []
    for name, command in LINES.items():
        taken = seconds_of(command, runs)
        rows.append((name, statistics.median(taken), max(taken)))
    print(tabulate(rows, headers=("command", "median s", "longest s"), floatfmt=".3f"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
