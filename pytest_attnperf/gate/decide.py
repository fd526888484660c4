"""Pure decisions: two groups of processes and a policy in, a verdict with its figures and reasons out.

SLOWER takes two looks. The first screens one or a few fresh processes against the stored ones and settles SAME and
FASTER; everything above the user's threshold gets a second look, decided by the second look's own processes (those of
the first were selected for being large). Both looks use the same z, that of one look at the suite's false-alarm rate: a
false alarm must pass both, so the rate of the two together is at most the stated one. The looks share the stored
processes and are not independent: no product of two probabilities is claimed. A shift of the day or of the card since
the baseline was recorded is not in this noise; only measuring both revisions interleaved removes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.stats.comparison import Comparison, compare, ratio_of, standard_error, z_for
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.quantiles import upper_quantile

PROCESSES_MAX = 200
"""More fresh processes than this are not a suggestion anybody could follow."""

MISSED = 0.01
"""Chance of missing a slowdown as large as `Decision.detection_limit`."""


@dataclass(frozen=True)
class Decision:
    """What one look says. Ratios are new / stored, so above 1 is slower.

    threshold         ratio beyond which the case is SLOWER: the largest of policy, noise and the floor in microseconds
    interval          95 % interval of `ratio` over processes; None, as `threshold`, where the noise is unknown
    detection_limit   smallest true slowdown, as a fraction, this look finds 99 % of the time: a first look by asking
                      for a second, a second by SLOWER; infinite where the noise is too large, None where unknown
    """

    verdict: Verdict
    summary: str
    reasons: tuple[str, ...]
    ratio: float
    interval: tuple[float, float] | None
    threshold: float | None
    needs_second_look: bool
    detection_limit: float | None


@dataclass(frozen=True)
class _Look:
    """One comparison with its two limits: `tolerated` by the user, `limit` by user and noise, both ratios."""

    base_us: float
    new_us: float
    base_processes: int
    new_processes: int
    comparison: Comparison
    tolerated: float
    limit: float
    noise: NoiseEstimate
    z: float

    @property
    def ratio(self) -> float:
        return self.comparison.ratio

    @property
    def beyond_tolerance(self) -> bool:
        return self.ratio > self.tolerated

    @property
    def beyond_limit(self) -> bool:
        return self.ratio > self.limit

    @property
    def faster(self) -> bool:
        return 1 - self.ratio > self.limit - 1

    def detects(self, limit: float) -> float:
        """The slowdown whose observed ratio exceeds `limit` in all but MISSED of looks: (1 + d)(1 - z e) = limit."""
        remaining = 1 - upper_quantile(MISSED) * self.comparison.standard_error
        return limit / remaining - 1 if remaining > 0 else float("inf")


def first_look(
    base: Measurement, new: Measurement, noise: NoiseEstimate | None, policy: Policy, cases: int
) -> Decision:
    """Screen fresh processes against stored ones.

    SAME and FASTER are settled here. With `needs_second_look`, the verdict SLOWER or UNDECIDED is provisional. `cases`
    is the number of cases this run gates. Without a noise estimate nothing can be told apart: UNDECIDED.
    """
    if noise is None:
        return _noise_unknown(base, new)
    look = _look(base, new, noise, policy, cases)
    if look.beyond_tolerance:
        verdict = Verdict.SLOWER if look.beyond_limit else Verdict.UNDECIDED
        summary = f"{_against_stored(look)}; a second look decides"
        return _decision(look, verdict, summary, look.tolerated, _bounds(look, policy), needs_second_look=True)
    verdict = Verdict.FASTER if look.faster else Verdict.SAME
    closing = "update the baseline to keep it" if look.faster else f"within {_percent(look.tolerated - 1)}"
    return _decision(look, verdict, f"{_against_stored(look)}; {closing}", look.tolerated, _bounds(look, policy))


def second_look(
    base: Measurement,
    first: Measurement,
    second: Measurement,
    noise: NoiseEstimate | None,
    policy: Policy,
    cases: int,
    toolchain_changes: Sequence[str] = (),
) -> Decision:
    """Settle what the first look could not, by the second look's processes alone.

    `toolchain_changes` are the named fields of the fingerprint that differ: slower is then ENVIRONMENT, because the
    code and the toolchain cannot be told apart against a stored baseline.
    """
    if noise is None:
        return _noise_unknown(base, second)
    look = _look(base, second, noise, policy, cases)
    reasons = [*_bounds(look, policy), f"the first look saw {_signed(ratio_of(base.processes, first.processes) - 1)}"]
    if look.beyond_limit and toolchain_changes:
        verdict = Verdict.ENVIRONMENT
        summary = f"{_against_stored(look)}, but the toolchain changed: {'; '.join(toolchain_changes)}"
        reasons.append("only measuring both revisions under one toolchain can tell the code from the toolchain")
    elif look.beyond_limit:
        verdict = Verdict.SLOWER
        summary = f"{_against_stored(look)}, beyond the {_percent(look.limit - 1)} threshold in two looks"
    elif look.beyond_tolerance:
        verdict = Verdict.UNDECIDED
        summary = (
            f"{_against_stored(look)}: more than the {_percent(look.tolerated - 1)} allowed, "
            f"less than the {_percent(look.limit - 1)} that noise can make; {_what_would_decide(look)}"
        )
    else:
        verdict = Verdict.SAME
        summary = f"{_against_stored(look)}; the first look was not confirmed"
    return _decision(look, verdict, summary, look.limit, reasons)


def _look(base: Measurement, new: Measurement, noise: NoiseEstimate, policy: Policy, cases: int) -> _Look:
    z = z_for(policy.suite_false_alarm_rate, cases, noise.degrees_of_freedom)
    comparison = compare(base.processes, new.processes, noise.relative_sd, z, noise.degrees_of_freedom)
    base_us = statistics.median(base.medians_us)
    tolerated = 1 + max(policy.threshold_percent / 100, policy.floor_us / base_us)
    return _Look(
        base_us=base_us,
        new_us=statistics.median(new.medians_us),
        base_processes=len(base.processes),
        new_processes=len(new.processes),
        comparison=comparison,
        tolerated=tolerated,
        limit=max(tolerated, 1 + comparison.noise_threshold),
        noise=noise,
        z=z,
    )


def _decision(
    look: _Look,
    verdict: Verdict,
    summary: str,
    detects_beyond: float,
    reasons: Sequence[str],
    *,
    needs_second_look: bool = False,
) -> Decision:
    detection_limit = look.detects(detects_beyond)
    seen = "no slowdown" if detection_limit == float("inf") else f"a slowdown of {_percent(detection_limit)}"
    return Decision(
        verdict=verdict,
        summary=summary,
        reasons=(*reasons, f"{seen} would have been noticed by this look 99 % of the time"),
        ratio=look.ratio,
        interval=look.comparison.interval95,
        threshold=look.limit,
        needs_second_look=needs_second_look,
        detection_limit=detection_limit,
    )


def _noise_unknown(base: Measurement, new: Measurement) -> Decision:
    ratio = ratio_of(base.processes, new.processes)
    summary = (
        f"{_signed(ratio - 1)} against stored, but how far apart unchanged code lies is unknown: no case timed by "
        f"{base.timer!r} has two stored processes"
    )
    advice = "record the baseline again with --update-baselines, which takes several fresh processes"
    return Decision(Verdict.UNDECIDED, summary, (advice,), ratio, None, None, False, None)


def _bounds(look: _Look, policy: Policy) -> list[str]:
    """Where the limit comes from: every bound with its figure, so that the binding one can be seen."""
    floor_percent = _percent(policy.floor_us / look.base_us)
    return [
        f"threshold {_percent(look.limit - 1)}: the largest of policy {policy.threshold_percent:g} %, "
        f"{policy.floor_us:g} us = {floor_percent}, and noise {_percent(look.comparison.noise_threshold)}",
        f"noise: {_percent(look.noise.relative_sd)} per process ({look.noise.how}), {look.base_processes} stored "
        f"and {look.new_processes} new, z {look.z:.1f}",
    ]


def _against_stored(look: _Look) -> str:
    low, high = look.comparison.interval95
    return (
        f"{_signed(look.ratio - 1)} ({_signed(low - 1)} to {_signed(high - 1)}): "
        f"{_us(look.new_us)} us against {_us(look.base_us)} us stored"
    )


def _what_would_decide(look: _Look) -> str:
    """How many fresh processes would bring the noise threshold below the slowdown seen."""
    seen = (look.ratio - 1) / look.z
    counts = range(1, PROCESSES_MAX + 1)
    for new in counts:
        if standard_error(look.noise.relative_sd, look.base_processes, new) < seen:
            return f"{new} fresh processes instead of {look.new_processes} would decide it"
    for both in counts:
        if standard_error(look.noise.relative_sd, both, both) < seen:
            return f"{both} stored and {both} fresh processes would decide it"
    return f"not even {PROCESSES_MAX} processes a side would decide it: find where the noise comes from"


def _us(value: float) -> str:
    """Four significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"
