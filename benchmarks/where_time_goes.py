"""Where the time of a run goes: in each case and process, by what was asked of it and by the function that it was in.

    python benchmarks/where_time_goes.py [--cpu] [--lines] [--limit-s S] [--top N] -- [arguments of pytest, or suites/]

Nothing is patched: a thread in every process looks 100 times a second at what the main thread does. With --cpu seconds
are those that it computed, which says more on a machine that others use, too. Prints the seconds of the whole run, when
the first timed case was done, and what a case takes in one process, with what of it is timed blocks. Exits with 1 where
a case and process take longer than --limit-s on average.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

EVERY_S = 0.01
WRITTEN_EVERY_S = 2.0
OUT, BY_CPU = "ATTNPERF_WHERE_TIME_GOES", "ATTNPERF_WHERE_CPU_TIME_GOES"
LINES = f"{OUT}_BY_LINE"
PACKAGE = f"{os.sep}pytest_attnperf{os.sep}"
SUBJECT = f"measure{os.sep}subject.py"
ASKED = (
    *("prepare", "check", "measure_blocks", "measure_rotation", "prepare_turns", "measure_turn", "measure_stages"),
    "finish",
)
WAITING = "(waiting for the controller)"
BETWEEN = "(pytest, between two cases)"
SAMPLING = f"measure{os.sep}sampling.py"
TIMED = "timed blocks"
CONTROLLER_TOP = 8


class Watch:
    """Counts what the main thread is doing, and writes it down now and then: a process may be killed."""

    def __init__(self, folder: Path, role: str) -> None:
        self.folder = folder
        self.role = role
        self.by_cpu = BY_CPU in os.environ
        self.started_s = time.process_time() if self.by_cpu else _age_s()
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.main = threading.main_thread().ident or 0
        threading.Thread(target=self._look, name="where-time-goes", daemon=True).start()
        atexit.register(self.write)

    def _look(self) -> None:
        clock = time.pthread_getcpuclockid(self.main) if self.by_cpu else time.CLOCK_MONOTONIC
        last, written = time.clock_gettime(clock), time.monotonic()
        while True:
            time.sleep(EVERY_S)
            frame = sys._current_frames().get(self.main)
            now = time.clock_gettime(clock)
            if frame is not None:
                self.seconds[_place(frame)] += now - last
            last = now
            if time.monotonic() - written > WRITTEN_EVERY_S:
                self.write()
                written = time.monotonic()

    def write(self) -> None:
        """One file for this process."""
        found = {
            "role": self.role,
            "start_s": self.started_s,
            "seconds": [[*place, seconds] for place, seconds in tuple(self.seconds.items())],
        }
        file = self.folder / f"{self.role}-{os.getpid()}"
        file.write_text(json.dumps(found))
        file.replace(file.with_suffix(".json"))


def _age_s() -> float:
    """Seconds since this process was started."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _place(frame: FrameType | None) -> tuple[str, str]:
    """What was asked of the case, and the innermost function of this package."""
    asked, inner = "", ""
    while frame is not None:
        code = frame.f_code
        _, found, rest = code.co_filename.rpartition(PACKAGE)
        if found:
            line = f":{frame.f_lineno}" if LINES in os.environ else ""
            inner = inner or f"{rest}{line} {getattr(code, 'co_qualname', code.co_name)}"
            if rest == SAMPLING:
                asked = TIMED
            elif rest == SUBJECT and code.co_name in ASKED and not asked:
                asked = code.co_name
            elif code.co_name in ("_receive_request", "next_item") and not asked:
                asked = WAITING
        frame = frame.f_back
    return asked or BETWEEN, inner or "-"


def pytest_configure(config: pytest.Config) -> None:
    """Begin to look."""
    if folder := os.environ.get(OUT):
        is_worker = config.getoption("attnperf_worker_fd", None) is not None
        Watch(Path(folder), "worker" if is_worker else "controller")


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=0.3, help="of a case and process, on average")
    parser.add_argument("--cpu", action="store_true", help="seconds that the main threads computed")
    parser.add_argument("--top", type=int, default=25, help="functions that are listed")
    parser.add_argument("--lines", action="store_true", help="tell the lines of a function apart")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep the run's results.json here")
    parser.add_argument("pytest", nargs="*", default=["suites/"], help="arguments for pytest, behind --")
    return parser.parse_args()


def main() -> int:
    """0, or 1 where a case and process took too long."""
    options = arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = folder / "results" / "results.json"
        command = [sys.executable, "-m", "pytest", "--attnperf", "-p", "where_time_goes", *options.pytest]
        command.append(f"--attnperf-results={results}")
        here = str(Path(__file__).resolve().parent)
        chosen = {BY_CPU: options.cpu, LINES: options.lines}
        environment = os.environ | {OUT: temporary} | {name: "1" for name, on in chosen.items() if on}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
        began = time.monotonic()
        status = _status(subprocess.Popen(command, env=environment))
        took_s = time.monotonic() - began
        processes = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        cases = _timed_processes(results)
        if options.results is not None and results.is_file():
            shutil.copyfile(results, options.results)
    print(f"pytest exited with {status} after {took_s:.1f} s")
    return int(not cases or _told(processes, cases, options))


def _status(run: subprocess.Popen[bytes]) -> int:
    """Its exit status; one that is interrupted is waited for, and what it did is told all the same."""
    try:
        return run.wait()
    except KeyboardInterrupt:
        return run.wait()


def _timed_processes(results: Path) -> int:
    """Pairs of a timed case and a process that timed it."""
    from pytest_attnperf.reports.files.json_results import read

    if not results.is_file():
        return 0
    return sum(len(case.first) + len(case.second) + len(case.pairs) for case in read(results).cases)


def _told(processes: list[dict[str, Any]], cases: int, options: argparse.Namespace) -> bool:
    """Print the tables; whether the limit is missed."""
    workers = [each for each in processes if each["role"] == "worker"]
    for asked, inner, spent in sorted(
        (row for each in processes if each["role"] == "controller" for row in each["seconds"]), key=lambda row: -row[2]
    )[:CONTROLLER_TOP]:
        print(f"controller {spent:7.1f} s  {asked}  {inner}")
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    by_asked: defaultdict[str, float] = defaultdict(float)
    for asked, inner, spent in (row for each in workers for row in each["seconds"]):
        seconds[asked, inner] += spent
        by_asked[asked] += spent
    starts = sum(each["start_s"] for each in workers)
    print(
        f"\n{len(workers)} workers, {starts:.1f} s until pytest was configured in them, {cases} timed cases x processes"
    )
    print(f"\n{'asked of a worker':<34}{'seconds':>9}{'each':>9}")
    for asked, spent in sorted(by_asked.items(), key=lambda item: -item[1]):
        print(f"{asked:<34}{spent:9.1f}{spent / cases:9.3f}")
    print(f"\n{'asked':<12}{'seconds':>9}{'each':>9}  the innermost function of this package")
    shown = sorted(((spent, *place) for place, spent in seconds.items() if place[0] != WAITING), reverse=True)
    for spent, asked, inner in shown[: options.top]:
        print(f"{asked[:11]:<12}{spent:9.1f}{spent / cases:9.3f}  {inner}")
    busy = sum(spent for asked, spent in by_asked.items() if asked != WAITING) / cases
    timed = by_asked[TIMED] / cases
    print(f"\na case and process: {busy:.3f} s, {timed:.3f} s of it timed blocks; limit {options.limit_s:g} s")
    return bool(busy > options.limit_s)


if __name__ == "__main__":
    sys.exit(main())
