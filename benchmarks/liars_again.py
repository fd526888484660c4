"""Judges every liar and every twin again and again, idle or beside load: how often each is told, and accused.

    python benchmarks/liars_again.py [--device cuda|cpu] [--runs 20] [--jobs N] [--load N] [--only TEXT]

Each run prepares, checks, times a few blocks and finishes in one process, with fresh seeds; what only a gate sees
(SLOWER, SUSPICIOUS) is not run here. A liar is told where anything is wrong with it; a text that does not name its
trick is printed, because which of its faults shows first depends on what else the process has done. `--jobs` shares
the runs among so many that disturb each other; `--load` keeps so many more processes busy beside them. On a GPU a run
goes on in a new process where a call that no graph can hold has used a profiler. The exit status is 1 unless every
liar was told in every run and no twin was accused in any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from pytest_attnperf.environment.device import describe_device
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
            subject.blocks(BLOCKS, block_us, BUDGET_US)
            report = subject.finish().check
    except TimedWrongError as error:
        report = error.report
    except AttnperfError as error:
        return f"{type(error).__name__}: {error}"
    return "\n".join(report.problems)


def choose_liars(device: str, only: str) -> list[Liar]:
    """Return those for which a check and a timing on this device are enough."""
    elsewhere = (lambda liar: liar.needs_gpu) if device == "cpu" else (lambda liar: liar.needs_cpu)
    return [each for each in LIARS if each.verdict is Verdict.INCORRECT and not elsewhere(each) and only in each.trick]


@dataclass(frozen=True)
class Found:
    """What one process found: the tricks missed, those whose twins were accused, and how many of the list are done."""

    missed: tuple[str, ...]
    accused: tuple[str, ...]
    done: int


def judge_from(start: int, where: str, only: str) -> Found:
    """Judge liars and twins from a place of the list on, until nothing may be timed any more in this process."""
    device = describe_device(where)
    missed: list[str] = []
    accused: list[str] = []
    liars = choose_liars(where, only)
    for number, liar in enumerate(liars[start:], start):
        if trace.spent() and where == "cuda":
            return Found(tuple(missed), tuple(accused), number)
        assert isinstance(liar.lying, OneWorkload)
        assert isinstance(liar.honest, OneWorkload)
        block_us = LONG_BLOCK_US if liar.needs_timing else BLOCK_US
        if problem := find_problems(liar.honest, device, block_us):
            accused.append(liar.trick)
            print(f"accused: twin.{liar.trick}: {problem}", flush=True)
        problem = find_problems(liar.lying, device, block_us)
        if not problem:
            missed.append(liar.trick)
        elif not re.search(liar.clue, problem):
            print(f"told by another fault: liar.{liar.trick}: {problem.splitlines()[0]}", flush=True)
    return Found(tuple(missed), tuple(accused), len(liars))


def judge_once(where: str, only: str) -> tuple[list[str], list[str]]:
    """Judge every liar and every twin once: on a GPU in processes of their own, one after the other."""
    if where == "cpu":
        found = judge_from(0, where, only)
        return list(found.missed), list(found.accused)
    missed: list[str] = []
    accused: list[str] = []
    start, count = 0, len(choose_liars(where, only))
    while start < count:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(judge_from, start, where, only).result()
        missed += found.missed
        accused += found.accused
        start = found.done
    return missed, accused


def judge_all(options: argparse.Namespace) -> Iterator[tuple[list[str], list[str]]]:
    """Yield what each run found."""
    if options.jobs == 1:
        for _ in range(options.runs):
            yield judge_once(options.device, options.only)
        return
    with ThreadPoolExecutor(options.jobs) as threads:
        runs = [threads.submit(judge_once, options.device, options.only) for _ in range(options.runs)]
        for run in as_completed(runs):
            yield run.result()


def main() -> int:
    """Run them all; prints one line for each that was not as it should be."""
    options = arguments()
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
    missed, accused = Counter[str](), Counter[str]()
    try:
        for number, (lost, blamed) in enumerate(judge_all(options), 1):
            missed.update(lost)
            accused.update(blamed)
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
        f"{options.load} busy ones: {decisions - missed.total()} of {decisions} told, "
        f"{accused.total()} of {decisions} twins accused"
    )
    return int(bool(missed or accused))


if __name__ == "__main__":
    sys.exit(main())
