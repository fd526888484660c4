from __future__ import annotations

import cProfile

import torch

from pytest_attnperf.correctness.shared_code import shared, warning


def helper(x: torch.Tensor) -> torch.Tensor:
    """What both may use."""
    return torch.softmax(x, -1)


def kernel() -> torch.Tensor:
    """By the helper."""
    return helper(torch.ones(3))


def plain() -> torch.Tensor:
    """By torch alone, which everybody shares."""
    return torch.nn.functional.softmax(torch.ones(3), dim=-1)


def test_code_that_both_reach_is_named() -> None:
    """A reference that calls what the kernel calls is told of, with the function and where it stands."""
    (found,) = shared(kernel, lambda: helper(torch.zeros(3)))
    assert found.startswith("helper (test_shared_code.py:")
    assert "a fault there would not be seen" in warning([found])


def test_torch_is_shared_by_everybody() -> None:
    """Nothing is said of torch, the standard library, and code that only one of both reaches."""
    assert shared(kernel, plain) == []
    assert shared(plain, plain) != []
    assert warning([]) == ""


def test_a_profiler_goes_on() -> None:
    """A run under cProfile is profiled before and behind it, and nothing breaks."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        shared(kernel, plain)
        plain()
    finally:
        profiler.disable()
    seen = {getattr(entry.code, "co_name", "") for entry in profiler.getstats()}
    assert {"plain"} <= seen


def test_a_long_list_is_cut() -> None:
    """Three are named, the rest counted."""
    assert "a, b, c and 2 more;" in warning(["a", "b", "c", "d", "e"])
