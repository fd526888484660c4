"""Judges a run within a time budget: a first look at every case, then the rest of the time for the least decided ones.

First looks come in the order of the cases, each proven right and timed in one process. What they decide is final. The
size of every second look is planned once, from first looks and the time left. Each open case gets the usual size, the
least decided first. Then one unit at a time (a fresh process, or a pair) goes to the least decided case, until each is
predicted to be decided or no time is left. The clock is checked before every unit, so that a run is late by at most one
unit: a case whose minimum no longer fits gets none, and a sample that has begun is decided on what it has, if that
reaches the minimum. Values seen in a sample never cut it, but for half of the pairs that show SAME already.

A second look is decided once, on its planned sample, by its own units. Taking more units because a sample looks
undecided would be optional stopping, and raise the rate of false alarms. A case is SLOWER beyond the limit for the
number of units that it really has, so the stated rate holds for every size; more units only make that limit narrower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.gate.limits import format_signed, tolerated_ratio
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.case_records import case_result, median_us_of
from pytest_attnperf.session.looking import GATE_PLACE
from pytest_attnperf.session.second_looks import Open, SampleCutError, SampleSize, mark_undecided
from pytest_attnperf.session.settings import Case
from pytest_attnperf.session.time_left import format_duration
from pytest_attnperf.stats.comparison import standard_error, z_for
from pytest_attnperf.stats.pair_ratios import standard_error_of_pairs

START_MOST_S = 30.0
"""Longest start of a worker that is assumed, in seconds: other work may lie between its start and the first case."""

TURNS_PER_BLOCK = 2
"""A turn is an unmeasured block and a measured one."""


@dataclass
class Budget:
    """The cases of one run, judged within `seconds` of wall time from `began` (seconds of the bench's clock) on.

    say       called with a line of progress after every case
    results   results by case, once `spend_all` has been called
    """

    session: Session
    seconds: float
    cases: Sequence[Case]
    began: float
    say: Callable[[str], None] = lambda line: None
    results: dict[CaseKey, CaseResult] = field(default_factory=dict)
    _suspects: list[tuple[Open, float]] = field(default_factory=list)
    _units: list[tuple[int, bool]] = field(default_factory=list)
    _looked: int = 0
    _first_seconds: float = 0.0
    _ended: float = 0.0

    def spend_all(self) -> None:
        """Judges every case into `results`. After an interruption, cases not measured a second time become
        UNDECIDED."""
        try:
            self._spend_time()
        finally:
            for suspect, seconds in self._suspects:
                if suspect.case.key not in self.results:
                    why = "the run was interrupted before its second look was done"
                    self._keep_result(suspect.case, mark_undecided(_with_first_ratio(suspect), why), seconds)
            self._ended = self.session.bench.clock()

    def _spend_time(self) -> None:
        start_s = self._start_seconds()
        self._take_first_looks()
        plan = self.session.bench.against.plan if self.session.bench.against is not None else None
        pair_s = 0.0 if plan is None else TURNS_PER_BLOCK * plan.budget_us / 1e6
        opened = [self._open_case(suspect, seconds, pair_s) for suspect, seconds in self._suspects]
        shares = plan_shares(opened, self.left, start_s)
        for number, share in enumerate(shares, start=1):
            suspect, seconds = self._suspects[share.index]
            self._take_second_look(suspect, seconds, share, opened[share.index])
            self.say(f"second looks {number} of {len(shares)}, {format_duration(self.left)} of the budget left")

    @property
    def left(self) -> float:
        """Returns the seconds of the budget that are left; never negative."""
        return max(0.0, self.began + self.seconds - self.session.bench.clock())

    def describe_spending(self) -> tuple[str, ...]:
        """Returns one line on how the time was spent, in a tuple; () before `spend_all` has ended."""
        if not self._ended:
            return ()
        text = (
            f"budget {format_duration(self.seconds)}, {self._ended - self.began:.0f} s spent: first looks of "
            f"{_format_count(self._looked, 'case')} {self._first_seconds:.0f} s"
        )
        for pairs, unit in ((False, "processes"), (True, "pairs")):
            sizes = [units for units, of_pairs in self._units if of_pairs is pairs]
            if sizes:
                text += (
                    f", {_format_count(len(sizes), 'suspect')} got {_format_range(sizes)} "
                    f"{unit}{' each' * (len(sizes) > 1)}"
                )
        without = len(self._suspects) - len(self._units)
        text += f", {_format_count(without, 'suspect')} got no second look" if without else ""
        missed = len(self.cases) - self._looked
        return (f"{text}, {_format_count(missed, 'case')} not measured" if missed else text,)

    def _start_seconds(self) -> float:
        """Waits until the first worker process is ready; returns the seconds since the budget began, at most
        START_MOST_S, or 0 if it cannot start."""
        try:
            self.session.bench.pool.wait_until_ready(GATE_PLACE)
        except WorkerError:
            return 0.0  # every case reports the error
        return min(self.session.bench.clock() - self.began, START_MOST_S)

    def _take_first_looks(self) -> None:
        for number, case in enumerate(self.cases, start=1):
            before = self.session.bench.clock()
            if self.left <= 0:
                why = (
                    f"the budget of {format_duration(self.seconds)} ended before the case was measured: "
                    "nothing is proven"
                )
                reasons = (Note(NoteKind.BUDGET, why),)
                self._keep_result(case, case_result(case, Verdict.UNDECIDED, why, reasons=reasons), 0.0)
                continue
            looked = self.session.first_look(case)
            now = self.session.bench.clock()
            seconds, self._first_seconds = now - before, now - self.began
            self._looked += 1
            if isinstance(looked, Open):
                self._suspects.append((looked, seconds))
            else:
                self._keep_result(case, looked, seconds)
            self.say(f"first looks {number} of {len(self.cases)}, {format_duration(self.left)} of the budget left")

    def _take_second_look(self, suspect: Open, first_seconds: float, share: BudgetShare, opened: OpenCase) -> None:
        before = self.session.bench.clock()
        ended = f"the budget of {format_duration(self.seconds)} ended"
        if not share.units or opened.minimum * opened.unit_seconds > self.left:
            why = f"{ended} before its second look"
            result = mark_undecided(_with_first_ratio(suspect), Note(NoteKind.BUDGET, why))
        else:
            sample = SampleSize(share.units, opened.minimum, lambda: self.left > 0)
            try:
                result = self.session.second_look(suspect, sample)
                self._units.append((len(result.pairs or result.second) or share.units, suspect.pairs))
            except SampleCutError as cut:
                why = f"{ended} within its second look, after {cut.taken} of the at least {cut.least} that it needs"
                result = mark_undecided(_with_first_ratio(suspect), Note(NoteKind.BUDGET, why))
        self._keep_result(suspect.case, result, first_seconds + self.session.bench.clock() - before)

    def _keep_result(self, case: Case, result: CaseResult, seconds: float) -> None:
        self.results[case.key] = self.session.finish_result(case, result, seconds)

    def _open_case(self, suspect: Open, seconds: float, pair_s: float) -> OpenCase:
        """Returns the planning figures of a case that needs a second look: noise, ratio and seconds per process or
        pair. `seconds` is what the first look took, `pair_s` what a pair's turns take.

        The spread of processes stands for that of pairs, which is smaller (0.3 against 0.55 % on an H200), so that
        rather too many pairs are planned than too few.
        """
        settings, against = self.session.bench.settings, self.session.bench.against
        usual = against.plan.pairs if suspect.pairs and against is not None else settings.second_look
        unit_s = 2 * seconds + pair_s if suspect.pairs else seconds
        screen, policy = suspect.screen, suspect.case.policy
        if screen is None or screen.noise is None:
            return OpenCase(usual, unit_s, suspect.pairs)
        return OpenCase(
            minimum=usual,
            unit_seconds=unit_s,
            pairs=suspect.pairs,
            relative_sd=screen.noise.relative_sd,
            ratio=screen.decision.ratio,
            tolerated=tolerated_ratio(policy, median_us_of(screen.stored.processes)),
            z=z_for(policy.suite_false_alarm_rate, settings.cases, screen.noise.degrees_of_freedom),
            stored=len(screen.stored.processes),
            card_error=screen.decision.card_error,
        )


def _with_first_ratio(suspect: Open) -> CaseResult:
    """Returns the first look's result as UNDECIDED with a note on its ratio to the baseline; unchanged without one."""
    if suspect.screen is None:
        return suspect.base
    seen = f"the first look saw {format_signed(suspect.screen.decision.ratio - 1)} against the stored baseline"
    return mark_undecided(suspect.base, Note(NoteKind.FIRST_LOOK, seen))


def _format_count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _format_range(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low}" if low == high else f"{low} to {high}"


PROCESSES_MAX = 12
"""Most fresh processes. With 12 against 7 stored, the standard error is within 17 % of that with any number."""

INTERVAL_Z = 2.0
"""Standard errors from a ratio to the end of its 95 % interval, approximately."""

PAIRS_MAX = 16
"""Most pairs of fresh processes. Each pair stays until the run ends, and holds memory on both sides."""


@dataclass(frozen=True)
class OpenCase:
    """A case that its first look leaves open.

    minimum        units of the usual second look; fewer decide nothing
    unit_seconds   wall time of one unit, predicted from the first look
    pairs          whether its units are pairs
    relative_sd    spread between units, as predicted; None where nothing comparable is stored
    ratio          new / stored of the first look, and `tolerated` the ratio that the user allows
    z              standard errors from 1 to the noise limit
    stored         number of stored processes it is compared with; unused for pairs
    card_error     the part of the standard error that more processes do not reduce; unused for pairs
    """

    minimum: int
    unit_seconds: float
    pairs: bool = False
    relative_sd: float | None = None
    ratio: float = 1.0
    tolerated: float = 1.0
    z: float = 0.0
    stored: int = 1
    card_error: float = 0.0

    @property
    def most_units(self) -> int:
        """Returns the most units (fresh processes, or pairs if `pairs`) that are planned for this case."""
        return max(self.minimum, PAIRS_MAX if self.pairs else PROCESSES_MAX)

    def predict_openness(self, units: int) -> float:
        """Returns how undecided a second look of `units` processes or pairs is predicted to leave the case: below 1 it
        is decided, infinite if nothing can be predicted.

        The value is the reach of the noise over the distance that would decide the case. A case that looked slower than
        allowed is decided when the slowdown lies one standard error beyond the noise limit, and its interval lies one
        standard error beyond what is allowed. Any other case is decided when the noise cannot reach the user's
        threshold, or when its ratio lies one standard error below what is allowed.
        """
        if self.relative_sd is None:
            return math.inf
        error = self._standard_error(self.relative_sd, units)
        if self.ratio > self.tolerated:
            of_interval = _divide_or_infinity((INTERVAL_Z + 1) * error, math.log(self.ratio / self.tolerated))
            return max(of_interval, _divide_or_infinity((self.z + 1) * error, math.log(self.ratio)))
        return min(
            _divide_or_infinity(self.z * error, self.tolerated - 1),
            _divide_or_infinity(error, self.tolerated - self.ratio),
        )

    def _standard_error(self, relative_sd: float, units: int) -> float:
        if self.pairs:
            return standard_error_of_pairs(relative_sd, units)
        return math.hypot(standard_error(relative_sd, self.stored, units), self.card_error)


@dataclass(frozen=True)
class BudgetShare:
    """The units (fresh processes or pairs) that one case gets.

    index     of the case in the given sequence
    units     0 where there was no time for its minimum
    seconds   predicted wall time
    """

    index: int
    units: int
    seconds: float


def plan_shares(cases: Sequence[OpenCase], seconds: float, start_seconds: float = 0.0) -> list[BudgetShare]:
    """Returns a share for every case, in the order of measurement: the least decided first.

    Cases without a stored time come last, in the given order. Their first look cannot be compared, so they get the
    minimum and no more. The predicted seconds of all shares never exceed `seconds`.

    start_seconds   of one fresh process. Cases share processes; a case that needs more than were started pays for the
                    start of the others. A pair starts two
    """
    order = sorted(range(len(cases)), key=lambda index: _rank_key(cases[index]))
    purse = _Purse(seconds, start_seconds)
    units, spent = dict.fromkeys(order, 0), dict.fromkeys(order, 0.0)
    for index in order:
        paid = purse.pay(cases[index], 0, cases[index].minimum)
        if paid is not None:
            units[index], spent[index] = cases[index].minimum, paid
    growing = {index for index in order if units[index]}
    while growing:
        index = min(growing, key=lambda index: (-_compute_need(cases[index], units[index]), index))
        paid = (
            purse.pay(cases[index], units[index], units[index] + 1)
            if _compute_need(cases[index], units[index])
            else None
        )
        if paid is None:
            growing.remove(index)
            continue
        units[index] += 1
        spent[index] += paid
    return [BudgetShare(index, units[index], spent[index]) for index in order]


class _Purse:
    """The seconds that are left to plan with, and how many processes and pairs the planned cases start."""

    def __init__(self, seconds: float, start_seconds: float) -> None:
        self._left, self._start = seconds, start_seconds
        self._started = {True: 0, False: 0}

    def pay(self, case: OpenCase, have: int, wanted: int) -> float | None:
        """Takes from the seconds left what a case's step from `have` to `wanted` units (processes or pairs) costs, and
        returns that; None, and takes nothing, if too few are left."""
        further = max(0, wanted - self._started[case.pairs])
        cost = (wanted - have) * case.unit_seconds + further * self._start * (2 if case.pairs else 1)
        if cost > self._left:
            return None
        self._left -= cost
        self._started[case.pairs] += further
        return cost


def _rank_key(case: OpenCase) -> tuple[bool, float]:
    """Returns a key that sorts the least decided first and unknown ones last; a stable sort keeps ties in order."""
    return (case.relative_sd is None, -case.predict_openness(case.minimum))


def _compute_need(case: OpenCase, units: int) -> float:
    """Returns how undecided the case is predicted to be with `units` processes or pairs: at least 1, more is less
    decided. Returns 0 if more are of no use: the case is then decided, unpredictable or at its maximum."""
    openness = case.predict_openness(units)
    return 0.0 if case.relative_sd is None or openness < 1 or units >= case.most_units else openness


def _divide_or_infinity(reach: float, room: float) -> float:
    """Returns reach / room; infinity if `room` is not positive."""
    return reach / room if room > 0 else math.inf
