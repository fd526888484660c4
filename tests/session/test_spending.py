"""How the time left is spent, on synthetic numbers: who gets what, that it fits, and that it raises no false alarms."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from pytest_attnperf.gate.decide import first_look, second_look
from pytest_attnperf.gate.limits import tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary, Verdict
from pytest_attnperf.session.time_budget import PAIRS_MAX, PROCESSES_MAX, OpenCase, plan_shares
from pytest_attnperf.stats.comparison import z_for
from pytest_attnperf.stats.noise import NoiseModel

CLEAR = OpenCase(3, 1.0, relative_sd=0.003, ratio=1.10, tolerated=1.02, z=4.0, stored=7)
"""10 % slower: decided by the minimum."""

CLOSE = replace(CLEAR, relative_sd=0.01, ratio=1.0423)
"""4.2 % slower, where three processes' interval reaches below the 2 % allowed: more leave no doubt."""

UNKNOWN = OpenCase(3, 1.0)
RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))


def units(cases: list[OpenCase], seconds: float, start_seconds: float = 0.0) -> list[int]:
    """What each case gets, in the order given."""
    shares = plan_shares(cases, seconds, start_seconds)
    return [share.units for share in sorted(shares, key=lambda share: share.index)]


def test_least_decided_get_more() -> None:
    """With time for all, a clear case gets the minimum and a close one more, up to the most."""
    assert units([CLEAR, CLOSE], 1000.0) == [3, 5]
    assert units([replace(CLOSE, ratio=1.025)], 1000.0) == [PROCESSES_MAX]
    assert units([replace(CLOSE, pairs=True, minimum=8, relative_sd=0.02, ratio=1.025)], 1000.0) == [PAIRS_MAX]


def test_each_gets_its_minimum_before_any_gets_more() -> None:
    """One more unit goes to whoever is least decided, but only once all have the minimum."""
    assert units([CLEAR, CLOSE, CLEAR], 9.0) == [3, 3, 3]
    assert units([CLEAR, CLOSE, CLEAR], 11.5) == [3, 5, 3]


def test_the_least_decided_come_first() -> None:
    """Where the time is short, the least decided case is measured first and gets it; unknown ones come last."""
    assert [share.index for share in plan_shares([UNKNOWN, CLEAR, CLOSE], 100.0)] == [2, 1, 0]
    assert units([UNKNOWN, CLEAR, CLOSE], 3.0) == [0, 0, 3]
    assert units([UNKNOWN, CLEAR, CLOSE], 6.5) == [0, 3, 3]
    assert math.isinf(UNKNOWN.predict_openness(3))


def test_no_time_is_nothing_for_all() -> None:
    """Without a second left each case has a share of 0, and no case is lost."""
    shares = plan_shares([CLEAR, CLOSE, UNKNOWN], 0.0)
    assert sorted((share.index, share.units) for share in shares) == [(0, 0), (1, 0), (2, 0)]


def test_starting_processes_is_paid_for_once() -> None:
    """The first case of a kind pays for its processes, the next uses them; a pair starts two."""
    assert units([CLEAR, CLEAR], 3 + 3 + 3 * 10.0 - 0.5, 10.0) == [3, 0]
    assert units([CLEAR, CLEAR], 3 + 3 + 3 * 10.0, 10.0) == [3, 3]
    pairs = replace(CLEAR, pairs=True)
    assert units([pairs], 3 + 3 * 20.0 - 0.5, 10.0) == [0]
    assert units([pairs], 3 + 3 * 20.0, 10.0) == [3]


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_there_is(seed: int) -> None:
    """The predicted seconds of all shares fit into the time, minimum and most are kept, and the order given does not
    matter for what a case gets."""
    draw = random.Random(seed)
    cases = [
        OpenCase(
            draw.choice((3, 8)),
            draw.uniform(0.5, 20),
            draw.random() < 0.3,
            draw.choice((None, draw.uniform(0.001, 0.02))),
            draw.uniform(1.0, 1.1),
            1.02,
            draw.uniform(3, 5),
            7,
        )
        for _ in range(12)
    ]
    seconds = draw.uniform(0, 600)
    shares = plan_shares(cases, seconds, draw.uniform(0, 5))
    assert sum(share.seconds for share in shares) <= seconds + 1e-9
    assert sorted(share.index for share in shares) == list(range(12))
    for share in shares:
        case = cases[share.index]
        assert share.units == 0 or case.minimum <= share.units <= case.most_units
    known = [case for case in cases if case.relative_sd is not None]
    ahead, back = units(known, seconds), units(known[::-1], seconds)
    assert ahead == back[::-1]


def measured(draw: random.Random, sd: float, processes: int) -> Measurement:
    """Fresh processes of the same code."""
    medians = [200.0 * draw.gauss(1, sd) for _ in range(processes)]
    return Measurement(tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians), (RIGHT,) * processes)


def red(draw: random.Random, policy: Policy, cases: int) -> bool:
    """Whether one run over unchanged code calls any case slower, its second looks planned within a small budget."""
    bases = [measured(draw, 0.0055, 7) for _ in range(cases)]
    model = NoiseModel.from_processes({str(case): base.processes for case, base in enumerate(bases)})
    suspects, opened = [], []
    for case, base in enumerate(bases):
        noise, first = model.estimate_noise(str(case), 200.0, "graph"), measured(draw, 0.0055, 1)
        assert noise is not None
        decision = first_look(base, first, noise, policy, cases)
        if decision.needs_second_look:
            z = z_for(policy.suite_false_alarm_rate, cases, noise.degrees_of_freedom)
            allowed = tolerated_ratio(policy, 200.0)
            opened.append(OpenCase(3, 1.0, False, noise.relative_sd, decision.ratio, allowed, z, 7))
            suspects.append((base, first, noise))
    verdicts = []
    for share in plan_shares(opened, draw.uniform(3.0, 30.0)):
        if share.units:
            base, first, noise = suspects[share.index]
            again = measured(draw, 0.0055, share.units)
            verdicts.append(second_look(base, first, again, noise, policy, cases).verdict)
    return Verdict.SLOWER in verdicts


def test_planned_sizes_keep_the_false_alarm_rate() -> None:
    """Of 2,000 runs over unchanged code no more are red than the stated 5 % and chance allow, with thresholds of zero,
    so that noise alone decides, half of all cases are suspects, and the least decided of them get up to 12 processes.
    """
    draw = random.Random(12)
    policy = Policy(threshold_percent=0.0, floor_us=0.0, suite_false_alarm_rate=0.05)
    runs = 2000
    seen = sum(red(draw, policy, cases=3) for _ in range(runs))
    assert seen <= runs * 0.05 + 3 * math.sqrt(runs * 0.05 * 0.95)


def test_another_card_is_paid_for() -> None:
    """A case that another card measures is less decided with as many processes, and gets more of them."""
    assert units([CLOSE], 1000.0) == [5]
    assert units([replace(CLOSE, card_error=0.002)], 1000.0)[0] > 5
