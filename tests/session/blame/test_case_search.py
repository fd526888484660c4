from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.blame.blame_result import BlameOutcome, BlameSettings, CaseBlame, GroupConclusion
from pytest_attnperf.session.blame.case_search import (
    FIRST_PAIRS,
    Answer,
    BlameSearch,
    CaseSearch,
    NoRatio,
    Question,
    count_most,
    count_usual,
    first_question,
)
from pytest_attnperf.session.blame.effects import OLD, Mixture

Times = Callable[[Mixture], float]
"""Takes the new components of an environment and returns the case's true time in it."""


@dataclass
class World:
    """Environments of scripted times. `breaks` says which do not start; `sd` is the scatter of a pair's log ratio."""

    components: tuple[str, ...]
    times: Times
    sd: float = 0.001
    seed: int = 1
    breaks: Callable[[Mixture], bool] = lambda mixture: False
    asked: list[Question] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def answer(self, question: Question) -> Answer:
        """Pairs of the two environments, or why there are none."""
        self.asked.append(question)
        if self.breaks(question.base) or self.breaks(question.candidate):
            return NoRatio("ImportError: no symbol")
        centre = math.log(self.times(question.candidate) / self.times(question.base))
        ratios = [math.exp(self._random.gauss(centre, self.sd)) for _ in range(question.pairs)]
        return [PairSummary(ratio, 100.0, 100.0 * ratio, 30, "fake") for ratio in ratios]

    def search(self, **settings: float) -> CaseBlame:
        """Search one case of this world to its end."""
        search = CaseSearch("a.py::test", self.components, BlameSettings(**settings)).run()  # type: ignore[arg-type]
        try:
            question = next(search)
            while True:
                question = search.send(self.answer(question))
        except StopIteration as ended:
            result: CaseBlame = ended.value
            return result

    @property
    def measured(self) -> int:
        """Number of different pairs of environments that were measured."""
        return len({(question.base, question.candidate) for question in self.asked if question.pairs})


def _factors(**factors: float) -> Times:
    return lambda mixture: 100 * math.prod(factors.get(name, 1.0) for name in mixture)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"p{index}" for index in range(count))


def _conclusions(result: CaseBlame) -> dict[tuple[str, ...], GroupConclusion]:
    return {group.names: group.conclusion for group in result.suspects}


@pytest.mark.parametrize("ratio", [1.448, 1.05, 0.7])
@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_one_of_three(ratio: float, culprit: int) -> None:
    """One component that makes the case slower, or faster, is blamed with its effect both ways, the rest innocent."""
    names = ("triton", "torch", "numpy")
    result = World(names, _factors(**{names[culprit]: ratio})).search()
    assert (result.outcome, _conclusions(result)) == (
        BlameOutcome.EXPLAINED,
        {(names[culprit],): GroupConclusion.BLAMED},
    )
    (group,) = result.blamed
    assert group.into is not None
    assert group.out_of is not None
    for effect in (group.into, group.out_of):
        assert effect.interval[0] < ratio < effect.interval[1]
        assert effect.ratio == pytest.approx(ratio, rel=0.01)
    assert result.others is not None
    assert set(result.others.names) == set(names) - {names[culprit]}
    assert result.others.conclusion is GroupConclusion.INNOCENT


def test_the_only_component() -> None:
    """If only one component differs it is blamed by the comparison of both environments: nothing else is measured."""
    world = World(("triton",), _factors(triton=1.4))
    result = world.search()
    assert (result.outcome, world.measured, len(result.blamed)) == (BlameOutcome.EXPLAINED, 1, 1)
    assert result.others is None


def test_two_need_two_more_measurements() -> None:
    """Of two components the second's effects follow from the first's: in all three environments are compared."""
    world = World(("torch", "triton"), _factors(triton=1.4))
    result = world.search()
    assert _conclusions(result) == {("triton",): GroupConclusion.BLAMED}
    assert result.suspects[0].into is not None
    assert (world.measured, result.measurements, result.suspects[0].into.pairs) == (3, 3, 0)


def test_nothing_changed() -> None:
    """Two components that cancel out are not searched for: the environments are equally fast, which was asked."""
    world = World(("torch", "triton"), _factors(torch=1.25, triton=0.8))
    result = world.search()
    assert (result.outcome, world.measured, result.suspects) == (BlameOutcome.UNCHANGED, 1, ())
    assert not result.is_changed


@pytest.mark.parametrize("seed", range(20))
def test_noise_blames_nobody(seed: int) -> None:
    """Equally fast environments that scatter by 2 % end unchanged or undecided, without a suspect."""
    result = World(_names(8), _factors(), sd=0.02, seed=seed).search()
    assert result.outcome in (BlameOutcome.UNCHANGED, BlameOutcome.UNDECIDED)
    assert result.suspects == ()


def test_two_culprits() -> None:
    """Two components of different shares are both blamed, and together explain the change."""
    result = World(_names(16), _factors(p3=1.2, p12=1.06)).search()
    assert _conclusions(result) == {("p3",): GroupConclusion.BLAMED, ("p12",): GroupConclusion.BLAMED}
    assert result.outcome is BlameOutcome.EXPLAINED


def test_culprits_of_opposite_signs() -> None:
    """A component that makes up for a part of another's slowdown is blamed, too, with its own sign."""
    result = World(_names(5), _factors(p0=1.3, p4=0.9)).search()
    assert result.outcome is BlameOutcome.EXPLAINED
    assert {group.names[0]: group.into is not None and group.into.ratio > 1 for group in result.blamed} == {
        "p0": True,
        "p4": False,
    }


@pytest.mark.parametrize("needs", [all, any])
@pytest.mark.parametrize("others", [0, 1, 14])
def test_an_interaction_is_not_separated(needs: Callable[[list[bool]], bool], others: int) -> None:
    """A slowdown that needs two new components, or either of them, is blamed on neither: both are not separated."""
    names = ("torch", *_names(others), "triton")
    result = World(names, lambda mixture: 140.0 if needs(["torch" in mixture, "triton" in mixture]) else 100.0).search()
    assert result.outcome is BlameOutcome.NOT_SEPARATED
    assert _conclusions(result) == {
        ("torch",): GroupConclusion.NOT_SEPARATED,
        ("triton",): GroupConclusion.NOT_SEPARATED,
    }
    assert result.others is None or result.others.conclusion is GroupConclusion.INNOCENT


@pytest.mark.parametrize("others", [0, 1, 6, 30])
def test_components_that_start_only_together(others: int) -> None:
    """Two components that do not import with each other's other version are joined, and only that is said of them."""
    names = ("torch", *_names(others), "triton")
    world = World(names, _factors(triton=1.4), breaks=lambda mixture: ("torch" in mixture) != ("triton" in mixture))
    result = world.search()
    assert result.outcome is BlameOutcome.NOT_SEPARATED
    assert {name for group in result.suspects for name in group.names} == {"torch", "triton"}
    assert all(group.conclusion is GroupConclusion.NOT_SEPARATED for group in result.suspects)
    assert result.others is None or result.others.conclusion is GroupConclusion.INNOCENT


def test_one_way_does_not_start() -> None:
    """A component that breaks the old environment is not blamed by one way alone; the reason of the other is kept."""
    world = World(("torch", "triton"), _factors(torch=1.4), breaks=lambda mixture: mixture == frozenset(("torch",)))
    result = world.search()
    assert result.outcome is BlameOutcome.NOT_SEPARATED
    torch = next(group for group in result.suspects if group.names == ("torch",))
    assert (torch.conclusion, torch.into, torch.into_why) == (
        GroupConclusion.NOT_SEPARATED,
        None,
        "ImportError: no symbol",
    )


def test_an_innocent_component_that_breaks_alone_does_not_hide_the_culprit() -> None:
    """The culprit among many is still blamed if environments with half of an unrelated couple do not start."""
    couple = ("p2", "p9")
    world = World(_names(12), _factors(p5=1.4), breaks=lambda mixture: len(mixture.intersection(couple)) == 1)
    result = world.search()
    assert ("p5",) in _conclusions(result)
    assert _conclusions(result)["p5",] is GroupConclusion.BLAMED
    assert result.outcome is BlameOutcome.EXPLAINED


def test_both_environments_do_not_run() -> None:
    """A case that gives no ratio between the environments themselves is not measured, for that reason."""
    result = World(_names(3), _factors(p1=2.0), breaks=lambda mixture: len(mixture) == 3).search()
    assert (result.outcome, result.why) == (BlameOutcome.NOT_MEASURED, "ImportError: no symbol")


@pytest.mark.parametrize("percent", [0.5, 0.8, 0.95, 1.0, 1.1, 2.0])
def test_around_the_threshold(percent: float) -> None:
    """With little noise a change is called one above the threshold and none certainly below it; so close to it that
    the noise is as large, either, and never undecided."""
    result = World(_names(4), _factors(p2=1 + percent / 100), sd=0.0005).search(threshold_percent=1.0)
    assert result.outcome in (BlameOutcome.UNCHANGED, BlameOutcome.EXPLAINED)
    if percent > 1:
        assert _conclusions(result) == {("p2",): GroupConclusion.BLAMED}
    if percent <= 0.8:
        assert result.outcome is BlameOutcome.UNCHANGED


def test_what_is_too_noisy_is_undecided() -> None:
    """Scatter as large as the change leaves the case undecided after --pairs-max, and names nobody wrongly."""
    for seed in range(10):
        result = World(_names(6), _factors(p1=1.03), sd=0.03, seed=seed).search(pairs_max=8)
        assert result.outcome is not BlameOutcome.EXPLAINED or _conclusions(result) == {("p1",): GroupConclusion.BLAMED}


@pytest.mark.parametrize("culprit", [0, 37, 99])
def test_a_hundred_components(culprit: int) -> None:
    """One culprit of a hundred takes at most 17 measurements, and no search more than its bound."""
    world = World(_names(100), _factors(**{f"p{culprit}": 1.2}))
    result = world.search()
    assert _conclusions(result) == {(f"p{culprit}",): GroupConclusion.BLAMED}
    assert world.measured <= count_usual(100) == 17
    assert result.others is not None
    assert len(result.others.names) == 99


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_liars(seed: int) -> None:
    """A hundred components that all interact and often do not start end within the bound on measurements."""
    draw = random.Random(seed)
    effects = {name: draw.gauss(0, 0.05) for name in _names(100)}

    def times(mixture: Mixture) -> float:
        return 100 * math.exp(sum(effects[name] for name in mixture) + 0.1 * (len(mixture) % 7))

    world = World(_names(100), times, breaks=lambda mixture: mixture > OLD and sum(map(len, mixture)) % 3 == 0)
    result = world.search()
    assert world.measured <= count_most(100)
    assert len([question for question in world.asked if not question.pairs]) <= 200
    assert result.outcome is not BlameOutcome.EXPLAINED


def test_wrong_blames_are_rare() -> None:
    """In 200 noisy searches, at most the stated share blames a component that changes nothing."""
    wrong = 0
    for seed in range(200):
        result = World(_names(6), _factors(p1=1.06), sd=0.01, seed=seed).search()
        wrong += any(group.names != ("p1",) for group in result.blamed)
    assert wrong <= 0.05 * 200


def test_the_first_question() -> None:
    """It compares both whole environments in FIRST_PAIRS pairs; later ones begin with fewer."""
    world = World(_names(3), _factors(p0=1.5))
    world.search()
    assert world.asked[0] == Question(OLD, frozenset(_names(3)), FIRST_PAIRS)
    assert {question.pairs for question in world.asked[1:]} == {4}


NAMES = tuple(f"p{index}" for index in range(8))
SLOW = {"a": "p1", "b": "p1", "c": "p6", "same": ""}
"""Case -> the package that makes it slower."""


class Bench:
    """Several cases in one set of environments."""

    def __init__(self) -> None:
        self.worlds = {
            case: World(NAMES, lambda mixture, slow=slow: 130.0 if slow in mixture else 100.0)  # type: ignore[misc]
            for case, slow in SLOW.items()
        }
        self.asked: list[tuple[Question, tuple[str, ...]]] = []

    def __call__(self, question: Question, cases: Sequence[str]) -> Mapping[str, Answer]:
        """Answers for these cases."""
        self.asked.append((question, tuple(cases)))
        return {case: self.worlds[case].answer(question) for case in cases}

    def search(self) -> BlameSearch:
        """A search whose first question is answered."""
        first = self(first_question(NAMES, BlameSettings()), tuple(SLOW))
        return BlameSearch(first, NAMES, self)


def test_cases_share_measurements() -> None:
    """Cases that ask for the same environments are measured by one run, and only the changed ones go on."""
    bench = Bench()
    search = bench.search()
    results = search.run()
    assert list(results) == list(SLOW)
    for case, slow in SLOW.items():
        assert [group.names for group in results[case].blamed] == ([(slow,)] if slow else [])
    assert results["same"].outcome is BlameOutcome.UNCHANGED
    runs = [(question.base, question.candidate) for question, _ in bench.asked]
    assert len(runs) == len(set(runs)) == search.measured
    assert all("same" not in cases for _, cases in bench.asked[1:])
    assert bench.asked[1][1] == ("a", "b", "c")
    assert {"a", "b"} <= set(bench.asked[2][1])


def test_a_case_that_is_not_answered() -> None:
    """A case that a run leaves out has no ratio there: it ends, and the others go on."""
    bench = Bench()
    search = bench.search()
    search.measure = lambda question, cases: bench(question, [case for case in cases if case != "a"])
    results = search.run()
    assert results["a"].outcome is BlameOutcome.NOT_SEPARATED
    assert [group.conclusion for group in results["b"].suspects] == [GroupConclusion.BLAMED]


def test_a_case_without_a_first_ratio() -> None:
    """It is not measured, for the reason that the first answer gives."""
    search = BlameSearch({"a": NoRatio("INCORRECT")}, NAMES, Bench())
    assert (search.run()["a"].outcome, search.results["a"].why) == (BlameOutcome.NOT_MEASURED, "INCORRECT")


def test_the_first_question_keeps_the_most_pairs() -> None:
    """It asks for no more pairs than the settings allow."""
    assert first_question(NAMES, BlameSettings(pairs_max=4)).pairs == 4
    assert first_question(NAMES, BlameSettings()).pairs == 8
