from __future__ import annotations

import pytest
import torch

from pytest_attnperf.measure.allocations import Allocations, count_allocations


def twice(x: torch.Tensor) -> torch.Tensor:
    """One buffer that goes at once, and one that is given back."""
    return (x + x).relu()


def test_each_request_is_counted_with_its_bytes() -> None:
    """Memory that is given back within the call counts like the result; a view asks for none."""
    x = torch.zeros(64, 32)
    size = x.numel() * 4
    assert count_allocations(lambda: twice(x), "cpu") == Allocations(2, 2 * size)
    assert count_allocations(lambda: x[1:].t(), "cpu") == Allocations(0, 0)


def test_a_torch_without_its_profiler_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing counts memory on a CPU, nothing is said."""
    monkeypatch.setattr(torch._C._autograd, "kineto_available", lambda: False)
    assert count_allocations(lambda: torch.zeros(8), "cpu") is None


@pytest.mark.gpu
def test_each_request_is_counted_on_a_gpu() -> None:
    """The caching allocator is asked twice; sizes are those asked for, not those of its blocks."""
    x = torch.zeros(64, 32, device="cuda")
    twice(x)
    assert count_allocations(lambda: twice(x), "cuda") == Allocations(2, 2 * x.numel() * 4)
    assert count_allocations(lambda: x[1:].t(), "cuda") == Allocations(0, 0)
