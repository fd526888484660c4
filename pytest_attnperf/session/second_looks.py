"""What settles a case that its first look leaves open: fresh processes against the store, or pairs with a base side.

How many of them is said by a `Sample`, chosen before the first of them is measured; without one it is as many as every
case gets. No count depends on what a second look has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.store import Found
from pytest_attnperf.gate.canary import canary_shift
from pytest_attnperf.gate.decide import Decision, second_look
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    decided,
    from_another_tree,
    joined_measurement,
    median_us_of,
    with_path,
    with_stored,
)
from pytest_attnperf.session.interleaved import supported_there
from pytest_attnperf.session.looking import SECOND_LOOK_PLACES, Looking
from pytest_attnperf.session.remembering import confirmed
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.workers.doing import DOING, Unit
from pytest_attnperf.workers.interleave import SideFailedError
from pytest_attnperf.workers.look import Ending, Look


class SampleCutError(Exception):
    """The clock ended a sample before it was large enough to decide anything."""

    def __init__(self, taken: int, least: int) -> None:
        super().__init__(f"{taken} of {least}")
        self.taken, self.least = taken, least


@dataclass(frozen=True)
class Sample:
    """How many fresh processes, or pairs, a second look takes.

    units   at most so many
    least   fewer decide nothing
    go_on   asked before every unit behind the first: whether there is time for it
    """

    units: int
    least: int
    go_on: Callable[[], bool]


@dataclass(frozen=True)
class Screen:
    """What a first look against stored processes said.

    noise    per process; None where it is unknown
    stored   what the case was held against
    """

    decision: Decision
    noise: NoiseEstimate | None
    stored: Measurement


@dataclass(frozen=True)
class Suspect:
    """A case that its first look leaves open.

    base     what the first look found out; its verdict is not decided
    pairs    whether pairs with the base side settle it; fresh processes do otherwise
    settle   takes the second look, and gives the case's verdict; raises as `take_look`, and SampleCutError
    screen   None where nothing comparable is stored
    """

    case: Case
    base: CaseResult
    pairs: bool
    settle: Callable[[Sample | None], CaseResult]
    screen: Screen | None = None


def by_processes(
    session: Looking, case: Case, base: CaseResult, look: Look, found: Found, screen: Screen, sample: Sample | None
) -> CaseResult:
    """Settle against the stored processes, by fresh ones. Raises as `Suspect.settle`."""
    assert look.fingerprint is not None
    stored, new = found.entry.measurement(), joined_measurement([look])
    looks = _fresh_looks(session, case, sample)
    wrong = next((again for again in looks if again.ending is not Ending.MEASURED), None)
    if wrong is not None:
        return replace(session.not_measured(case, wrong), first=base.first)
    _require_enough(looks, sample)
    foreign = from_another_tree(base, looks)
    if foreign is not None:
        return foreign
    second = joined_measurement(looks)
    changes = look.fingerprint.changes(found.fingerprint)
    canary = session.canary(range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + len(looks)))
    decision = second_look(
        stored,
        new,
        second,
        screen.noise,
        case.policy,
        session.settings.cases,
        changes,
        canary=canary_shift(canary, found.canary),
        bound=base.floor_bound,
    )
    settled = plausibility.with_changes(decided(base, decision), found.entry.launches)
    settled = replace(settled, second=second.processes, median_us=median_us_of(second.processes), canary=canary)
    return with_stored(settled, case, found, looks)


def in_pairs(
    session: Looking, case: Case, base: CaseResult, sample: Sample | None, first_ratio: float | None = None
) -> CaseResult | None:
    """The verdict against the base side, which has the case; None where it cannot run it. Raises as `Suspect.settle`.

    first_ratio   new / stored of the first look
    """
    against = session.against
    assert against is not None
    try:
        bytes_min = 0.0 if base.figures is None else base.figures.bytes_min or 0.0
        pairs, go_on = (None, None) if sample is None else (sample.units, sample.go_on)
        looks = against.look(session.pool, session.request(case, None), bytes_min, pairs=pairs, go_on=go_on)
    except SideFailedError as error:
        if error.side == against.name:
            return against.failed(base, error)
        raise
    if not supported_there(looks):
        return None
    wrong = next((look.new for look in looks if look.new.ending is not Ending.RIGHT), None)
    if wrong is not None:
        return replace(session.not_measured(case, wrong), first=base.first)
    if looks[-1].pair is not None:
        _require_enough(looks, sample)
    return recheck_gain(session, case, against.settle(case, base, looks, session.settings.cases, first_ratio))


def recheck_gain(session: Looking, case: Case, base: CaseResult) -> CaseResult:
    """Faster than stored, or than the base side: right on new inputs in a fresh process, and as fast when they change?

    Any other case is given back as it is.
    """
    if base.verdict is not Verdict.FASTER and not plausibility.is_jump(base):
        return base
    session.pool.start([SECOND_LOOK_PLACES])
    look = session.look(SECOND_LOOK_PLACES, case, session.settings.plan, None, fresh=2, rotate=True)
    look = confirmed(session, case, look, SECOND_LOOK_PLACES + 1, base)
    if look.ending is not Ending.MEASURED:
        return replace(session.not_measured(case, look), first=base.first)
    sides = [(base.config, look.final.config)]
    return with_path(plausibility.by_gain(base, look.rotation), sides, name="in the first look")


def undecided(base: CaseResult, why: str) -> CaseResult:
    """A case that nothing has settled, for want of time: it is unproven, whatever its first look saw."""
    return replace(base, verdict=Verdict.UNDECIDED, summary=str(why), reasons=(why, *base.reasons))


def _fresh_looks(session: Looking, case: Case, sample: Sample | None) -> list[Look]:
    """Fresh processes, none of which made the first look; kept for the run's other suspects.

    The usual number is started at once. Those beyond it start when their turn comes: many that start disturb one that
    times, and the clock may end the sample before they are needed.
    """
    usual = session.settings.second_look
    places = range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + (usual if sample is None else sample.units))
    session.pool.start(places[:usual])
    looks: list[Look] = []
    for place in DOING.steps(Unit.SECOND_LOOK, places, len(places)):
        if looks and sample is not None and not sample.go_on():
            break
        looks.append(session.look(place, case, session.settings.plan, None))
    return looks


def _require_enough(looks: Sequence[object], sample: Sample | None) -> None:
    if sample is not None and len(looks) < sample.least:
        raise SampleCutError(len(looks), sample.least)
