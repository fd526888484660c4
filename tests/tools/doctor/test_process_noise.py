from __future__ import annotations

import math
import random
import statistics

import pytest

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Samples
from pytest_attnperf.stats.comparison import slower_beyond, z_for
from pytest_attnperf.tools.doctor.probes import Status
from pytest_attnperf.tools.doctor.process_noise import (
    CaseNoise,
    compute_case_noise,
    list_findings,
    parse_samples,
    smallest_detectable,
)


def processes(median_us: float, relative_sd: float, count: int = 9, clock_sd: float = 0.0) -> list[Samples]:
    """Processes whose medians have exactly this mean and standard deviation."""
    steps = [index - (count - 1) / 2 for index in range(count)]
    scale = relative_sd / statistics.stdev(steps)
    return [
        Samples((median_us * (1 + step * scale),) * 5, 10, "graph", clock_mhz=(1980 * (1 + step * clock_sd / 3),) * 5)
        for step in steps
    ]


def noise(relative_sd: float, count: int = 9, clock_sd: float = 0.0) -> CaseNoise:
    """The noise of such processes of a GEMM of 200 us."""
    return compute_case_noise("gemm", processes(200.0, relative_sd, count, clock_sd))


def test_figures_of_known_processes() -> None:
    """The standard deviation is that of process medians, with its interval; two processes lie up to 2.8 of it apart."""
    found = noise(0.003)
    assert (found.processes, found.timer, found.median_us) == (9, "graph", 200.0)
    assert found.relative_sd == pytest.approx(0.003, rel=5e-3)
    assert found.sd_interval95 == pytest.approx((0.003 * 0.675, 0.003 * 1.916), rel=6e-3)
    assert found.apart == pytest.approx(2.77 * 0.003, rel=6e-3)


def test_equal_processes_are_not_noiseless() -> None:
    """Medians that are equal to the last stored digit get the smallest noise there is, not zero."""
    assert noise(0.0).relative_sd == 1e-4


def test_what_is_found_is_found_in_both_looks() -> None:
    """Simulated with the noise known, a slowdown of the size stated passes both looks in 99 % of runs at least."""
    sd, generator = 0.004, random.Random(3)
    slower = 1 + smallest_detectable(200.0, sd)
    error = sd * math.sqrt(math.pi / (12 + math.pi) + math.pi / (4 + math.pi))
    limit_2 = slower_beyond(1.02, error, z_for(0.01, 100, 18), 18)

    def median(count: int, centre: float) -> float:
        return statistics.median(generator.gauss(centre, sd) for _ in range(count))

    missed = 0
    for _ in range(4000):
        base, first, second = median(7, 1.0), median(1, slower), median(3, slower)
        missed += not (first / base > 1.02 and second / base > limit_2)
    assert missed <= 0.013 * 4000
    assert slower - 1 < 0.04


def test_a_floor_in_microseconds_holds_for_short_cases() -> None:
    """A case of 8 us is allowed 0.5 us, whatever its noise; without the floor a smaller slowdown is found."""
    assert smallest_detectable(8.0, 1e-4) == pytest.approx(0.5 / 8, rel=0.01)
    assert smallest_detectable(8.0, 1e-4, Policy(floor_us=0)) == pytest.approx(0.02, rel=0.05)
    assert smallest_detectable(200.0, 0.9) > 10


@pytest.mark.parametrize(
    ("relative_sd", "status", "text"),
    [
        (0.003, Status.OK, "a slowdown of 3.2 % is detected 99 % of the time"),
        (0.02, Status.WARNING, "two processes of the same code differ by up to 5.5 %"),
        (0.08, Status.PROBLEM, "by a first look of one process and a second of 3, in a suite of 100 cases"),
        (0.36, Status.PROBLEM, "a slowdown of 710 % is detected"),
    ],
)
def test_limits_of_the_finding(relative_sd: float, status: Status, text: str) -> None:
    """Above 1 % between processes is a warning, above 5 % a problem; what it means is said in the gate's terms."""
    [line] = list_findings([noise(relative_sd)], [])
    assert line.status is status
    assert text in line.meaning
    assert line.value.startswith("200.0 us, sd ")
    assert bool(line.fix) is (status is not Status.OK)


def test_the_fix_names_what_other_probes_found() -> None:
    """A cause that was seen comes first, then the clock, then what shows more."""
    [named] = list_findings([noise(0.03, clock_sd=0.03)], ["GPU processes: 77 vllm on GPU 0"])
    assert named.fix == "fix this first: GPU processes: 77 vllm on GPU 0"
    [clock] = list_findings([noise(0.03, clock_sd=0.03)], [])
    assert clock.fix.startswith("the clock differs between processes by as much")
    [nothing] = list_findings([noise(0.03)], [])
    assert "run it again when the machine is idle" in nothing.fix


def test_few_processes_are_said() -> None:
    """Under five processes the spread is hardly known, and the line says so and why there are no more."""
    [line] = list_findings([noise(0.001, count=3)], [], "did not answer in 9 s")
    assert line.status is Status.NOTE
    assert line.meaning.endswith("3 processes say little about a spread")
    assert "no more processes: did not answer in 9 s" in line.details


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "at least 2"),
        ([Samples((1.0,), 1, "graph")], "at least 2"),
        ([Samples((1.0,), 1, "graph"), Samples((1.0,), 1, "event")], r"different timers \(event, graph\)"),
        ([Samples((1.0,), 1, "graph"), Samples((math.nan,), 1, "graph")], "must be finite"),
    ],
)
def test_processes_that_say_nothing(samples: list[Samples], why: str) -> None:
    """Too few processes, two timers and times that are none are errors that say so."""
    with pytest.raises(ValueError, match=why):
        compute_case_noise("gemm", samples)


@pytest.mark.parametrize("record", [{}, {"block_us": 3}, {"block_us": ["x"], "clock_mhz": []}])
def test_records_that_are_no_samples(record: dict[str, object]) -> None:
    """What a process printed in place of samples is an error."""
    with pytest.raises(ValueError, match=r"no samples|could not convert"):
        parse_samples(record)
