"""What a count proves: exact (Clopper-Pearson) one-sided bounds. The unit of every count here is an independent set."""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95


def upper_bound(hits: int, sets: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate under which at most `hits` of `sets` are not yet unlikely; 1 where nothing was counted.

    Clopper and Pearson, Biometrika 26 (1934). Raises ValueError for more hits than sets.
    """
    _require(hits, sets)
    if hits >= sets:
        return 1.0
    return _root(lambda rate: _at_most(hits, sets, rate) - (1 - confidence))


def lower_bound(hits: int, sets: int, confidence: float = CONFIDENCE) -> float:
    """The smallest rate under which at least `hits` of `sets` are not yet unlikely."""
    _require(hits, sets)
    return 1 - upper_bound(sets - hits, sets, confidence)


def sets_needed(rate: float, confidence: float = CONFIDENCE) -> int:
    """How many independent sets without a hit bound a rate below `rate`: 299 for 1 %."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - rate))


def _require(hits: int, sets: int) -> None:
    if not 0 <= hits <= sets:
        raise ValueError(f"{hits} hits of {sets} sets cannot be")


def _at_most(hits: int, sets: int, rate: float) -> float:
    return math.fsum(math.comb(sets, k) * rate**k * (1 - rate) ** (sets - k) for k in range(hits + 1))


def _root(falling: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
