"""What the harness itself costs, beside the limit of each figure. Run it from a set-up environment:

    .venv/bin/python benchmarks/harness_overhead.py [--json FILE]

Exits with 1 when a limit is missed. Wall times of whole processes: close other programs first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

COLLECT_RUNS = 5
START_UP_PAIRS = 15
WORKER_STARTS = 3
ROUND_TRIPS = 2000

REPORT_TORCH = (
    "import sys, pytest; status = pytest.main(['--collect-only', '-q', 'suites/']); "
    "print('torch imported:', 'torch' in sys.modules); sys.exit(status)"
)
IMPORT_TORCH = "import time; began = time.perf_counter(); import torch; print(time.perf_counter() - began)"


@dataclass(frozen=True)
class Figure:
    """One figure and the limit it must stay below, both in `unit`; `how` says how it was measured."""

    name: str
    value: float
    limit: float
    unit: str
    how: str

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.value < self.limit

    def __str__(self) -> str:
        mark = "ok    " if self.met else "MISSED"
        return (
            f"{mark}  {self.name:<52} {self.value:8.3f} {self.unit:<6} limit {self.limit:g} {self.unit:<6} ({self.how})"
        )


def main() -> int:
    """Measure everything, print it, and say whether every limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    require_installed_plugin()
    # Users' interpreters keep compiled files; where this shell forbids it every start would compile the plugin anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    figures = []
    measured: tuple[Callable[[], list[Figure]], ...] = (collecting, starting_up, worker)
    for measure in measured:
        for figure in measure():
            print(figure, flush=True)
            figures.append(figure)
    if options.json:
        rows = [{**asdict(figure), "met": figure.met} for figure in figures]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(figure.met for figure in figures) else 1


def require_installed_plugin() -> None:
    """Stop where pytest would not load the plugin by itself: the start-up cost would be that of nothing."""
    if not any(point.name == "attnperf" for point in metadata.entry_points(group="pytest11")):
        sys.exit(f"pytest-attnperf is not installed for {sys.executable}; run `make setup` and use .venv/bin/python")


def collecting() -> list[Figure]:
    """Collecting the suites: wall time, and whether torch was imported on the way."""
    command = ["-m", "pytest", "--collect-only", "-q", "suites/"]
    seconds = statistics.median(timed(command, ROOT) for _ in range(COLLECT_RUNS))
    last_line = python(["-c", REPORT_TORCH], ROOT).stdout.splitlines()[-1]
    imported = {"torch imported: True": 1.0, "torch imported: False": 0.0}[last_line]
    return [
        Figure("pytest --collect-only suites/", seconds, 1.0, "s", f"median of {COLLECT_RUNS}"),
        Figure("torch imported while collecting (0 no, 1 yes)", imported, 0.5, "", "sys.modules"),
    ]


def starting_up() -> list[Figure]:
    """The plugin's share of a tiny pytest run that does not use it, from interleaved pairs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_trivial.py").write_text("def test_trivial():\n    pass\n")
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
        without = [*command, "-p", "no:attnperf"]
        for arguments in (command, without):  # fills the caches of compiled files
            timed(arguments, Path(folder))
        loaded_s: list[float] = []
        absent_s: list[float] = []
        for number in range(START_UP_PAIRS):
            order = [(command, loaded_s), (without, absent_s)]
            for arguments, seconds in order if number % 2 else reversed(order):
                seconds.append(timed(arguments, Path(folder)))
    differences_ms = [1000 * (loaded - absent) for loaded, absent in zip(loaded_s, absent_s, strict=True)]
    low, median_ms, high = statistics.quantiles(differences_ms, n=4)
    how = f"median difference of {START_UP_PAIRS} interleaved pairs, half of them between {low:.0f} and {high:.0f} ms"
    return [Figure("start-up without --attnperf", median_ms, 50.0, "ms", how)]


def worker() -> list[Figure]:
    """Starting a worker on the suites beyond torch's import, and the round trip of an empty request."""
    import_s = statistics.median(float(python(["-c", IMPORT_TORCH], ROOT).stdout) for _ in range(WORKER_STARTS))
    starts_s, round_trips_us = [], []
    for number in range(WORKER_STARTS):
        with started_worker(f"w{number}") as (start_s, ping):
            starts_s.append(start_s)
            round_trips_us += [1e6 * ping() for _ in range(ROUND_TRIPS)]
    beyond_s = statistics.median(starts_s) - import_s
    how = f"median of {WORKER_STARTS}: {statistics.median(starts_s):.2f} s to ready, {import_s:.2f} s import torch"
    return [
        Figure("worker start beyond torch's import", beyond_s, 1.0, "s", how),
        Figure(
            "request round trip", statistics.median(round_trips_us), 200.0, "us", f"median of {len(round_trips_us)}"
        ),
    ]


@contextmanager
def started_worker(name: str) -> Iterator[tuple[float, Callable[[], float]]]:
    """A ready worker on the suites: seconds until ready, and a function giving the seconds of one round trip."""
    from pytest_attnperf.environment.gpu_tokens import has_gpu, visible_gpus
    from pytest_attnperf.records import Role
    from pytest_attnperf.workers.controller import Worker
    from pytest_attnperf.workers.launch import LaunchPlan

    on_gpu, _ = has_gpu(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        plan = LaunchPlan(
            files=[str(path) for path in sorted((ROOT / "suites").glob("test_*.py"))],
            rootdir=ROOT,
            scratch=Path(scratch),
            role=Role.DEVICE if on_gpu else Role.INTERPRET,
            config_file=ROOT / "pyproject.toml",
            import_mode="importlib",
            passed_options=[f"--attnperf-device={'gpu' if on_gpu else 'cpu'}"],
        )
        began = time.perf_counter()
        process = Worker(plan, name, visible_gpus(os.environ)[0] if on_gpu else None)
        try:
            process.wait_until_ready(limit_seconds=120)
            start_s = time.perf_counter() - began

            def ping() -> float:
                asked = time.perf_counter()
                process.request("ping", limit_seconds=10)
                return time.perf_counter() - asked

            yield start_s, ping
        finally:
            process.exit()


def timed(arguments: list[str], folder: Path) -> float:
    """Wall seconds of one successful run of this interpreter."""
    began = time.perf_counter()
    python(arguments, folder)
    return time.perf_counter() - began


def python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder; stops the program with the output of a run that fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        sys.exit(f"{' '.join(arguments)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran


if __name__ == "__main__":
    sys.exit(main())
