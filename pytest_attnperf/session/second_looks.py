"""Decides a case that its first look left open: by fresh processes against the baseline, or by pairs with a base side.

A `SampleSize` sets how many of them, and is chosen before the first is measured; without one the usual number is taken.
The number never depends on what a second look has measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.gate.canary_drift import compare_canaries
from pytest_attnperf.gate.decide import Decision, second_look
from pytest_attnperf.gate.interleaved import is_surely_same
from pytest_attnperf.gate.not_the_code import can_be_explained
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    apply_decision,
    join_measurement,
    median_us_of,
    reject_other_tree,
    with_creep,
    with_path,
    with_stored,
)
from pytest_attnperf.session.interleaved import is_supported_there
from pytest_attnperf.session.looking import SECOND_LOOK_PLACES, RunBench
from pytest_attnperf.session.not_the_code import Explained, Suspect, explain_suspect
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.workers.doing import DOING, Unit
from pytest_attnperf.workers.interleave import SideFailedError
from pytest_attnperf.workers.look import Ending, Look
from pytest_attnperf.workers.pool import start_ahead, wait_for_starts
from pytest_attnperf.workers.shared_gpus import in_turns

CONFIRMING_SEED = 3
"""Shift of the seeds of the process that confirms remembered results, beyond those of a measured-again gain."""


class SampleCutError(Exception):
    """The clock ended a sample before it was large enough to decide."""

    def __init__(self, taken: int, least: int) -> None:
        super().__init__(f"{taken} of {least}")
        self.taken, self.least = taken, least


@dataclass(frozen=True)
class SampleSize:
    """How many fresh processes, or pairs, a second look takes.

    units   the most that it takes
    least   fewer decide nothing, unless pairs show SAME (`is_surely_same`)
    go_on   called before every unit after the first: returns whether there is time for it
    """

    units: int
    least: int
    go_on: Callable[[], bool]


@dataclass(frozen=True)
class Screen:
    """The result of comparing a first look with stored processes.

    noise    per process; None where it is unknown
    stored   what the case was compared with
    """

    decision: Decision
    noise: NoiseEstimate | None
    stored: Measurement


@dataclass(frozen=True)
class Measured:
    """A first look that is right and plausible; `base` is its result before any comparison."""

    case: Case
    look: Look
    base: CaseResult


@dataclass(frozen=True)
class Open:
    """A case that its first look leaves open, and what decides it.

    base          its result so far; the verdict is not decided
    stored        what it is compared with; None where nothing usable is stored
    comparable    whether the times of `stored` may be compared with the case's
    pairs         whether pairs with the base side decide it; else fresh processes do
    instead       the result where that side cannot run the case; None to compare with the stored processes then
    screen        None where the first look was not compared with stored processes
    first_ratio   new / stored of the first look, where the pairs' verdict mentions it
    """

    measured: Measured
    base: CaseResult
    stored: StoredEntry | None = None
    comparable: bool = True
    pairs: bool = True
    instead: CaseResult | Open | None = None
    screen: Screen | None = None
    first_ratio: float | None = None

    @property
    def case(self) -> Case:
        """The case that a second look must decide."""
        return self.measured.case


def settle_by_processes(bench: RunBench, opened: Open, sample: SampleSize | None) -> CaseResult:
    """Measures an open case in fresh processes, compares these with the stored ones, and returns the result. Raises
    WorkerError, CaseFailedError, and SampleCutError if time cut the sample too short."""
    case, base, look = opened.case, opened.base, opened.measured.look
    found, screen = opened.stored, opened.screen
    assert found is not None
    assert screen is not None
    assert look.fingerprint is not None
    looks = take_fresh_looks(bench, case, sample, bytes_of(base))
    wrong = next((again for again in looks if again.ending is not Ending.MEASURED), None)
    if wrong is not None:
        return replace(bench.make_unmeasured_result(case, wrong), first=base.first)
    _require_enough(looks, sample)
    foreign = reject_other_tree(base, looks)
    if foreign is not None:
        return foreign
    second, changes = join_measurement(looks), look.fingerprint.list_changes(found.fingerprint)
    canary = bench.collect_canaries(range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + len(looks)))
    decide = functools.partial(
        second_look,
        screen.stored,
        join_measurement([look]),
        noise=screen.noise,
        policy=case.policy,
        cases=bench.settings.cases,
        toolchain_changes=changes,
        canary=compare_canaries(canary, found.canary),
        bound=base.floor_bound,
    )
    said = Explained(decide(second))
    if can_be_explained(said.decision, changes):
        again = functools.partial(_take_pinned_looks, bench, case, found, len(looks), sample)
        suspect = Suspect(found.entry, said.decision, case.nodeid, bench.revisions)
        said = explain_suspect(suspect, [look, *looks], again, decide)
    if said.wrong is not None:
        return replace(bench.make_unmeasured_result(case, said.wrong), first=base.first)
    settled = plausibility.with_changes(apply_decision(base, said.decision), found.entry.launches)
    further = tuple(report for report in second.proof if report.bits)  # compared with those of the first look
    settled = replace(settled, second=second.processes, median_us=median_us_of(second.processes), canary=canary)
    settled = replace(settled, checks=(*settled.checks, *further))
    return with_stored(replace(settled, pinned=said.pinned), case, found, looks)


def settle_in_pairs(bench: RunBench, opened: Open, sample: SampleSize | None) -> CaseResult | None:
    """Measures an open case in pairs (base side, candidate) and returns the result by their time ratios; None if the
    base side does not support the case. Raises WorkerError, CaseFailedError, and SampleCutError if time runs out."""
    case, base, against = opened.case, opened.base, bench.against
    assert against is not None
    try:
        pairs, go_on = (None, None) if sample is None else (sample.units, sample.go_on)
        looks = against.measure_pairs(
            bench.pool, bench.make_request(case, None), bytes_of(base), pairs=pairs, go_on=go_on, policy=case.policy
        )
    except SideFailedError as error:
        if error.side != against.name:
            raise
        return against.mark_base_failed(base, error)
    if not is_supported_there(looks):
        return None
    wrong = next((look.new for look in looks if look.new.ending is not Ending.RIGHT), None)
    if wrong is not None:
        return replace(bench.make_unmeasured_result(case, wrong), first=base.first)
    taken = [look.pair for look in looks if look.pair is not None]
    if looks[-1].pair is not None and not is_surely_same(taken, case.policy):
        _require_enough(looks, sample)
    settled = against.judge_pairs(case, base, looks, bench.settings.cases, opened.first_ratio)
    if plausibility.is_gain(settled):
        settled = recheck_gain(bench, case, settled)
    return with_creep(settled, case, opened.stored) if opened.stored is not None and opened.comparable else settled


def recheck_gain(bench: RunBench, case: Case, base: CaseResult) -> CaseResult:
    """Measures a faster case again, on new inputs in a fresh process. Returns `base` if that confirms it, else
    UNDECIDED, SUSPICIOUS, INCOMPARABLE or the result of a failed measurement."""
    bench.pool.start([SECOND_LOOK_PLACES])
    look = bench.look(SECOND_LOOK_PLACES, case, bench.settings.plan, None, fresh=2, rotate=True)
    look = confirm_rotation(bench, case, look, SECOND_LOOK_PLACES + 1, base)
    if look.ending is not Ending.MEASURED:
        return replace(bench.make_unmeasured_result(case, look), first=base.first)
    sides = [(base.config, look.final.config)]
    return with_path(plausibility.judge_by_gain(base, look.rotation), sides, name="in the first look")


def confirm_rotation(bench: RunBench, case: Case, look: Look, place: int, base: CaseResult) -> Look:
    """Returns `look`, unless its times on changing inputs suggest that the case keeps results of earlier calls: then a
    new look in process number `place`, because one process may suggest it by chance.

    `base` is the result so far. Raises WorkerError if a worker fails, and CaseFailedError if the case raises there.
    """
    if look.rotation is None or not plausibility.may_gain_by_memory(base, look.rotation):
        return look
    bench.pool.start([place])
    with in_turns(bench.pool, [place]) as order:
        for own_turn in order:
            look = bench.look(own_turn, case, bench.settings.plan, None, fresh=CONFIRMING_SEED, rotate=True)
    return look


def mark_undecided(base: CaseResult, why: str) -> CaseResult:
    """Returns the result as UNDECIDED with `why` as summary and first reason, because time ran out."""
    return replace(base, verdict=Verdict.UNDECIDED, summary=str(why), reasons=(why, *base.reasons))


def bytes_of(base: CaseResult) -> float:
    """Returns the bytes of a case's inputs and outputs; 0 where they are not known."""
    return 0.0 if base.figures is None else base.figures.bytes_min or 0.0


def take_fresh_looks(bench: RunBench, case: Case, sample: SampleSize | None, bytes_min: float) -> list[Look]:
    """Measures the case in several processes other than the first look's; returns a look (measurement) of each.

    Starts the usual number at once and waits for them, because a starting process disturbs one that times. Starts
    more one by one: time may run out before they are needed.
    """
    usual = bench.settings.second_look
    places = range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + (usual if sample is None else sample.units))
    wait_for_starts(bench.pool, start_ahead(bench.pool, places[:usual], bytes_min))
    looks: list[Look] = []
    for place in DOING.track_steps(Unit.SECOND_LOOK, places, len(places)):
        if looks and sample is not None and not sample.go_on():
            break
        looks.append(bench.look(place, case, bench.settings.plan, None))
    return looks


def _take_pinned_looks(
    bench: RunBench, case: Case, found: StoredEntry, count: int, sample: SampleSize | None
) -> list[Look]:
    """Measures the case in `count` processes with its stored configuration; returns a look of each. Stops after one
    that could not be timed; [] if time runs out.

    Raises WorkerError if a worker fails, and CaseFailedError if the case raises there.
    """
    looks: list[Look] = []
    for place in DOING.track_steps(Unit.SECOND_LOOK, range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + count), count):
        if sample is not None and not sample.go_on():
            return []
        looks.append(bench.look(place, case, bench.settings.plan, None, pin=found.entry.config))
        if looks[-1].ending is not Ending.MEASURED:
            break
    return looks


def _require_enough(looks: Sequence[object], sample: SampleSize | None) -> None:
    if sample is not None and len(looks) < sample.least:
        raise SampleCutError(len(looks), sample.least)
