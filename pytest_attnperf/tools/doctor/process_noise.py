"""Computes how much processes of the same code differ here, and the smallest slowdown that a gate can detect. Pure.

The figures use the gate's rules: Student's limits, two looks, the median of processes. A suite's own noise is pooled
over its cases and known better than the noise of a few processes: `pytest --attnperf-calibrate=20` measures it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.gate.calibration import Shares
from pytest_attnperf.gate.limits import MISSED, format_percent, tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import ProcessSummary, Samples
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.stats.comparison import compute_factor, slower_beyond, standard_error, z_for
from pytest_attnperf.stats.noise import PRIOR_DEGREES, RELATIVE_SD_MIN
from pytest_attnperf.stats.quantiles import chi_square_quantile, upper_quantile
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status

SD_WARNING = 0.01
SD_PROBLEM = 0.05
"""Limits of the relative standard deviation between processes. Of 105 cases on an idle H200, half were below 0.14 %,
and 13 above 0.6 % (docs/how-a-number-is-made.md)."""

SUITE_CASES = 100
SHARES = Shares()

LEAST_PROCESSES = 2
WANTED_PROCESSES = 5

CALIBRATE = "pytest --attnperf-calibrate=20 suites/ says which thresholds a suite can hold here"


@dataclass(frozen=True)
class CaseNoise:
    """Noise of one case over several processes. Everything is a fraction except `median_us`.

    sd_interval95   95 % interval of `relative_sd`, if process medians are normal (chi-square)
    apart           largest difference of two processes of the same code in 95 % of pairs
    found           smallest slowdown that both looks detect in 99 % of runs; infinite if there is none
    clock_sd        relative standard deviation of the compute clock between processes; None if not known
    """

    case: str
    processes: int
    timer: str
    median_us: float
    relative_sd: float
    sd_interval95: tuple[float, float]
    apart: float
    found: float
    clock_sd: float | None = None


def compute_case_noise(case: str, samples: Sequence[Samples]) -> CaseNoise:
    """Returns the noise of a case from its samples, one per process. Raises ValueError for fewer than two processes,
    for samples without times, and if timers differ."""
    if len(samples) < LEAST_PROCESSES:
        raise ValueError(f"{case}: {len(samples)} processes; a standard deviation needs at least {LEAST_PROCESSES}")
    timers = sorted({each.timer for each in samples})
    if len(timers) > 1:
        raise ValueError(f"{case}: its processes used different timers ({', '.join(timers)}); measure all with one")
    processes = [summarise_process(each) for each in samples]
    medians = [process.median_us for process in processes]
    degrees = len(medians) - 1
    sd = max(statistics.stdev(medians) / statistics.fmean(medians), RELATIVE_SD_MIN)
    low, high = (sd * math.sqrt(degrees / chi_square_quantile(below, degrees)) for below in (0.975, 0.025))
    median_us = statistics.median(medians)
    return CaseNoise(
        case=case,
        processes=len(processes),
        timer=timers[0],
        median_us=median_us,
        relative_sd=sd,
        sd_interval95=(low, high),
        apart=upper_quantile(0.025) * math.sqrt(2) * sd,
        found=smallest_detectable(median_us, sd),
        clock_sd=_clock_sd(processes),
    )


def smallest_detectable(median_us: float, relative_sd: float, policy: Policy | None = None) -> float:
    """Returns the smallest slowdown of a case, as a fraction, that 99 % of runs of a suite of SUITE_CASES detect.

    Assumes a baseline of seven processes; the run measures one, and three more if that one is slow. Both tests
    must find a slowdown. Each may miss it in 0.5 % of runs, so that at most 1 % are missed, even if the tests depend
    on each other."""
    policy = policy or Policy()
    tolerated = tolerated_ratio(policy, median_us)
    first = standard_error(relative_sd, SHARES.base, SHARES.first)
    second = standard_error(relative_sd, SHARES.base, SHARES.second)
    # A suite's noise has the degrees of freedom of the pool and of the case's own stored processes.
    degrees = PRIOR_DEGREES + SHARES.base - 1
    z = z_for(policy.suite_false_alarm_rate, SUITE_CASES, degrees)
    looks = ((tolerated, first), (slower_beyond(tolerated, second, z, degrees), second))
    return max(_detectable_beyond(limit, error) for limit, error in looks)


def list_findings(cases: Sequence[CaseNoise], causes: Sequence[str], failure: str = "") -> list[DoctorFinding]:
    """Returns a finding 'noise of CASE' for each case. `causes` are bad findings of other probes, which may explain
    noise; `failure` is why no more processes ran, '' if none failed."""
    return [_make_finding(case, causes, failure) for case in cases]


def _make_finding(case: CaseNoise, causes: Sequence[str], failure: str) -> DoctorFinding:
    low, high = case.sd_interval95
    value = (
        f"{format_time(case.median_us)}, sd {format_percent(case.relative_sd)} over {case.processes} "
        f"processes "
        f"({format_percent(low)} to {format_percent(high)}), timer {case.timer}"
    )
    meaning = (
        f"two processes of the same code differ by up to {format_percent(case.apart)} (19 times of 20); a slowdown of "
        f"{format_percent(case.found)} is detected 99 % of the time by a first look of one process and a second of "
        f"{SHARES.second}, in a "
        f"suite of {SUITE_CASES} cases"
    )
    status = Status.OK
    if case.relative_sd > SD_WARNING:
        status = Status.PROBLEM if case.relative_sd > SD_PROBLEM else Status.WARNING
    details = [f"clock between processes: sd {format_percent(case.clock_sd)}"] if case.clock_sd is not None else []
    if failure:
        details.append(f"no more processes: {failure}")
    if case.processes < WANTED_PROCESSES:
        meaning += f"; {case.processes} processes say little about a spread"
        status = Status.NOTE if status is Status.OK else status
    fix = "" if status in (Status.OK, Status.NOTE) else _suggest_fix(case, causes)
    return DoctorFinding(f"noise of {case.case}", status, value, meaning, fix, tuple(details))


def _suggest_fix(case: CaseNoise, causes: Sequence[str]) -> str:
    """Returns the fix for a noisy case: the likely causes by name; without any, how to find the cause."""
    if causes:
        return f"fix this first: {'; '.join(causes)}"
    if case.clock_sd is not None and case.clock_sd > case.relative_sd / 2:
        return f"the clock differs between processes by as much: see power cap and temperature; {CALIBRATE}"
    return f"no other finding explains it: run it again when the machine is idle; {CALIBRATE}"


def _detectable_beyond(limit: float, error: float) -> float:
    """Returns the slowdown, as a fraction, that a test misses with probability MISSED / 2: the test detects measured
    ratios above `limit`, whose standard error is `error`."""
    return limit * compute_factor(upper_quantile(MISSED / 2) * error) - 1


def _clock_sd(processes: Sequence[ProcessSummary]) -> float | None:
    clocks = [process.clock_mhz for process in processes if process.clock_mhz is not None]
    return statistics.stdev(clocks) / statistics.fmean(clocks) if len(clocks) == len(processes) else None


def parse_samples(record: Mapping[str, object]) -> Samples:
    """Returns one case's samples from a record that a self-test process prints. Raises ValueError for an invalid
    one."""
    try:
        blocks, clocks = (
            tuple(float(each) for each in _parse_list(record[name])) for name in ("block_us", "clock_mhz")
        )
        calls, placements = int(str(record["calls_per_block"])), int(str(record["placements"]))
        return Samples(blocks, calls, str(record["timer"]), placements=placements, clock_mhz=clocks)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no samples: {error}") from error


def _parse_list(value: object) -> list[float]:
    if not isinstance(value, list):
        raise TypeError(f"{str(value)[:40]!r} is no list of times")
    return value
