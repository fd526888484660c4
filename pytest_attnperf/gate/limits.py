"""What all looks share: the decision they end in, its two limits, and the text about them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.time_units import format_times
from pytest_attnperf.stats.comparison import Comparison, compute_factor
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.quantiles import upper_quantile

MISSED = 0.01
"""Chance of missing a slowdown of size `Decision.detection_limit`."""

COMPUTE_BOUND = "compute"
"""The bound of a case for which cycles are more informative than time."""


@dataclass(frozen=True)
class Decision:
    """The decision of one look. Ratios are new / base, so above 1 is slower.

    threshold            the case is SLOWER beyond this ratio: the whole interval then lies above what the policy
                         allows, and noise alone does not reach it
    interval             95 % interval of `ratio` over processes or pairs; None, as threshold, where noise is unknown
    detection_limit      smallest true slowdown, as a fraction, that this look detects 99 % of the time: a first look by
                         requesting a second, a later one by SLOWER; None where the noise is unknown
    standard_error       relative standard deviation of `ratio`; None where the noise is unknown
    degrees_of_freedom   of the standard error; None where the noise is unknown
    card_error           the part of the standard error from differences between cards; their squares add
    measured             the part of the summary without the verdict; '' where there is none
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
    """One comparison with its two limits, both ratios: `tolerated` by the user, `limit` by user and noise."""

    base_us: float
    new_us: float
    comparison: Comparison
    tolerated: float
    noise: NoiseEstimate
    z: float

    @property
    def ratio(self) -> float:
        """Returns the ratio of times, new / base; above 1 is slower."""
        return self.comparison.ratio

    @property
    def limit(self) -> float:
        """Ratio new / base beyond which a look is SLOWER: noise alone does not reach it, and the whole 95 % interval
        then exceeds `tolerated`."""
        return self.comparison.slower_beyond(self.tolerated)

    @property
    def is_beyond_tolerance(self) -> bool:
        """Whether the ratio exceeds `tolerated`, the slowdown that the user allows."""
        return self.ratio > self.tolerated

    @property
    def is_beyond_limit(self) -> bool:
        """Whether the ratio exceeds `limit`, beyond which neither the user's threshold nor noise allows it."""
        return self.ratio > self.limit

    @property
    def is_faster(self) -> bool:
        """Whether the case is certainly faster: its ratio is below 1 / `limit`."""
        return self.ratio < 1 / self.limit

    @property
    def describe_same(self) -> str:
        """Returns the text for a case that is SAME: 'within 2 %', or that it is faster by too little to be certain."""
        if 1 - self.ratio > self.tolerated - 1:
            return f"faster, but by less than the {format_percent(self.limit - 1)} needed to be certain"
        return f"within {format_percent(self.tolerated - 1)}"

    def detectable_slowdown(self, limit: float) -> float:
        """Returns the slowdown d, a fraction, whose ratio exceeds `limit` in 99 % of looks: (1 + d) e^(-z s) = limit.

        z is the normal quantile of MISSED (1 %), s the standard error of this comparison.
        """
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
        """Returns the decision of this comparison. Its last reason states the slowdown that the look would have
        detected beyond the ratio `detects_beyond` (None: beyond `limit`)."""
        detection_limit = self.detectable_slowdown(self.limit if detects_beyond is None else detects_beyond)
        return Decision(
            verdict=verdict,
            summary=summary,
            reasons=(
                *reasons,
                Note(
                    NoteKind.DETECTS,
                    f"this look would have detected a slowdown of {format_percent(detection_limit)} 99 % of the time",
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
        """Returns a LIMIT note that lists the parts of the limit in percent: the policy's threshold and floor, the
        interval and the noise."""
        interval = self.ratio / self.comparison.interval95[0] - 1
        return Note(
            NoteKind.LIMIT,
            f"threshold {format_percent(self.limit - 1)}: policy {policy.threshold_percent:g} % or "
            f"{policy.floor_us:g} us = {format_percent(policy.floor_us / self.base_us)}, plus "
            f"{format_percent(interval)} for the interval; at least "
            f"{format_percent(self.comparison.noise_threshold)} for noise",
        )

    @property
    def reason_undecided(self) -> str:
        """Returns the text that says why a slowdown beyond the tolerated one is UNDECIDED: it is within noise."""
        return (
            f": more than the {format_percent(self.tolerated - 1)} allowed, but less than the "
            f"{format_percent(self.limit - 1)} needed to be certain"
        )

    def tighter_than_noise(self) -> list[str]:
        """Returns a LIMIT note in a list if the user's threshold is below the noise threshold; else an empty list."""
        noise = self.comparison.noise_threshold
        if 1 + noise <= self.tolerated:
            return []
        said = (
            f"threshold {format_percent(self.tolerated - 1)} is tighter than the {format_percent(noise)} of "
            f"noise here: slowdowns between them are UNDECIDED"
        )
        return [Note(NoteKind.LIMIT, said)]

    def format_ratio(self, decimals: int = 1) -> str:
        """Returns the change with its 95 % interval: '+5.0 % (+4.5 % to +5.5 %)'."""
        low, high = (format_signed(end - 1, decimals) for end in self.comparison.interval95)
        return f"{format_signed(self.ratio - 1, decimals)} ({low} to {high})"

    def format_times(self) -> str:
        """Returns the new and the base time: '105.0 us against 100.0 us'."""
        return format_times([self.new_us, self.base_us], " against ")


def tolerated_ratio(policy: Policy, base_us: float) -> float:
    """Returns the ratio new / base up to which a case is SAME, whatever the noise: the larger of the policy's threshold
    and its floor in microseconds."""
    return 1 + max(policy.threshold_percent / 100, policy.floor_us / base_us)


def describe_cycles(
    ratio: float, base_mhz: Sequence[float | None], new_mhz: Sequence[float | None], bound: str
) -> list[str]:
    """Returns one note on the change in cycles of a compute-bound case whose clocks are all known; else an empty list.

    Cycles explain and decide nothing: a kernel that draws more power lowers its own clock, and still takes longer.
    """
    base, new = ([mhz for mhz in side if mhz is not None] for side in (base_mhz, new_mhz))
    known = bool(base) and bool(new) and len(base) == len(base_mhz) and len(new) == len(new_mhz)
    if bound != COMPUTE_BOUND or not known:
        return []
    clock = statistics.median(new) / statistics.median(base)
    moved = f"{abs(clock - 1):.1%}".replace("%", " %")
    how = "the same" if moved == "0.0 %" else f"{moved} {'lower' if clock < 1 else 'higher'}"
    return [Note(NoteKind.CYCLES, f"in cycles {format_signed(ratio * clock - 1)}: the clock was {how}")]


def format_percent(fraction: float) -> str:
    """Returns a fraction as a percentage: two significant digits below 10 % ('1.3 %'), else whole percent ('25 %')."""
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def format_signed(fraction: float, decimals: int = 1) -> str:
    """Returns a fraction as a percentage with its sign: '+1.3 %' for 0.013."""
    return f"{100 * fraction:+.{decimals}f} %"
