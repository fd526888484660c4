"""Detects that the machine itself has become faster or slower since the baseline, by fixed kernels: the canaries.

The canary's GEMM follows the compute clock and the power cap, its copy the memory. Neither depends on the code under
test, so a change is the machine's: another card of the product, its temperature, its power cap, another process.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.limits import format_signed
from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.stats.comparison import ratio_of, standard_error
from pytest_attnperf.stats.quantiles import upper_quantile

CANARY_OF_BOUND = {"compute": "gemm", "memory": "copy"}
"""The canary that best represents a case of this bound."""

SHOWN = {"gemm": "GEMM"}
"""Canary names that a sentence spells differently."""

RELATIVE_SD_MIN = 0.001
"""Smallest spread assumed for a canary: seven processes of one afternoon do not show what other days do."""

MOVED_MIN = 0.01
"""Smallest change, as a fraction, that counts as moved, even of a canary without noise: less explains no verdict."""

FALSE_MOVE_RATE = 0.001
"""Accepted chance, per canary and direction, that an unchanged machine counts as moved."""


@dataclass(frozen=True)
class CanaryReading:
    """One canary: its time now / stored (above 1 is slower), and how far an unchanged machine may move it.

    allowed   a fraction: 0.01 is 1 % either way
    """

    name: str
    ratio: float
    allowed: float

    @property
    def has_moved(self) -> bool:
        """Whether the canary's time changed, either way, by more than `allowed`."""
        return abs(self.ratio - 1) > self.allowed

    @property
    def has_moved_slower(self) -> bool:
        """Whether the canary became slower by more than `allowed`."""
        return self.ratio - 1 > self.allowed

    @property
    def in_words(self) -> str:
        """Returns text like 'the canary GEMM is 3.1 % slower'."""
        way = "slower" if self.ratio > 1 else "faster"
        return f"the canary {SHOWN.get(self.name, self.name)} is {100 * abs(self.ratio - 1):.1f} % {way}"


@dataclass(frozen=True)
class CanaryShift:
    """All canaries that were both measured now and stored; at least one."""

    readings: tuple[CanaryReading, ...]

    def shift_for(self, bound: str) -> CanaryReading:
        """Returns the canary's change (`CanaryReading`) for a bound: of the GEMM for 'compute', the copy for 'memory'.
        If that was not measured, or the bound is another, returns the largest change."""
        wanted = CANARY_OF_BOUND.get(bound)
        return next(
            (reading for reading in self.readings if reading.name == wanted),
            max(self.readings, key=lambda reading: abs(reading.ratio - 1)),
        )

    def can_explain(self, ratio: float, limit: float, bound: str) -> bool:
        """Returns whether the canary for `bound` became slower, and a case's `ratio` divided by the canary's is at most
        `limit`: the machine alone may then have slowed the case."""
        shift = self.shift_for(bound)
        return shift.has_moved_slower and ratio / shift.ratio <= limit

    def describe_shift(self, ratio: float, bound: str) -> Note:
        """Returns a CANARY note: how far the canaries moved and a case's `ratio` corrected for that, or that the canary
        did not move."""
        shift = self.shift_for(bound)
        figures = ", ".join(f"{reading.name} {format_signed(reading.ratio - 1)}" for reading in self.readings)
        said = (
            f"{shift.in_words} than stored ({figures}): corrected for that, the case is "
            f"{format_signed(ratio / shift.ratio - 1)}"
        )
        return Note(NoteKind.CANARY, said if shift.has_moved else f"the canary did not move ({figures})")


def compare_canaries(
    now: Mapping[str, Sequence[ProcessSummary]], stored: Mapping[str, Sequence[ProcessSummary]]
) -> CanaryShift | None:
    """Returns how the canaries (fixed kernels) of this run changed against the stored ones, by name.

    A canary has moved when it changed by more than 1 % and by more than its own noise: the standard deviation of its
    stored processes (at least 0.1 %), with Student's quantile for a chance of 0.1 %. Ignores a canary that is missing
    on one side, was timed by another timer, or has fewer than two stored processes. Returns None when none is left.
    """
    readings = [_make_reading(name, now[name], stored[name]) for name in sorted(now.keys() & stored.keys())]
    known = tuple(reading for reading in readings if reading is not None)
    return CanaryShift(known) if known else None


def _make_reading(name: str, now: Sequence[ProcessSummary], stored: Sequence[ProcessSummary]) -> CanaryReading | None:
    if not now or len(stored) < 2 or len({process.timer for process in (*now, *stored)}) > 1:
        return None
    medians = [process.median_us for process in stored]
    relative_sd = max(statistics.stdev(medians) / statistics.fmean(medians), RELATIVE_SD_MIN)
    z = upper_quantile(FALSE_MOVE_RATE, len(stored) - 1)
    allowed = max(MOVED_MIN, z * standard_error(relative_sd, len(stored), len(now)))
    return CanaryReading(name, ratio_of(stored, now), allowed)
