from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.session.blame.blame_result import BlameOutcome, BlameSettings, GroupConclusion
from pytest_attnperf.session.blame.blame_search import BlameSearch, first_question
from pytest_attnperf.session.blame.case_search import Answer, NoRatio, Question
from tests.session.blame.test_case_search import World

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
