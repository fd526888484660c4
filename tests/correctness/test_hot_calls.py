"""A call right after another computes what one after a pause does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness.repeated_calls import compare_hot_calls

X, W = torch.randn(64, 32), torch.randn(32)
KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "norm": lambda x, w: torch.nn.functional.rms_norm(x, (32,), w),
    "another order in every call": lambda x, w: x[:, (order := torch.randperm(32))] @ w[order],
    "logarithm": lambda x, w: x.log(),
    "index of the largest": lambda x, w: x.argmax(-1),
}


def found(kernel: Callable[[Any, Any], Any]) -> list[str]:
    """What is said of a kernel of X and W."""
    tensors = (X.clone(), W.clone(), torch.arange(8))
    said = compare_hot_calls(tensors, (), lambda: [kernel(*tensors[:2]).clone()])
    assert torch.equal(tensors[0], X)
    assert torch.equal(tensors[1], W)
    return said


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_calls_that_compute_are_right_in_a_row(kernel: Callable[[Any, Any], Any]) -> None:
    """Also one that sums in another order every time, and one that gives NaN; inputs are as they were afterwards."""
    assert found(kernel) == []


def test_a_call_that_gives_its_last_result_in_a_hurry_is_named() -> None:
    """What is returned without a pause belongs to other inputs."""
    kept: dict[str, Any] = {"at": 0.0}

    def kernel(x: Any, w: Any) -> Any:
        if time.perf_counter() - kept["at"] > 0.003:
            kept["out"] = x * w
        kept["at"] = time.perf_counter()
        return kept["out"]

    (said,) = found(kernel)
    assert said.startswith("result 0 of a call that comes right after another is off by ")


def test_inputs_that_must_not_change_are_left_alone() -> None:
    """Integers are indices, and what a call writes is not this check's to change."""
    x, index = torch.zeros(4, 8), torch.arange(4)

    def call() -> list[torch.Tensor]:
        assert torch.equal(index, torch.arange(4))
        assert not x.any()
        return [x[index].clone()]

    assert compare_hot_calls((x, index), (0,), call) == []


def test_calls_may_ask_for_gradients() -> None:
    """What changes their inputs does so without a graph, and leaves the call's own mode alone."""
    x = torch.ones(4, 8)
    assert compare_hot_calls((x,), (), lambda: [torch.tensor(float(torch.is_grad_enabled()))]) == []
    seen = []
    compare_hot_calls((x,), (), lambda: [seen.append(torch.is_grad_enabled()) or x.clone()])  # type: ignore[func-returns-value]
    assert set(seen) == {True}
