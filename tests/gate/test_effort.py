"""What would decide a case: the counts are exactly those with which the gate itself decides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.gate.decide import second_look
from pytest_attnperf.gate.effort import (
    PAIRS_MAX,
    PROCESSES_MAX,
    Aim,
    ProcessCounts,
    UnitCost,
    pairs_needed,
    processes_needed,
    unit_cost,
)
from pytest_attnperf.gate.interleaved import ASYMMETRY, interleaved_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    ErrorFigures,
    Measurement,
    ProcessSummary,
    Verdict,
)
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import z_for
from pytest_attnperf.stats.noise import NoiseEstimate

RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))
CASES, DEGREES = 100, 18
Z = z_for(0.01, CASES, DEGREES)


def aim(ratio: float, tolerated: float = 1.02) -> Aim:
    """A slowdown in a suite of CASES."""
    return Aim(ratio, tolerated, Z, DEGREES)


PAIR = PairSummary(1.02, 100.0, 102.0, 10, "graph", seconds=4.0)
CASE = CaseResult(CaseKey("s", "b", "w"), "n", Verdict.UNDECIDED, "")


def measured(median_us: float, processes: int) -> Measurement:
    """Processes that all have this median."""
    one = ProcessSummary(median_us, median_us, median_us, (median_us,), 20, "graph")
    return Measurement((one,) * processes, (RIGHT,) * processes)


def by_processes(ratio: float, sd: float, stored: int, fresh: int) -> Verdict:
    """What the gate says of so many processes a side."""
    base, new = measured(100.0, stored), measured(100.0 * ratio, fresh)
    return second_look(base, new, new, NoiseEstimate(sd, DEGREES, "given"), Policy(), CASES).verdict


def by_pairs(ratio: float, sd: float, count: int) -> Verdict:
    """What the gate says of so many pairs."""
    noise = NoiseEstimate(sd, DEGREES, "given", "pair")
    pairs = (replace(PAIR, ratio=ratio, new_us=100.0 * ratio),) * count
    return interleaved_look(pairs, noise, Policy(threshold_percent=0.5, floor_us=0.1), CASES).verdict


@pytest.mark.parametrize(("ratio", "sd"), [(1.03, 0.006), (1.04, 0.01), (1.05, 0.01), (1.06, 0.012), (1.1, 0.02)])
def test_as_many_fresh_processes_decide_and_one_fewer_does_not(ratio: float, sd: float) -> None:
    """Beside seven stored processes, the gate says SLOWER with exactly that number and UNDECIDED with one fewer."""
    needed = processes_needed(aim(ratio), relative_sd=sd, stored=7)
    assert needed is not None
    assert needed.stored == 7
    assert by_processes(ratio, sd, 7, needed.fresh) is Verdict.SLOWER
    assert needed.fresh > 1
    assert by_processes(ratio, sd, 7, needed.fresh - 1) is Verdict.UNDECIDED


def test_where_the_stored_ones_are_too_few_both_sides_grow() -> None:
    """No number of fresh processes decides; as many on both sides do, and one fewer a side does not."""
    needed = processes_needed(aim(1.03), relative_sd=0.015, stored=7)
    assert needed == ProcessCounts(needed.fresh, needed.fresh) if needed else False
    assert needed is not None
    assert by_processes(1.03, 0.015, 7, PROCESSES_MAX) is Verdict.UNDECIDED
    assert by_processes(1.03, 0.015, needed.stored, needed.fresh) is Verdict.SLOWER
    assert by_processes(1.03, 0.015, needed.stored - 1, needed.fresh - 1) is Verdict.UNDECIDED


def test_what_no_number_decides_is_said_to_be_so() -> None:
    """None, for processes and for pairs: noise far above the slowdown."""
    assert processes_needed(aim(1.021), relative_sd=0.2, stored=7) is None
    assert pairs_needed(aim(1.006, 1.005), relative_sd=0.2, taken=8, asymmetry=ASYMMETRY) is None
    assert by_pairs(1.006, 0.2, PAIRS_MAX) is Verdict.UNDECIDED


@pytest.mark.parametrize(("ratio", "sd"), [(1.0075, 0.003), (1.01, 0.006), (1.02, 0.02), (1.012, 0.008)])
def test_as_many_pairs_decide_and_one_fewer_does_not(ratio: float, sd: float) -> None:
    """The gate says SLOWER with exactly that number of pairs and UNDECIDED with one fewer."""
    count = pairs_needed(aim(ratio, 1.005), relative_sd=sd, taken=2, asymmetry=ASYMMETRY)
    assert count is not None
    assert count > 3
    assert by_pairs(ratio, sd, count) is Verdict.SLOWER
    assert by_pairs(ratio, sd, count - 1) is Verdict.UNDECIDED


def test_costs_are_those_of_the_case() -> None:
    """10 s of five processes: 2 s each, and a pair is two of them; measured pairs add their own turns; no seconds,
    nothing known."""
    (process,) = measured(100.0, 1).processes
    case = replace(CASE, first=(process,), second=(process,) * 4, seconds=10.0)
    assert unit_cost(case) == UnitCost(2.0, 4.0)
    paired = unit_cost(replace(CASE, first=(process,), pairs=(PAIR, PAIR), seconds=18.0))
    assert paired == UnitCost(2.0, 8.0)
    assert unit_cost(replace(case, seconds=0.0)).process_s is None
    assert unit_cost(replace(CASE, seconds=5.0)).pair_s is None
    assert not math.isnan(unit_cost(case).process_s or 0.0)


def test_what_cards_add_no_process_takes_away() -> None:
    """More are needed where the card is another one, and none suffice where cards alone may differ by that much."""
    alone = processes_needed(aim(1.03), relative_sd=0.006, stored=7)
    beside = processes_needed(aim(1.03), relative_sd=0.006, stored=7, card_error=0.004)
    assert alone is not None
    assert beside is not None
    assert beside.fresh > alone.fresh
    assert processes_needed(aim(1.03), relative_sd=0.006, stored=7, card_error=0.01) is None


def test_the_gate_says_when_only_the_card_is_in_the_way() -> None:
    """UNDECIDED names the card of the baseline, and pairs, in place of a number of processes."""
    sides = []
    for us, card, count in ((100.0, "x", 7), (103.0, "y", 3)):
        one = ProcessSummary(us, us, us, (us,), 20, "graph", device_id=card)
        sides.append(Measurement((one,) * count, (RIGHT,) * count))
    noise = NoiseEstimate(0.001, DEGREES, "given", card_sd=0.01, card_degrees=13, card_how="given, too")
    decision = second_look(sides[0], sides[1], sides[1], noise, Policy(), CASES)
    assert decision.verdict is Verdict.UNDECIDED
    assert "cards alone may differ by that much" in decision.summary
