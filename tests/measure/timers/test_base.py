from __future__ import annotations

import pytest

from pytest_attnperf.measure.timers import TIMER_NAMES, TIMERS
from pytest_attnperf.measure.timers.base import MAX_CALLS_PER_BLOCK, calls_per_block
from pytest_attnperf.plugin.launching import TIMER_CHOICES


@pytest.mark.parametrize(
    ("block_us", "call_us", "calls"),
    [
        (1000.0, 5.25, 191),
        (1000.0, 1000.0, 1),
        (1000.0, 999.0, 2),
        (1000.0, 50_000.0, 1),
        (1000.0, 0.1, MAX_CALLS_PER_BLOCK),
        (1000.0, 0.0, MAX_CALLS_PER_BLOCK),
        (2000.0, 500.0, 4),
    ],
)
def test_calls_per_block(block_us: float, call_us: float, calls: int) -> None:
    """A block holds the fewest calls that fill it, at least one and at most the bound."""
    assert calls_per_block(block_us, call_us) == calls


def test_timer_names() -> None:
    """Every timer has a name of its own, because the name decides what is comparable."""
    names = [timer.name for timer in TIMERS]
    assert len(set(names)) == len(names) == 10
    assert ("auto", *(timer.name for timer in TIMERS)) == TIMER_NAMES


def test_the_command_line_offers_every_timer() -> None:
    """The names that --attnperf-timer takes, which are written down where torch is not imported, are these."""
    assert TIMER_CHOICES == TIMER_NAMES
