"""Cards of a run, and how much slower or faster than the others each is. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CardOffset:
    """One card against the others: (its time / theirs) - 1.

    offset, interval95   as fractions
    cases                number of cases that the offset is a mean of
    slow                 slower by enough to matter, and beyond chance over all cards
    """

    device_id: str
    offset: float
    interval95: tuple[float, float]
    cases: int
    slow: bool = False


@dataclass(frozen=True)
class MeasuredCard:
    """One card with its settings, as far as the results have them; '' and None where they do not.

    cases       number of cases with a first look or a recorded process on this card
    clock_mhz   median compute clock of these processes
    offset      from the other cards; None where there are too few cases
    """

    device_id: str
    cases: int
    clock_mhz: float | None = None
    power_cap_w: str = ""
    temperature_c: str = ""
    partition: str = ""
    offset: CardOffset | None = None

    @property
    def slow(self) -> bool:
        """Whether the GPU is slower than the run's other GPUs beyond chance, and by enough to matter."""
        return self.offset is not None and self.offset.slow
