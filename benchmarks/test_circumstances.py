"""Runs tests under circumstances that they must not depend on, and prints which failed where.

    .venv/bin/python benchmarks/test_circumstances.py [--runs N] [--only NAME]... [-- ARGUMENTS OF PYTEST]

Without arguments all of `tests/ -m "not soak"` runs, which takes as long as `make test` for every circumstance and
run. 'busy' has two endless loops and a burst of four processes every second beside the tests; 'background' ignores
SIGINT as `nohup ... &` does; 'other user' is nobody (65534), and needs root to become that. Exit status 1 where a test
failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("tests/", "-m", "not soak")
NOBODY = 65534
LONG = 120
"""Characters of a long TMPDIR."""

LOOP = "while True: pass"
BURST = (
    "import subprocess, sys, time\n"
    "while True:\n"
    "    spin = [subprocess.Popen([sys.executable, '-c',"
    " 'import time; until = time.time() + 0.4\\nwhile time.time() < until: pass']) for _ in range(4)]\n"
    "    [process.wait() for process in spin]\n"
    "    time.sleep(0.5)\n"
)


@dataclass(frozen=True)
class Circumstance:
    """How a run of the tests differs from a quiet one.

    beside       Python programs that run meanwhile
    order        of the tests: '-p no:randomly' or another argument
    long_folder  whether TMPDIR is `LONG` characters long
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()
    order: Sequence[str] = ("-p", "no:randomly")
    long_folder: bool = False
    ignores_interrupts: bool = False
    user: int | None = None


CIRCUMSTANCES = {
    "idle": Circumstance(),
    "busy": Circumstance(beside=(LOOP, LOOP, BURST)),
    "background": Circumstance(ignores_interrupts=True),
    "60 columns": Circumstance({"COLUMNS": "60"}),
    "200 columns": Circumstance({"COLUMNS": "200"}),
    "long TMPDIR": Circumstance(long_folder=True),
    "random order": Circumstance(order=("-p", "randomly")),
    "other user": Circumstance(user=NOBODY),
}


@contextlib.contextmanager
def company(programs: Sequence[str]) -> Iterator[None]:
    """These programs run meanwhile, each in a group of its own that is killed afterwards."""
    running = [subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for text in programs]
    try:
        yield
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def folder_in(top: Path, *, long: bool, user: int | None) -> Path:
    """A TMPDIR of its own, which that user may write to."""
    missing = LONG - len(str(top)) - 1
    folder = top / ("t" * missing if long and missing > 0 else "t")
    for path in (folder, folder / "home"):
        path.mkdir()
        if user is not None:
            os.chown(path, user, user)
    if user is not None:
        top.chmod(0o755)
    return folder


def failed_tests(report: Path) -> tuple[str, ...]:
    """Names of tests that failed or broke, from a JUnit file of pytest; a run without one says so itself."""
    try:
        cases = ElementTree.parse(report).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return ("(the run itself)",)
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return tuple(f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}" for case in failed)


def run_once(circumstance: Circumstance, arguments: Sequence[str]) -> tuple[str, ...]:
    """The tests that failed in one run."""
    with tempfile.TemporaryDirectory() as name, company(circumstance.beside):
        folder = folder_in(Path(name), long=circumstance.long_folder, user=circumstance.user)
        report = folder / "report.xml"
        home = {"HOME": str(folder / "home")} if circumstance.user is not None else {}
        environment = {
            **{key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")},
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(folder),
            **home,
            **circumstance.environment,
        }
        command = [sys.executable, "-m", "pytest", *arguments, *circumstance.order]
        command += ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_ignore_interrupts if circumstance.ignores_interrupts else None,
            user=circumstance.user,
            group=circumstance.user,
            extra_groups=None if circumstance.user is None else [],
            check=False,
        )
        return failed_tests(report)


def table(failures: Mapping[str, Sequence[tuple[str, ...]]]) -> str:
    """Circumstance, runs, and the tests that failed with in how many of them."""
    rows = []
    for name, runs in failures.items():
        counted = Counter(test for failed in runs for test in failed)
        said = "\n".join(f"{test} ({count})" for test, count in counted.most_common()) or "none"
        rows.append((name, len(runs), said))
    return tabulate(rows, headers=("circumstance", "runs", "failed tests (in how many runs)"), tablefmt="simple")


def main(run: Callable[[Circumstance, Sequence[str]], tuple[str, ...]] = run_once) -> int:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description="Which tests fail under which circumstances.")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of each circumstance (default %(default)s)")
    parser.add_argument("--only", action="append", choices=CIRCUMSTANCES, help="may be given more than once")
    parser.add_argument("arguments", nargs="*", default=DEFAULT, metavar="ARGUMENT", help="of pytest, behind --")
    args = parser.parse_args()
    failures: dict[str, list[tuple[str, ...]]] = {}
    for name in args.only or CIRCUMSTANCES:
        if CIRCUMSTANCES[name].user is not None and os.geteuid() != 0:
            print(f"{name}: left out, only root can become another user", file=sys.stderr)
            continue
        for number in range(1, args.runs + 1):
            failures.setdefault(name, []).append(run(CIRCUMSTANCES[name], args.arguments))
            print(f"{name}, run {number}: {len(failures[name][-1])} failed", file=sys.stderr)
    print(table(failures))
    return int(any(failed for runs in failures.values() for failed in runs))


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no endless loop behind
    sys.exit(main())
