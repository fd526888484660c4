"""Decides when one process has measured enough blocks of one case; arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass

MIN_BLOCKS = 7
"""With fewer blocks one disturbed block can move the median."""

MAX_BLOCKS = 30
"""More blocks of one process do not help: processes of the same code differ by more than their blocks do."""

GPU_BUDGET_US = 120_000.0

_LEAST_US = 1e-3
"""Least cost of a pair: a coarse clock may read 0 for a block, and counting pairs must still end."""


@dataclass
class StoppingRule:
    """Stops at `max_blocks`, or before the next pair of blocks would exceed `budget_us`, but not below `min_blocks`.

    The budget counts measured and unmeasured blocks of one process and case, in microseconds.
    """

    min_blocks: int = MIN_BLOCKS
    max_blocks: int = MAX_BLOCKS
    budget_us: float = GPU_BUDGET_US

    def __post_init__(self) -> None:
        if not 1 <= self.min_blocks <= self.max_blocks:
            raise ValueError(
                f"blocks must be 1 <= min_blocks <= max_blocks, got {self.min_blocks} and {self.max_blocks}"
            )
        self._blocks = 0
        self._spent_us = 0.0

    def add(self, block_us: float) -> None:
        """Counts one measured block of `block_us` microseconds, and the unmeasured one before it."""
        self._blocks += 1
        self._spent_us += 2 * block_us

    @property
    def pairs_wanted(self) -> int:
        """Number of pairs (unmeasured and measured block) to run before this is asked again; 0 if finished."""
        if self._blocks < self.min_blocks:
            return self.min_blocks - self._blocks
        affordable = int((self.budget_us - self._spent_us) // max(self._spent_us / self._blocks, _LEAST_US))
        return max(0, min(self.max_blocks - self._blocks, affordable))

    @property
    def is_finished(self) -> bool:
        """Whether `min_blocks` are measured and `max_blocks` or the budget is used up."""
        return self.pairs_wanted == 0
