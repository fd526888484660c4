"""What every look shares: the decision it ends in, its two limits, and the words for them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.stats.comparison import Comparison, compute_factor
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.quantiles import upper_quantile

MISSED = 0.01
"""Chance of missing a slowdown as large as `Decision.detection_limit`."""

COMPUTE_BOUND = "compute"
"""The bound of a case for which cycles say more than time."""


@dataclass(frozen=True)
class Decision:
    """What one look says. Ratios are new / base, so above 1 is slower.

    threshold            the case is SLOWER beyond this ratio: from there on the whole interval lies above what the
                         policy allows, and noise does not reach
    interval             95 % interval of `ratio` over processes or pairs; None, as threshold, where noise is unknown
    detection_limit      smallest true slowdown, as a fraction, this look finds 99 % of the time: a first look by asking
                         for a second, a later one by SLOWER; None where the noise is unknown
    standard_error       relative standard deviation of `ratio`; None where the noise is unknown
    degrees_of_freedom   how well the standard error is known; None where the noise is unknown
    card_error           the part of the standard error that comes of unlike cards; their squares add
    measured             the part of the summary that says no verdict, where there is one
    """

    verdict: Verdict
    summary: str
    reasons: tuple[str, ...]
    ratio: float
    interval: tuple[float, float] | None
    threshold: float | None
    needs_second_look: bool
    detection_limit: float | None
    standard_error: float | None = None
    degrees_of_freedom: int | None = None
    card_error: float = 0.0
    measured: str = ""


@dataclass(frozen=True)
class Limits:
    """One comparison with its two limits: `tolerated` by the user, `limit` by user and noise, both ratios."""

    base_us: float
    new_us: float
    comparison: Comparison
    tolerated: float
    noise: NoiseEstimate
    z: float

    @property
    def ratio(self) -> float:
        """New / base."""
        return self.comparison.ratio

    @property
    def limit(self) -> float:
        """The ratio beyond which a look says SLOWER: its interval, too, lies beyond what the user allows."""
        return self.comparison.slower_beyond(self.tolerated)

    @property
    def is_beyond_tolerance(self) -> bool:
        """Slower by more than the user allows."""
        return self.ratio > self.tolerated

    @property
    def is_beyond_limit(self) -> bool:
        """Slower by more than the user allows and noise can make."""
        return self.ratio > self.limit

    @property
    def is_faster(self) -> bool:
        """Faster by as much as would be SLOWER in the other direction."""
        return self.ratio < 1 / self.limit

    @property
    def describe_same(self) -> str:
        """How near a case is that is SAME."""
        if 1 - self.ratio > self.tolerated - 1:
            return f"faster, but not by the {format_percent(self.limit - 1)} from which on it is certain"
        return f"within {format_percent(self.tolerated - 1)}"

    def detectable_slowdown(self, limit: float) -> float:
        """The slowdown whose observed ratio exceeds `limit` in all but MISSED of looks: (1 + d) e^(-z s) = limit."""
        return limit * compute_factor(upper_quantile(MISSED) * self.comparison.standard_error) - 1

    def make_decision(
        self,
        verdict: Verdict,
        summary: str,
        reasons: Sequence[str],
        *,
        detects_beyond: float | None = None,
        needs_second_look: bool = False,
    ) -> Decision:
        """The decision. Its last reason says what slowdown goes beyond `detects_beyond` (`limit`, if None) for sure."""
        detection_limit = self.detectable_slowdown(self.limit if detects_beyond is None else detects_beyond)
        return Decision(
            verdict=verdict,
            summary=summary,
            reasons=(
                *reasons,
                Note(
                    NoteKind.DETECTS,
                    f"a slowdown of {format_percent(detection_limit)} would have been noticed by this look 99 % "
                    f"of the time",
                ),
            ),
            ratio=self.ratio,
            interval=self.comparison.interval95,
            threshold=self.limit,
            needs_second_look=needs_second_look,
            detection_limit=detection_limit,
            standard_error=self.comparison.standard_error,
            degrees_of_freedom=self.noise.degrees_of_freedom,
            card_error=self.comparison.card_error,
        )

    def threshold_reason(self, policy: Policy) -> Note:
        """Where the limit comes from: every bound with its figure, so that the binding one can be seen."""
        interval = self.ratio / self.comparison.interval95[0] - 1
        return Note(
            NoteKind.LIMIT,
            f"threshold {format_percent(self.limit - 1)}: policy {policy.threshold_percent:g} % or "
            f"{policy.floor_us:g} us = "
            f"{format_percent(policy.floor_us / self.base_us)}, with the {format_percent(interval)} of the "
            f"interval; at least the "
            f"{format_percent(self.comparison.noise_threshold)} of noise",
        )

    @property
    def reason_undecided(self) -> str:
        """Why a slowdown that is more than allowed is not SLOWER."""
        return (
            f": more than the {format_percent(self.tolerated - 1)} allowed, less than the "
            f"{format_percent(self.limit - 1)} from "
            "which on it is certain"
        )

    def tighter_than_noise(self) -> list[str]:
        """A line where the user asks for more than this look can tell."""
        noise = self.comparison.noise_threshold
        if 1 + noise <= self.tolerated:
            return []
        said = (
            f"threshold {format_percent(self.tolerated - 1)} is tighter than the {format_percent(noise)} that "
            f"noise alone makes "
            "here: slowdowns between them are UNDECIDED"
        )
        return [Note(NoteKind.LIMIT, said)]

    def format_ratio(self, decimals: int = 1) -> str:
        """The ratio with its interval: '+5.0 % (+4.5 % to +5.5 %)'."""
        low, high = (format_signed(end - 1, decimals) for end in self.comparison.interval95)
        return f"{format_signed(self.ratio - 1, decimals)} ({low} to {high})"

    def format_times(self) -> str:
        """Both times: '105 us against 100 us'."""
        return f"{format_microseconds(self.new_us)} us against {format_microseconds(self.base_us)} us"


def tolerated_ratio(policy: Policy, base_us: float) -> float:
    """Slower by no more than this is SAME, whatever the noise."""
    return 1 + max(policy.threshold_percent / 100, policy.floor_us / base_us)


def describe_cycles(
    ratio: float, base_mhz: Sequence[float | None], new_mhz: Sequence[float | None], bound: str
) -> list[str]:
    """How far a compute-bound case moved in cycles; nothing for another, or where a unit's clock is not known.

    Cycles explain and decide nothing: a kernel that draws more power lowers its own clock, and is slower all the same.
    """
    base, new = ([mhz for mhz in side if mhz is not None] for side in (base_mhz, new_mhz))
    known = bool(base) and bool(new) and len(base) == len(base_mhz) and len(new) == len(new_mhz)
    if bound != COMPUTE_BOUND or not known:
        return []
    clock = statistics.median(new) / statistics.median(base)
    moved = f"{abs(clock - 1):.1%}".replace("%", " %")
    how = "the same" if moved == "0.0 %" else f"{moved} {'lower' if clock < 1 else 'higher'}"
    return [Note(NoteKind.CYCLES, f"in cycles {format_signed(ratio * clock - 1)}: the clock was {how}")]


def format_microseconds(value: float) -> str:
    """Four significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def format_percent(fraction: float) -> str:
    """Two significant digits: 1.3 %."""
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def format_signed(fraction: float, decimals: int = 1) -> str:
    """With its sign: +1.3 %."""
    return f"{100 * fraction:+.{decimals}f} %"
