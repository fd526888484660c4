"""The error budget of a backend, as a multiple of the plain computation's error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """How far a backend may be from the reference, as a multiple of the plain low-precision computation's own error.

    multiplier   of every output that `outputs` does not name
    source       the reason for a multiplier other than 2; printed with every verdict
    outputs      (output, multiplier) of single outputs, e.g. (('dq', 3.0),)

    Raises ValueError for a multiplier that is not positive, or is not 2 and has no source.
    """

    multiplier: float = 2.0
    source: str = ""
    outputs: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for multiplier in (self.multiplier, *(own for _, own in self.outputs)):
            if not multiplier > 0:
                raise ValueError(f"tolerance multiplier must be positive, got {multiplier}")
            if multiplier != 2.0 and not self.source:
                raise ValueError(f"a tolerance multiplier of {multiplier} needs a source saying why it is not 2")

    def for_output(self, name: str) -> float:
        """Returns by what an output's error budget is multiplied: its own factor in `outputs`, else `multiplier`."""
        return dict(self.outputs).get(name, self.multiplier)
