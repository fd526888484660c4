"""How long pytest takes to collect many cases, beside as many tests of its own parametrisation.

    python benchmarks/scale_collection.py [--cases 100000] [--suites 20] [--backends 10] [--limit 30]

Writes a project of fake backends and of as many workloads as it takes into a temporary folder, and the same tests
without this plugin, and types `pytest --co -q` in each, with `--attnperf` in the first. Printed are wall time, CPU time
and the most memory of each whole process, start and end included; what this plugin adds is the difference. The exit
status is 1 where the cases took longer than --limit seconds of wall time, 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KIB_PER_MB = 1e6 / 1024

CASES = """import pytest

WORKLOADS = [f"prefill-b{{batch}}-s64-h1-d16-f16" for batch in range(1, {workloads} + 1)]


@pytest.mark.attnperf(family="prefill", workloads=WORKLOADS)
def test_case(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
PLAIN = """import pytest

WORKLOADS = [f"prefill-b{{batch}}-s64-h1-d16-f16" for batch in range(1, {workloads} + 1)]
PAIRS = [pytest.param(b, w, id=f"{{b}}-{{w}}") for w in WORKLOADS for b in {backends!r}]


@pytest.mark.parametrize(("backend", "workload"), PAIRS)
def test_case(backend, workload):
    pass
"""


@dataclass(frozen=True)
class Took:
    """One whole process: how many tests it collected, in how many seconds, with how much memory at most."""

    tests: int
    seconds: float
    cpu_seconds: float
    peak_mb: float


def main() -> int:
    """Collect both projects, print a line for each."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = Path(folder, "ours"), Path(folder, "plain")
        count = write_projects(ours, plain, options.cases, options.suites, options.backends)
        cases = collected(ours, "-p", "pytest_attnperf.plugin.main", "--attnperf")
        tests = collected(plain)
    for name, took in (("cases", cases), ("plain tests", tests)):
        print(f"{took.tests:,} {name}: {took.seconds:.1f} s, {took.cpu_seconds:.1f} s of CPU, {took.peak_mb:.0f} MB")
    print(f"a case costs {(cases.cpu_seconds - tests.cpu_seconds) / count * 1e6:.0f} us of CPU more than a plain test")
    if cases.tests != count or tests.tests != count:
        raise SystemExit(
            f"{count} tests were written, {cases.tests} cases and {tests.tests} plain tests were collected"
        )
    if cases.seconds > options.limit:
        print(f"slower than {options.limit:g} s")
        return 1
    return 0


def write_projects(ours: Path, plain: Path, cases: int, suites: int, backends: int) -> int:
    """A project of cases, and one of plain tests. Returns how many each holds: at least as many as were asked for."""
    workloads = -(-cases // (suites * backends))
    names = [f"fake.b{number}" for number in range(backends)]
    for folder, text in ((ours, CASES), (plain, PLAIN)):
        (folder / "suites").mkdir(parents=True)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for suite in range(suites):
            content = text.format(workloads=workloads, backends=names)
            (folder / "suites" / f"test_suite_{suite}.py").write_text(content)
    (ours / "conftest.py").write_text('pytest_plugins = ["pytest_attnperf.testing.fake.device"]\n')
    script = {"backends": {name: {"time_us": 100.0} for name in names}}
    (ours / "fake_device.json").write_text(json.dumps(script))
    return workloads * suites * backends


def collected(project: Path, *options: str) -> Took:
    """What one pytest that only collects takes. Raises SystemExit with its output where it fails."""
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", *options, "suites"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    output = project / "output.txt"
    with output.open("w") as stream:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = output.read_text().splitlines()
    if process.returncode:
        raise SystemExit("\n".join(lines[-20:]))
    tests = sum("::test_case[" in line for line in lines)
    return Took(tests, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / KIB_PER_MB)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="how many cases (default 100000)")
    parser.add_argument("--suites", type=int, default=20, help="over how many files they are spread (default 20)")
    parser.add_argument("--backends", type=int, default=10, help="how many backends run each workload (default 10)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds that collecting them may take (default 30)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
