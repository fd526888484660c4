from __future__ import annotations

import pytest
import torch

from pytest_attnperf.correctness.lines import find_worst_line, measure_lines
from pytest_attnperf.correctness.metrics import compare_output, measure_yardstick
from pytest_attnperf.records import Tolerance

EPS = 2.0**-7


def rounded(truth: torch.Tensor) -> torch.Tensor:
    """As a kernel gives it."""
    return truth.bfloat16()


def normal(*shape: int) -> torch.Tensor:
    """The truth, in fp64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def named(truth: torch.Tensor, got: torch.Tensor) -> tuple[str, bool]:
    """The worst line of `got`, and whether it is beyond its budget."""
    line = find_worst_line(got, truth, measure_lines(rounded(truth), truth), 2.0, EPS)
    assert line is not None
    return line.name, line.error > line.allowed


@pytest.mark.parametrize(
    ("shape", "lost", "name"),
    [
        ((4096, 40), (-1,), "index 4095 of axis 0"),
        ((100, 1000), (slice(None), 999), "index 999 of axis 1"),
        ((2, 8, 50, 64), (1, 3, 49), "row (1, 3, 49)"),
        ((4, 64, 4), (1,), "index 1 of axis 0"),
    ],
)
def test_a_lost_line_is_beyond_its_budget_and_named(
    shape: tuple[int, ...], lost: tuple[object, ...], name: str
) -> None:
    """A row, a column, a head or a batch that is zero, of whatever many; without it nothing is beyond."""
    truth = normal(*shape)
    got = rounded(truth)
    assert not named(truth, got)[1]
    got[lost] = 0
    assert named(truth, got) == (name, True)


def test_large_rows_do_not_excuse_a_lost_ordinary_one() -> None:
    """With rows 64 times as large, their rounding is larger than an element elsewhere: only lines tell."""
    truth = normal(512, 100)
    truth[::8] *= 64
    truth[3] *= 0.25
    truth[5] *= 0.25
    got = rounded(truth)
    got[3] = 0
    figures = compare_output("check", "out", got, truth, measure_yardstick("out", truth, rounded(truth)), Tolerance())
    assert figures.max_error <= figures.max_budget
    assert (figures.line, figures.line_error > figures.line_budget) == ("index 3 of axis 0", True)


def test_of_few_short_lines_none_is_judged() -> None:
    """Among three lines of three elements none is typical; among none, none is the worst."""
    assert not measure_lines(rounded(normal(3, 3)), normal(3, 3))
    assert not measure_lines(rounded(normal(3)), normal(3))
    assert find_worst_line(rounded(normal(4, 4)), normal(4, 4), {}, 2.0, EPS) is None


@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 8), (9, 31), (9, 200), (2, 5, 7)])
def test_one_outlier_does_not_excuse_eight_lost_lines(shape: tuple[int, ...]) -> None:
    """Beside a row that is 10,000 times as large, rows of zeros are beyond their budgets, and rounded ones are not."""
    truth = normal(*shape)
    truth.view(9 if len(shape) < 3 else 10, -1)[4] *= 1e4
    got = rounded(truth)
    assert not named(truth, got)[1]
    kept = got.reshape(9 if len(shape) < 3 else 10, -1)[4].clone()
    got.zero_()
    got.view(9 if len(shape) < 3 else 10, -1)[4] = kept
    assert named(truth, got)[1]


def test_a_lucky_plain_computation_accuses_nobody() -> None:
    """Where it happens to be exact on a row, others may still round there; an exact reference allows a few steps."""
    truth = normal(64, 64)
    plain = rounded(truth)
    truth[5] = plain[5].double()
    got = plain.clone()
    got[5] = (truth[5] * (1 + EPS)).bfloat16()
    line = find_worst_line(got, truth, measure_lines(plain, truth), 2.0, EPS)
    assert line is not None
    assert line.error < line.allowed
