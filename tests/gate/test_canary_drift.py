from __future__ import annotations

import random

import pytest

from pytest_attnperf.gate.canary_drift import CanaryReading, CanaryShift, compare_canaries
from pytest_attnperf.records import ProcessSummary


def processes(*medians_us: float, timer: str = "graph") -> list[ProcessSummary]:
    """Canary processes with these medians, microseconds per call."""
    return [ProcessSummary(us, us, us, (us,), 1, timer) for us in medians_us]


QUIET = processes(99.9, 100.0, 100.1, 99.95, 100.05, 100.0, 100.0)


def moved(gemm: float, copy: float = 1.0) -> CanaryShift:
    """Canaries at these ratios to what is stored, allowed 1 %."""
    return CanaryShift((CanaryReading("copy", copy, 0.01), CanaryReading("gemm", gemm, 0.01)))


def test_each_canary_is_held_against_its_own_processes() -> None:
    """The ratio is of medians, now over stored, for every canary that both sides have."""
    shift = compare_canaries(
        {"gemm": processes(103.0), "copy": processes(50.0)},
        {"gemm": QUIET, "copy": processes(50.0, 50.0), "other": QUIET},
    )
    assert shift is not None
    assert {reading.name: round(reading.ratio, 3) for reading in shift.readings} == {"copy": 1.0, "gemm": 1.03}
    assert [reading.has_moved_slower for reading in shift.readings] == [False, True]


@pytest.mark.parametrize(("now", "expected"), [(100.9, False), (101.1, True), (99.1, False), (98.9, True)])
def test_a_quiet_canary_moves_by_more_than_one_percent(now: float, expected: bool) -> None:
    """However quiet the stored processes are, less than 1 % either way is no move."""
    shift = compare_canaries({"gemm": processes(now)}, {"gemm": QUIET})
    assert shift is not None
    assert shift.readings[0].has_moved is expected


def test_a_loud_canary_must_move_by_more_than_its_noise() -> None:
    """Stored processes that lie 1 % apart allow 3 % slower; from few processes Student's t makes it more."""
    many = processes(*(100 + (index % 3 - 1) for index in range(30)))
    loud = compare_canaries({"gemm": processes(102.5)}, {"gemm": many})
    few = compare_canaries({"gemm": processes(102.5)}, {"gemm": many[:4]})
    assert loud is not None
    assert few is not None
    assert not loud.readings[0].has_moved
    assert few.readings[0].allowed > 2 * loud.readings[0].allowed > 0.05


@pytest.mark.parametrize(
    ("now", "stored"),
    [([], QUIET), (processes(103.0), processes(100.0)), (processes(103.0, timer="event"), QUIET)],
)
def test_what_cannot_be_compared_says_nothing(now: list[ProcessSummary], stored: list[ProcessSummary]) -> None:
    """No process now, a single stored one, or another timer gives no reading; without any reading there is no shift."""
    assert compare_canaries({"gemm": now}, {"gemm": stored}) is None
    assert compare_canaries({"gemm": QUIET}, {}) is None


@pytest.mark.parametrize(("bound", "name"), [("compute", "gemm"), ("memory", "copy"), ("", "copy")])
def test_the_canary_of_the_same_bound_speaks(bound: str, name: str) -> None:
    """The GEMM speaks for a compute-bound case, the copy for a memory-bound one, else whichever moved more."""
    assert moved(1.02, 0.95).shift_for(bound).name == name


def test_a_lone_canary_speaks_for_every_case() -> None:
    """Where the canary of a bound was not measured the other one is taken."""
    assert CanaryShift((CanaryReading("gemm", 1.02, 0.01),)).shift_for("memory").name == "gemm"


@pytest.mark.parametrize(
    ("ratio", "gemm", "explained"),
    [(1.05, 1.04, True), (1.05, 1.02, False), (1.025, 1.009, False), (1.05, 0.96, False)],
)
def test_only_a_slower_canary_explains_and_only_its_own_size(ratio: float, gemm: float, explained: bool) -> None:
    """A case is explained when the canary moved slower and the case without that is within its limit of 2 %."""
    assert moved(gemm).can_explain(ratio, 1.02, "compute") is explained


def test_what_the_canary_did_is_one_line() -> None:
    """A canary that stayed is said with both figures; one that moved also with what is left of the case."""
    assert moved(1.001, 0.9999).describe_shift(1.05, "compute") == "the canary did not move (copy -0.0 %, gemm +0.1 %)"
    assert moved(1.031).describe_shift(1.05, "compute") == (
        "the canary GEMM is 3.1 % slower than stored (copy +0.0 %, gemm +3.1 %): corrected for that, the case is +1.8 %"
    )
    assert moved(0.97).describe_shift(1.05, "compute").startswith("the canary GEMM is 3.0 % faster than stored")


def test_an_unchanged_machine_rarely_moves() -> None:
    """Of 4,000 processes of an unchanged loud canary fewer than 0.5 % are called moved; 0.2 % is stated."""
    generator = random.Random(4)
    moves = 0
    for _ in range(4000):
        drawn = [processes(*(100 * generator.gauss(1, 0.01) for _ in range(count))) for count in (7, 1)]
        shift = compare_canaries({"gemm": drawn[1]}, {"gemm": drawn[0]})
        assert shift is not None
        moves += shift.readings[0].has_moved
    assert 0 < moves / 4000 < 0.005
