"""A run that has only so much time: a first look at every case, and what is left for the least decided ones.

First looks come in the order of the cases, each proven right and timed in one process. What they settle is final. How
large a second look each other case gets is planned once, from first looks and the time left: the usual one, the least
decided case first; then one unit more at a time (a fresh process, or a pair) for the case that is least decided, until
each is predicted to be decided, or no time is left. The clock is asked before every unit, so that a run is late by one
unit at the most: a case whose minimum does not fit any more gets none, and one whose sample has begun is decided on
what there is of it, if that is the minimum. Only the clock cuts a sample, never what was seen in it.

A second look is decided once, on the sample that was planned for it, by its own units: nobody looks at it, finds it
undecided, and takes some more, which would be optional stopping and raise the rate of false alarms. A case is called
slower beyond the limit that belongs to the units it really has, so the stated rate holds for every size; more units
only make that limit narrower.
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
from pytest_attnperf.session.case_records import case_result, median_us_of
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.looking import GATE_PLACE
from pytest_attnperf.session.second_looks import Open, SampleCutError, SampleSize, mark_undecided
from pytest_attnperf.session.settings import Case
from pytest_attnperf.session.time_left import format_duration
from pytest_attnperf.stats.comparison import standard_error, z_for
from pytest_attnperf.stats.pairs import standard_error_of_pairs

START_MOST_S = 30.0
"""A worker is not believed to take longer to start: what came between its start and the first case is not its time."""

TURNS_PER_BLOCK = 2
"""A turn is an unmeasured block and a measured one."""


@dataclass
class Budget:
    """The cases of one run, judged within `seconds` of wall time from `began` on.

    say       is told how far the run is, after every case
    results   verdicts, by case, once `spend_all` has been called
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
        """Judge every case. What is interrupted leaves the suspects that it has not come to UNDECIDED."""
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
        """Seconds; never negative."""
        return max(0.0, self.began + self.seconds - self.session.bench.clock())

    def describe_spending(self) -> tuple[str, ...]:
        """What the time went to, in a line; nothing before `spend_all` has ended."""
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
        """Seconds that a worker takes to start."""
        try:
            self.session.bench.pool.wait_until_ready(GATE_PLACE)
        except WorkerError:
            return 0.0  # said by every case
        return min(self.session.bench.clock() - self.began, START_MOST_S)

    def _take_first_looks(self) -> None:
        for number, case in enumerate(self.cases, start=1):
            before = self.session.bench.clock()
            if self.left <= 0:
                why = (
                    f"the budget of {format_duration(self.seconds)} ended before it was measured: nothing is "
                    f"proven of it"
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
                why = f"{ended} within its second look, after {cut.taken} of the {cut.least} that could decide it"
                result = mark_undecided(_with_first_ratio(suspect), Note(NoteKind.BUDGET, why))
        self._keep_result(suspect.case, result, first_seconds + self.session.bench.clock() - before)

    def _keep_result(self, case: Case, result: CaseResult, seconds: float) -> None:
        self.results[case.key] = self.session.finish_result(case, result, seconds)

    def _open_case(self, suspect: Open, seconds: float, pair_s: float) -> OpenCase:
        """What is known of a suspect before its second look; `seconds` of its first one.

        Pairs of one run lie closer together than processes of two (0.3 against 0.55 % on an H200): taking the
        processes' spread for theirs plans more of them than needed, not fewer.
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
    """What the first look found out, with the ratio that it saw in words: it decides nothing."""
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
"""Fresh processes against stored ones: behind 7 stored, the standard error with 12 is within 17 % of that with any."""

INTERVAL_Z = 2.0
"""Standard errors from a ratio to the end of its 95 % interval, about."""

PAIRS_MAX = 16
"""Pairs of fresh processes. Each stays until the run ends, and holds memory on both sides."""


@dataclass(frozen=True)
class OpenCase:
    """A case that its first look leaves open.

    minimum        units of the usual second look; fewer decide nothing
    unit_seconds   wall time of one unit, predicted from the first look
    pairs          whether its units are pairs
    relative_sd    spread between units, as predicted; None where nothing comparable is stored
    ratio          new / stored of the first look, and `tolerated` the ratio that the user allows
    z              of the limit of noise
    stored         processes that it is held against; of no use for pairs
    card_error     the part of the standard error that no further process takes away; of no use for pairs
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
        """More units than this are never planned."""
        return max(self.minimum, PAIRS_MAX if self.pairs else PROCESSES_MAX)

    def predict_openness(self, units: int) -> float:
        """What noise may do to a second look of so many units, over what would settle it; below 1 it is predicted to be
        decided, infinite where nothing can be predicted.

        A case that looked slower than allowed is decided when the slowdown seen lies a standard error beyond the limit
        of noise, and so much beyond what is allowed that its interval is. One that did not is when noise cannot reach
        the user's threshold at all, or when it lies a standard error below what is allowed.
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
    """What one case gets.

    index     of the case among those that were given
    units     0: there was no time for its minimum
    seconds   of wall time, predicted
    """

    index: int
    units: int
    seconds: float


def plan_shares(cases: Sequence[OpenCase], seconds: float, start_seconds: float = 0.0) -> list[BudgetShare]:
    """A share for every case, in the order in which they are to be measured: the least decided first.

    Cases that nothing is stored for come last, in the order given: their first look says nothing, so they get the
    minimum and no more. The shares' predicted seconds together are never more than `seconds`.

    start_seconds   of one fresh process. Cases share processes, and a case that asks for more than there are pays for
                    the start of the others; a pair starts two
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
    """Seconds that are left, and how many processes have been started of them."""

    def __init__(self, seconds: float, start_seconds: float) -> None:
        self._left, self._start = seconds, start_seconds
        self._started = {True: 0, False: 0}

    def pay(self, case: OpenCase, have: int, wanted: int) -> float | None:
        """Seconds that going from `have` units to `wanted` costs, taken; None where there are fewer, and none taken."""
        further = max(0, wanted - self._started[case.pairs])
        cost = (wanted - have) * case.unit_seconds + further * self._start * (2 if case.pairs else 1)
        if cost > self._left:
            return None
        self._left -= cost
        self._started[case.pairs] += further
        return cost


def _rank_key(case: OpenCase) -> tuple[bool, float]:
    """Least decided first, unknown ones last; the order given decides between equals."""
    return (case.relative_sd is None, -case.predict_openness(case.minimum))


def _compute_need(case: OpenCase, units: int) -> float:
    """How much a further unit is wanted: the case's openness; 0 where it is decided, or has all it may get."""
    openness = case.predict_openness(units)
    return 0.0 if case.relative_sd is None or openness < 1 or units >= case.most_units else openness


def _divide_or_infinity(reach: float, room: float) -> float:
    """reach / room, infinite where there is no room."""
    return reach / room if room > 0 else math.inf
