"""Trials: further proofs of a case that was proven right, each under one changed circumstance."""

from __future__ import annotations

import enum
from dataclasses import dataclass

INVARIANCE = "invariance"
"""The trial that compares rows alone, in another order and in a chunk with the same rows in the whole batch."""

DECLARED = "declared"
"""Stands for the trials of what a case's backend declares; the first look at a case asks for it in every run."""


class TrialEnding(str, enum.Enum):
    """How a trial ended. Only WRONG makes its case INCORRECT.

    RIGHT     the result was right
    WRONG     the result was wrong, or something else was written
    REFUSED   the kernel raised an error instead of returning a wrong result
    COPIED    right, but the backend's `convert` copied the inputs, so that the kernel never saw them as they were
    LEFT_OUT  it could not be tried
    """

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    COPIED = "copied"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class TrialResult:
    """The result of one variant of a trial.

    trial     its name, one of `measure.trials.TRIALS`
    variant   what was changed, e.g. 'fused'; '' if the trial has one form only
    why       why it was REFUSED or LEFT_OUT, or what was WRONG first
    ulps      the largest difference from the result that it was compared with, in units in the last place; None where
              results were compared with the reference alone
    """

    trial: str
    variant: str = ""
    ending: TrialEnding = TrialEnding.RIGHT
    why: str = ""
    ulps: float | None = None

    @property
    def name(self) -> str:
        """Trial and variant, e.g. 'layouts, fused'."""
        return f"{self.trial}, {self.variant}" if self.variant else self.trial
