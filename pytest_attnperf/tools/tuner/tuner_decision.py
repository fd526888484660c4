"""Decides whether a winner is better than the default, from new pairs of processes that measure both in turns.

The pairs must come from processes that took no part in the search. A search partly selects luck: the best of a hundred
identical candidates looks 1 to 2 % faster than the default, and is not.

The unit is always the pair. The spread comes from these pairs alone, with Student's t, and is at least PAIR_SD_MIN. A t
limit holds for any true spread; one with a spread that is shrunk towards a pool does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.interleaved import with_asymmetry
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.comparison import Comparison
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.pair_ratios import compare_pairs
from pytest_attnperf.stats.quantiles import upper_quantile
from pytest_attnperf.tuning_records import BETTER, NO_BETTER, SLOWER_ELSEWHERE, WorkloadChange

PAIR_SD_MIN = 0.0015
"""Smallest relative standard deviation between pairs seen on an H200: a few nearly equal pairs are chance."""

FASTER, SAME, SLOWER, FAILED = "FASTER", "SAME", "SLOWER", "FAILED"


@dataclass(frozen=True)
class DecisionRule:
    """What a winner must show.

    risk          chance that a configuration no better than the default is called BETTER. Shared among the workloads,
                  it is also the chance that one which is not slower is called SLOWER
    min_gain      least gain over the tuned workloads, as a fraction: a smaller one is not worth a change
    slower        a workload is SLOWER if it is slower by more than this fraction, than noise, and than `floor_us`
    pairs_min     least number of pairs of every workload
    """

    risk: float = 0.001
    min_gain: float = 0.01
    slower: float = 0.02
    floor_us: float = 0.5
    pairs_min: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.risk < 0.5:
            raise UsageError(f"the risk of a decision is {self.risk}, must lie strictly between 0 and 0.5")
        if self.min_gain < 0 or self.slower < 0 or self.floor_us < 0:
            raise UsageError(f"a decision's min_gain, slower and floor_us must not be negative: {self}")
        if self.pairs_min < 2:
            raise UsageError(f"pairs_min is {self.pairs_min}; a spread between pairs needs at least 2")


@dataclass(frozen=True)
class TuneDecision:
    """The decision on the winner.

    verdict    BETTER, NO_BETTER or SLOWER_ELSEWHERE
    summary    one line, with the figures
    overall    winner over default, geometric mean over the tuned workloads, and its 95 % interval; None if a tuned
               workload has too few pairs
    """

    verdict: str
    summary: str
    overall: tuple[float, tuple[float, float]] | None
    changes: tuple[WorkloadChange, ...]


def judge_winner(
    pairs_by_workload: Mapping[str, Sequence[PairSummary] | str],
    tuned: Collection[str],
    rule: DecisionRule | None = None,
) -> TuneDecision:
    """Returns the verdict on the winner (new side) against the default (base side), from new pairs of both.

    pairs_by_workload   every workload that the changed rule serves; a text instead of pairs says how the winner failed.
                        Pair i of every workload is one unit: the same round of the measurement
    tuned               workloads of the search; one without pairs counts as missing
    Raises UsageError if nothing was tuned, ValueError for pairs of different timers or invalid pairs.
    """
    rule = rule or DecisionRule()
    if not tuned:
        raise UsageError("nothing was tuned: a decision needs at least one workload that was searched on")
    given: dict[str, Sequence[PairSummary] | str] = {name: () for name in tuned if name not in pairs_by_workload}
    given |= pairs_by_workload
    wanted = max([rule.pairs_min, *(len(pairs) for pairs in given.values() if not isinstance(pairs, str))])
    changes = tuple(
        _judge_workload(name, pairs, name in tuned, wanted, len(given), rule) for name, pairs in given.items()
    )
    overall = _compare_overall([change for change in changes if change.tuned], rule)
    verdict, summary = _overall_verdict(changes, overall, rule)
    told = None if overall is None else (overall.ratio, overall.interval95)
    return TuneDecision(verdict, summary, told, changes)


def _judge_workload(
    workload: str, pairs: Sequence[PairSummary] | str, tuned: bool, wanted: int, workloads: int, rule: DecisionRule
) -> WorkloadChange:
    if isinstance(pairs, str):
        return WorkloadChange(workload, tuned, None, None, None, None, FAILED, pairs or "failed without a reason")
    if len(pairs) < wanted:
        note = f"{len(pairs)} of {wanted} pairs were measured"
        return WorkloadChange(workload, tuned, None, None, None, None, FAILED, note, tuple(pairs))
    comparison = _compare_with_default(pairs, rule.risk / workloads)
    default_us = statistics.median(pair.base_us for pair in pairs)
    winner_us = default_us * comparison.ratio
    verdict, note = _workload_verdict(comparison, winner_us - default_us, rule)
    return WorkloadChange(
        workload, tuned, default_us, winner_us, comparison.ratio, comparison.interval95, verdict, note, tuple(pairs)
    )


def _workload_verdict(comparison: Comparison, more_us: float, rule: DecisionRule) -> tuple[str, str]:
    """Returns (verdict, note) on the winner for one workload. The verdict is FASTER, SLOWER or SAME. SAME has a note
    only if the workload may be slower but too few pairs show it. `more_us` is the winner's time minus the default's."""
    limit = comparison.noise_threshold
    if comparison.ratio - 1 > rule.slower and more_us > rule.floor_us:
        if comparison.ratio - 1 > limit:
            return SLOWER, f"beyond {max(rule.slower, limit):.2%}, the larger of {rule.slower:.2%} and noise"
        return SAME, f"{comparison.ratio - 1:+.2%} is within the noise of {limit:.2%}: measure more pairs"
    if 1 / comparison.ratio - 1 > max(rule.slower, limit) and -more_us > rule.floor_us:
        return FASTER, ""
    return SAME, ""


def _compare_with_default(pairs: Sequence[PairSummary], tail: float) -> Comparison:
    """Returns the ratio of winner to default over these pairs, its interval, and a noise threshold that chance exceeds
    with probability `tail`."""
    logs = [math.log(pair.ratio) for pair in pairs]
    sd = max(statistics.stdev(logs), PAIR_SD_MIN)
    noise = NoiseEstimate(sd, len(pairs) - 1, f"of these {len(pairs)} pairs", "pair")
    return with_asymmetry(compare_pairs(pairs, noise, upper_quantile(tail, noise.degrees_of_freedom)))


def _compare_overall(tuned: Sequence[WorkloadChange], rule: DecisionRule) -> Comparison | None:
    """Returns the comparison over all tuned workloads, None if one failed or lacks pairs. Pair i of all workloads
    counts as one pair: the geometric mean of their ratios."""
    if any(change.verdict == FAILED for change in tuned):
        return None
    units = []
    for across in zip(*(change.pairs for change in tuned), strict=True):
        ratio = math.exp(statistics.fmean(math.log(pair.ratio) for pair in across))
        base_us = math.exp(statistics.fmean(math.log(pair.base_us) for pair in across))
        units.append(PairSummary(ratio, base_us, base_us * ratio, min(p.quads for p in across), across[0].timer))
    return _compare_with_default(units, rule.risk)


def _overall_verdict(
    changes: Sequence[WorkloadChange], overall: Comparison | None, rule: DecisionRule
) -> tuple[str, str]:
    failed = [change for change in changes if change.verdict == FAILED]
    if failed:
        told = "; ".join(f"{change.workload}: {change.note}" for change in failed)
        return NO_BETTER, f"no better than default: the winner could not be judged on {len(failed)} workload(s): {told}"
    assert overall is not None, "only a failed workload leaves no overall ratio"
    size = f"{overall.ratio - 1:+.2%} ({overall.interval95[0] - 1:+.2%} to {overall.interval95[1] - 1:+.2%})"
    slower = [change for change in changes if change.verdict == SLOWER]
    if slower:
        told = ", ".join(f"{change.workload} by {_relative_slowdown(change):+.2%}" for change in slower)
        return SLOWER_ELSEWHERE, f"slower on {told}; {size} over the tuned workloads"
    upper = overall.ratio * (1 + overall.noise_threshold)
    if upper >= 1 or overall.ratio > 1 - rule.min_gain:
        needed = f"a gain needs {rule.min_gain:.2%} and, at a risk of {rule.risk:.2%}, an upper limit below 0"
        return NO_BETTER, f"no better than default: {size}, upper limit {upper - 1:+.2%}; {needed}"
    unclear = [change for change in changes if change.note]
    if unclear:
        told = "; ".join(f"{change.workload}: {change.note}" for change in unclear)
        return NO_BETTER, f"no better than default on every workload that it serves: {size} overall, but {told}"
    return BETTER, f"{size} over {sum(change.tuned for change in changes)} tuned workload(s), slower on none"


def _relative_slowdown(change: WorkloadChange) -> float:
    return (change.ratio or 1.0) - 1
