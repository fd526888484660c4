"""What proving costs beside measuring: seconds by part, from the results of a run.

    python benchmarks/judge_cost.py [.attnperf/results.json]

Every checked call reports the seconds it took and what they went to: making inputs, computing references, poisoning,
the call itself, comparing. A case's own set-up and its timing are not among them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tabulate import tabulate

from pytest_attnperf.reports.files.json_results import decode
from pytest_attnperf.reports.run.conditions import seconds_by_part
from pytest_attnperf.results import RunResult

DEAREST = 5


def dearest_cases(run: RunResult) -> list[tuple[str, float]]:
    """The cases whose checks took longest, with their seconds."""
    seconds = [(str(case.key), sum(check.seconds for check in case.checks)) for case in run.cases]
    return sorted(seconds, key=lambda pair: -pair[1])[:DEAREST]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=Path(".attnperf/results.json"))
    path = parser.parse_args().results
    run = decode(path.read_bytes(), str(path))
    parts = seconds_by_part(check for case in run.cases for check in case.checks)
    total = sum(parts.values())
    rows = [(part, f"{seconds:.2f}", f"{seconds / total:.0%}" if total else "") for part, seconds in parts.items()]
    print(tabulate([*rows, ("judging", f"{total:.2f}", "")], ("part", "seconds", "share"), disable_numparse=True))
    print(f"of a run of {run.seconds:.1f} s over {len(run.cases)} cases; the dearest cases:")
    for case, seconds in dearest_cases(run):
        print(f"  {seconds:6.2f} s  {case}")


if __name__ == "__main__":
    main()
