"""Seconds that `attnperf doctor` takes as it is typed: the median and the range of several runs, and of each probe.

    .venv/bin/python benchmarks/doctor_cost.py [--runs N] [--full]

Run it in the project to be looked at. Without --full the noise of three cases, which takes a minute on a GPU, is left
out. The wall time of a run holds the start of Python; the first run, from a disk that may be cold, is shown apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from tabulate import tabulate


def main() -> int:
    """Print the table; 1 where a run found a problem or could not look at something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs={options.runs} must be 1 or more")
    runs = [one_run(full=options.full) for _ in range(options.runs + 1)]
    (first_s, _), *steady = runs
    times = sorted(seconds for seconds, _ in steady)
    print(f"first run {first_s:.2f} s; then {options.runs}: median {statistics.median(times):.2f} s, "
          f"{times[0]:.2f} to {times[-1]:.2f} s")  # fmt: skip
    names = steady[0][1]["probe_seconds"]
    rows = [(name, statistics.median(found["probe_seconds"][name] for _, found in steady)) for name in names]
    print(tabulate(sorted(rows, key=lambda row: -row[1]), ("probe", "median s"), tablefmt="simple", floatfmt=".3f"))
    print(f"counts of the last run: {steady[-1][1]['counts']}")
    return 1 if any(found["counts"]["problem"] or found["counts"]["unknown"] for _, found in runs) else 0


def one_run(*, full: bool) -> tuple[float, dict[str, dict[str, float]]]:
    """Wall seconds of a process, and what it found."""
    command = [sys.executable, "-m", "pytest_attnperf.cli", "doctor", "--json", "-", *([] if full else ["--quick"])]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if done.returncode not in (0, 1):
        raise SystemExit(f"the doctor ended with status {done.returncode}: {done.stderr.strip()}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return seconds, found


if __name__ == "__main__":
    sys.exit(main())
