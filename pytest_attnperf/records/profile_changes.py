"""Frozen data of two profiles side by side. Standard library only. Times are nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One kernel or family in two profiles, per forward pass where both have passes, else in total.

    share_of_change   of the whole difference in time; None where the whole did not change
    note              'gone', 'new', 'within the spread', or how two names were matched; else ''
    """

    name: str
    before_ns: float
    after_ns: float
    before_calls: float
    after_calls: float
    share_of_change: float | None = None
    note: str = ""


@dataclass(frozen=True)
class PeakRatio:
    """How two devices compare in one figure. Ratios are other / own. Kinds: 'data sheet' or 'measured'."""

    what: str
    own: float
    other: float
    unit: str
    own_kind: str = ""
    other_kind: str = ""

    @property
    def ratio(self) -> float:
        """Value of the figure on the other device (`other`) / on this device (`own`)."""
        return self.other / self.own


@dataclass(frozen=True)
class ProfileComparison:
    """Two profiles side by side. `per` is 'pass' or 'profile', `speedup` before / after in GPU time of that unit."""

    before: str
    after: str
    per: str
    before_ns: float
    after_ns: float
    families: tuple[Change, ...]
    kernels: tuple[Change, ...]
    peaks: tuple[PeakRatio, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """GPU time before / GPU time after: above 1 is faster; None without time after."""
        return self.before_ns / self.after_ns if self.after_ns else None
