"""Simulates what the gate would decide for this suite on this machine, from fresh processes of unchanged code.

Whole processes are dealt into a baseline, a first and a second look, each into one only, and the gate's own functions
decide. Deals from the same few processes are not independent, however many there are. They show which thresholds are
out of reach; the number of disjoint deals limits what is proven.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.decide import first_look, limits_between, second_look
from pytest_attnperf.gate.limits import Decision, format_percent, tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Measurement, Verdict
from pytest_attnperf.stats.comparison import ratio_of
from pytest_attnperf.stats.noise import RELATIVE_SD_MIN, NoiseModel
from pytest_attnperf.stats.quantiles import chi_square_quantile, rate_bound95

DEALS = 1000
"""Number of resampled suite runs: enough to see one event in a few hundred; more prove no more."""

SEED = 20


@dataclass(frozen=True)
class Shares:
    """How many processes go into the baseline and the two looks."""

    base: int = 7
    first: int = 1
    second: int = 3

    @property
    def total(self) -> int:
        """Number of processes that one decision needs: those of the baseline, the first and the second look."""
        return self.base + self.first + self.second


@dataclass(frozen=True)
class CaseCalibration:
    """One case. Everything is a fraction except `smallest_threshold_percent`; None where too few processes were dealt.

    sd_interval95                95 % interval of `relative_sd`, if process medians are normal (chi-square)
    first_noise, second_noise    noise threshold of either look, median over deals
    second_look_share            share of deals whose first look asked for a second
    slower_share                 share of deals that ended as SLOWER
    smallest_threshold_percent   rounded up to 0.1: no deal is slower than this in both looks
    tighter                      the user's threshold is tighter than the second look's noise
    """

    case: str
    processes: int
    relative_sd: float
    sd_interval95: tuple[float, float]
    first_noise: float | None = None
    second_noise: float | None = None
    second_look_share: float | None = None
    slower_share: float | None = None
    smallest_threshold_percent: float | None = None
    tighter: bool = False


@dataclass(frozen=True)
class Calibration:
    """The suite's calibration. `note` says what the figures prove.

    deals              resampled suite runs, with `red_share` of them red (any case SLOWER); None without deals
    independent_sets   disjoint deals, of which `independent_red` were red
    red_bound95        the rate of red runs that these exclude at 95 %; 1 excludes nothing
    """

    cases: tuple[CaseCalibration, ...]
    processes: int
    deals: int
    red_share: float | None
    independent_sets: int
    independent_red: int
    red_bound95: float
    note: str


@dataclass(frozen=True)
class _Outcome:
    """The decision on one case in one deal."""

    asked_again: bool
    slower: bool
    both_exceed: float
    first_noise: float
    second_noise: float


def calibrate(
    cases: Mapping[str, Measurement],
    policies: Mapping[str, Policy],
    *,
    shares: Shares | None = None,
    bounds: Mapping[str, str] | None = None,
    deals: int = DEALS,
    seed: int = SEED,
) -> Calibration:
    """Simulates gating runs with recorded processes of unchanged code; returns their noise and share of false alarms.

    Each of `deals` simulated runs deals every case's processes at random into stored, first-look and second-look ones;
    `shares` says how many of each. Deterministic for a seed.

    `policies` and `bounds` are by case; a case without a bound is pooled by duration only. Cases with equally many
    processes are dealt in the same order: one process measured all of them, and its bias may be in all. With fewer
    processes than one decision needs, only standard deviations are returned, and `note` says so. Raises ValueError for
    no cases, a case of a single process, and a case without a policy.
    """
    shares = shares or Shares()
    _require_policies(cases, policies)
    fewest = min(len(measurement.processes) for measurement in cases.values())
    spreads = {case: _estimate_spread(case, measurement) for case, measurement in cases.items()}
    if fewest < shares.total:
        note = (
            f"{fewest} processes give standard deviations only: a decision needs {shares.total} different ones "
            f"({shares.base} stored, {shares.first} and {shares.second} new)"
        )
        return Calibration(tuple(spreads.values()), fewest, 0, None, 0, 0, 1.0, note)
    gate = _Gate(cases, policies, shares, bounds or {})
    generator = random.Random(seed)
    outcomes = [gate.run(gate.shuffle_positions(generator)) for _ in range(deals)]
    sets = fewest // shares.total
    red = sum(_has_slower(gate.run(gate.consecutive_positions(number))) for number in range(sets))
    bound = rate_bound95(red, sets)
    return Calibration(
        cases=tuple(
            _calibrate_case(spreads[case], [run[case] for run in outcomes], gate.tolerance_of(case)) for case in cases
        ),
        processes=fewest,
        deals=deals,
        red_share=sum(map(_has_slower, outcomes)) / deals,
        independent_sets=sets,
        independent_red=red,
        red_bound95=bound,
        note=(
            f"{deals} deals of {fewest} processes are {sets} independent suite run{'s' * (sets != 1)}: with {red} red, "
            f"a rate of red runs above {format_percent(bound)} is excluded at 95 %, and nothing lower"
        ),
    )


class _Gate:
    """The gate over one suite: deals processes and decides every case as a run would."""

    def __init__(
        self,
        cases: Mapping[str, Measurement],
        policies: Mapping[str, Policy],
        shares: Shares,
        bounds: Mapping[str, str],
    ) -> None:
        self.cases, self.policies, self.shares, self.bounds = cases, policies, shares, bounds
        self.counts = sorted({len(measurement.processes) for measurement in cases.values()})

    def shuffle_positions(self, generator: random.Random) -> dict[int, list[int]]:
        """Returns {number of processes that a case may have: random positions of those that one decision uses}."""
        return {count: generator.sample(range(count), self.shares.total) for count in self.counts}

    def consecutive_positions(self, number: int) -> dict[int, list[int]]:
        """Returns {number of processes that a case may have: the positions in disjoint set `number`, from 0}."""
        begin = number * self.shares.total
        return {count: list(range(begin, begin + self.shares.total)) for count in self.counts}

    def tolerance_of(self, case: str) -> float:
        """Returns the slowdown that the policy allows a case, as a ratio new / base (1.02: 2 %), without noise."""
        return tolerated_ratio(self.policies[case], statistics.median(self.cases[case].medians_us))

    def run(self, positions: Mapping[int, Sequence[int]]) -> dict[str, _Outcome]:
        """Simulates one suite run: gives each case its processes at `positions`, and returns case -> decision."""
        dealt = {case: self._deal_processes(m, positions[len(m.processes)]) for case, m in self.cases.items()}
        model = NoiseModel.from_processes(
            {case: sides[0].processes for case, sides in dealt.items()}, bounds=self.bounds
        )
        return {case: self._judge_case(case, *sides, model) for case, sides in dealt.items()}

    def _deal_processes(
        self, measurement: Measurement, positions: Sequence[int]
    ) -> tuple[Measurement, Measurement, Measurement]:
        base, first = self.shares.base, self.shares.base + self.shares.first
        return (
            _select_processes(measurement, positions[:base]),
            _select_processes(measurement, positions[base:first]),
            _select_processes(measurement, positions[first:]),
        )

    def _judge_case(
        self, case: str, base: Measurement, first: Measurement, second: Measurement, model: NoiseModel
    ) -> _Outcome:
        policy, cases = self.policies[case], len(self.cases)
        noise = model.estimate_noise(case, statistics.median(base.medians_us), base.timer, self.bounds.get(case, ""))
        assert noise is not None, "a baseline of several processes has a spread"
        decision: Decision = first_look(base, first, noise, policy, cases)
        asked = decision.needs_second_look
        if asked:
            decision = second_look(base, first, second, noise, policy, cases)
        both = min(ratio_of(base.processes, side.processes) for side in (first, second))
        noises = [limits_between(base, new, noise, policy, cases).comparison for new in (first, second)]
        return _Outcome(
            asked_again=asked,
            slower=decision.verdict is Verdict.SLOWER,
            both_exceed=both - 1,
            first_noise=noises[0].noise_threshold,
            second_noise=noises[1].noise_threshold,
        )


def _require_policies(cases: Mapping[str, Measurement], policies: Mapping[str, Policy]) -> None:
    if not cases:
        raise ValueError("a calibration needs at least one case, got none")
    for case, measurement in cases.items():
        if len(measurement.processes) < 2:
            raise ValueError(f"case {case!r} has 1 process; a standard deviation needs at least 2")
        if case not in policies:
            raise ValueError(
                f"case {case!r} has no policy; there are policies of {', '.join(sorted(policies)) or 'none'}"
            )


def _estimate_spread(case: str, measurement: Measurement) -> CaseCalibration:
    medians = measurement.medians_us
    degrees = len(medians) - 1
    sd = max(statistics.stdev(medians) / statistics.fmean(medians), RELATIVE_SD_MIN)
    low, high = (sd * math.sqrt(degrees / chi_square_quantile(below, degrees)) for below in (0.975, 0.025))
    return CaseCalibration(case, len(medians), sd, (low, high))


def _calibrate_case(spread: CaseCalibration, outcomes: Sequence[_Outcome], tolerated: float) -> CaseCalibration:
    second_noise = statistics.median(outcome.second_noise for outcome in outcomes)
    largest = max(0.0, *(outcome.both_exceed for outcome in outcomes))
    return CaseCalibration(
        case=spread.case,
        processes=spread.processes,
        relative_sd=spread.relative_sd,
        sd_interval95=spread.sd_interval95,
        first_noise=statistics.median(outcome.first_noise for outcome in outcomes),
        second_noise=second_noise,
        second_look_share=sum(outcome.asked_again for outcome in outcomes) / len(outcomes),
        slower_share=sum(outcome.slower for outcome in outcomes) / len(outcomes),
        smallest_threshold_percent=math.ceil(1000 * largest - 1e-9) / 10,
        tighter=tolerated - 1 < second_noise,
    )


def _select_processes(measurement: Measurement, positions: Sequence[int]) -> Measurement:
    return Measurement(
        tuple(measurement.processes[position] for position in positions),
        tuple(measurement.proof[position] for position in positions),
    )


def _has_slower(run: Mapping[str, _Outcome]) -> bool:
    return any(outcome.slower for outcome in run.values())
