from __future__ import annotations

from collections.abc import Callable

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.overview import (
    ORDER,
    counts,
    held_against,
    median_detection_limit,
    rank,
    verdict_line,
    worst_first,
)
from pytest_attnperf.results import CaseResult, RunResult

Make = Callable[..., CaseResult]
MakeRun = Callable[..., RunResult]


def test_every_verdict_has_a_rank() -> None:
    """No verdict can be left out of a count."""
    assert set(ORDER) == set(Verdict)
    assert sorted(Verdict, key=rank) == list(ORDER)
    assert counts([Verdict.SAME, Verdict.SLOWER, Verdict.SAME]) == "1 slower, 2 same"
    assert counts([]) == "no cases"


def test_worst_first(case: Make) -> None:
    """Failing before passing, then by verdict, then the slowest."""
    cases = [
        case("a", verdict=Verdict.SAME, fails=False, ratio=1.01),
        case("b", ratio=1.05),
        case("c", ratio=1.5),
        case("d", verdict=Verdict.INCORRECT, ratio=None),
        case("e", verdict=Verdict.UNDECIDED, fails=False, ratio=2.0),
    ]
    assert [one.key.backend for one in worst_first(cases)] == ["d", "c", "b", "e", "a"]


def test_what_a_run_was_held_against(case: Make, run: MakeRun) -> None:
    """The base side where there was one, else the commit of the baselines; several are counted."""
    stored = {"stored_us": (1.0,)}
    one = run(case("a", stored_commit="4f2c1ab90d11ffff", **stored), case("b"))
    assert held_against(one) == "4f2c1ab90d11"
    assert " on sm_90/h200 against 4f2c1ab90d11; slowest: " in verdict_line(one)
    two = run(*(case(name, stored_commit=commit, **stored) for name, commit in (("a", "x"), ("b", "x"), ("c", "y"))))
    assert held_against(two) == "x and 1 more commit"
    assert held_against(run(case(stored_commit="x", **stored), against="origin/main (1234)")) == "origin/main (1234)"
    assert held_against(run(case())) == ""


def test_detection(case: Make) -> None:
    """The median over cases that were compared."""
    cases = [case(detection_limit=value) for value in (0.01, 0.03, 0.02, None)]
    assert median_detection_limit(cases) == 0.02
    assert median_detection_limit([case()]) is None
