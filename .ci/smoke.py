"""What a stranger types in an empty folder, on the fake device, with whatever is installed for this Python.

    python smoke.py FOLDER

Writes two projects into FOLDER, an empty one and one with a fake device, runs every line of STEPS there, and says for
each whether the exit status and the text are those expected. Exit status 0 when all are. Needs nothing but
pytest-attnperf: no torch, no GPU, no checkout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CASE = "prefill/fake.a/prefill-b1-s64-h1-d16-f16"
SUITE = """
import pytest


@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"])
def test_prefill(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
CONFTEST = 'pytest_plugins = ["pytest_attnperf.testing.fake.device"]\n'
STEP_LIMIT_S = 300
DROPPED = ("CI", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_XDIST_WORKER")
"""Variables that a user's shell does not have, and whoever runs this may."""


@dataclass(frozen=True)
class Step:
    """A line to type: `pytest` or `attnperf` with arguments, the exit status, and texts that it prints.

    time_us    what the kernel is scripted to take while it runs
    where      folder that it is typed in, below the one of all projects
    """

    typed: str
    status: int
    prints: tuple[str, ...]
    time_us: float = 100.0
    where: str = "fake"


NEEDS_TORCH = (0, "1 passed") if importlib.util.find_spec("torch") else (2, "No module named 'torch'")
"""Exit status and text of the first test, which imports torch."""

STEPS = (
    Step("pytest --help", 0, ("--attnperf-against", "--update-baselines"), where="empty"),
    Step("pytest --attnperf-help", 0, ("--attnperf-shard", "attnperf_threshold", "floor_us"), where="empty"),
    Step("attnperf --help", 0, ("first hour:", "doctor"), where="empty"),
    Step("attnperf --version", 0, ("pytest-attnperf ",), where="empty"),
    Step("attnperf init", 0, ("written   perf/test_softmax.py", "pytest --attnperf perf/"), where="empty"),
    Step("pytest perf", NEEDS_TORCH[0], (NEEDS_TORCH[1],), where="empty"),
    Step("attnperf doctor", -1, ("known to pytest", "doctor: "), where="empty"),
    Step("pytest --co suites", 0, (CASE.split("/", 1)[1].replace("/", "-"), "1 test collected")),
    Step("pytest suites", 0, ("1 passed",)),
    Step("pytest --attnperf suites", 0, ("gated 0 of 1",)),
    Step("pytest --update-baselines suites", 0, ("1 recorded", "baselines/fake/fake1/prefill.json")),
    Step("pytest --attnperf suites", 0, ("1 same on fake/fake1", "1 passed")),
    Step("pytest --attnperf suites", 1, ("SLOWER", "1 failed"), time_us=120.0),
    Step("attnperf report .attnperf/results.json", 1, ("SLOWER", "fake.a")),
    Step(f"attnperf explain {CASE}", 1, ("SLOWER", "second look")),
    Step("attnperf doctor --quick", -1, ("known to pytest", "doctor: ")),
    Step("pytest --attnperf-warm suites", 0, ("1 of 1 cases are ready",)),
)
"""Status -1: 0 or 1, as the machine is. The doctor calls a missing torch a problem."""


def write_project(folder: Path) -> None:
    """An empty project; a suite of one case, and the device it runs on."""
    (folder / "empty").mkdir(parents=True)
    fake = folder / "fake"
    (fake / "suites").mkdir(parents=True)
    (fake / "suites" / "test_prefill.py").write_text(SUITE)
    (fake / "conftest.py").write_text(CONFTEST)


def script(folder: Path, time_us: float) -> None:
    """Say what the kernel takes from now on."""
    backends = {"fake.a": {"time_us": time_us}}
    (folder / "fake_device.json").write_text(json.dumps({"process_sd": 0.003, "backends": backends}))


def command(typed: str) -> list[str]:
    """The argument list, with this Python in the place of the script's name."""
    program, *arguments = typed.split()
    module = {"pytest": "pytest", "attnperf": "pytest_attnperf.cli"}[program]
    return [sys.executable, "-m", module, *arguments]


def complaint(step: Step, status: int, said: str) -> str:
    """What is not as expected; '' where all is."""
    allowed = (0, 1) if step.status < 0 else (step.status,)
    if status not in allowed:
        return f"exit status {status}, not {' or '.join(map(str, allowed))}"
    missing = [text for text in step.prints if text not in said]
    if "Traceback (most recent call last)" in said:
        return "a traceback"
    return f"does not print {', '.join(map(repr, missing))}" if missing else ""


def results(folder: Path) -> Iterator[tuple[Step, str, str]]:
    """Every step with its complaint and what it printed; the rest is left out behind the first complaint."""
    kept = {key: value for key, value in os.environ.items() if key not in DROPPED and not key.startswith("ATTNPERF_")}
    environment = {**kept, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    for step in STEPS:
        script(folder / "fake", step.time_us)
        ran = subprocess.run(
            command(step.typed),
            cwd=folder / step.where,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=STEP_LIMIT_S,
        )
        wrong = complaint(step, ran.returncode, ran.stdout)
        yield step, wrong, ran.stdout
        if wrong:
            return


def main(arguments: list[str]) -> int:
    """Run all steps in the folder named; it must not exist, or be empty."""
    if len(arguments) != 1 or (Path(arguments[0]).exists() and any(Path(arguments[0]).iterdir())):
        print("usage: python smoke.py FOLDER (a new or an empty one)", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    write_project(folder)
    failed = 0
    for step, wrong, said in results(folder):
        print(f"{'FAILED' if wrong else 'ok':6}  {step.typed}{f': {wrong}' if wrong else ''}", flush=True)
        if wrong:
            print(said)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
