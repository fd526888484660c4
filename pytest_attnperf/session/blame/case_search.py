"""Searches the components that changed a case's time: asks for measurements, decides by them, and starts nothing.

Every statement about a group of components rests on both ways: their new versions put into the old environment, and
their old versions put into the new one. Both small: the group is innocent. Both present, with one sign: it is blamed.
Else its effect depends on other components, or one of the environments did not start: it was not separated.

Halves are tested until one component is left. Then everything else is tested as one group: if it is innocent, the found
ones explain the case; else the search goes on in it. So what halving assumed is always verified by a measurement.
Components in one innocent group may cancel each other. That is not looked for: nothing changed there.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.bisect_result import PAIRS_MIN
from pytest_attnperf.session.bisect.evidence import CannotMeasureError
from pytest_attnperf.session.blame.blame_result import (
    SUSPECTS_MAX,
    BlameOutcome,
    BlameSettings,
    CaseBlame,
    GroupConclusion,
    JudgedGroup,
)
from pytest_attnperf.session.blame.effects import OLD, Effect, EffectSize, Ledger, Mixture

FIRST_PAIRS = 2 * PAIRS_MIN
"""Pairs of the first look at both whole environments: more than later, because they also begin the noise pool."""


@dataclass(frozen=True)
class Question:
    """Two environments to compare for a case: `pairs` fresh pairs; 0 asks only whether both start."""

    base: Mixture
    candidate: Mixture
    pairs: int


@dataclass(frozen=True)
class NoRatio:
    """Why a question got no pairs: an environment does not start, or the case breaks in it."""

    reason: str


Answer = Sequence[PairSummary] | NoRatio
Asking = Generator[Question, Answer, Effect | NoRatio]
MeasureCases = Callable[[Question, Sequence[str]], Mapping[str, Answer]]
"""Takes (question, node ids) and returns an answer for each; a case that it leaves out has none."""


class GroupRole(enum.Enum):
    """What a group's two ways say, as far as they were measured."""

    INNOCENT = enum.auto()
    INVOLVED = enum.auto()
    NOISY = enum.auto()
    BROKEN = enum.auto()


def count_usual(components: int) -> int:
    """Returns how many measurements find one component among so many: both ends, both ways of each half, and both ways
    of it and of the rest."""
    return 2 * (max(components, 1) - 1).bit_length() + 3


def count_most(components: int) -> int:
    """Returns how many measurements one case may take at most."""
    return 1 + SUSPECTS_MAX * (2 * count_usual(components))


@dataclass
class CaseSearch:
    """One search: `run` yields questions, takes answers by `send`, and returns the result.

    components   what may be swapped, each by itself; the most likely ones first
    """

    nodeid: str
    components: Sequence[str]
    settings: BlameSettings = field(default_factory=BlameSettings)

    def __post_init__(self) -> None:
        self._new: Mixture = frozenset(self.components)
        self._limit = self.settings.limit
        self._ledger = Ledger(
            1 - self.settings.confidence, count_usual(len(self.components)), PAIRS_MIN, self.settings.pairs_max
        )
        self._failed: dict[tuple[Mixture, Mixture], NoRatio] = {}
        self._units: list[Mixture] = [frozenset((name,)) for name in self.components]
        self._joined: set[Mixture] = set()
        self._tied_sought = False

    def run(self) -> Generator[Question, Answer, CaseBlame]:
        """Yields the questions of the search one by one and returns what was found out."""
        total = yield from self._ask(OLD, self._new, FIRST_PAIRS)
        if isinstance(total, NoRatio):
            return CaseBlame(self.nodeid, BlameOutcome.NOT_MEASURED, why=total.reason)
        size = EffectSize.ABSENT if total.is_below(self._limit) else total.measure_against(self._limit)
        if size is not EffectSize.PRESENT:
            outcome = BlameOutcome.UNCHANGED if size is EffectSize.ABSENT else BlameOutcome.UNDECIDED
            return self._make_result(outcome, total)
        self._limit = self.settings.limit_of(total)
        suspects: list[JudgedGroup] = []
        rest = GroupRole.INVOLVED
        while self._units and rest in (GroupRole.INVOLVED, GroupRole.BROKEN) and len(suspects) < SUSPECTS_MAX:
            found = yield from self._find_one()
            suspects.append((yield from self._judge_group(found)))
            rest = yield from self._weigh(_join(self._units))
        others = (yield from self._judge_group(_join(self._units))) if self._units else None
        return self._make_result(_decide(suspects, others), total, tuple(suspects), others)

    def _make_result(
        self,
        outcome: BlameOutcome,
        total: Effect,
        suspects: tuple[JudgedGroup, ...] = (),
        others: JudgedGroup | None = None,
    ) -> CaseBlame:
        ledger = self._ledger
        return CaseBlame(self.nodeid, outcome, total, self._limit, suspects, others, ledger.count, ledger.pair_count)

    def _find_one(self) -> Generator[Question, Answer, Mixture]:
        """Takes the smallest group that is still involved out of `_units` and returns it: one component, or several if
        halves of it cannot be told apart."""
        group = list(self._units)
        while len(group) > 1:
            half, rest = group[: len(group) // 2], group[len(group) // 2 :]
            role = yield from self._weigh(_join(half))
            if role in (GroupRole.NOISY, GroupRole.BROKEN):
                other = yield from self._weigh(_join(rest))
                if GroupRole.BROKEN in (role, other) and other is not GroupRole.INVOLVED and not self._tied_sought:
                    group = yield from self._tie_units(group)
                    continue
                if other not in (GroupRole.INVOLVED, GroupRole.INNOCENT):
                    break
                role = GroupRole.INNOCENT if other is GroupRole.INVOLVED else GroupRole.INVOLVED
            group = rest if role is GroupRole.INNOCENT else half
        self._units = [unit for unit in self._units if unit not in group]
        return _join(group)

    def _tie_units(self, group: Sequence[Mixture]) -> Generator[Question, Answer, list[Mixture]]:
        """Joins all units that start in neither way alone to one unit, and returns `group` with them: components that
        need each other's version. It only starts environments, and does so once per case."""
        self._tied_sought = True
        tied: list[Mixture] = []
        for unit in group:
            into = yield Question(OLD, unit, 0)
            out_of = yield Question(self._new - unit, self._new, 0)
            if isinstance(into, NoRatio) or isinstance(out_of, NoRatio):
                tied.append(unit)
        joined = [_join(tied)] if tied else []
        self._joined.update(joined)
        self._units = [*joined, *(unit for unit in self._units if unit not in tied)]
        return [*joined, *(unit for unit in group if unit not in tied)]

    def _weigh(self, group: Mixture) -> Generator[Question, Answer, GroupRole]:
        """Returns the role of a group. The second way is not measured if the first shows that it is involved."""
        if not group:
            return GroupRole.INNOCENT
        into = yield from self._ask(OLD, group)
        if self._is_present(into):
            return GroupRole.INVOLVED
        out_of = yield from self._ask(self._new - group, self._new)
        if self._is_present(out_of):
            return GroupRole.INVOLVED
        if isinstance(into, NoRatio) or isinstance(out_of, NoRatio):
            return GroupRole.BROKEN
        sizes = {effect.measure_against(self._limit) for effect in (into, out_of)}
        return GroupRole.INNOCENT if sizes == {EffectSize.ABSENT} else GroupRole.NOISY

    def _judge_group(self, group: Mixture) -> Generator[Question, Answer, JudgedGroup]:
        """Measures both ways of a group and returns what they show."""
        into = yield from self._ask(OLD, group)
        out_of = yield from self._ask(self._new - group, self._new)
        names = tuple(name for name in self.components if name in group)
        return JudgedGroup(
            names,
            self._conclude(names, into, out_of),
            None if isinstance(into, NoRatio) else into,
            None if isinstance(out_of, NoRatio) else out_of,
            into.reason if isinstance(into, NoRatio) else "",
            out_of.reason if isinstance(out_of, NoRatio) else "",
        )

    def _conclude(self, names: Sequence[str], into: Effect | NoRatio, out_of: Effect | NoRatio) -> GroupConclusion:
        if isinstance(into, NoRatio) or isinstance(out_of, NoRatio):
            return GroupConclusion.NOT_SEPARATED
        sizes = [effect.measure_against(self._limit) for effect in (into, out_of)]
        if EffectSize.UNCLEAR in sizes:
            return GroupConclusion.UNDECIDED
        if sizes == [EffectSize.ABSENT, EffectSize.ABSENT]:
            return GroupConclusion.INNOCENT
        if sizes != [EffectSize.PRESENT, EffectSize.PRESENT] or not into.has_sign_of(out_of):
            return GroupConclusion.NOT_SEPARATED
        if len(names) == 1:
            return GroupConclusion.BLAMED
        return GroupConclusion.NOT_SEPARATED if frozenset(names) in self._joined else GroupConclusion.UNDECIDED

    def _is_present(self, effect: Effect | NoRatio) -> bool:
        return isinstance(effect, Effect) and effect.measure_against(self._limit) is EffectSize.PRESENT

    def _ask(self, base: Mixture, candidate: Mixture, first: int | None = None) -> Asking:
        """Returns the effect between two environments: the known one if it decides, else one measured in as many pairs
        as it needs; NoRatio if it cannot be measured, or the case has had all its measurements."""
        key = (base, candidate)
        known = self._ledger.find_effect(base, candidate)
        if known is not None and known.measure_against(self._limit) is not EffectSize.UNCLEAR:
            return known
        if key in self._failed:
            return self._failed[key]
        if self._ledger.count >= count_most(len(self.components)):
            return known or NoRatio("the case has had all its measurements")
        sample = self._ledger.open_sample(base, candidate, first)
        while not sample.is_exhausted:
            answer = (yield Question(base, candidate, sample.missing_pairs)) if sample.missing_pairs else ()
            try:
                if isinstance(answer, NoRatio):
                    raise CannotMeasureError(answer.reason)
                self._ledger.add_pairs(base, candidate, answer)
            except CannotMeasureError as error:
                self._failed[key] = NoRatio(str(error))
                return self._failed[key]
            found = self._ledger.find_effect(base, candidate)
            if found is not None and found.measure_against(self._limit) is not EffectSize.UNCLEAR:
                return found
        return self._ledger.find_effect(base, candidate) or NoRatio("no pair was measured")


def _join(units: Iterable[Mixture]) -> Mixture:
    return frozenset().union(*units)


def _decide(suspects: Sequence[JudgedGroup], others: JudgedGroup | None) -> BlameOutcome:
    """Returns EXPLAINED if every suspect is blamed and everything else innocent; UNDECIDED where only noise prevents
    that."""
    conclusions = {group.conclusion for group in suspects}
    rest = GroupConclusion.INNOCENT if others is None else others.conclusion
    if conclusions == {GroupConclusion.BLAMED} and rest is GroupConclusion.INNOCENT:
        return BlameOutcome.EXPLAINED
    if GroupConclusion.NOT_SEPARATED in conclusions or rest in (GroupConclusion.NOT_SEPARATED, GroupConclusion.BLAMED):
        return BlameOutcome.NOT_SEPARATED
    return BlameOutcome.UNDECIDED


@dataclass
class BlameSearch:
    """Searches several cases; call `run` once. `results` holds the cases that have ended, also after Ctrl-C.

    first         answers to `first_question`, OLD against the whole new environment, by node id
    components    what may be swapped, the most likely ones first
    seen          called before each measurement, with its question and the number of its cases
    """

    first: Mapping[str, Answer]
    components: Sequence[str]
    measure: MeasureCases
    settings: BlameSettings = field(default_factory=BlameSettings)
    seen: Callable[[Question, int], None] = lambda question, cases: None
    results: dict[str, CaseBlame] = field(default_factory=dict)
    measured: int = 1
    """Number of runs of pytest, with the first one."""

    def run(self) -> dict[str, CaseBlame]:
        """Searches all cases to their ends and returns the results by node id, in the order of `first`."""
        running: dict[str, Generator[Question, Answer, CaseBlame]] = {}
        wanted: dict[str, Question] = {}

        def go_on(nodeid: str, answer: Answer | None) -> None:
            search = running[nodeid]
            try:
                wanted[nodeid] = next(search) if answer is None else search.send(answer)
            except StopIteration as ended:
                wanted.pop(nodeid, None)
                self.results[nodeid] = ended.value

        for nodeid in self.first:
            running[nodeid] = CaseSearch(nodeid, self.components, self.settings).run()
            go_on(nodeid, None)
        for nodeid, answer in self.first.items():
            go_on(nodeid, answer)
        while wanted:
            question, cases = _choose_question(wanted)
            self.seen(question, len(cases))
            answers = self.measure(question, cases)
            self.measured += bool(question.pairs)
            for nodeid in cases:
                go_on(nodeid, answers.get(nodeid, NoRatio("the case was not run")))
        return {nodeid: self.results[nodeid] for nodeid in self.first}


def first_question(components: Sequence[str], settings: BlameSettings) -> Question:
    """Returns the question that `BlameSearch.first` answers."""
    return Question(OLD, frozenset(components), min(FIRST_PAIRS, settings.pairs_max))


def _choose_question(wanted: Mapping[str, Question]) -> tuple[Question, list[str]]:
    """Returns the pair of environments that most cases want, with the most pairs that any of them misses, and these
    cases."""
    counts = Counter((question.base, question.candidate, bool(question.pairs)) for question in wanted.values())
    (base, candidate, measures), _ = counts.most_common(1)[0]
    cases = [
        nodeid
        for nodeid, question in wanted.items()
        if (question.base, question.candidate, bool(question.pairs)) == (base, candidate, measures)
    ]
    return Question(base, candidate, max(wanted[nodeid].pairs for nodeid in cases)), cases
