from __future__ import annotations

import builtins
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.tools.history.change_points import (
    NOISE_FLOOR,
    level_noise,
    one_sided_p,
    replace_outliers,
    smallest_p,
    step_noise,
    with_changes,
)
from pytest_attnperf.tools.history.history_failures import HistoryError

NOISE = 0.003


def history(us: Sequence[float]) -> CaseHistory:
    """Points of commits c0, c1, ..."""
    points = tuple(HistoryPoint("2026-01-01", f"c{number}", "SAME", one) for number, one in enumerate(us))
    return CaseHistory("prefill/ck/w", "sm_90", "h200", points)


def noisy(seed: int, levels: Sequence[float], noise: float = NOISE) -> CaseHistory:
    """Log-normal points around `levels`."""
    draw = random.Random(seed)
    return history([level * math.exp(draw.gauss(0, noise)) for level in levels])


@pytest.mark.parametrize("at", [3, 20, 50, 97])
@pytest.mark.parametrize("ratio", [1.03, 1 / 1.03])
def test_a_step_of_3_percent_is_found_at_its_commit(at: int, ratio: float) -> None:
    """At 0.3 % noise it is the only change, within a point of its place, and of its size."""
    for seed in range(10):
        found = with_changes(noisy(seed, [100.0] * at + [100.0 * ratio] * (100 - at)))
        (change,) = found.changes
        assert abs(change.index - at) <= 1
        assert (change.last_before, change.first_after) == (f"c{change.index - 1}", f"c{change.index}")
        assert change.ratio == pytest.approx(ratio, rel=0.01)
        assert change.sigmas > 5


def test_flat_series_raise_no_alarm() -> None:
    """None in 200 series of 100 points, so that fewer than 1.5 % of such series have one (95 %)."""
    assert sum(bool(with_changes(noisy(seed, [100.0] * 100)).changes) for seed in range(200)) == 0


def test_a_drift_is_a_drift() -> None:
    """0.05 % per run, 5 % in all: no commit is blamed, and it is said."""
    for seed in range(10):
        found = with_changes(noisy(seed, [100 * (1 + 0.0005 * number) for number in range(100)]))
        assert found.changes == ()
        (note,) = found.notes
        assert note.startswith("drifts: slower by about 0.0")
        assert "over the last 100 runs, +4" in note or "over the last 100 runs, +5" in note
    thinned = replace(noisy(0, [100 * (1 + 0.0005 * number) for number in range(100)]), runs=5000)
    assert " % per sampled run over the last 100 sampled runs, " in with_changes(thinned).notes[0]
    assert with_changes(noisy(1, [100.0] * 100)).notes == ()
    (faster,) = with_changes(noisy(1, [100 * (1 - 0.0005 * number) for number in range(100)])).notes
    assert faster.startswith("drifts: faster by about")
    (slow,) = with_changes(noisy(1, [100 * (1 + 0.00002 * number) for number in range(1000)])).notes
    assert slow.startswith(("drifts: slower by about 0.002", "drifts: slower by about 0.001"))


@pytest.mark.parametrize("bad", [[50], [0], [99], [50, 51], [10, 60, 90]])
def test_outliers_are_no_change(bad: list[int]) -> None:
    """A run or two that were far off, anywhere, are not where the time changed for good."""
    levels = [130.0 if number in bad else 100.0 for number in range(100)]
    assert with_changes(noisy(3, levels)).changes == ()
    stepped = [level * (1.03 if number >= 30 else 1) for number, level in enumerate(levels)]
    assert [abs(change.index - 30) <= 1 for change in with_changes(noisy(3, stepped)).changes] == [True]


def test_a_change_smaller_than_one_percent_is_none() -> None:
    """However quiet the case is; and at 1 % noise 3 % is less than four standard deviations."""
    assert with_changes(noisy(1, [100.0] * 50 + [100.8] * 50, 0.0001)).changes == ()
    assert with_changes(noisy(1, [100.0] * 50 + [103.0] * 50, 0.01)).changes == ()


def test_there_and_back_are_two_changes() -> None:
    """A regression that was repaired."""
    found = with_changes(noisy(5, [100.0] * 30 + [104.0] * 10 + [100.0] * 30))
    assert [change.index for change in found.changes] == [30, 40]
    assert [round(change.ratio, 2) for change in found.changes] == [1.04, 0.96]


def test_too_few_points_are_said() -> None:
    """Seven are not looked at; eight are."""
    found = with_changes(history([100.0] * 4 + [200.0] * 3))
    assert (found.changes, found.notes) == ((), ("too few points to look for changes: 7, at least 8",))
    assert [change.index for change in with_changes(history([100.0] * 4 + [200.0] * 4)).changes] == [4]
    assert "too few points" in with_changes(history([])).notes[0]


def test_what_changed_beside_the_code_is_named() -> None:
    """A driver that came with the change may be its cause."""
    flat = history([100.0] * 5 + [110.0] * 5)
    before, after = {"torch": "2.10", "driver": "1"}, {"torch": "2.10", "driver": "2", "rocm": "7"}
    points = [replace(one, environment=before if number < 5 else after) for number, one in enumerate(flat.points)]
    (change,) = with_changes(replace(flat, points=tuple(points))).changes
    assert change.environment == ("driver: 1 -> 2", "rocm: absent -> 7")


def test_times_of_wrong_results_are_not_looked_at() -> None:
    """Their indices still count: a change is named by its place among all points."""
    flat = history([100.0] * 10 + [10.0] * 5 + [110.0] * 10)
    wrong = [replace(one, verdict="INCORRECT") if one.median_us == 10.0 else one for one in flat.points]
    (change,) = with_changes(replace(flat, points=tuple(wrong))).changes
    assert (change.index, change.last_before, change.first_after) == (15, "c9", "c15")


def test_missing_ruptures_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said as it is typed."""
    real = builtins.__import__

    def fake(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "ruptures":
            raise ModuleNotFoundError("No module named 'ruptures'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(HistoryError, match=r"change points need ruptures .*pip install 'pytest-attnperf\[history\]'"):
        with_changes(history([100.0] * 8))


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 4), (4, 4)])
def test_probabilities_are_shares_of_all_orders(sizes: tuple[int, int]) -> None:
    """Against counting every order of so few ranks."""
    ranks = range(sum(sizes))
    orders = [
        (lower, [rank for rank in ranks if rank not in lower]) for lower in itertools.combinations(ranks, sizes[0])
    ]

    def inversions(lower: tuple[int, ...], higher: list[int]) -> int:
        return sum(low > high for low in lower for high in higher)

    for lower, higher in orders:
        seen = inversions(lower, higher)
        share = sum(inversions(*order) <= seen for order in orders) / len(orders)
        assert one_sided_p(lower, higher) == pytest.approx(share)


def test_complete_separation_is_the_smallest() -> None:
    """Of 20 and 20 values one of C(40, 20) orders."""
    assert smallest_p(20, 20) == pytest.approx(1 / math.comb(40, 20))
    assert one_sided_p(range(20), range(20, 40)) == smallest_p(20, 20)
    assert smallest_p(3, 17) == smallest_p(17, 3) == pytest.approx(1 / math.comb(20, 3))


def test_ties_make_no_difference_look_larger() -> None:
    """Equal values prove nothing."""
    assert one_sided_p([1.0] * 5, [1.0] * 5) > 0.5
    assert one_sided_p([1, 2, 3], [3, 4, 5]) >= one_sided_p([1, 2, 3], [4, 5, 6])


def test_an_empty_side_is_refused() -> None:
    """There is nothing to compare."""
    with pytest.raises(ValueError, match="0 and 2 values cannot be compared"):
        one_sided_p([], [1.0, 2.0])


def test_noise_is_that_of_the_points_whatever_the_levels() -> None:
    """Within a tenth, over 400 points with a step and a few outliers."""
    draw = random.Random(1)
    logs = [0.2 * (number >= 200) + draw.gauss(0, 0.02) for number in range(400)]
    logs[50] = logs[300] = 5.0
    assert step_noise(logs) == pytest.approx(0.02, rel=0.15)
    assert level_noise(logs, [200, 400]) == pytest.approx(0.02, rel=0.1)
    assert level_noise(logs, [400]) > 0.05


def test_equal_points_have_the_floor() -> None:
    """A case that repeats to the digit still differs from day to day."""
    assert step_noise([1.0] * 8) == level_noise([1.0] * 8, [8]) == NOISE_FLOOR


def test_two_points_are_needed() -> None:
    """One has no spread."""
    with pytest.raises(ValueError, match="noise needs two points, got 1"):
        step_noise([1.0])


def test_lone_points_are_put_to_their_neighbours_and_levels_stay() -> None:
    """One outlier or two beside each other go; three are a level, and a step keeps its place."""
    assert replace_outliers([0, 0, 0, 1, 0, 0, 0], 0.01) == [0] * 7
    assert replace_outliers([0, 0, 0, 1, 1, 0, 0, 0], 0.01) == [0] * 8
    assert replace_outliers([0, 0, 0, 1, 1, 1, 0, 0, 0], 0.01) == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert replace_outliers([0, 0, 0, 0, 1, 1, 1, 1], 0.01) == [0, 0, 0, 0, 1, 1, 1, 1]
