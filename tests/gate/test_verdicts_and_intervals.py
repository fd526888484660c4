"""No verdict says what its own interval does not, whatever was measured."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from pytest_attnperf.gate.decide import Decision, first_look, second_look
from pytest_attnperf.gate.interleaved import interleaved_look
from pytest_attnperf.gate.limits import tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary, Rotation, Verdict
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.noise import NoiseModel
from pytest_attnperf.stats.pair_ratios import pair_noise
from pytest_attnperf.stats.summaries import is_slower_rotated

RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))
TIMES = draw.floats(0.5, 1e6)
POLICIES = draw.builds(
    Policy,
    threshold_percent=draw.floats(0.0, 100.0),
    floor_us=draw.floats(0.0, 1e4),
    suite_false_alarm_rate=draw.floats(1e-4, 0.4),
)


SEEN: Counter[Verdict] = Counter()
"""Verdicts of one test's examples."""


def some(times: draw.SearchStrategy[float], least: int, most: int) -> draw.SearchStrategy[list[float]]:
    """So many times, within a ten-thousandth of one another up to a factor of three apart."""
    apart = draw.lists(draw.floats(-1.0, 1.0), min_size=least, max_size=most)
    spread = draw.sampled_from([1e-4, 1e-3, 1e-2, 0.1, 1.0])
    return draw.builds(lambda centre, sd, logs: [centre * math.exp(sd * log) for log in logs], times, spread, apart)


def measured(medians_us: list[float]) -> Measurement:
    """Right processes with these medians."""
    made = tuple(ProcessSummary(us, us, us, (us,), 1, "host") for us in medians_us)
    return Measurement(made, (RIGHT,) * len(made))


def holds(decision: Decision, tolerated: float) -> None:
    """SLOWER lies beyond what is allowed with all of its interval, FASTER below 1 by as much."""
    SEEN[decision.verdict] += 1
    if decision.verdict not in (Verdict.SLOWER, Verdict.FASTER, Verdict.ENVIRONMENT):
        return
    assert decision.interval is not None
    low, high = decision.interval
    if decision.verdict is Verdict.FASTER:
        assert high <= 1 / tolerated * (1 + 1e-9)
    else:
        assert low >= tolerated * (1 - 1e-9)


@given(some(TIMES, 2, 7), some(TIMES, 1, 2), some(TIMES, 2, 5), POLICIES, draw.integers(1, 300))
@settings(max_examples=400, deadline=None)
def against_stored_processes(
    stored: list[float], first: list[float], second: list[float], policy: Policy, cases: int
) -> None:
    """Whatever processes a side measured, and whatever the policy."""
    base = measured(stored)
    noise = NoiseModel.from_processes({"a": base.processes}).estimate_noise("a", statistics.median(stored), "host")
    tolerated = tolerated_ratio(policy, statistics.median(stored))
    looked = first_look(base, measured(first), noise, policy, cases)
    holds(looked, tolerated)
    holds(second_look(base, measured(first), measured(second), noise, policy, cases), tolerated)


@given(some(draw.floats(0.01, 100.0), 2, 12), TIMES, POLICIES, draw.integers(1, 300))
@settings(max_examples=400, deadline=None)
def in_pairs(ratios: list[float], base_us: float, policy: Policy, cases: int) -> None:
    """Whatever pairs of processes measured in turns."""
    pairs = [PairSummary(ratio, base_us, base_us * ratio, 30, "host") for ratio in ratios]
    noise = pair_noise({"a": pairs}).estimate_noise("a", base_us, "host")
    holds(interleaved_look(pairs, noise, policy, cases), tolerated_ratio(policy, base_us))


@pytest.mark.parametrize("held", [against_stored_processes, in_pairs])
def test_no_verdict_contradicts_its_interval(held: Callable[[], None]) -> None:
    """Whatever was measured; and the examples do hold verdicts that could."""
    SEEN.clear()
    held()
    assert min(SEEN[verdict] for verdict in (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.UNDECIDED)) > 10


@given(TIMES, TIMES, draw.floats(0.0, 1e7))
def test_memory_is_not_suspected_within_the_noise_of_its_turns(same: float, rotating: float, noise: float) -> None:
    """A call is SUSPICIOUS only where it is slower on new inputs by more than its own turns differ."""
    if is_slower_rotated(Rotation(same, rotating, noise)):
        assert rotating - noise > same
