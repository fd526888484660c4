"""How the time left of a run is spent on the cases that their first look leaves open: pure, planned before any of it.

Every such case gets the usual second look, the least decided first; then one unit more at a time (a fresh process, or a
pair) goes to the case that is least decided, until each is predicted to be decided, or no time is left.

Sample sizes follow from first looks and time alone. A second look is decided once, on the sample that was planned for
it, by its own units: nobody looks at it, finds it undecided, and takes some more, which would be optional stopping and
raise the rate of false alarms. A case is called slower beyond the limit that belongs to the units it really has, so the
stated rate holds for every size; more units only make that limit narrower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.stats.comparison import standard_error
from pytest_attnperf.stats.pairs import standard_error_of_pairs

PROCESSES_MAX = 12
"""Fresh processes against stored ones: behind 7 stored, the standard error with 12 is within 17 % of that with any."""

INTERVAL_Z = 2.0
"""Standard errors from a ratio to the end of its 95 % interval, about."""

PAIRS_MAX = 16
"""Pairs of fresh processes. Each stays until the run ends, and holds memory on both sides."""


@dataclass(frozen=True)
class OpenCase:
    """A case that its first look leaves open.

    minimum        units of the usual second look; fewer decide nothing
    unit_seconds   wall time of one unit, predicted from the first look
    pairs          whether its units are pairs
    relative_sd    spread between units, as predicted; None where nothing comparable is stored
    ratio          new / stored of the first look, and `tolerated` the ratio that the user allows
    z              of the limit of noise
    stored         processes that it is held against; of no use for pairs
    card_error     the part of the standard error that no further process takes away; of no use for pairs
    """

    minimum: int
    unit_seconds: float
    pairs: bool = False
    relative_sd: float | None = None
    ratio: float = 1.0
    tolerated: float = 1.0
    z: float = 0.0
    stored: int = 1
    card_error: float = 0.0

    @property
    def most(self) -> int:
        """More units than this are never planned."""
        return max(self.minimum, PAIRS_MAX if self.pairs else PROCESSES_MAX)

    def openness(self, units: int) -> float:
        """What noise may do to a second look of so many units, over what would settle it; below 1 it is predicted to be
        decided, infinite where nothing can be predicted.

        A case that looked slower than allowed is decided when the slowdown seen lies a standard error beyond the limit
        of noise, and so much beyond what is allowed that its interval is. One that did not is when noise cannot reach
        the user's threshold at all, or when it lies a standard error below what is allowed.
        """
        if self.relative_sd is None:
            return math.inf
        error = self._standard_error(self.relative_sd, units)
        if self.ratio > self.tolerated:
            of_interval = _over((INTERVAL_Z + 1) * error, math.log(self.ratio / self.tolerated))
            return max(of_interval, _over((self.z + 1) * error, math.log(self.ratio)))
        return min(_over(self.z * error, self.tolerated - 1), _over(error, self.tolerated - self.ratio))

    def _standard_error(self, relative_sd: float, units: int) -> float:
        if self.pairs:
            return standard_error_of_pairs(relative_sd, units)
        return math.hypot(standard_error(relative_sd, self.stored, units), self.card_error)


@dataclass(frozen=True)
class Share:
    """What one case gets.

    index     of the case among those that were given
    units     0: there was no time for its minimum
    seconds   of wall time, predicted
    """

    index: int
    units: int
    seconds: float


def spend(cases: Sequence[OpenCase], seconds: float, start_seconds: float = 0.0) -> list[Share]:
    """A share for every case, in the order in which they are to be measured: the least decided first.

    Cases that nothing is stored for come last, in the order given: their first look says nothing, so they get the
    minimum and no more. The shares' predicted seconds together are never more than `seconds`.

    start_seconds   of one fresh process. Cases share processes, and a case that asks for more than there are pays for
                    the start of the others; a pair starts two
    """
    order = sorted(range(len(cases)), key=lambda index: _rank(cases[index]))
    purse = _Purse(seconds, start_seconds)
    units, spent = dict.fromkeys(order, 0), dict.fromkeys(order, 0.0)
    for index in order:
        paid = purse.pay(cases[index], 0, cases[index].minimum)
        if paid is not None:
            units[index], spent[index] = cases[index].minimum, paid
    growing = {index for index in order if units[index]}
    while growing:
        index = min(growing, key=lambda index: (-_wanted(cases[index], units[index]), index))
        paid = purse.pay(cases[index], units[index], units[index] + 1) if _wanted(cases[index], units[index]) else None
        if paid is None:
            growing.remove(index)
            continue
        units[index] += 1
        spent[index] += paid
    return [Share(index, units[index], spent[index]) for index in order]


class _Purse:
    """Seconds that are left, and how many processes have been started of them."""

    def __init__(self, seconds: float, start_seconds: float) -> None:
        self._left, self._start = seconds, start_seconds
        self._started = {True: 0, False: 0}

    def pay(self, case: OpenCase, have: int, wanted: int) -> float | None:
        """Seconds that going from `have` units to `wanted` costs, taken; None where there are fewer, and none taken."""
        further = max(0, wanted - self._started[case.pairs])
        cost = (wanted - have) * case.unit_seconds + further * self._start * (2 if case.pairs else 1)
        if cost > self._left:
            return None
        self._left -= cost
        self._started[case.pairs] += further
        return cost


def _rank(case: OpenCase) -> tuple[bool, float]:
    """Least decided first, unknown ones last; the order given decides between equals."""
    return (case.relative_sd is None, -case.openness(case.minimum))


def _wanted(case: OpenCase, units: int) -> float:
    """How much a further unit is wanted: the case's openness; 0 where it is decided, or has all it may get."""
    openness = case.openness(units)
    return 0.0 if case.relative_sd is None or openness < 1 or units >= case.most else openness


def _over(reach: float, room: float) -> float:
    """reach / room, infinite where there is no room."""
    return reach / room if room > 0 else math.inf
