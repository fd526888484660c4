"""benchmarks/figures/figures_rates.py: the gate's own decisions on whole processes and pairs."""

from __future__ import annotations

import random

import figures_rates as rates
import pytest
from figures_records import Pair, Process, TrueSize

CASES = ("a", "b", "c")
TRUE = 0.031


def processes(sd: float = 0.003, units: int = 14, runs: int = 3, drift: float = 0.0) -> list[Process]:
    """Normal processes; each run `drift` slower than the one before."""
    rng = random.Random(7)
    return [
        Process(f"r{run}", "attnperf", case, label, unit, 100 * (1 + drift * run) * (1 + true) * rng.gauss(1, sd), 0.05)
        for run in range(runs)
        for case in CASES
        for label, true in (("plain", 0.0), ("slow3", TRUE))
        for unit in range(units)
    ]


def pairs(sd: float = 0.0015, units: int = 14, runs: int = 3) -> list[Pair]:
    """Normal pairs."""
    rng = random.Random(7)
    return [
        Pair(f"r{run}", case, "plain", unit, rng.gauss(1, sd), 100, 100, 30, "graph", 0.5)
        for run in range(runs)
        for case in CASES
        for unit in range(units)
    ]


STORED = rates.StoredGate(rates.NOISE_ONLY, CASES)
INTERLEAVED = rates.InterleavedGate(rates.NOISE_ONLY, CASES)
SIZES = {(case, "slow3"): TRUE for case in CASES}


@pytest.mark.parametrize("drawing", [rates.WITHIN, rates.ACROSS, rates.MIXED], ids=lambda one: one.name)
def test_no_process_stands_on_two_sides(drawing: rates.Drawing) -> None:
    """A draw has the asked number of units on each side, all of them different ones."""
    units = rates.process_units(processes())
    rng = random.Random(1)
    for _ in range(50):
        draw = drawing.draw(units, STORED.sizes, rng)
        assert draw is not None
        assert (len(draw.base), len(draw.first), len(draw.second)) == (7, 1, 3)
        assert len({id(unit) for side in (draw.base, draw.first, draw.second) for unit in side}) == 11


@pytest.mark.parametrize(
    ("drawing", "count"), [(rates.WITHIN, 3), (rates.ACROSS, 3), (rates.MIXED, 3)], ids=("within", "across", "mixed")
)
def test_independent_sets_share_no_unit(drawing: rates.Drawing, count: int) -> None:
    """Three runs of 14 give three sets of 11, whose 33 units are different ones."""
    sets = list(drawing.sets(rates.process_units(processes()), STORED.sizes))
    used = [id(unit) for one in sets for side in (one.base, one.first, one.second) for unit in side]
    assert len(sets) == count
    assert len(set(used)) == len(used) == 11 * count


def test_draws_keep_to_their_runs() -> None:
    """Within, all units are of one run; across, the base is of one and both looks of another."""
    units = rates.process_units(processes())
    run_of = {id(unit): run for run, found in units.items() for unit in found}
    rng = random.Random(1)
    for drawing, runs in ((rates.WITHIN, 1), (rates.ACROSS, 2)):
        draw = drawing.draw(units, STORED.sizes, rng)
        assert draw is not None
        sides = [{run_of[id(unit)] for unit in side} for side in (draw.base, [*draw.first, *draw.second])]
        assert [len(side) for side in sides] == [1, 1]
        assert len(sides[0] | sides[1]) == runs


def test_unchanged_code_is_seldom_red_and_five_per_cent_are_caught() -> None:
    """On normal processes of 0.3 % the stored gate keeps its rate and finds what is far beyond its noise."""
    units = rates.process_units(processes())
    alarms = rates.false_alarms(STORED, units, rates.WITHIN, 100)
    assert alarms.share <= 0.03
    assert (alarms.trials, alarms.set_hits, alarms.sets) == (100, 0, 3)
    assert alarms.at_most == pytest.approx(0.6316, rel=1e-3)
    caught = rates.detection(STORED, units, rates.WITHIN, 30, 0.05)
    assert (caught.share, caught.trials, caught.set_hits) == (1.0, 90, 3)


def test_shift_between_runs_is_seen_across_runs_only() -> None:
    """A day that is three per cent slower turns suites red when the store is of another day."""
    units = rates.process_units(processes(drift=0.03))
    assert rates.false_alarms(STORED, units, rates.WITHIN, 40).share <= 0.05
    across = rates.false_alarms(STORED, units, rates.ACROSS, 40)
    assert 0.2 < across.share < 0.8
    assert across.set_hits >= 1


def test_injected_processes_are_brought_to_the_asked_size() -> None:
    """Slowed by 3.1 %, they are caught as 3 %; asked for no slowdown at all, they are as good as plain."""
    units = rates.process_units(processes(sd=0.001))
    caught = rates.detection(STORED, units, rates.WITHIN, 20, 0.03, label="slow3", true=SIZES)
    assert caught.share == 1.0
    factors = dict.fromkeys(CASES, 1 / (1 + TRUE))
    (draw, *_) = rates.sets_within(units, STORED.sizes)
    assert not any(STORED.slower(draw, "slow3", factors).values())
    assert all(STORED.slower(draw, "slow3", dict.fromkeys(CASES, 1.0)).values())


def test_injection_of_another_size_is_left_out() -> None:
    """A case slowed by 3.1 % says nothing of one per cent; nor does one whose size is not known."""
    units = rates.process_units(processes())
    assert rates.detection(STORED, units, rates.WITHIN, 5, 0.01, label="slow3", true=SIZES).trials == 0
    assert rates.detection(STORED, units, rates.WITHIN, 5, 0.03, label="slow3", true={}).trials == 0


def test_pairs_see_half_a_per_cent() -> None:
    """On normal pairs of 0.15 % eight find half a per cent, and unchanged code stays green."""
    units = rates.pair_units(pairs())
    alarms = rates.false_alarms(INTERLEAVED, units, rates.MIXED, 60)
    assert alarms.share <= 0.04
    assert alarms.sets == 5
    assert rates.detection(INTERLEAVED, units, rates.WITHIN, 30, 0.005).share > 0.9
    assert rates.detection(INTERLEAVED, units, rates.WITHIN, 30, 0.0005).share < 0.2


def test_too_few_units_give_no_rate() -> None:
    """Ten processes cannot make a decision of eleven: no trial, no set, and a bound of one."""
    few = rates.process_units(processes(units=10, runs=1))
    for drawing in (rates.WITHIN, rates.ACROSS, rates.MIXED):
        rate = rates.false_alarms(STORED, few, drawing, 5)
        assert (rate.trials, rate.sets, rate.at_most) == (0, 0, 1.0)


def test_unit_that_lacks_a_case_leaves_the_case_out() -> None:
    """A process in which a case failed decides the other cases."""
    units = rates.process_units(p for p in processes() if (p.case, p.unit) != ("b", 0))
    (draw, *_) = rates.sets_within(units, STORED.sizes)
    assert STORED.slower(draw, "plain", dict.fromkeys(CASES, 1.0)).keys() == {"a", "c"}


def test_size_is_the_mean_over_runs() -> None:
    """A true size measured twice is averaged; without a true size the nominal one stands."""
    sizes = [
        TrueSize("r1", "a", "slow3", 0.03, 0.030, 0.0, ""),
        TrueSize("r2", "a", "slow3", 0.03, 0.032, 0.0, ""),
        TrueSize("r2", "a", "slow5", 0.05, None, None, ""),
    ]
    assert rates.mean_sizes(sizes) == pytest.approx({("a", "slow3"): 0.031, ("a", "slow5"): 0.05})
