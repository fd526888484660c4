"""Work that an outsider moved to where no clock runs: the judge tells it, and lets its honest twin pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from pytest_attnperf.backends import Backend
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.base import Workload

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def problems(backend: Backend, workload: Workload, seed: int = 1) -> tuple[str, ...]:
    """What a check and the last call find."""
    subject = TorchSubject(backend, workload, CPU, Seeds(timed=0, check=seed, final=seed + 1))
    subject.prepare()
    report = subject.check()
    return report.problems or subject.finish().check.problems


def found_in_callers(name: str) -> torch.Tensor | None:
    """The first tensor of what a caller's variable of this name holds."""
    frame = sys._getframe()
    while (above := frame.f_back) is not None:
        frame = above
        if held := frame.f_locals.get(name):
            return torch.as_tensor(held[0])
    return None


class Product(torch.autograd.Function):
    """x @ w; with `peeks`, its gradients are computed in the forward pass wherever the incoming one is found."""

    peeks = False

    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Keeps its inputs, or what backward is to return."""
        ctx.save_for_backward(x, w)
        incoming = found_in_callers("incoming") if cls.peeks else None
        ctx.early = None if incoming is None else (incoming @ w.mT, x.mT @ incoming)
        return x @ w

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """dy @ w.T and x.T @ dy."""
        x, w = ctx.saved_tensors
        return ctx.early or (incoming[0] @ w.mT, x.mT @ incoming[0])


class PeekingProduct(Product):
    """Works before anybody asks for a gradient."""

    peeks = True


def test_gradients_cannot_be_computed_before_the_backward_pass_is_timed() -> None:
    """Where only the backward pass is timed, the incoming gradient is another one during the forward pass, so that a
    gradient computed there is wrong; every bit of it is back before the backward pass."""

    def found(fn: Callable[..., Any]) -> tuple[str, ...]:
        workload = AdHoc("x", lambda: (torch.randn(64, 48), torch.randn(48, 32)), torch.matmul, times="backward")
        return problems(CallableBackend("mine", fn), workload)

    said = found(PeekingProduct.apply)
    assert any("'grad_" in text and "off by" in text for text in said), said
    assert found(Product.apply) == ()
