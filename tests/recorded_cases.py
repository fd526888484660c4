"""Cases as a gate would have judged them, made of processes and pairs that were measured on H200s.

The samples are those of benchmarks/figures/h200.jsonl: processes of unchanged code, and of kernels that were slowed
down by a known share, of two runs on two cards. Their verdicts are made by the gate's own functions, with the noise of
the stored side. What was not recorded there (proof, toolchain, seconds of proving) is made up.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_attnperf.gate.decide import Decision, first_look, second_look
from pytest_attnperf.gate.interleaved import interleaved_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    Measurement,
    ProcessSummary,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.records.gpus import DeviceState
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.explain.facts import TypingPlace
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.session.case_records import apply_decision
from pytest_attnperf.stats.noise import NoiseEstimate, NoiseModel
from pytest_attnperf.stats.pair_ratios import pair_noise

FIGURES = Path(__file__).parents[1] / "benchmarks" / "figures" / "h200.jsonl"
TRITON = "triton.flash/prefill-b4-s1024-h8-d64-f16-causal"
FLASH = "native.sdpa_flash/prefill-b4-s512-h8-d256-f16-causal"
STORED, NEW = "A", "B"
"""Runs: what is stored was measured on one card, what is new on another."""

CASES = 120
RIGHT = CheckReport((ErrorFigures("made up", "out", 0.5, 1.0, 0.5, 1.0, elements=64),))
DEVICE = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", 132, 150 << 30)
FINGERPRINT = Fingerprint(
    {"arch": "sm_90", "product": "h200", "timer": "graph"}, {"torch": "2.11.0", "triton": "3.6.0"}
)
STATE = DeviceState({"sm_clock_mhz": "1980", "temperature_c": "35"}, {"sm_clock_mhz": "1980", "temperature_c": "41"})
BASE = "origin/main (4f2c1ab)"
SECONDS_A_PROCESS = 2.0

HERE = TypingPlace(base="4f2c1ab90d11", good="4f2c1ab90d11", bad="8f7e9d6a1b2c")
"""A clone that has the commits of baseline and run."""


@functools.cache
def recorded() -> tuple[dict[str, Any], ...]:
    """Every line of the file."""
    return tuple(json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines())


@functools.cache
def processes(run: str, case: str, label: str) -> tuple[ProcessSummary, ...]:
    """Measured processes of one case in one run, in order; `label` is 'plain' or how much it was slowed down."""
    wanted = ("process", "attnperf", run, case, label)
    lines = [one for one in recorded() if tuple(map(one.get, ("record", "method", "run", "case", "label"))) == wanted]
    return tuple(_process(one) for one in lines)


@functools.cache
def pairs(run: str, case: str, label: str) -> tuple[PairSummary, ...]:
    """Measured pairs, as `processes` has them."""
    wanted = ("pair", run, case, label)
    lines = [one for one in recorded() if tuple(map(one.get, ("record", "run", "case", "label"))) == wanted]
    return tuple(_pair(one) for one in lines)


def by_looks(
    name: str, new: Sequence[ProcessSummary], policy: Policy | None = None, noise: NoiseEstimate | None = None
) -> CaseResult:
    """A case held against seven stored processes: the first process screens, three others settle what that leaves."""
    policy = policy or Policy()
    stored = processes(STORED, name, "plain")[:7]
    base, first = _measured(stored), _measured(new[:1])
    noise = noise or _noise(name, stored)
    decision: Decision = first_look(base, first, noise, policy, CASES)
    case = replace(_case(name, policy), first=tuple(new[:1]), median_us=new[0].median_us, seconds=SECONDS_A_PROCESS)
    if decision.needs_second_look:
        second = tuple(new[1:4])
        decision = second_look(base, first, _measured(second), noise, policy, CASES)
        middle = statistics.median(process.median_us for process in second)
        case = replace(case, second=second, median_us=middle, seconds=4 * SECONDS_A_PROCESS)
    stored_us = tuple(process.median_us for process in stored)
    said = {"stored_us": stored_us, "stored_at": "2026-11-21", "stored_commit": "4f2c1ab90d11"}
    case = replace(apply_decision(case, decision), baseline_us=statistics.median(stored_us), **said)  # type: ignore[arg-type]
    return replace(case, fails=case.verdict in policy.fail_on)


def by_pairs(name: str, measured: Sequence[PairSummary], policy: Policy | None = None) -> CaseResult:
    """A case that pairs have settled, with their own noise."""
    policy = policy or Policy()
    noise = pair_noise({name: measured}).estimate_noise(name, measured[0].base_us, "graph")
    decision = interleaved_look(measured, noise, policy, CASES, base_label=BASE)
    new_us, base_us = (statistics.median(getattr(pair, side) for pair in measured) for side in ("new_us", "base_us"))
    turns = sum(pair.seconds for pair in measured)
    case = replace(
        apply_decision(_case(name, policy), decision),
        first=processes(NEW, name, "plain")[:1],
        pairs=tuple(measured),
        against=BASE,
        median_us=new_us,
        baseline_us=base_us,
        seconds=turns + (1 + 2 * len(measured)) * SECONDS_A_PROCESS,
    )
    return replace(case, fails=case.verdict in policy.fail_on)


def run_of(*cases: CaseResult) -> RunResult:
    """A gating run of these cases, on the device that measured the samples."""
    return RunResult(
        RESULTS_SCHEMA, "0.1.0", "gate", "2026-11-22T09:00:00+00:00", "pytest --attnperf suites/", "8f7e9d6a1b2c",
        DEVICE, FINGERPRINT, cases, gated=len(cases), selected=len(cases), device_state=STATE,
    )  # fmt: skip


def slower() -> CaseResult:
    """A kernel that was slowed down by 5 %, against stored processes of another card."""
    return by_looks(TRITON, processes(NEW, TRITON, "slow5"))


def slower_by_pairs() -> CaseResult:
    """One slowed down by 1 %, which only pairs see, and a threshold of 1 %."""
    return by_pairs(TRITON, pairs(NEW, TRITON, "slow1")[:8], Policy(threshold_percent=1.0, floor_us=0.1))


def same() -> CaseResult:
    """Unchanged code."""
    return by_looks(TRITON, processes(STORED, TRITON, "plain")[7:])


def undecided() -> CaseResult:
    """A kernel slowed down by 3 %: more than is allowed, and less than these processes' noise can make."""
    return by_looks(TRITON, processes(NEW, TRITON, "slow3"))


def _noise(name: str, stored: Sequence[ProcessSummary]) -> NoiseEstimate | None:
    others = (FLASH, TRITON, "triton.flash/prefill-b4-s512-h8-d256-f16-causal")
    groups = {other: processes(STORED, other, "plain")[:7] for other in others}
    return NoiseModel.from_processes(groups).estimate_noise(
        name, statistics.median(p.median_us for p in stored), "graph"
    )


def _process(one: dict[str, Any]) -> ProcessSummary:
    """Of the blocks, one at each of up to forty places, thirty were kept: they are taken for all there were."""
    blocks = tuple(one["blocks"])
    centre = statistics.fmean(blocks)
    return ProcessSummary(
        centre, min(blocks), centre, blocks, one["calls_per_block"], one["timer"],
        placements=len(blocks), clock_mhz=one.get("clock_mhz"),
    )  # fmt: skip


def _pair(one: dict[str, Any]) -> PairSummary:
    """Of forty quads thirty were kept."""
    ratios = tuple(one["quad_ratios"])
    times = one["ratio"], one["base_us"], one["new_us"]
    return PairSummary(*times, len(ratios), one["timer"], ratios, seconds=one["seconds"])


def _measured(group: Sequence[ProcessSummary]) -> Measurement:
    return Measurement(tuple(group), (RIGHT,) * len(group))


def _case(name: str, policy: Policy) -> CaseResult:
    backend, _, workload = name.partition("/")
    nodeid = f"suites/test_prefill.py::test_prefill[{backend}-{workload}]"
    return CaseResult(
        CaseKey("prefill", backend, workload), nodeid, Verdict.ERROR, "", policy=policy.to_record(), checks=(RIGHT,),
        figures=WorkloadFigures(None, None, "f16", "hot"), fingerprint=FINGERPRINT,
        reproduce=f'pytest --attnperf "{nodeid}"',
    )  # fmt: skip
