"""How long `attnperf explain` takes on a large results file: whole processes, import of Python included.

    .venv/bin/python benchmarks/explain_cost.py [--cases N] [--runs N]

The run is drawn (`testing/sample_runs.py`), not measured. Each figure is of so many processes, in wall seconds and in
the CPU's, which other jobs hardly lengthen: of one case by its node id, of the worst case, of a name that no case has,
and, for comparison, of a process that decodes the whole file.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pytest_attnperf.reports.files import json_results
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).resolve().parents[1]
WHOLE = (
    "import sys; from pathlib import Path; from pytest_attnperf.reports.files.json_results import decode; "
    "path = Path(sys.argv[1]); decode(path.read_bytes(), str(path))"
)


def commands(run: RunResult, path: Path) -> dict[str, list[str]]:
    """What is timed, by name."""
    explain = [sys.executable, "-m", "pytest_attnperf.cli", "explain", "--results", str(path)]
    return {
        "one case by its node id": [*explain, run.cases[len(run.cases) // 2].nodeid],
        "the worst case": explain,
        "a name that no case has": [*explain, "triton.flahs/prefill-b1-s128-h4-d64-f16"],
        "decoding the whole file": [sys.executable, "-c", WHOLE, str(path)],
    }


def seconds(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process, whatever its exit status says of the case."""
    before, began = cpu_seconds(), time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if "Traceback" in done.stderr:
        raise SystemExit(done.stderr)
    return took, cpu_seconds() - before


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def cost(cases: int, runs: int) -> str:
    """The table."""
    run = sample_run(cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        json_results.write(path, run)
        size = path.stat().st_size
        timed = {name: [seconds(command) for _ in range(runs)] for name, command in commands(run, path).items()}
    rows = []
    for name, taken in timed.items():
        wall, cpu = zip(*taken, strict=True)
        rows.append((name, statistics.median(wall), max(wall), statistics.median(cpu)))
    head = f"{cases} cases, {size / 1e6:.1f} MB, {runs} processes each"
    columns = ("what", "median s", "largest s", "median CPU s")
    return f"{head}\n{tabulate(rows, columns, floatfmt='.2f')}"


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(cost(options.cases, options.runs))


if __name__ == "__main__":
    main()
