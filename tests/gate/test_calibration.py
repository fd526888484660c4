from __future__ import annotations

import random

import pytest

from pytest_attnperf.gate.calibration import Calibration, Shares, calibrate
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary

RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))


def measured(*medians_us: float) -> Measurement:
    """A right case of these processes."""
    processes = tuple(ProcessSummary(us, us, us, (us,), 1, "graph") for us in medians_us)
    return Measurement(processes, (RIGHT,) * len(processes))


def drawn(count: int, sd: float = 0.0055, seed: int = 1, median_us: float = 200.0) -> Measurement:
    """So many fresh processes of unchanged code."""
    generator = random.Random(seed)
    return measured(*(median_us * generator.gauss(1, sd) for _ in range(count)))


def calibrated(cases: dict[str, Measurement], policy: Policy | None = None, deals: int = 200) -> Calibration:
    """Calibrate with one policy for all."""
    return calibrate(cases, dict.fromkeys(cases, policy or Policy()), deals=deals)


def test_too_few_processes_give_standard_deviations_only() -> None:
    """With ten processes nothing is dealt, nothing is excluded, and the note says how many would be needed."""
    calibration = calibrated({"a": measured(99.0, 101.0, *[100.0] * 8)})
    (case,) = calibration.cases
    assert case.relative_sd == pytest.approx(0.0047, rel=0.01)
    assert (case.slower_share, case.second_noise, case.smallest_threshold_percent) == (None, None, None)
    assert (calibration.red_share, calibration.independent_sets, calibration.red_bound95) == (None, 0, 1.0)
    assert calibration.note == (
        "10 processes give standard deviations only: a decision needs 11 different ones (7 stored, 1 and 3 new)"
    )


def test_the_interval_of_a_standard_deviation_covers() -> None:
    """Over 600 calibrations the 95 % interval holds the true spread 95 +- 2.5 % of the time."""
    held = 0
    for seed in range(600):
        (case,) = calibrated({"a": drawn(8, 0.004, seed)}).cases
        held += case.sd_interval95[0] <= 0.004 <= case.sd_interval95[1]
    assert 0.925 < held / 600 < 0.975


def test_quiet_cases_pass_their_policy() -> None:
    """With processes 0.2 % apart no deal asks for a second look at 2 %, and less than 1 % would do as threshold."""
    calibration = calibrated({"a": drawn(22, 0.002), "b": drawn(22, 0.002, seed=2)})
    for case in calibration.cases:
        assert (case.second_look_share, case.slower_share, case.tighter) == (0.0, 0.0, False)
        assert case.smallest_threshold_percent is not None
        assert 0 < case.smallest_threshold_percent < 1
    assert (calibration.red_share, calibration.independent_sets, calibration.independent_red) == (0.0, 2, 0)


def test_a_threshold_tighter_than_the_noise_is_found() -> None:
    """A user's 0.5 % on processes 0.8 % apart asks for second looks and is called tighter than the noise."""
    (case,) = calibrated({"a": drawn(33, 0.008)}, Policy(threshold_percent=0.5, floor_us=0)).cases
    assert case.tighter
    assert case.first_noise is not None
    assert case.second_noise is not None
    assert case.first_noise > case.second_noise > 0.005
    assert case.second_look_share is not None
    assert case.second_look_share > 0.1


def test_the_smallest_threshold_is_beyond_every_deal() -> None:
    """With the reported threshold no deal is SLOWER, however small the noise is believed; with less, one may be."""
    noisy = measured(*[100.0] * 16, *[103.04] * 6)
    (case,) = calibrated({"a": noisy}, Policy(threshold_percent=0, floor_us=0)).cases
    assert case.smallest_threshold_percent == 3.1
    (again,) = calibrated({"a": noisy}, Policy(threshold_percent=3.1, floor_us=0)).cases
    assert again.slower_share == 0.0


def test_an_unchanged_case_that_the_gate_would_fail_is_counted() -> None:
    """Processes in two states, most of them in the faster one, make false alarms, and their share is printed."""
    two_states = measured(*([100.0] * 4 + [106.0]) * 6)
    calibration = calibrated({"a": two_states, **{str(n): drawn(30, 0.002, n) for n in range(20)}})
    assert calibration.red_share is not None
    assert calibration.red_share > 0
    assert calibration.cases[0].slower_share == calibration.red_share


def test_what_is_proven_is_counted_in_disjoint_sets() -> None:
    """35 processes are three independent suite runs: however many deals, they exclude no rate below 63 %."""
    calibration = calibrated({"a": drawn(35), "b": drawn(33)})
    assert (calibration.processes, calibration.independent_sets) == (33, 3)
    assert calibration.red_bound95 == pytest.approx(1 - 0.05 ** (1 / 3))
    assert calibration.note == (
        "200 deals of 33 processes are 3 independent suite runs: with 0 red, "
        "a rate of red runs above 63 % is excluded at 95 %, and nothing lower"
    )


def test_no_process_is_on_two_sides_or_in_two_sets() -> None:
    """Of two sets, the one whose last four processes are slow is red: it compares them with its first seven alone."""
    calibration = calibrated({"a": measured(*[100.0] * 18, *[106.0] * 4)})
    assert (calibration.independent_sets, calibration.independent_red) == (2, 1)
    assert calibration.red_bound95 == pytest.approx(0.9747, abs=1e-4)


def test_one_slow_process_raises_no_threshold() -> None:
    """A single outlier may make a first look but not a second: no threshold is needed against it."""
    (case,) = calibrated({"a": measured(*[100.0] * 21, 130.0)}).cases
    assert case.second_look_share is not None
    assert case.second_look_share > 0
    assert case.smallest_threshold_percent == 0.0


def test_other_shares_need_other_numbers() -> None:
    """A gate with fewer stored and new processes can be calibrated with fewer."""
    cases = {"a": drawn(8)}
    calibration = calibrate(cases, {"a": Policy()}, shares=Shares(4, 1, 2), deals=20)
    assert (calibration.independent_sets, calibration.deals) == (1, 20)


def test_a_seed_gives_one_answer() -> None:
    """The same processes and seed give the same calibration, another seed other deals."""
    cases, policies = {"a": drawn(22, 0.02)}, {"a": Policy()}
    one, same, other = (calibrate(cases, policies, deals=50, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_cases_of_one_process_are_dealt_together() -> None:
    """A process that is slow in every case makes as many red runs as it does in one case, not more."""
    slow = measured(*([100.0] * 4 + [106.0]) * 6)
    together = calibrated({"a": slow, "b": slow})
    assert together.cases[0].second_look_share == together.cases[1].second_look_share
    assert together.red_share == together.cases[0].slower_share == together.cases[1].slower_share


@pytest.mark.parametrize(
    ("cases", "text"),
    [
        ({}, "at least one case, got none"),
        ({"a": measured(1.0)}, "case 'a' has 1 process; a standard deviation needs at least 2"),
        ({"b": measured(1.0, 2.0)}, "case 'b' has no policy; there are policies of a"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(cases: dict[str, Measurement], text: str) -> None:
    """No cases, a single process and a case without a policy are errors that name it."""
    with pytest.raises(ValueError, match=text):
        calibrate(cases, {"a": Policy()})
