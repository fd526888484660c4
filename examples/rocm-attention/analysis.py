"""Reads what the two scripts beside it wrote: the profile of each backend, and the table of steps with its counters.

python examples/rocm-attention/analysis.py [RESULTS_FOLDER]

A line before each table is the command that prints it alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_attnperf.cli.program import main as attnperf

FOLDER = Path(__file__).parent / "results"


def list_commands(folder: Path) -> Iterator[list[str]]:
    """Yields the arguments of `attnperf` for every trace in `folder`, WORKLOAD/BACKEND/trace, then for its results,
    alone and with each file of counters, WORKLOAD/BACKEND/counters/NAME/*.csv."""
    for trace in sorted(folder.glob("*/*/trace")):
        yield ["profile", str(trace)]
    results = folder / "results.json"
    if results.exists():
        steps = ["report", str(results), "--by", "step"]
        yield steps
        for counters in sorted(folder.glob("*/*/counters/*/*counter_collection.csv")):
            workload, backend = counters.relative_to(folder).parts[:2]
            shown = ["--workload", workload, "--over", backend, "--backends", backend]
            yield [*steps, *shown, "--profile", str(counters)]


def main(folder: Path) -> int:
    """Prints every table. Returns the largest exit status of the commands, 2 if the folder holds nothing to read."""
    commands = list(list_commands(folder))
    if not commands:
        print(f"{folder} holds no results: run run_benchmarks.sh or rocprof_commands.sh first", file=sys.stderr)
        return 2
    status = 0
    for command in commands:
        print(f"\n$ attnperf {' '.join(command)}", flush=True)
        status = max(status, attnperf(command))
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
