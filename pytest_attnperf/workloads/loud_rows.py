"""One query row whose scores exceed what exp can hold in fp32, which overflows above 88.7.

Planted keys reach scores of about 20, so a kernel that never subtracts a maximum, or that clamps scores, is right on
them. A loud row has a score of LOUD with one key, of LOUD - APART with another, and much lower ones with all others.
Its softmax is 1 and 0 within any rounding of the scores, so that it makes no budget larger. Without the maximum the row
is NaN, and clamped below LOUD - APART it is the mean of two values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LOUD = 105.0
APART = 20.0
CLEAR = 16.0
"""In nats: LOUD is the score of the loud key, APART how far below it the second key is, CLEAR the least distance of all
others. Weights of e^-16 stay below every rounding, also where a bias adds a few nats."""

FEW_ROWS = 4
"""If a problem has fewer rows, only every other seed makes one of them loud: it does not show a key counted twice."""

DTYPES = ("f16", "bf16", "f32", "tf32")
"""Dtypes that may have a loud row: per-tensor scales of 8-bit queries would make all other rows coarser."""


def can_have_loud_row(dtype: str, *, lse: bool = False) -> bool:
    """Returns whether a problem of this dtype may have a loud row, whose scores overflow exp in fp32. Not with `lse` in
    f16 and bf16: a log-sum-exp of 105 is rounded coarsely there, which would excuse errors of the other rows."""
    return dtype in DTYPES and not (lse and dtype in ("f16", "bf16"))


def has_loud_row(seed: int, rows: int) -> bool:
    """Returns whether this seed makes one of `rows` rows loud (scores beyond exp in fp32): always with FEW_ROWS or
    more, else every other seed."""
    return rows >= FEW_ROWS or random.Random(f"loud {seed}").random() < 0.5


def find_neighbour(key: int, seen: range) -> int | None:
    """Returns `key` - 1 or else `key` + 1, whichever is in `seen`, the keys that a row sees; None if neither is."""
    return next((other for other in (key - 1, key + 1) if other in seen), None)


def make_query(keys: torch.Tensor, pair: Sequence[int], scale: float, above: float = 0.0) -> torch.Tensor | None:
    """Returns a query (D,) that scores LOUD and LOUD - APART with the `pair` of keys (S, D). Returns None if another
    key would score nearly LOUD, or the pair is nearly parallel.

    pair    numbers of the loud key and of the second one, or of the loud one alone
    scale   of the scores
    above   added to both scores, because something will be subtracted from the loud one
    """
    import torch

    with torch.no_grad():
        loud = keys[pair[0]].double()
        wanted = (LOUD + above) / scale
        if len(pair) == 1:
            found = loud * (wanted / loud.square().sum())
        else:
            second = keys[pair[1]].double()
            lower = (LOUD + above - APART) / scale
            own, other, both = loud.square().sum(), second.square().sum(), (loud * second).sum()
            determinant = own * other - both.square()
            if float(determinant) < 0.1 * float(own * other):  # nearly parallel: the query would be huge
                return None
            found = ((wanted * other - lower * both) * loud + (lower * own - wanted * both) * second) / determinant
        found = found.to(keys.dtype)
        scores = (keys @ found) * scale
        scores[list(pair)] = -math.inf
        return found if float(scores.max()) <= LOUD - CLEAR else None
