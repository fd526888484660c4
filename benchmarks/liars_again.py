"""Judges every liar and every twin again and again, idle or beside load: how often each is told, and accused.

    python benchmarks/liars_again.py [--device cuda|cpu] [--runs 20] [--jobs N] [--load N] [--only TEXT]

Each run prepares, checks, times a few blocks and finishes in one process, with fresh seeds; what only a gate sees
(SLOWER, SUSPICIOUS) is not run here. A liar is told where a problem names its trick; one that is found by another fault
is counted apart, because which of its faults shows first depends on what else the process has done. `--jobs` makes so
many runs side by side, in processes that disturb each other; `--load` keeps so many more processes busy beside them. On
a GPU a run goes on in a new process where a call that no graph can hold has used a profiler. The exit status is 1
unless every liar was told in every run and no twin was accused in any.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo, Verdict
from pytest_attnperf.testing.liars import LIARS
from pytest_attnperf.testing.liars.liar import Liar, OneWorkload

BLOCKS, BUDGET_US = 7, 1e9
BLOCK_US, LONG_BLOCK_US = 3_000.0, 100_000.0
"""The longer ones for liars that need timing: one of them begins to lie after 800 calls."""
BUSY = "while True: pass"
ERROR = "not judged: "
"""Begins what is said where a run ended otherwise than by a verdict."""


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes beside them")
    parser.add_argument("--only", default="", metavar="TEXT", help="liars whose name holds this")
    return parser.parse_args()


def find_problems(backend: OneWorkload, device: DeviceInfo, block_us: float) -> str:
    """Return all that is wrong with a backend by one check, one timing and one last call; '' where nothing is."""
    draw = random.Random()
    seeds = Seeds(timed_seed(backend.workload), draw.getrandbits(30), draw.getrandbits(30))
    subject = TorchSubject(backend, backend.workload, device, seeds)
    report = CheckReport()
    try:
        subject.prepare()
        report = subject.check()
        if report.right:
            subject.measure_blocks(BLOCKS, block_us, BUDGET_US)
            report = subject.finish().check
    except TimedWrongError as error:
        report = error.report
    except AttnperfError as error:
        return f"{ERROR}{type(error).__name__}: {error}"
    return "\n".join(report.problems)


def choose_liars(device: str, only: str) -> list[Liar]:
    """Return those for which a check and a timing on this device are enough."""
    elsewhere = (lambda liar: liar.needs_gpu) if device == "cpu" else (lambda liar: liar.needs_cpu)
    return [each for each in LIARS if each.verdict is Verdict.INCORRECT and not elsewhere(each) and only in each.trick]


@dataclass(frozen=True)
class Found:
    """Tricks that were missed, that were found by another fault, and whose twins were accused; `done` of the list."""

    missed: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    accused: tuple[str, ...] = ()
    done: int = 0

    def then(self, later: Found) -> Found:
        """Both, as one run."""
        return Found(
            self.missed + later.missed, self.otherwise + later.otherwise, self.accused + later.accused, later.done
        )


def judge_one(liar: Liar, device: DeviceInfo) -> Found:
    """Judge a liar and its twin; what is not as it should be is printed."""
    assert isinstance(liar.lying, OneWorkload)
    assert isinstance(liar.honest, OneWorkload)
    gc.collect()  # one of them looks for a reference among all objects, those of the liar before it included
    block_us = LONG_BLOCK_US if liar.needs_timing else BLOCK_US
    accused = find_problems(liar.honest, device, block_us)
    if accused:
        print(f"accused: twin.{liar.trick}: {accused}", flush=True)
    problem = find_problems(liar.lying, device, block_us)
    missed = otherwise = False
    if not re.search(liar.clue, problem):
        missed, otherwise = not problem or ERROR in problem, bool(problem) and ERROR not in problem
        print(f"{'missed' if missed else 'by another fault'}: liar.{liar.trick}: {problem or 'no problem'}", flush=True)
    trick = (liar.trick,)
    return Found(trick * missed, trick * otherwise, trick * bool(accused))


def judge_from(start: int, where: str, only: str) -> Found:
    """Judge liars and twins from a place of the list on, until nothing may be timed any more in this process."""
    device, found = identify_device(where), Found(done=start)
    for number, liar in enumerate(choose_liars(where, only)[start:], start):
        if trace.was_profiler_used() and where == "cuda":
            break
        found = found.then(replace(judge_one(liar, device), done=number + 1))
    return found


def judge_once(where: str, only: str) -> Found:
    """Judge every liar and every twin once, in processes of their own, one after the other."""
    found, count = Found(), len(choose_liars(where, only))
    while found.done < count:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = found.then(pool.submit(judge_from, found.done, where, only).result())
    return found


def judge_all(options: argparse.Namespace) -> Iterator[Found]:
    """Yield what each run found; one job on a CPU is this process."""
    if options.jobs == 1 and options.device == "cpu":
        for _ in range(options.runs):
            yield judge_from(0, options.device, options.only)
        return
    with ThreadPoolExecutor(options.jobs) as threads:
        runs = [threads.submit(judge_once, options.device, options.only) for _ in range(options.runs)]
        for run in as_completed(runs):
            yield run.result()


def main() -> int:
    """Run them all; prints one line for each that was not as it should be."""
    options = arguments()
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
    missed, otherwise, accused = Counter[str](), Counter[str](), Counter[str]()
    try:
        for number, found in enumerate(judge_all(options), 1):
            missed.update(found.missed)
            otherwise.update(found.otherwise)
            accused.update(found.accused)
            print(f"run {number}: missed {dict(missed)}, accused {dict(accused)} so far", file=sys.stderr, flush=True)
    finally:
        for process in load:
            process.kill()
    for trick, count in missed.items():
        print(f"missed: liar.{trick} in {count} of {options.runs} runs")
    liars = len(choose_liars(options.device, options.only))
    decisions = liars * options.runs
    print(
        f"{options.device}: {liars} liars and their twins, {options.runs} runs, {options.jobs} at a time, beside "
        f"{options.load} busy ones: {decisions - missed.total() - otherwise.total()} of {decisions} told, "
        f"{otherwise.total()} by another fault, {accused.total()} of {decisions} twins accused"
    )
    return int(bool(missed or otherwise or accused))


if __name__ == "__main__":
    sys.exit(main())
