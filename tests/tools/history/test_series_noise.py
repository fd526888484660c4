from __future__ import annotations

import random

import pytest

from pytest_attnperf.tools.history.series_noise import NOISE_FLOOR, level_noise, step_noise, without_lone


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
    assert without_lone([0, 0, 0, 1, 0, 0, 0], 0.01) == [0] * 7
    assert without_lone([0, 0, 0, 1, 1, 0, 0, 0], 0.01) == [0] * 8
    assert without_lone([0, 0, 0, 1, 1, 1, 0, 0, 0], 0.01) == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert without_lone([0, 0, 0, 0, 1, 1, 1, 1], 0.01) == [0, 0, 0, 0, 1, 1, 1, 1]
