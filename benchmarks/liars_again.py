"""Judges every liar and every twin again and again, idle or beside load: how often each is told, and accused.

    python benchmarks/liars_again.py [--runs 20] [--load N] [--only TEXT]

Each run prepares, checks, times a few blocks and finishes in this process, with fresh seeds; what only a gate sees
(SLOWER, SUSPICIOUS) is not run here. A liar is told where a problem names its trick. `--load` keeps so many processes
busy beside it. The exit status is 1 unless every liar was told in every run and no twin was accused in any.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
from collections import Counter

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo, Verdict
from pytest_attnperf.testing.liars import LIARS
from pytest_attnperf.testing.liars.liar import Liar, OneWorkload

BLOCKS, BUDGET_US = 7, 1e9
BLOCK_US, LONG_BLOCK_US = 3_000.0, 100_000.0
"""The longer ones for liars that need timing: one of them begins to lie after 800 calls."""
CPU = DeviceInfo(kind="cpu", arch="cpu", product="here")
BUSY = "while True: pass"


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes beside it")
    parser.add_argument("--only", default="", metavar="TEXT", help="liars whose name holds this")
    return parser.parse_args()


def said(backend: OneWorkload, draw: random.Random, block_us: float) -> str:
    """All that is wrong with a backend by one check, one timing and one last call; '' where nothing is."""
    seeds = Seeds(timed_seed(backend.workload), draw.getrandbits(30), draw.getrandbits(30))
    subject = TorchSubject(backend, backend.workload, CPU, seeds)
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


def told(liar: Liar) -> bool:
    """Whether a check and a timing on a CPU are enough for it."""
    return not liar.needs_gpu and liar.verdict is Verdict.INCORRECT


def main() -> int:
    """Run them all; prints one line for each that was not as it should be."""
    options = arguments()
    liars = [liar for liar in LIARS if told(liar) and options.only in liar.trick]
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
    missed, accused = Counter[str](), Counter[str]()
    draw = random.Random()
    try:
        for run in range(options.runs):
            for liar in liars:
                assert isinstance(liar.lying, OneWorkload)
                assert isinstance(liar.honest, OneWorkload)
                block_us = LONG_BLOCK_US if liar.needs_timing else BLOCK_US
                missed[liar.trick] += not re.search(liar.clue, said(liar.lying, draw, block_us))
                if problem := said(liar.honest, draw, block_us):
                    accused[liar.trick] += 1
                    print(f"accused: twin.{liar.trick}: {problem}", flush=True)
            print(f"run {run + 1}: missed {dict(+missed)}, accused {dict(accused)} so far", file=sys.stderr, flush=True)
    finally:
        for process in load:
            process.kill()
    for trick, count in missed.items():
        if count:
            print(f"missed: liar.{trick} in {count} of {options.runs} runs")
    runs = len(liars) * options.runs
    print(
        f"{len(liars)} liars and their twins, {options.runs} runs beside {options.load} busy processes: "
        f"{runs - sum(missed.values())} of {runs} told, {sum(accused.values())} of {runs} twins accused"
    )
    return int(bool(sum(missed.values()) + sum(accused.values())))


if __name__ == "__main__":
    sys.exit(main())
