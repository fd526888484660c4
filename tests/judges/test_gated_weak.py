"""References too weak to fail anything are refused; one huge row excuses no other; and honest twins pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness.references import BadReferenceError
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
BF16 = torch.bfloat16


def checked(fn: Callable[..., Any], inputs: Any, reference: Any, seed: int = 1) -> CheckReport:
    """What is said of a function."""
    subject = TorchSubject(CallableBackend("mine", fn), AdHoc("x", inputs, reference), CPU, Seeds(0, seed, seed + 1))
    subject.prepare()
    return subject.check()


def variance(x: torch.Tensor) -> torch.Tensor:
    """As nobody should write it."""
    return x.square().mean(-1) - x.mean(-1).square()


def in_fp32(x: torch.Tensor) -> torch.Tensor:
    """The same of fp32, rounded once."""
    return torch.var(x.float(), -1, correction=0).to(x.dtype)


def far_from_zero(seed: int) -> torch.Tensor:
    """(1024, 64) near 100."""
    return (torch.randn(1024, 64) + 100).to(BF16)


def test_a_reference_that_zeros_would_pass_for_is_refused() -> None:
    """Variances that cancel in bf16 are all error: the text says how much, and what to do; in fp32 they are judged."""
    with pytest.raises(BadReferenceError, match=r"'out' is too imprecise: .* off by .* result itself is .* in fp32"):
        checked(in_fp32, far_from_zero, variance)
    assert checked(in_fp32, far_from_zero, in_fp32).problems == ()
    assert checked(lambda x: torch.zeros_like(x[:, 0]), far_from_zero, in_fp32).problems != ()


def test_a_variance_in_one_pass_shows_where_rows_are_far_from_zero() -> None:
    """E[x^2] - E[x]^2 of fp32 loses a norm's digits there, and nowhere else; two passes are right."""

    def norm(of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (x - x.mean(-1, keepdim=True)) * (of(x).clamp(min=0).unsqueeze(-1) + 1e-6).rsqrt()

    def rows(mean: float) -> Callable[[int], torch.Tensor]:
        return lambda seed: torch.randn(128, 256) + mean * (torch.arange(128) % 16 == 0).unsqueeze(-1)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (256,), eps=1e-6)

    assert checked(norm(variance), rows(0.0), plain).problems == ()
    assert checked(norm(variance), rows(64.0), plain).problems != ()
    assert checked(norm(in_fp32), rows(64.0), plain).problems == ()


def test_a_result_that_is_nothing_but_rounding_is_no_fault_of_its_reference() -> None:
    """What a softmax takes no notice of has a gradient of zero, in which everybody's rounding is as good."""

    def shifts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.softmax(x, -1)
        return weights, weights.sum(-1) - 1.0

    report = checked(shifts, lambda: torch.randn(1024, 64), shifts)
    assert report.problems == ()


def test_gradients_that_cancel_to_nothing_accuse_nobody_of_rounding() -> None:
    """Where the incoming gradient lies along the result of a norm, a kernel that keeps the rounded result is right."""

    class Norm(torch.autograd.Function):
        """Keeps its result in bf16, as kernels do."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            scale = x.float().square().sum(-1, keepdim=True).rsqrt()
            ctx.save_for_backward(out := (x.float() * scale).to(x.dtype), scale)
            return out

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            out, scale = (tensor.float() for tensor in ctx.saved_tensors)
            along = (grad.float() * out).sum(-1, keepdim=True)
            return ((grad.float() - along * out) * scale).to(BF16)

    def gradient(norm: Any) -> Any:
        def of(x: torch.Tensor) -> torch.Tensor:
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                (found,) = torch.autograd.grad(norm(leaf), leaf, leaf.detach())
            return found

        return of

    def plain(x: torch.Tensor) -> torch.Tensor:
        return (x.float() * x.float().square().sum(-1, keepdim=True).rsqrt()).to(x.dtype)

    def both(norm: Any) -> Any:
        return lambda x: (norm(x), gradient(norm)(x))

    report = checked(both(Norm.apply), lambda: torch.randn(1024, 64, dtype=BF16), both(plain))
    assert report.problems == ()
    reverted = checked(both(lambda x: Norm.apply(x) * 1.1), lambda: torch.randn(1024, 64, dtype=BF16), both(plain))
    assert reverted.problems != ()


@pytest.mark.parametrize("seeds", [range(1, 2), pytest.param(range(2, 9), marks=pytest.mark.soak)])
@pytest.mark.parametrize("columns", [0, 3, 8, 31, 32, 256])
def test_eight_rows_of_zeros_beside_a_huge_one_are_incorrect(columns: int, seeds: range) -> None:
    """Rows have budgets of their own, however short they are, also in outputs of one dimension."""

    def inputs(seed: int) -> torch.Tensor:
        x = torch.randn(9, columns) if columns else torch.randn(9)
        x[4] *= 1e4
        return x.to(BF16)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x + x

    def only_the_huge_one(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        out[4] = 2 * x[4]
        return out

    for seed in seeds:
        assert checked(lambda x: 2 * x, inputs, doubled, seed).problems == ()
        problems = checked(only_the_huge_one, inputs, doubled, seed).problems
        assert any(problem.startswith("timed inputs: 'out' is off by") for problem in problems)
