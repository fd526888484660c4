from __future__ import annotations

import math

import pytest

from pytest_attnperf.measure.timers.pair_clocks import PairClocks


class FakeStamps:
    """Stamps that were taken, and the clocks they will tell."""

    def __init__(self, *mhz: float) -> None:
        self.told = list(mhz)
        self.done: list[str] = []

    def take(self) -> None:
        """Remember it."""
        self.done.append("take")

    def read_clocks_mhz(self) -> list[float]:
        """What was scripted."""
        return self.told

    def discard(self) -> None:
        """Remember it."""
        self.done.append("discard")


def test_a_clock_for_every_pair() -> None:
    """Stamps of others are forgotten first, and what lies between two pairs is left out; queueing one takes time."""
    stamps = FakeStamps(1900.0, 400.0, 1800.0)
    clocks = PairClocks(stamps)
    clocks.begin()
    for _ in range(4):
        clocks.stamp()
    assert clocks.read_clocks(2) == (1900.0, 1800.0)
    assert stamps.done == ["discard", "take", "take", "take", "take"]
    assert clocks.host_us > 0


@pytest.mark.parametrize(
    "told", [(), (1900.0,), (1900.0, 1800.0, 1700.0, 1600.0, 1500.0), (1900.0, 1800.0, math.nan), (1900.0, 1800.0, 0.0)]
)
def test_clocks_that_are_not_known_of_every_pair_are_not_known(told: tuple[float, ...]) -> None:
    """Too few, too many and no numbers: nothing says which pair they belong to."""
    assert PairClocks(FakeStamps(*told)).read_clocks(2) == ()


def test_without_stamps_nothing_is_known() -> None:
    """Where no kernel can take stamps every call is allowed and does nothing."""
    clocks = PairClocks(None)
    clocks.begin()
    clocks.stamp()
    assert clocks.read_clocks(1) == ()
    assert clocks.host_us == 0
