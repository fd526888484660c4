"""A run that has only so much time: a first look at every case, and what is left for the least decided ones.

First looks come in the order of the cases, each proven right and timed in one process. What they settle is final. How
large a second look each other case gets is planned once (`gate.spending`), from first looks and the time left; then the
second looks are taken, the least decided case first. The clock is asked before every unit, so that a run is late by one
unit at the most: a case whose minimum does not fit any more gets none, and one whose sample has begun is decided on
what there is of it, if that is the minimum. Only the clock cuts a sample, never what was seen in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.gate.limits import signed, tolerated_ratio
from pytest_attnperf.gate.spending import OpenCase, Share, spend
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import case_result, median_us_of
from pytest_attnperf.session.durations import duration
from pytest_attnperf.session.judge import Session
from pytest_attnperf.session.looking import GATE_PLACE
from pytest_attnperf.session.second_looks import Open, Sample, SampleCutError, undecided
from pytest_attnperf.session.settings import Case
from pytest_attnperf.stats.comparison import z_for

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
            self._spend()
        finally:
            for suspect, seconds in self._suspects:
                if suspect.case.key not in self.results:
                    why = "the run was interrupted before its second look was done"
                    self._keep(suspect.case, undecided(_with_first_ratio(suspect), why), seconds)
            self._ended = self.session.bench.clock()

    def _spend(self) -> None:
        start_s = self._started()
        self._first_looks()
        plan = self.session.bench.against.plan if self.session.bench.against is not None else None
        pair_s = 0.0 if plan is None else TURNS_PER_BLOCK * plan.budget_us / 1e6
        opened = [self._open_case(suspect, seconds, pair_s) for suspect, seconds in self._suspects]
        shares = spend(opened, self.left, start_s)
        for number, share in enumerate(shares, start=1):
            suspect, seconds = self._suspects[share.index]
            self._second_look(suspect, seconds, share, opened[share.index])
            self.say(f"second looks {number} of {len(shares)}, {duration(self.left)} of the budget left")

    @property
    def left(self) -> float:
        """Seconds; never negative."""
        return max(0.0, self.began + self.seconds - self.session.bench.clock())

    def notes(self) -> tuple[str, ...]:
        """What the time went to, in a line; nothing before `spend_all` has ended."""
        if not self._ended:
            return ()
        text = (
            f"budget {duration(self.seconds)}, {self._ended - self.began:.0f} s spent: first looks of "
            f"{_counted(self._looked, 'case')} {self._first_seconds:.0f} s"
        )
        for pairs, unit in ((False, "processes"), (True, "pairs")):
            sizes = [units for units, of_pairs in self._units if of_pairs is pairs]
            if sizes:
                text += f", {_counted(len(sizes), 'suspect')} got {_between(sizes)} {unit}{' each' * (len(sizes) > 1)}"
        without = len(self._suspects) - len(self._units)
        text += f", {_counted(without, 'suspect')} got no second look" if without else ""
        missed = len(self.cases) - self._looked
        return (f"{text}, {_counted(missed, 'case')} not measured" if missed else text,)

    def _started(self) -> float:
        """Seconds that a worker takes to start."""
        try:
            self.session.bench.pool.ready(GATE_PLACE)
        except WorkerError:
            return 0.0  # said by every case
        return min(self.session.bench.clock() - self.began, START_MOST_S)

    def _first_looks(self) -> None:
        for number, case in enumerate(self.cases, start=1):
            before = self.session.bench.clock()
            if self.left <= 0:
                why = f"the budget of {duration(self.seconds)} ended before it was measured: nothing is proven of it"
                reasons = (Note(NoteKind.BUDGET, why),)
                self._keep(case, case_result(case, Verdict.UNDECIDED, why, reasons=reasons), 0.0)
                continue
            looked = self.session.first_look(case)
            now = self.session.bench.clock()
            seconds, self._first_seconds = now - before, now - self.began
            self._looked += 1
            if isinstance(looked, Open):
                self._suspects.append((looked, seconds))
            else:
                self._keep(case, looked, seconds)
            self.say(f"first looks {number} of {len(self.cases)}, {duration(self.left)} of the budget left")

    def _second_look(self, suspect: Open, first_seconds: float, share: Share, opened: OpenCase) -> None:
        before = self.session.bench.clock()
        ended = f"the budget of {duration(self.seconds)} ended"
        if not share.units or opened.minimum * opened.unit_seconds > self.left:
            why = f"{ended} before its second look"
            result = undecided(_with_first_ratio(suspect), Note(NoteKind.BUDGET, why))
        else:
            sample = Sample(share.units, opened.minimum, lambda: self.left > 0)
            try:
                result = self.session.second_look(suspect, sample)
                self._units.append((len(result.pairs or result.second) or share.units, suspect.pairs))
            except SampleCutError as cut:
                why = f"{ended} within its second look, after {cut.taken} of the {cut.least} that could decide it"
                result = undecided(_with_first_ratio(suspect), Note(NoteKind.BUDGET, why))
        self._keep(suspect.case, result, first_seconds + self.session.bench.clock() - before)

    def _keep(self, case: Case, result: CaseResult, seconds: float) -> None:
        self.results[case.key] = self.session.finished(case, result, seconds)

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
    seen = f"the first look saw {signed(suspect.screen.decision.ratio - 1)} against the stored baseline"
    return undecided(suspect.base, Note(NoteKind.FIRST_LOOK, seen))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _between(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low}" if low == high else f"{low} to {high}"
