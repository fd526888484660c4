"""How often the judge calls an honest backend wrong: fresh inputs from many seeds, every backend that runs here.

    python benchmarks/false_incorrect.py [--seeds 1000] [--minutes M] [--device cuda|cpu] [--workload ID ...]
        [--backend NAMES] [--trials NAMES]

Each seed is one decision per backend and workload, on planted inputs for odd seeds. The reference is computed once per
workload and seed. Printed beside the count are its 95 % upper bound (independent seeds) and the largest error in units
of its budget: how close an honest result came. With `--trials`, each seed is one run of these trials instead, on
planted inputs, and a refused layout is no alarm.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

ROOT = Path(__file__).parents[1]
if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.measure.trials import TrialCase
    from pytest_attnperf.records import CheckReport
    from pytest_attnperf.workloads.base import Workload

CHOSEN = (
    "prefill-b2-s63-h4-d64-f16-causal",
    "prefill-b1-s257-h4-hk2-d64-f16-causal-lse",
    "prefill-b1-s128-kv512-h4-d64-f16-causal",
    "prefill-b1-s200-h4-d128-bf16-causal",
    "prefill-b1-s96-h4-d32-w24-bf16-causal",
    "prefill-b1-s64-h4-d64-f32",
    "prefill-b1-s64-h4-d64-f8e4m3",
    "prefill-b1-s64-h4-d64-i8-causal",
    "backward-b1-s96-h4-hk2-d32-bf16-causal",
    "decode-b3-kv100-h4-d32-f16-ragged",
    "decode-b3-kv70-h4-hk2-d32-page16-bf16-ragged-lse",
    "decode-b2-kv70-h4-hk2-d32-page16-w40-bf16-kvf8e4m3-sinks-ragged",
    "mixed-q21_q1s45_q5s30-h4-hk2-d32-page16-bf16",
    "mixed-q21_q1s45_q5s30-h4-hk2-d32-page16-w20-f16-kvf8e4m3-sinks",
    "block-b2-s1-p30-room40-e64-h4-hk2-d32-bf16",
    "block-b1-s9-p30-room48-e64-h4-hk2-d32-f16",
    "mla_block-b2-s4-p20-room33-e64-h4-d32-r16-c64-bf16",
)
"""Small enough for a thousand seeds: every dtype, mask and output, lengths that no tile divides; where there is a
cache, its unused slots hold NaN and Inf on odd seeds."""


@dataclass
class Tally:
    """What was seen of one backend on one workload."""

    backend: str
    workload: str
    decisions: int = 0
    alarms: int = 0
    max_over_budget: float = 0.0
    rms_over_budget: float = 0.0
    first_problem: str = ""

    def add(self, report: CheckReport) -> None:
        """Count one decision."""
        self.decisions += 1
        self.alarms += bool(report.problems) or not (report.figures or report.trials)
        for figure in report.figures:
            self.max_over_budget = max(self.max_over_budget, figure.max_error / figure.max_budget)
            self.rms_over_budget = max(self.rms_over_budget, figure.rms_error / figure.rms_budget)
        if report.problems and not self.first_problem:
            self.first_problem = report.problems[0]


def upper_bound(alarms: int, decisions: int) -> float:
    """The rate that so few alarms rule out with 95 % confidence (Clopper and Pearson 1934), by bisection."""
    from math import comb

    low, high = alarms / decisions, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        seen = sum(comb(decisions, k) * rate**k * (1 - rate) ** (decisions - k) for k in range(alarms + 1))
        low, high = (rate, high) if seen > 0.05 else (low, rate)
    return high


Decide = Callable[[int], "CheckReport"]
"""Seed -> what is said of one honest call, or of one run of the trials."""


def deciders(
    workload: Workload, backends: Sequence[Backend], device: Any, references: Any, trials: Sequence[str]
) -> list[tuple[Tally, Decide]]:
    """Who decides on each backend that runs this workload here."""
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.measure.trials import TrialCase

    found = []
    for backend in backends:
        if workload.family not in backend.families or backend.unsupported_reasons(workload, device):
            continue
        if device.kind == "cpu" and not backend.times_on_cpu:
            continue  # interpreted: seconds for a call
        inputs = workload.make_inputs(0, device.torch_device, planted=False)
        prepared = backend.prepare(workload, inputs)
        judge = Judge(
            prepared, workload, references=references, tolerance=backend.tolerance, device=device.torch_device
        )
        decide: Decide = partial(judge_seed, judge)
        if trials:
            decide = partial(try_seed, trials, TrialCase(Prover(backend, workload, device, Seeds(0, 0, 0)), prepared))
        found.append((Tally(backend.name, workload.id), decide))
    return found


def judge_seed(judge: Judge, seed: int) -> CheckReport:
    """Judge one call, on planted inputs for odd seeds."""
    return judge.check_call(f"seed {seed}", judge._prepared.run, seed=seed, planted=bool(seed % 2))


def try_seed(trials: Sequence[str], case: TrialCase, seed: int) -> CheckReport:
    """Run the trials on the planted inputs of one seed."""
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.measure.trials import run_trials

    case.prover.seeds = Seeds(timed=seed, check=seed, final=seed)
    return run_trials(trials, case)


def tallies(
    identity: str,
    seeds: range,
    backends: Sequence[Backend],
    device: Any,
    *,
    seconds: float,
    trials: Sequence[str] = (),
) -> list[Tally]:
    """Every decision of one workload, or as many seeds as the seconds allow."""
    from pytest_attnperf.correctness.references import References
    from pytest_attnperf.workloads.families import parse_workload

    workload, references = parse_workload(identity), References()
    judged = deciders(workload, backends, device, references, trials)
    end = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):  # what was counted by then is told
        for seed in seeds:
            if time.monotonic() > end:
                break
            for tally, decide in judged:
                tally.add(decide(seed))
    return [tally for tally, _ in judged]


def main() -> None:
    """Print a line per backend and workload; exit status 1 where an honest backend was called wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=600.0, help="for one workload, at most")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    parser.add_argument("--workload", nargs="+", default=list(CHOSEN), metavar="ID")
    parser.add_argument("--backend", default="", metavar="NAMES", help="only these, separated by commas")
    parser.add_argument("--trials", default="", metavar="NAMES", help="run these trials, separated by commas")
    options = parser.parse_args()
    import torch

    import kernels
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.environment.device import identify_device

    where = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    registry = Registry()
    kernels.register(registry)
    wanted = [name for name in options.backend.split(",") if name]
    backends = [registry.get(name) for name in wanted] or list(registry)
    trials = [name for name in options.trials.split(",") if name]
    device, started = identify_device(where), time.monotonic()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = [
        tally
        for identity in options.workload
        for tally in tallies(identity, seeds, backends, device, seconds=60 * options.minutes, trials=trials)
    ]
    headers = ("workload", "backend", "decisions", "INCORRECT", "rate below (95 %)", "max / budget", "rms / budget")
    rows = [
        (t.workload, t.backend, t.decisions, t.alarms, f"{upper_bound(t.alarms, t.decisions):.2%}",
         f"{t.max_over_budget:.2f}", f"{t.rms_over_budget:.2f}")
        for t in found
    ]  # fmt: skip
    print(tabulate(rows, headers))
    for tally in found:
        if tally.first_problem:
            print(f"{tally.backend} on {tally.workload}: {tally.first_problem}")
    alarms, decisions = sum(t.alarms for t in found), sum(t.decisions for t in found)
    print(f"{alarms} of {decisions} decisions INCORRECT on {device.arch}, {time.monotonic() - started:.0f} s")
    sys.exit(1 if alarms or not decisions else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
