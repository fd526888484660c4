"""The order of candidates that nobody timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.tools.tuner.static_rank import rank
from pytest_attnperf.tuning_records import Candidate, StaticFigures

FIGURES = StaticFigures(128, 0, 0, 32768, 2, 32, 4096, 100, 32)


def order(arch: str = "gfx942", **changed: dict[str, Any]) -> str:
    """Names of candidates in rank, each with these figures changed."""
    known = {Candidate({}, name): replace(FIGURES, **figures) for name, figures in changed.items()}
    return " ".join(candidate.label for candidate in rank(known, arch))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"matrix": 5, "occupancy": 1}, {"spills": 16}),
        ({"spills": 15, "registers": 96}, {}),
        ({"spills": None, "scratch_bytes": 0}, {"spills": None, "scratch_bytes": 256}),
        ({"matrix": 40, "occupancy": 1}, {"matrix": 20}),
        ({"loop_lds": 16, "occupancy": 1}, {"loop_lds": 64}),
        ({"occupancy": 2, "registers": 256}, {"occupancy": 1}),
        ({"registers": 96}, {"occupancy": 4}),
        ({"registers": 96}, {"registers": 160}),
        ({"code_bytes": 2000}, {"code_bytes": 9000}),
        ({}, {"matrix": None}),
        ({}, {"occupancy": None}),
        ({}, {"matrix": 0}),
    ],
)
def test_what_costs_most_counts_first(better: dict[str, Any], worse: dict[str, Any]) -> None:
    """Spills, then matrix share, LDS traffic, waves up to two, registers, size; what is not known comes last."""
    assert order(a=better, b=worse) == "a b"
    assert order(b=better, a=worse) == "b a"


def test_equal_candidates_keep_the_order_of_their_names() -> None:
    """The same figures give the same order, however they are listed."""
    assert order(c={}, a={}, b={}) == order(b={}, c={}, a={}) == "a b c"


def test_small_differences_do_not_hide_a_later_figure() -> None:
    """One point of matrix share is less than a step: the waves decide."""
    assert order(a={"matrix": 31, "occupancy": 1}, b={"matrix": 30, "occupancy": 2}) == "b a"


def test_three_warps_of_a_sub_partition_count_on_nvidia() -> None:
    """Hopper's warp groups are three warps; two are enough on AMD."""
    changed = {"a": {"occupancy": 2, "registers": 96}, "b": {"occupancy": 3, "registers": 160}}
    assert (order("gfx942", **changed), order("sm_90", **changed)) == ("a b", "b a")
