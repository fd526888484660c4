"""What the gate does to suites of unchanged and of slowed code: simulated, with everything drawn afresh per suite."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pytest_attnperf.gate.decide import first_look, second_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary, Verdict
from pytest_attnperf.stats.noise import NoiseModel

CASES = 100
CASE_US = 200.0
RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))


def typical(_: random.Random) -> float:
    """The median between-process spread measured on an H200."""
    return 0.0055


def uneven(generator: random.Random) -> float:
    """The quietest or the loudest spread measured there: harder for a pooled estimate than anything between."""
    return generator.choice((0.0033, 0.0085))


def measured(generator: random.Random, median_us: float, sd: float, processes: int) -> Measurement:
    """Fresh processes of a right case."""
    medians = [median_us * generator.gauss(1, sd) for _ in range(processes)]
    return Measurement(tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians), (RIGHT,) * processes)


def suite(
    generator: random.Random, spread: Callable[[random.Random], float], slowdown: float, policy: Policy
) -> list[Verdict]:
    """One run: seven fresh stored processes a case, one in the first look, three in the second where asked for."""
    spreads = [spread(generator) for _ in range(CASES)]
    bases = [measured(generator, CASE_US, sd, 7) for sd in spreads]
    model = NoiseModel.from_processes({str(case): base.processes for case, base in enumerate(bases)})
    verdicts = []
    for case, (base, sd) in enumerate(zip(bases, spreads, strict=True)):
        noise = model.estimate_noise(str(case), CASE_US, "graph")
        first = measured(generator, CASE_US * (1 + slowdown), sd, 1)
        decision = first_look(base, first, noise, policy, CASES)
        if decision.needs_second_look:
            second = measured(generator, CASE_US * (1 + slowdown), sd, 3)
            decision = second_look(base, first, second, noise, policy, CASES)
        verdicts.append(decision.verdict)
    return verdicts


def rate_bound95(suites: int) -> float:
    """The rate that 0 red runs in so many independent suites excludes at 95 %: 1 - 0.05^(1/n)."""
    return float(1 - 0.05 ** (1 / suites))


def caught(spread: Callable[[random.Random], float], slowdown: float, seed: int) -> float:
    """Share of 4,000 slowed cases that end as SLOWER."""
    generator = random.Random(seed)
    verdicts = [verdict for _ in range(40) for verdict in suite(generator, spread, slowdown, Policy())]
    return verdicts.count(Verdict.SLOWER) / len(verdicts)


def test_at_most_one_same_code_suite_in_a_hundred_is_red() -> None:
    """0 of 300 suites, each with its own stored processes, bounds the rate of red suites below 1 % (95 %)."""
    generator = random.Random(20)
    red = sum(Verdict.SLOWER in suite(generator, uneven, 0.0, Policy()) for _ in range(300))
    assert red == 0
    assert rate_bound95(300) < 0.01


@pytest.mark.parametrize(("slowdown", "at_least"), [(0.03, 0.50), (0.04, 0.98), (0.05, 0.999)])
def test_slowdowns_beyond_the_threshold_are_caught(slowdown: float, at_least: float) -> None:
    """Of 4,000 slowed cases at a 2 % threshold nearly all at 4 and 5 % are SLOWER, and every other one at 3 %."""
    assert caught(typical, slowdown, seed=5) >= at_least


def test_a_slowdown_equal_to_the_threshold_is_mostly_missed() -> None:
    """A 2 % slowdown at a 2 % threshold passes two looks less than half of the time: thresholds are not promises."""
    assert caught(typical, 0.02, seed=6) < 0.5
