from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.reports.run.overview import (
    ORDER,
    STORED,
    format_comparison_base,
    format_result_counts,
    format_verdict_counts,
    is_new,
    is_unresolved,
    median_detection_limit,
    only_new,
    quarantined_lines,
    rank_verdict,
    sort_worst_first,
    verdict_line,
    verdict_text,
    verdict_word,
)
from pytest_attnperf.results import CaseResult, RunResult

Make = Callable[..., CaseResult]
MakeRun = Callable[..., RunResult]


def test_every_verdict_has_a_rank() -> None:
    """No verdict can be left out of a count."""
    assert set(ORDER) == set(Verdict)
    assert sorted(Verdict, key=rank_verdict) == list(ORDER)
    assert format_verdict_counts([Verdict.SAME, Verdict.SLOWER, Verdict.SAME]) == "1 slower, 2 same"
    assert format_verdict_counts([]) == "no cases"


def test_worst_first(case: Make) -> None:
    """Failing before passing, then by verdict, then the slowest."""
    cases = [
        case("a", verdict=Verdict.SAME, fails=False, ratio=1.01),
        case("b", ratio=1.05),
        case("c", ratio=1.5),
        case("d", verdict=Verdict.INCORRECT, ratio=None),
        case("e", verdict=Verdict.UNDECIDED, fails=False, ratio=2.0),
    ]
    assert [one.key.backend for one in sort_worst_first(cases)] == ["d", "c", "b", "e", "a"]


def test_what_a_run_was_held_against(case: Make, run: MakeRun) -> None:
    """The base side where there was one, else the commit of the baselines; several are counted."""
    stored = {"stored_us": (1.0,)}
    one = run(case("a", stored_commit="4f2c1ab90d11ffff", **stored), case("b"))
    assert format_comparison_base(one) == "4f2c1ab90d11"
    assert " on sm_90/h200 against 4f2c1ab90d11; slowest: " in verdict_line(one)
    two = run(*(case(name, stored_commit=commit, **stored) for name, commit in (("a", "x"), ("b", "x"), ("c", "y"))))
    assert format_comparison_base(two) == "x and 1 more commit"
    assert (
        format_comparison_base(run(case(stored_commit="x", **stored), against="origin/main (1234)"))
        == "origin/main (1234)"
    )
    assert format_comparison_base(run(case())) == ""
    assert format_comparison_base(run(case(stored_commit="4f2c1ab90d11+dirty", **stored))) == "4f2c1ab90d11+dirty"
    assert format_comparison_base(run(case(stored_commit="unknown", **stored))) == ""


@pytest.mark.parametrize(
    ("verdict", "fails", "fields", "word"),
    [
        (Verdict.SLOWER, True, {}, "FAILED"),
        (Verdict.SLOWER, True, {"complete": False}, "FAILED"),
        (Verdict.INCORRECT, True, {"mode": "update"}, "FAILED"),
        (Verdict.SAME, False, {"complete": False}, "INCOMPLETE"),
        (Verdict.SAME, False, {}, "PASSED"),
        (Verdict.UNDECIDED, False, {}, "PASSED"),
        (Verdict.NO_BASELINE, False, {}, "NOT COMPARED"),
        (Verdict.UNSUPPORTED, False, {}, "NOT COMPARED"),
        (Verdict.RECORDED, False, {"mode": "update"}, "RECORDED"),
        (Verdict.RECORDED, False, {"mode": STORED}, "STORED BASELINES"),
        (Verdict.RIGHT, False, {"mode": "calibrate"}, "CALIBRATED"),
        (Verdict.RIGHT, False, {"mode": "check"}, "CHECKED"),
        (Verdict.RIGHT, False, {"mode": "PASSED"}, "NOT COMPARED"),
    ],
)
def test_the_word(
    case: Make, run: MakeRun, verdict: Verdict, fails: bool, fields: dict[str, object], word: str
) -> None:
    """One word for the whole; a run that compared nothing, or was broken off, has not passed, and says what it is."""
    assert verdict_word(join_single(run(case(verdict=verdict, fails=fails), **fields))) == word


def test_the_word_of_several_runs(case: Make, run: MakeRun) -> None:
    """What was compared counts, and runs that did different things without comparing have no word of their own."""
    recorded = run(case("a", verdict=Verdict.RECORDED, fails=False), mode="update")
    stored = run(case("b", verdict=Verdict.RECORDED, fails=False), mode=STORED)
    gated = run(case("c", verdict=Verdict.SAME, fails=False))
    assert verdict_word(join_runs([("1", recorded), ("2", stored)])) == "NOT COMPARED"
    assert verdict_word(join_runs([("1", recorded), ("2", gated)])) == "PASSED"
    assert verdict_word(join_runs([])) == "NO CASES"


def test_detection(case: Make) -> None:
    """What at least half of the compared cases would have found; one whose noise hides everything finds nothing."""
    cases = [case(detection_limit=value) for value in (0.01, 0.03, 0.02)]
    cases.append(case(verdict=Verdict.NO_BASELINE, ratio=None))
    assert median_detection_limit(cases) == 0.02
    assert median_detection_limit([case(detection_limit=value) for value in (0.01, 0.03)]) == 0.01
    assert median_detection_limit([case(detection_limit=0.01), case(detection_limit=None)]) == 0.01
    assert median_detection_limit([case(detection_limit=0.01), *[case(detection_limit=None)] * 2]) is None
    assert median_detection_limit([case(verdict=Verdict.NO_BASELINE, ratio=None)]) is None


def test_new_cases_are_counted_apart(case: Make, run: MakeRun) -> None:
    """A case that the base side lacks is neither passed nor unresolved; only a run of nothing else that could be gated
    gates nothing without failing, and one that fails or has a baseline is not new, whatever a file says."""
    new = case("a", verdict=Verdict.NO_BASELINE, fails=False, new=True, against="main (4f2c1ab)")
    right = case("b", verdict=Verdict.RIGHT, fails=False, median_us=None)
    unknown = case("c", verdict=Verdict.NO_BASELINE, fails=False)
    assert format_result_counts([new, unknown]) == "1 without baseline, 1 new"
    assert verdict_text(new) == "NO_BASELINE, new"
    assert [is_unresolved(one) for one in (new, unknown)] == [False, True]
    assert [is_new(replace(new, **how)) for how in ({}, {"fails": True}, {"verdict": Verdict.SLOWER})] == [
        True, False, False
    ]  # fmt: skip
    assert verdict_word(join_single(run(new, gated=0))) == "NOT COMPARED"
    assert [
        only_new(run(*cases, gated=0)) for cases in ((new,), (new, right), (new, unknown), (right,))
    ] == [True, True, False, False]  # fmt: skip
    assert not only_new(run(new, gated=0, complete=False))
    assert not only_new(run(new, gated=1))


def test_quarantined_and_unchanged_cases_are_counted_apart(case: Make, run: MakeRun) -> None:
    """A quarantined case is not counted by its verdict, and has not passed; one that is unchanged has."""
    held = case("a", fails=False, quarantined="#7 until 2026-02-10")
    unknown = case("b", verdict=Verdict.NO_BASELINE, fails=False, quarantined="#7 until 2026-02-10")
    right = case("c", verdict=Verdict.RIGHT, fails=False, median_us=None, unchanged=True)
    every = [right, held, unknown, case("d"), case("e", verdict=Verdict.SAME, fails=False)]
    assert format_result_counts(every) == "1 slower, 2 quarantined, 1 same, 1 unchanged"
    assert verdict_line(run(*every)).startswith("1 slower, 2 quarantined, 1 same, 1 unchanged on sm_90/h200")
    assert [verdict_text(one) for one in every[:3]] == [
        "RIGHT, unchanged", "SLOWER, quarantined", "NO_BASELINE, quarantined"
    ]  # fmt: skip
    assert [verdict_word(join_single(run(one))) for one in (held, right)] == ["QUARANTINED", "PASSED"]
    assert [is_unresolved(one) for one in (unknown, replace(unknown, quarantined=""))] == [False, True]
    expired = (Note(NoteKind.EXPIRED, "over since 2026-02-10"),)
    over = case("f", verdict=Verdict.SAME, fails=True, reasons=expired)
    assert (verdict_text(over), format_result_counts([over, replace(over, verdict=Verdict.SLOWER)])) == (
        "SAME, quarantine expired", "1 quarantine expired, 1 slower"
    )  # fmt: skip
    assert quarantined_lines(every)[0] == f"{held.key}: SLOWER, quarantined: #7 until 2026-02-10"
