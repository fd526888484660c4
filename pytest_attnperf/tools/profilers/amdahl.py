"""Amdahl's law: the gain of the whole if one part gets faster.

A part that takes the share s of all time, made faster by the fraction g (its rate becomes 1 + g times as high), leaves
1 - s + s / (1 + g) of the time. The whole gains 1 / (1 - s + s / (1 + g)) - 1 = s g / (1 + g (1 - s)), a form that
loses no digits to cancellation: +4 % of a part of 1.5 % is +0.06 %, and no gain of it exceeds s / (1 - s), +1.52 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_attnperf.records.profiles import FamilyTime, Gain, KernelTime


def compute_gains(times: Sequence[KernelTime | FamilyTime], partial: Sequence[float] = (0.04,)) -> tuple[Gain, ...]:
    """Returns, per kernel or family, the gain of the whole if it took no time, or were faster by each of `partial`.

    Raises ValueError for an invalid share or gain."""
    return tuple(
        Gain(
            name=time.family if isinstance(time, FamilyTime) else time.name,
            share=time.share,
            limit=overall_gain(time.share, math.inf),
            partial=tuple((gain, overall_gain(time.share, gain)) for gain in partial),
        )
        for time in times
    )


def overall_gain(share: float, gain: float) -> float:
    """Returns the gain of the whole, as a fraction, if a part of this share gets faster by this fraction.

    gain   0.04 for 4 % faster, math.inf for no time at all, negative for slower

    Infinite if the part is all of the time and would take none.
    Raises ValueError for a share outside 0 to 1 and for a gain of -1 or less.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, must be 0 to 1: a part's fraction of the whole")
    if not gain > -1:
        raise ValueError(f"gain is {gain}, must be above -1, because a part's rate stays above 0")
    if not math.isinf(gain):
        return share * gain / (1 + gain * (1 - share))
    return math.inf if share == 1 else share / (1 - share)


def format_percent(fraction: float) -> str:
    """Formats a share or a gain: 0.776 -> '77.6 %', 0.015228 -> '1.52 %', 3.46 -> '346 %', inf -> 'without limit'."""
    if math.isinf(fraction):
        return "without limit"
    value = fraction * 100
    if 0 < value < 0.005:
        return "less than 0.01 %"
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f} %"
