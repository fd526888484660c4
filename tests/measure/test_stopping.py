from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pytest_attnperf.measure.stopping import StoppingRule


def _blocks(rule: StoppingRule, block_us: float) -> int:
    """Blocks that a case of constant blocks gets."""
    blocks = 0
    while not rule.is_finished:
        for _ in range(rule.pairs_wanted):
            rule.add(block_us)
            blocks += 1
    return blocks


@pytest.mark.parametrize(
    ("block_us", "budget_us", "blocks"),
    [
        (1000.0, 120_000.0, 30),
        (2000.0, 120_000.0, 30),
        (3000.0, 120_000.0, 20),
        (10_000.0, 120_000.0, 7),
        (1_000_000.0, 120_000.0, 7),
        (0.0, 120_000.0, 30),
    ],
)
def test_blocks_within_the_budget(block_us: float, budget_us: float, blocks: int) -> None:
    """Measured and unmeasured blocks fit the budget, but there are never fewer than 7 nor more than 30."""
    assert _blocks(StoppingRule(budget_us=budget_us), block_us) == blocks


def test_first_batch_is_the_minimum() -> None:
    """Before anything was measured the rule wants exactly the minimum, then as many as it can afford at once."""
    rule = StoppingRule(min_blocks=7, max_blocks=30, budget_us=40_000.0)
    assert rule.pairs_wanted == 7
    for _ in range(7):
        rule.add(1000.0)
    assert rule.pairs_wanted == 13
    assert not rule.is_finished


def test_a_slow_start_is_not_extrapolated_over() -> None:
    """When blocks become slower than planned, the rule stops early instead of passing its budget."""
    rule = StoppingRule(min_blocks=2, max_blocks=30, budget_us=10_000.0)
    rule.add(100.0)
    rule.add(100.0)
    rule.add(4_900.0)
    assert rule.is_finished


def test_impossible_bounds_are_refused() -> None:
    """A minimum above the maximum is an error that shows both."""
    with pytest.raises(ValueError, match="1 <= min_blocks <= max_blocks, got 7 and 3"):
        StoppingRule(min_blocks=7, max_blocks=3)


def blocks_until_finished(rule: StoppingRule, next_us: Callable[[], float]) -> int:
    """How many blocks a rule takes of a clock that gives these times."""
    count = 0
    while not rule.is_finished:
        for _ in range(rule.pairs_wanted):
            rule.add(next_us())
            count += 1
    return count


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.2])
def test_agreeing_blocks_are_as_many_as_scattered_ones(spread: float) -> None:
    """A rule never stops because blocks agree: what a process reports would depend on when it looked good. Only count
    and time end it, so processes of one case have equal numbers of blocks however calm the machine is."""
    drawn = random.Random(7)
    within = StoppingRule(7, 30, 1e9)
    assert blocks_until_finished(within, lambda: 600.0 * drawn.uniform(1 - spread, 1 + spread)) == 30
    early, late = StoppingRule(7, 30, 1e9), StoppingRule(7, 30, 1e9)
    settled = iter([600.0] * 30)
    drifting = iter([600.0 * (1 + spread * block / 30) for block in range(30)])
    assert blocks_until_finished(early, lambda: next(settled)) == blocks_until_finished(late, lambda: next(drifting))
