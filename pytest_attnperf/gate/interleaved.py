"""Decides the interleaved second look: from pairs of a base and a candidate process, measured in turns, to a verdict.

Both sides ran on one device in the same minutes, and under one toolchain unless two are compared on purpose. Between
pairs only the placement of each process differs. The pairs are fresh, so the first look selected nothing in this look.
Pairs detect slowdowns that a stored baseline cannot: percentages have two decimals here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.gate.effort import PAIRS_MAX, Aim, pairs_needed
from pytest_attnperf.gate.limits import (
    Decision,
    Limits,
    describe_cycles,
    format_percent,
    format_signed,
    tolerated_ratio,
)
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.comparison import Comparison, z_for
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.pair_ratios import centre_ratio, compare_pairs, standard_error_of_pairs
from pytest_attnperf.stats.quantiles import upper_quantile

DECIMALS = 2
"""Decimals of signed percentages: pairs resolve a tenth of a percent."""

ASYMMETRY = 0.001
"""The difference, as a fraction, between equal sides that pairs of one run do not average out. Over 14 cases and four
runs of ten same-code pairs each (H200, benchmarks/figures/h200.jsonl) the mean of a run was off by up to 0.14 %, and a
copy by 0.03 to 0.08 % in every run: more than the scatter of its pairs allows."""

SAME_PAIRS_LEAST = 4
SAME_MISS_RATE = 0.001
"""Chance that `is_surely_same` misses a change as large as the policy allows, in either direction."""


def is_surely_same(pairs: Sequence[PairSummary], policy: Policy) -> bool:
    """Returns whether these pairs alone show that the case is neither slower nor faster than the policy allows.

    Two one-sided t-tests at SAME_MISS_RATE, by the spread of these pairs only. So more pairs cannot make it SLOWER but
    by chance. False with fewer than SAME_PAIRS_LEAST pairs. Raises as `centre_ratio` does.
    """
    if len(pairs) < SAME_PAIRS_LEAST:
        return False
    relative_sd = statistics.stdev(math.log(pair.ratio) for pair in pairs)
    error = standard_error_of_pairs(relative_sd, len(pairs))
    margin = upper_quantile(SAME_MISS_RATE, len(pairs) - 1) * error + ASYMMETRY
    allowed = math.log(tolerated_ratio(policy, statistics.median(pair.base_us for pair in pairs)))
    return abs(math.log(centre_ratio(pairs))) + margin < allowed


def with_asymmetry(comparison: Comparison) -> Comparison:
    """Widens interval and noise threshold by ASYMMETRY, the bias between two sides that more pairs do not reduce."""
    low, high = comparison.interval95
    return replace(
        comparison,
        interval95=(low * (1 - ASYMMETRY), high * (1 + ASYMMETRY)),
        noise_threshold=comparison.noise_threshold + ASYMMETRY,
    )


def interleaved_look(
    pairs: Sequence[PairSummary],
    noise: NoiseEstimate | None,
    policy: Policy,
    cases: int,
    *,
    first_ratio: float | None = None,
    base_label: str = "base",
    bound: str = "",
) -> Decision:
    """Decides a case by its pairs (base and candidate process measured in turns) alone.

    `noise` comes from `stats.pair_ratios.pair_noise`; without it the verdict is UNDECIDED. `cases` is how many cases
    this run gates, which share the suite's false-alarm rate. `first_ratio` is new / stored of the first look, None
    where there was none. `base_label` names the base side, `bound` is 'compute', 'memory' or ''. Raises
    ValueError without pairs, TypeError for others than pairs.
    """
    against = f"against {base_label}, interleaved in {_format_pairs(len(pairs))}"
    if noise is None:
        return _decide_without_noise(pairs, against)
    look = _pair_limits(pairs, noise, policy, cases)
    verdict, closing = _decide_verdict(look, pairs)
    measured = (
        f"noise: {format_percent(noise.relative_sd)} per pair ({noise.how}), {_format_pairs(len(pairs))}, z "
        f"{look.z:.1f}, "
        f"and {format_percent(ASYMMETRY)} that pairs do not average out"
    )
    reasons = [
        look.threshold_reason(policy),
        Note(NoteKind.NOISE, measured),
        *look.tighter_than_noise(),
        *describe_cycles(look.ratio, [p.base_clock_mhz for p in pairs], [p.new_clock_mhz for p in pairs], bound),
        *_describe_first_look(look, first_ratio),
    ]
    return look.make_decision(
        verdict, f"{look.format_ratio(DECIMALS)} {against}: {look.format_times()}{closing}", reasons
    )


def _pair_limits(pairs: Sequence[PairSummary], noise: NoiseEstimate, policy: Policy, cases: int) -> Limits:
    z = z_for(policy.suite_false_alarm_rate, cases, noise.degrees_of_freedom)
    base_us = statistics.median(pair.base_us for pair in pairs)
    return Limits(
        base_us=base_us,
        new_us=statistics.median(pair.new_us for pair in pairs),
        comparison=with_asymmetry(compare_pairs(pairs, noise, z)),
        tolerated=tolerated_ratio(policy, base_us),
        noise=noise,
        z=z,
    )


def _decide_verdict(look: Limits, pairs: Sequence[PairSummary]) -> tuple[Verdict, str]:
    """Returns the verdict of a look by pairs (SLOWER, UNDECIDED, FASTER or SAME) and the end of its summary."""
    if look.is_beyond_limit:
        return Verdict.SLOWER, f", beyond the {format_percent(look.limit - 1)} threshold"
    if look.is_beyond_tolerance:
        return Verdict.UNDECIDED, f"{look.reason_undecided}; {_what_would_decide(look, pairs)}"
    if look.is_faster:
        return Verdict.FASTER, "; update the baseline to keep it"
    return Verdict.SAME, f"; {look.describe_same}"


def _describe_first_look(look: Limits, first_ratio: float | None) -> list[str]:
    if first_ratio is None:
        return []
    seen = f"the first look, against the stored baseline, saw {format_signed(first_ratio - 1)}"
    if first_ratio - look.ratio <= look.tolerated - 1 or first_ratio <= look.tolerated:
        return [seen]
    confirmed = f"only {format_signed(look.ratio - 1, DECIMALS)} of it" if look.is_beyond_tolerance else "none of it"
    return [f"{seen}; the pairs confirm {confirmed}: the rest is the machine, the toolchain or chance, not the code"]


def _what_would_decide(look: Limits, pairs: Sequence[PairSummary]) -> str:
    """Returns advice: how many pairs would bring the noise threshold below the measured slowdown, and what they cost;
    or that even PAIRS_MAX would not."""
    taken = len(pairs)
    aim = Aim(look.ratio, look.tolerated, look.z, look.noise.degrees_of_freedom)
    count = pairs_needed(aim, relative_sd=look.noise.relative_sd, taken=taken, asymmetry=ASYMMETRY)
    if count is None:
        return f"even {PAIRS_MAX} pairs would not decide it: find the source of the noise"
    return f"{count} pairs instead of {taken} would decide it{_format_cost(pairs, count)}"


def _format_cost(pairs: Sequence[PairSummary], count: int) -> str:
    """Returns e.g. ' (about 12 s of turns)', the wall time of `count` pairs like these; '' below 0.5 s."""
    each = statistics.median(pair.seconds for pair in pairs)
    return f" (about {each * count:.0f} s of turns)" if each * count >= 0.5 else ""


def _decide_without_noise(pairs: Sequence[PairSummary], against: str) -> Decision:
    ratio = centre_ratio(pairs)
    summary = f"{format_signed(ratio - 1, DECIMALS)} {against}, but the noise of pairs of unchanged code is unknown"
    advice = "measure at least two pairs of a case: their spread is the noise"
    return Decision(Verdict.UNDECIDED, summary, (advice,), ratio, None, None, False, None)


def _format_pairs(pairs: int) -> str:
    return f"{pairs} pair{'s' * (pairs != 1)}"
