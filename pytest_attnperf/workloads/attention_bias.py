"""What is added to the scaled scores of attention: ALiBi's slopes times a distance, or a matrix.

ALiBi is arXiv:2108.12409 (Press, Smith, Lewis): score(i, j) += -slope_h |i + Skv - Sq - j|, the distance of a key from
the query's own position when both sequences end together, which is FlashAttention's convention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ALIBI_DEFINITION = "score(h, i, j) -= slope_h |i + Skv - Sq - j|, slopes of arXiv:2108.12409"


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """One slope per head, positive and falling: 2^(-8 (h + 1) / H) where H is a power of two (arXiv:2108.12409).

    Other H take the rule of its authors' code (ofirpress/attention_with_linear_biases, `get_slopes`): the slopes of the
    next lower power of two, P, followed by the first H - P of every other slope of 2 P, which lie between those.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8.0 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return tuple(slopes + between[: heads - power])


def alibi_sum(slope: float, position: int, keys: range) -> float:
    """The sum of exp(-slope |position - j|) over consecutive keys j: how many keys ALiBi leaves, as it weighs them.

    `position` is i + Skv - Sq of a row and may lie before the keys, but not behind them.
    """

    def nearest(count: int) -> float:
        """The sum of exp(-slope d) over d = 0 ... count - 1."""
        return math.expm1(-slope * count) / math.expm1(-slope)

    if position < keys.start:
        return math.exp(-slope * (keys.start - position)) * nearest(len(keys))
    return nearest(position - keys.start + 1) + nearest(keys.stop - position) - 1.0


@dataclass(frozen=True)
class Added:
    """What is added to scaled scores; nothing unless one is given.

    slopes    (H,) fp32, of ALiBi
    bias      (H, Sq, Skv)
    """

    slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    def of_rows(self, first: int, count: int, seq_q: int, seq_kv: int, dtype: torch.dtype) -> torch.Tensor | None:
        """(H, count, Skv) for the query rows from `first` on, in `dtype` but at least fp32; None if it is nothing."""
        import torch

        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if self.bias is not None:
            return self.bias[:, first : first + count].to(wide)
        if self.slopes is None:
            return None
        rows = torch.arange(first, first + count, device=self.slopes.device) + seq_kv - seq_q
        keys = torch.arange(seq_kv, device=self.slopes.device)
        return (keys[None, :] - rows[:, None]).abs().to(wide) * -self.slopes.to(wide)[:, None, None]
