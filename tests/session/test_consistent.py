"""Figures of a results file that cannot all be true, each named; and true ones, of which nothing is said."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.correctness.budget import LAST_REPLAY, PLANTED, TIMED, UNPLANTED
from pytest_attnperf.gate.comparable import list_looser_tolerances
from pytest_attnperf.records import CheckReport, DeviceInfo, ErrorFigures, Samples, Tolerance
from pytest_attnperf.session.consistent import find_contradictions, list_proof_gaps
from pytest_attnperf.stats.summaries import summarise_process

CONTRADICT = "figures contradict each other:"

if TYPE_CHECKING:
    from tests.session.conftest import Bench

DEVICE = DeviceInfo("cpu", "fake", "fake1")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"median_us": 100.0}, "its median is stated as 100 us, but its blocks give 109"),
        ({"min_us": 90.0}, "its minimum is stated as 90 us"),
        ({"mean_us": 90.0}, "its mean is stated as 90 us"),
        ({"block_us": ()}, "it has no blocks"),
        ({"median_us": -1.0}, "a time is not finite and positive"),
        ({"median_us": math.nan}, "a time is not finite and positive"),
        ({"block_us": (math.inf,) * 9}, "a time is not finite and positive"),
        ({"placements": 4}, "9 blocks do not divide into 4 placements"),
        ({"placements": 0}, "9 blocks do not divide into 0 placements"),
        ({"timer": "graph"}, "its timer is 'graph', the fingerprint's 'host'"),
    ],
)
def test_figures_that_do_not_follow_from_the_blocks_are_named(stored: Bench, fields: dict[str, Any], said: str) -> None:
    """A median, a minimum or a mean is made again from the blocks; what they cannot make is named."""
    case = stored.judge(time_us=110.0)
    assert find_contradictions(case, DEVICE) == []
    (text,) = find_contradictions(replace(case, first=(replace(case.first[0], **fields),)), DEVICE)[:1]
    assert text.startswith("first look, process 1: ")
    assert said in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ratio": 1.0}, "its ratio is stated as 1, but its quads give 1."),
        ({"quad_ratios": ()}, "it states 8 quads and has 0"),
        ({"base_us": 0.0}, "not finite and positive"),
        ({"timer": "graph"}, "its timer is 'graph'"),
    ],
)
def test_a_pair_whose_quads_say_otherwise_is_named(stored: Bench, fields: dict[str, Any], said: str) -> None:
    """The ratio of a pair must lie among those of its quads."""
    stored.against_base()
    case = stored.judge(time_us=110.0)
    assert find_contradictions(case, DEVICE) == []
    (text,) = find_contradictions(replace(case, pairs=(replace(case.pairs[0], **fields), *case.pairs[1:])), DEVICE)
    assert text.startswith("pair 1: ")
    assert said in text
    assert find_contradictions(replace(case, pairs=case.pairs[:1] * 3), DEVICE) == [
        "the same pair twice: two pairs have the same quads"
    ]


@pytest.mark.parametrize(
    ("blocks", "placements"), [(5, 1), (30, 10), (63, 3), (90, 15), (96, 1), (96, 4), (200, 1), (200, 10)]
)
def test_nothing_is_said_of_what_was_measured(stored: Bench, blocks: int, placements: int) -> None:
    """Whole and thinned blocks, at one place in memory or several, odd and even in number."""
    case = stored.judge(time_us=110.0)
    for seed in range(20):
        draw = random.Random(seed)
        places = [draw.gauss(1, 0.01) for _ in range(placements)]
        each = blocks // placements
        times = tuple(1234.5 * places[block // each] * draw.gauss(1, 0.003) for block in range(blocks))
        process = summarise_process(Samples(times, 5, "host", placements=placements))
        assert find_contradictions(replace(case, first=(process,)), DEVICE) == []
        forged = replace(process, median_us=process.median_us * 1.1)
        assert "its median is stated as" in find_contradictions(replace(case, first=(forged,)), DEVICE)[0]


@pytest.mark.parametrize(("method", "centre"), [("1", 100.0), ("2", 101.0)])
def test_the_time_is_made_again_by_the_method_that_measured_it(stored: Bench, method: str, centre: float) -> None:
    """Results from before method 2 stand for the medians of their places, later ones for the mean; neither passes for
    the other."""
    case = stored.judge(time_us=110.0)
    assert case.fingerprint is not None
    must_match = {**case.fingerprint.must_match, "timer": "graph", "method": method}
    process = summarise_process(Samples((100.0, 100.0, 103.0) * 2, 5, "graph", placements=2))
    case = replace(case, fingerprint=replace(case.fingerprint, must_match=must_match), second=(), canary={})
    assert find_contradictions(replace(case, first=(replace(process, median_us=centre),)), DEVICE) == []
    other = replace(process, median_us=201.0 - centre)
    assert "its median is stated as" in find_contradictions(replace(case, first=(other,)), DEVICE)[0]


def test_equal_blocks_that_do_not_move_are_no_copies(stored: Bench) -> None:
    """A time whose five digits stand still is the same in every process."""
    case = stored.judge(time_us=110.0)
    still = summarise_process(Samples((110.0,) * 9, 5, "host"))
    assert find_contradictions(replace(case, second=(still, still)), DEVICE) == []


def test_a_time_without_what_it_is_of_is_named(stored: Bench) -> None:
    """Without processes, fingerprint or figures there is nothing to judge; a canary must be a time, too."""
    case = stored.judge(time_us=110.0)
    parts: tuple[dict[str, Any], ...] = ({"first": ()}, {"fingerprint": None}, {"figures": None})
    for without in parts:
        (text,) = find_contradictions(replace(case, **without), DEVICE)
        assert text.startswith("there is no time to judge")
    dead = replace(case.first[0], median_us=0.0)
    assert find_contradictions(replace(case, canary={"gemm": (dead,)}), DEVICE) == [
        "canary gemm: a time is not finite and positive"
    ]


RIGHT = CheckReport(
    tuple(
        ErrorFigures(check, output, 0.25, 1.0, 0.1, 1.0, worst_got=1.25, worst_expected=1.0, elements=64)
        for check in (TIMED, PLANTED, LAST_REPLAY)
        for output in ("out", "lse")
    )
)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_error": 0.2}, "timed inputs: 'out' has a stated error of 0.2, but its worst values differ by 0.25"),
        ({"worst_got": -9.0}, "timed inputs: 'out' has a stated error of 0.25, but its worst values differ by 10"),
        ({"max_budget": math.inf}, "timed inputs: 'out' has an error or a budget that is not finite"),
    ],
)
def test_errors_that_no_comparison_gives_prove_nothing(fields: dict[str, Any], said: str) -> None:
    """An error smaller than the gap beside it, and a budget without end, keep a case from being proven right."""
    assert list_proof_gaps([RIGHT], None) == []
    forged = replace(RIGHT, figures=(replace(RIGHT.figures[0], **fields), *RIGHT.figures[1:]))
    assert list_proof_gaps([forged], None) == [f"{CONTRADICT} {said}"]


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (TIMED, "0 times on timed inputs and 1 times on planted inputs"),
        (PLANTED, "1 times on timed inputs and 0 times on planted inputs"),
    ],
)
def test_a_figure_that_was_taken_away_is_missed(taken: str, said: str) -> None:
    """A proof compares every output on timed and on planted inputs, under whatever name the latter have."""
    kept = tuple(one for one in RIGHT.figures if one.check != taken or one.output != "lse")
    (text,) = list_proof_gaps([replace(RIGHT, figures=kept)], None)
    assert f"'lse' was compared {said}" in text
    (alone,) = list_proof_gaps([replace(RIGHT, figures=RIGHT.figures[-1:])], None)
    assert "after the last run only" in alone
    named = [replace(one, check=f"{UNPLANTED}a reason)") if one.check == PLANTED else one for one in RIGHT.figures]
    assert list_proof_gaps([replace(RIGHT, figures=tuple(named))], None) == []


def test_budgets_are_held_to_the_tolerance_that_is_allowed() -> None:
    """A budget of ten times the tolerance counts a tenth; a tighter one than allowed counts as it is."""
    half = ErrorFigures("check", "out", 0.5, 1.0, 0.1, 1.0, elements=64)
    loose = CheckReport((half,), tolerance=Tolerance(20.0, source="mine", outputs=(("dq", 3.0),)))
    assert list_proof_gaps([loose], None) == []
    assert list_proof_gaps([loose], Tolerance(20.0, source="stored")) == []
    assert list_proof_gaps([loose], Tolerance(40.0, source="stored")) == []
    (said,) = list_proof_gaps([loose], Tolerance())
    assert "is off by 0.5" in said
    assert "allowed is 0.1" in said
    assert list_looser_tolerances([loose], Tolerance()) == ["out 2 -> 20"]
    assert list_looser_tolerances([loose], Tolerance(20.0, source="stored")) == []
