"""Recomputes the figures of a stored case from its samples, and compares them with what its file states. Pure.

Ratio, interval, limits and verdict are recomputed by the functions that decide, from the processes or pairs in the
file, so that a reader can trust a results file. The pooled noise cannot be recomputed from one case alone: it is taken
from the file, and everything else must follow from it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.gate.interleaved import ASYMMETRY
from pytest_attnperf.gate.limits import MISSED, format_percent, format_signed, tolerated_ratio
from pytest_attnperf.gate.not_the_code import BY_WHAT_RAN
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import compute_factor, slower_beyond, standard_error, z_for
from pytest_attnperf.stats.pair_ratios import centre_ratio, standard_error_of_pairs
from pytest_attnperf.stats.quantiles import upper_quantile

ROUNDING = 1e-6
"""Relative difference beyond which two figures are different."""

BY_TIME = BY_WHAT_RAN | {Verdict.SAME, Verdict.FASTER, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT}
"""Verdicts that follow from a ratio and its limits."""

IMPOSSIBLE = (AttnperfError, ValueError, TypeError, ArithmeticError, LookupError)
"""Errors that a computation raises for invented figures."""


@dataclass(frozen=True)
class Recount:
    """The recomputed figures of a case; None where its file lacks what they are computed from.

    ratio         new / base of the look that decided
    tolerated     the ratio up to which the policy calls it SAME
    relative_sd   of one process, or one pair, from the file's standard error
    z             quantile of that noise: the file's where noise sets the limit, else that of `share`
    share         of the suite's false-alarm rate that one case gets
    contradicted  statements of the file that contradict its samples, as text
    """

    ratio: float | None = None
    tolerated: float | None = None
    relative_sd: float | None = None
    z: float | None = None
    share: float | None = None
    contradicted: tuple[str, ...] = ()


def recount_figures(case: CaseResult, cases: int) -> Recount:
    """Returns the figures of a case, recomputed from its samples, and texts on those that its file states differently.

    `cases` is the number of cases that share the run's false-alarm rate, at least 1.
    """
    try:
        policy = Policy.from_record(case.policy)
        ratio, base_us = _compute_ratio(case), _base_us(case)
        tolerated = None if base_us is None else tolerated_ratio(policy, base_us)
        relative_sd = _relative_sd(case)
        share = policy.suite_false_alarm_rate / max(1, cases)
        z = _find_quantile(case, tolerated, policy, cases)
        said = [
            *_figure_problems(case, ratio, base_us, tolerated),
            *_limit_problems(case, policy, cases, z),
            *_interval_problems(case, ratio),
        ]
        said += [*_verdict_problems(case, ratio, tolerated), *_consequence_problems(case, policy)]
    except IMPOSSIBLE as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        return Recount(contradicted=(f"its figures cannot be computed with: {why}",))
    return Recount(ratio, tolerated, relative_sd, z, share, tuple(said))


def deciding_processes(case: CaseResult) -> tuple[ProcessSummary, ...]:
    """Returns the processes of the second look, else of the first (also in a case that pairs decided)."""
    return case.second or case.first


def _compute_ratio(case: CaseResult) -> float | None:
    if case.pairs:
        return centre_ratio(case.pairs)
    base_us = _base_us(case)
    if not deciding_processes(case) or base_us is None:
        return None
    return statistics.median(_deciding_medians(case)) / base_us


def _base_us(case: CaseResult) -> float | None:
    """Returns the base time in microseconds: the median of the pairs' base side or of the stored processes, else the
    one that the file states, which may be None."""
    if case.pairs:
        return statistics.median(pair.base_us for pair in case.pairs)
    return statistics.median(case.stored_us) if case.stored_us else case.baseline_us


def _deciding_medians(case: CaseResult) -> list[float]:
    return [process.median_us for process in deciding_processes(case)]


def _relative_sd(case: CaseResult) -> float | None:
    if case.standard_error is None:
        return None
    if case.pairs:
        return case.standard_error / standard_error_of_pairs(1.0, len(case.pairs))
    if not case.stored_us or not deciding_processes(case):
        return None
    within = math.sqrt(case.standard_error**2 - case.card_error**2)
    return within / standard_error(1.0, len(case.stored_us), len(deciding_processes(case)))


def _find_quantile(case: CaseResult, tolerated: float | None, policy: Policy, cases: int) -> float | None:
    if case.standard_error is None or case.threshold is None or not case.standard_error > 0:
        return None
    beside = ASYMMETRY if case.pairs else 0.0
    if tolerated is not None:
        limit = slower_beyond(tolerated, case.standard_error, 0.0, case.degrees_of_freedom, beside)
        if case.threshold > limit * (1 + ROUNDING):
            return math.log(case.threshold - beside) / case.standard_error
    return z_for(policy.suite_false_alarm_rate, max(1, cases), case.degrees_of_freedom)


def _figure_problems(
    case: CaseResult, ratio: float | None, base_us: float | None, tolerated: float | None
) -> Iterator[str]:
    """Yields a problem where the stated time, base time, ratio or limit is not what the samples and the policy give."""
    new = [pair.new_us for pair in case.pairs] or _deciding_medians(case)
    if new and case.median_us is not None and not _is_same(case.median_us, statistics.median(new)):
        yield (
            f"its time is stated as {format_time(case.median_us)}, but {_describe_units(case)} give "
            f"{_format_median(new)}"
        )
    said = case.baseline_us
    if said is not None and base_us is not None and not _is_same(said, base_us):
        yield (f"its base is stated as {format_time(said)}, but what it was compared with gives {format_time(base_us)}")
    if case.ratio is not None and ratio is not None and not _is_same(case.ratio, ratio):
        yield (
            f"its change is stated as {format_signed(case.ratio - 1, 2)}, but {_describe_units(case)} give "
            f"{format_signed(ratio - 1, 2)}"
        )
    if case.threshold is not None and tolerated is not None and case.threshold < tolerated * (1 - ROUNDING):
        yield (
            f"its limit is stated as {format_signed(case.threshold - 1, 2)}, but its own policy allows "
            f"{format_signed(tolerated - 1, 2)}"
        )


def _limit_problems(case: CaseResult, policy: Policy, cases: int, z: float | None) -> Iterator[str]:
    """Yields a problem if the quantile `z` is not what the policy's false-alarm rate gives for 1 to `cases` cases."""
    if z is None or case.verdict not in BY_TIME:
        return
    rate, degrees = policy.suite_false_alarm_rate, case.degrees_of_freedom
    low, high = (z_for(rate, count, degrees) for count in (1, max(1, cases)))
    if not low * (1 - ROUNDING) <= z <= high * (1 + ROUNDING):
        yield (
            f"its limit is {z:.2f} standard errors, but a false-alarm rate of {format_percent(rate)} among "
            f"{max(1, cases)} case{'s' * (cases > 1)} gives {low:.2f} to {high:.2f}"
        )


def _interval_problems(case: CaseResult, ratio: float | None) -> Iterator[str]:
    """Yields a problem if the stated interval or detection limit does not follow from ratio and standard error."""
    error, seen = case.standard_error, case.ratio if ratio is None else ratio
    if error is None or seen is None:
        return
    half = upper_quantile(0.025, case.degrees_of_freedom) * error
    beside = ASYMMETRY if case.pairs else 0.0
    ends = (seen * compute_factor(-half) * (1 - beside), seen * compute_factor(half) * (1 + beside))
    # Older files take the first term of the exponential.
    if case.interval is not None and not all(
        math.isclose(*both, rel_tol=ROUNDING + half**2) for both in zip(case.interval, ends, strict=True)
    ):
        said, made = (" to ".join(format_signed(end - 1) for end in both) for both in (case.interval, ends))
        yield f"its interval is stated as {said}, but its standard error gives {made}"
    if case.detection_limit is not None and case.threshold is not None:
        least = min(case.threshold, _tolerated_least(case)) * compute_factor(upper_quantile(MISSED) * error) - 1
        if case.detection_limit < least - ROUNDING:
            yield (
                f"it claims to detect {format_percent(case.detection_limit)}, but its noise hides up to "
                f"{format_percent(least)}"
            )


def _tolerated_least(case: CaseResult) -> float:
    base_us = _base_us(case)
    return math.inf if base_us is None else tolerated_ratio(Policy.from_record(case.policy), base_us)


def _verdict_problems(case: CaseResult, ratio: float | None, tolerated: float | None) -> Iterator[str]:
    """Yields a problem if the samples do not allow the stated verdict; nothing for a verdict that is not by time."""
    if case.verdict not in BY_TIME:
        return
    if ratio is None or tolerated is None:
        if case.verdict is not Verdict.UNDECIDED:
            yield f"{case.verdict.value} is stated for a case with no process or pair to compare"
        return
    allowed = _allowed_verdicts(case, ratio, tolerated)
    if case.verdict not in allowed:
        names = " or ".join(sorted(verdict.value for verdict in allowed))
        beyond = "" if case.threshold is None else f", SLOWER beyond {format_signed(case.threshold - 1, 2)}"
        yield (
            f"its verdict is stated as {case.verdict.value}, but {_describe_units(case)} give {names}: "
            f"{format_signed(ratio - 1, 2)}, "
            f"allowed {format_signed(tolerated - 1, 2)}{beyond}"
        )


def _allowed_verdicts(case: CaseResult, ratio: float, tolerated: float) -> set[Verdict]:
    if case.threshold is None:
        return {Verdict.UNDECIDED}
    limit = max(case.threshold, tolerated)
    if any(_is_same(ratio, edge) for edge in (tolerated, limit)):
        return set(BY_TIME)
    only_first = not case.pairs and not case.second
    if ratio > tolerated:
        if case.verdict in BY_WHAT_RAN and case.second and not case.pairs:
            return {case.verdict}  # decided by what ran, which this file does not have of the entry
        if only_first or ratio <= limit:
            return {Verdict.UNDECIDED}
        return {Verdict.SLOWER} if case.pairs else {Verdict.SLOWER, Verdict.ENVIRONMENT}
    settled = Verdict.FASTER if ratio < 1 / limit and not case.second else Verdict.SAME
    return {settled}


def _consequence_problems(case: CaseResult, policy: Policy) -> Iterator[str]:
    if case.verdict in policy.fail_on and not case.fails and not case.quarantined:
        yield f"{case.verdict.value} fails a test by the file's policy, but the file states that the test passed"


def _describe_units(case: CaseResult) -> str:
    if case.pairs:
        return f"its {len(case.pairs)} pairs"
    count = len(deciding_processes(case))
    return f"the {count} process{'es' * (count != 1)} of its {'second' if case.second else 'first'} look"


def _format_median(values: list[float]) -> str:
    return format_time(statistics.median(values))


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ROUNDING)
