"""A reference that is one fused operator of torch: kernels that round between its steps are right, faults are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """q, k and v (1, 11, 96, 64)."""
    return tuple(torch.randn(1, 11, 96, 64).to(torch.float16) for _ in range(3))


def scaled_first(scale: float) -> Callable[..., torch.Tensor]:
    """Attention of a q that is scaled for exp2, and rounded, before the product, as many flash kernels do."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q * (scale * 1.4426950408889634)).float() @ k.float().mT
        weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
        return ((weights / weights.sum(-1, keepdim=True)).to(q.dtype).float() @ v.float()).to(q.dtype)

    return call


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """By position."""
    return F.scaled_dot_product_attention(q, k, v)


def fused_by_name(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """By name."""
    return F.scaled_dot_product_attention(query=q, key=k, value=v)


def problems(fn: Callable[..., Any], reference: Callable[..., Any], seed: int) -> tuple[str, ...]:
    """What a check finds."""
    workload = AdHoc("x", inputs, reference)
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(timed=0, check=seed, final=seed + 1))
    subject.prepare()
    return subject.check().problems


@pytest.mark.parametrize(("reference", "seeds"), [(fused, range(1, 8)), (fused_by_name, range(1, 3))])
def test_a_kernel_that_rounds_between_the_steps_is_right(reference: Callable[..., Any], seeds: range) -> None:
    """As it would be beside the same reference written in steps."""
    for seed in seeds:
        assert problems(scaled_first(0.125), reference, seed) == ()


def test_another_scale_is_told() -> None:
    """Two per cent off."""
    for seed in range(1, 4):
        assert any("off by" in problem for problem in problems(scaled_first(0.1275), fused, seed))
