"""A project whose cases break, and what a run of it must leave: verdicts, baselines, results.json, no process.

What `fault_campaign.py` looks at behind every run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabulate import tabulate

Key = tuple[str, str]
"""Backend and workload of a case."""

RUN_LIMIT_SECONDS = 420.0
SEEN_BEFORE = "kernel not searched for: a case of this backend"
SUITE = """
import pytest

@pytest.mark.attnperf(family={family!r}, workloads={workloads!r})
def test_cases(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@dataclass(frozen=True)
class Injected:
    """One broken case: its fault, the kind that its ERROR must have, and what its kernel's name may begin with."""

    fault: str
    kind: str
    kernels: tuple[str, ...]


@dataclass
class Tally:
    """What all runs came to. `wrong` says what was not as it must be."""

    injected: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    neighbours: int = 0
    kept: int = 0
    harmed: int = 0
    endless: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return sum(self.injected.values())

    def text(self) -> str:
        """The table, and one line that says it all."""
        rows = [
            (fault, count, self.found[fault], self.named[fault], f"{self.seconds[fault] / count:.1f}")
            for fault, count in sorted(self.injected.items())
        ]
        table = tabulate(rows, ("fault", "injected", "found", "kernel named", "seconds each"))
        found = sum(self.found.values())
        line = (
            f"faults: {self.faults} injected, {found} found, neighbours: {self.kept} of {self.neighbours} verdicts, "
            f"baselines harmed: {self.harmed}, runs that did not end: {self.endless}"
        )
        return "\n".join([table, line, *(f"WRONG: {what}" for what in self.wrong)])


@contextlib.contextmanager
def told(tally: Tally, what: str, count: int) -> Iterator[None]:
    """Says at once what one run came to, and what was wrong in it: a campaign may be cut off before its table."""
    started, wrong, found, named = time.monotonic(), len(tally.wrong), tally.found.total(), tally.named.total()
    neighbours, kept = tally.neighbours, tally.kept
    before = tally.faults
    yield
    line = (
        f"{what}: {tally.faults - before} faults, {tally.found.total() - found} found, "
        f"{tally.named.total() - named} kernels named, neighbours {tally.kept - kept} of "
        f"{tally.neighbours - neighbours}, {time.monotonic() - started:.0f} s; {tally.faults} of {count} faults done"
    )
    sys.stderr.write("\n".join([line, *(f"WRONG: {text}" for text in tally.wrong[wrong:]), ""]))
    sys.stderr.flush()


class Project:
    """A folder with a suite, and pytest in it."""

    def __init__(self, path: Path, family: str, workloads: Sequence[str], limit_seconds: float, *options: str) -> None:
        self.path = path
        self.options = (f"--attnperf-case-limit={limit_seconds:g}", *options)
        (path / "suites").mkdir(parents=True)
        (path / "suites" / "test_cases.py").write_text(SUITE.format(family=family, workloads=list(workloads)))
        (path / "pytest.ini").write_text("[pytest]\n")

    def run(self, *options: str) -> tuple[int | None, float]:
        """pytest's exit status, None where it did not end and was killed, and the seconds it took."""
        command = [sys.executable, "-m", "pytest", "-p", "pytest_attnperf.plugin.main", "-q", *self.options, *options]
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST") and key != "CI"}
        environment = {**plain, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        started = time.monotonic()
        with (self.path / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [*command, "suites/"], cwd=self.path, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                status = process.wait(RUN_LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                return None, time.monotonic() - started
            finally:  # also where the campaign itself is cut off: workers die with the process that started them
                process.kill()
                process.wait()
        return status, time.monotonic() - started

    def output(self) -> str:
        """The end of what the last run printed."""
        return (self.path / "output.txt").read_text(errors="replace")[-2000:]

    def cases(self) -> dict[Key, dict[str, Any]]:
        """Every case of the last run's results.json. Raises ValueError where it is not whole."""
        run = json.loads((self.path / ".attnperf" / "results.json").read_text())
        if len(run["cases"]) != run["selected"]:
            raise ValueError(f"results.json has {len(run['cases'])} of {run['selected']} cases: {self.output()}")
        return {(case["key"]["backend"], case["key"]["workload"]): case for case in run["cases"]}

    def entries(self) -> dict[str, Any]:
        """Baseline entries by key. Raises ValueError where a file is torn."""
        found: dict[str, Any] = {}
        for path in sorted((self.path / "baselines").glob("*/*/*.json")):
            found.update(json.loads(path.read_text())["entries"])
        return found

    def left(self) -> list[int]:
        """Processes that still have this folder on their command line."""
        return [pid for pid, command in _processes() if str(self.path) in command]


def _processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def verify(
    project: Project,
    broken: Mapping[Key, Injected],
    reference: Mapping[Key, str],
    baselines: Mapping[str, Any],
    ran: tuple[int | None, float],
    tally: Tally,
    *,
    recording: bool = False,
) -> None:
    """Add one run to the tally."""
    status, seconds = ran
    for injected in broken.values():
        tally.injected[injected.fault] += 1
        tally.seconds[injected.fault] += seconds / len(broken)
    tally.neighbours += len(reference) - len(broken)
    if status is None:
        tally.endless += 1
    if status != 1:
        tally.wrong.append(f"exit status {status} in {project.path}: {project.output()}")
    try:
        cases, entries = project.cases(), project.entries()
    except (OSError, ValueError) as error:
        tally.wrong.append(f"{type(error).__name__}: {error}: {project.output()}")
        return
    for key, verdict in reference.items():
        if key in broken:
            _verify_broken(key, broken[key], cases[key], tally)
        elif cases[key]["verdict"] == verdict:
            tally.kept += 1
        else:
            tally.wrong.append(f"{key}: {cases[key]['verdict']} in place of {verdict}: {cases[key]['summary']}")
    _verify_baselines(entries, baselines, broken, tally, recording=recording)
    tally.wrong += [f"process {pid} is left" for pid in project.left()]


def _verify_broken(key: Key, injected: Injected, case: Mapping[str, Any], tally: Tally) -> None:
    fault = case.get("fault") or {}
    kernel, how = fault.get("kernel", ""), fault.get("how", "")
    if case["verdict"] != "ERROR" or fault.get("kind") != injected.kind:
        what = f"{case['verdict']} {fault} {case['summary']}"
        tally.wrong.append(f"{key}: {injected.fault} became {what}, not an ERROR of kind {injected.kind!r}")
        return
    tally.found[injected.fault] += 1
    tally.named[injected.fault] += bool(kernel)
    right = any(kernel == name if not name else kernel.startswith(name) for name in injected.kernels)
    if not right and not (kernel == "" and how.startswith(SEEN_BEFORE)):
        tally.wrong.append(f"{key}: {injected.fault} named {kernel!r} ({how}), not one of {injected.kernels}")


def _verify_baselines(
    entries: Mapping[str, Any],
    before: Mapping[str, Any],
    broken: Mapping[Key, Injected],
    tally: Tally,
    *,
    recording: bool,
) -> None:
    """What a run that records changes is the entries of healthy cases; any other changes none."""
    for key, entry in before.items():
        of_broken = any(backend in key and workload in key for backend, workload in broken)
        if key not in entries or ((not recording or of_broken) and entries[key] != entry):
            tally.harmed += 1
            tally.wrong.append(f"the baseline of {key} was changed or lost")
