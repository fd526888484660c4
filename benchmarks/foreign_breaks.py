"""Breaks public Triton kernels in one place each, and sees whether the suites of examples/foreign find it.

    python benchmarks/foreign_breaks.py [--only TEXT] [--seed N] [--most N] [--jobs N] [--seconds S] [--wheels DIR]
    python benchmarks/foreign_breaks.py --honest 1000 [--only TEXT] [--minutes M]     the kernels as they are

A break is found where a run of the suite says INCORRECT. One that is not found counts as equivalent only where the
broken kernel gives the same bits as the kernel as it is, in everything that the suite's cases return or write, on the
timed inputs and on planted inputs of several seeds; where the kernel as it is gives other bits every time, as sums by
atomics do, that cannot be told. The exit status is 1 if any other was not found, or, with
--honest, if anything was accused. Without a GPU, Triton interprets the kernels. Needs Python 3.11 or later.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
FOREIGN = HERE.parent / "examples" / "foreign"
sys.path[:0] = [str(HERE), str(FOREIGN)]

import run as foreign  # noqa: E402
from foreign_targets import TARGETS, Target  # noqa: E402
from kernel_breaks import Break, breaks  # noqa: E402

PLAIN = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:benchmark", "--tb=short", "-x"]
CHECK = re.compile(r"\b(timed|planted) inputs: ")
OF_LINES = re.compile(r"in the root mean square of (row|index)")
HEAD = ("package", "kernel", "operator", "line", "outcome", "by", "seconds")


@dataclass
class Outcome:
    """What came of one break; `by` names the checks that found it, or says why none could."""

    target: Target
    one: Break
    outcome: str = ""
    by: str = ""
    seconds: float = 0.0

    def row(self) -> tuple[str, ...]:
        """As the table shows it."""
        one = self.one
        return (
            self.target.package,
            one.function,
            one.operator,
            str(one.line),
            self.outcome,
            self.by,
            f"{self.seconds:.0f}",
        )


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="'package function operator' must match this regex")
    parser.add_argument("--seed", type=int, default=0, help="chooses the breaks, and the inputs of the checks")
    parser.add_argument("--most", type=int, default=4, help="breaks of one kernel, each of another operator")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=400.0, help="for the cases of one break, at most")
    parser.add_argument("--honest", type=int, metavar="N", help="judge the kernels as they are on N seeds")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --honest: for one case, at most")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from the wheels here, without a network")
    parser.add_argument("--into", type=Path, default=Path("build/foreign"), help="where packages are installed")
    return parser.parse_args()


def installed(options: argparse.Namespace) -> dict[str, Path]:
    """Folders of the packages, installed where they are not yet; those that cannot be had are named and left out."""
    pinned = tomllib.loads((FOREIGN / "packages.toml").read_text())
    folders = {}
    for name in dict.fromkeys(target.package for target in TARGETS):
        folder = options.into.resolve() / name
        if reason := foreign.installed(name, pinned[name], folder, options.wheels):
            print(f"{name}: {reason}", file=sys.stderr)
        else:
            folders[name] = folder
    return folders


def chosen(target: Target, folder: Path, options: argparse.Namespace) -> list[Break]:
    """Breaks of one kernel: operators by chance, and of each the place by chance; the same for the same seed."""
    draw = random.Random(f"{options.seed} {target.package} {target.function}")
    by_operator: dict[str, list[Break]] = {}
    for each in breaks((folder / target.file).read_text(), target.function):
        by_operator.setdefault(each.operator, []).append(each)
    operators = draw.sample(sorted(by_operator), min(options.most, len(by_operator)))
    places = [draw.choice(by_operator[operator]) for operator in operators]
    return [one for one in places if re.search(options.only, f"{target.package} {one.function} {one.operator}")]


def pytest_run(
    target: Target, folder: Path, seconds: float, *more: str, **environ: str
) -> subprocess.CompletedProcess[str] | None:
    """Run the kernel's cases with the package in this folder; None if that takes too long."""
    command = [sys.executable, "-m", "pytest", target.suite, "-k", target.cases, *PLAIN, *more]
    environment = foreign.environment(folder) | environ
    environment["PYTHONPATH"] += os.pathsep + str(HERE)
    try:
        return subprocess.run(
            command, cwd=FOREIGN, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None


def tried(target: Target, one: Break, original: Path, options: argparse.Namespace) -> Outcome:
    """Break a copy of the package, and see what the suite says of it."""
    outcome, started = Outcome(target, one), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / target.package
        shutil.copytree(original, folder)
        source = (original / target.file).read_text()
        (folder / target.file).write_text(one.applied(source))
        here = ("-p", "foreign_cases", "--attnperf-isolate=none", f"--attnperf-seed={options.seed}")
        done = pytest_run(target, folder, options.seconds, *here)
        if done is None:
            outcome.outcome, outcome.by = "error", f"not done after {options.seconds:g} s"
        elif done.returncode == 0:
            first, again = (digests(target, original, options.seconds, run) for run in (0, 1))
            same = digests(target, folder, options.seconds, 0) == first
            outcome.outcome = "equivalent" if same else "NOT FOUND" if first == again else "not told"
            outcome.by = "" if first == again else "the kernel as it is gives other bits every time"
        else:
            outcome.outcome, outcome.by = verdict(done.stdout + done.stderr, done.returncode)
    outcome.seconds = time.monotonic() - started
    print(*outcome.row(), f"{one.before!r} -> {one.after!r}", sep="  ", file=sys.stderr, flush=True)
    return outcome


def verdict(text: str, status: int) -> tuple[str, str]:
    """(outcome, which checks found it) of a run that failed; '(lines)' where nothing but budgets of lines did."""
    problems = [line for line in text.splitlines() if CHECK.search(line)]
    if "INCORRECT" not in text:
        errors = [line for line in text.splitlines() if line.startswith("E  ")]
        return "error", errors[-1][1:].strip()[:60] if errors else f"pytest exited with {status}"
    checks = sorted({found.group(1) for line in problems if (found := CHECK.search(line))}, reverse=True)
    lines = " (lines)" if problems and all(OF_LINES.search(line) for line in problems) else ""
    return "found", (" and ".join(checks) or "another rule") + lines


@functools.cache
def digests(target: Target, folder: Path, seconds: float, run: int) -> str:
    """What the kernel's cases return and write, bit by bit, as text; what differs every time if they fail.

    run   another one runs them again, where the same would be remembered
    """
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "digests"
        done = pytest_run(target, folder, seconds, *PLUGIN, FOREIGN_CASES=f"digest {report}")
        good = done is not None and done.returncode == 0
        return report.read_text() if good else f"failed in {temporary}"


PLUGIN = ["-p", "no:attnperf", "-p", "foreign_cases", "-s"]


def honest(target: Target, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Judge a kernel's cases as they are on many seeds; what was counted, by case."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "counts"
        environ = {"FOREIGN_CASES": f"honest {report} {options.honest} {options.minutes}"}
        command = [sys.executable, "-m", "pytest", target.suite, "-k", target.cases, *PLAIN, *PLUGIN]
        environment = foreign.environment(folder) | environ
        environment["PYTHONPATH"] += os.pathsep + str(HERE)
        done = subprocess.run(command, cwd=FOREIGN, env=environment, capture_output=True, text=True, check=False)
        if not report.is_file():
            return [{"case": target.cases, "seeds": 0, "accused": 0, "first": done.stdout[-500:], "seconds": 0}]
        counted = [json.loads(line) for line in report.read_text().splitlines()]
    for each in counted:
        print(target.package, *each.values(), sep="  ", file=sys.stderr, flush=True)
    return [{"package": target.package} | each for each in counted]


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows below each other, the first one their head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    """0, or 1 if a break was not found or an honest kernel was accused."""
    options = arguments()
    folders = installed(options)
    has_gpu = not foreign.environment(HERE).get("TRITON_INTERPRET")
    targets = [target for target in TARGETS if target.package in folders and (has_gpu or not target.needs_gpu)]
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.honest:
            cases = {(target.suite, target.cases): target for target in targets}.values()
            wanted = [each for each in cases if re.search(options.only, f"{each.package} {each.function}")]
            counted = list(pool.map(lambda each: honest(each, folders[each.package], options), wanted))
            rows = [tuple(map(str, each.values())) for part in counted for each in part]
            print(table([("package", "case", "seeds", "accused", "worst", "seconds", "first"), *rows]))
            return int(any(each["accused"] or not each["seeds"] for part in counted for each in part))
        work = [(each, one) for each in targets for one in chosen(each, folders[each.package], options)]
        outcomes = list(pool.map(lambda pair: tried(pair[0], pair[1], folders[pair[0].package], options), work))
    print(table([HEAD, *(outcome.row() for outcome in outcomes)]))
    counts = Counter(outcome.outcome for outcome in outcomes)
    kernels = len({(outcome.target.package, outcome.one.function) for outcome in outcomes})
    packages = len({outcome.target.package for outcome in outcomes})
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{len(outcomes)} breaks in {kernels} kernels of {packages} packages: {said}")
    return int(counts["NOT FOUND"] > 0)


if __name__ == "__main__":
    sys.exit(main())
