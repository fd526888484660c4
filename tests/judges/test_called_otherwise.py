"""Functions that are wrong only where nobody asks for gradients, or for that of one input; and honest twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness.budget import APART
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.session.case_records import MEMORY_GROWN
from pytest_attnperf.workloads import gradients
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A product behind a tanh."""
    return torch.tanh(x) * w


def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same, of code of its own."""
    return w * torch.tanh(x)


def make_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x and w (256, 256): large enough that one draw of the reference makes a budget."""
    return torch.randn(256, 256), torch.randn(256, 256)


def without_gradients(how: str) -> Callable[..., torch.Tensor]:
    """Loses the last column unless gradients are asked for, which is seen of the mode or of the inputs."""

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        asked = {"mode": torch.is_grad_enabled(), "inputs": x.requires_grad or w.requires_grad}.get(how, True)
        out = kernel(x, w)
        return out if asked else torch.cat((out[:, :-1], torch.zeros_like(out[:, -1:])), -1)

    return call


class Product(torch.autograd.Function):
    """As `kernel`; `fault` names the input whose gradient is wrong where no other is asked for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, fault: str) -> torch.Tensor:
        """Keeps what backward needs."""
        ctx.save_for_backward(x, w)
        ctx.fault = fault
        return kernel(x, w)

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """Only what is asked for."""
        x, w = ctx.saved_tensors
        of_x, of_w, _ = ctx.needs_input_grad
        y = torch.tanh(x)
        dx = incoming[0] * w * (1 - y * y) if of_x else None
        dw = incoming[0] * y if of_w else None
        if dx is not None and dw is None and ctx.fault == "x":
            dx[-1] = 0
        if dw is not None and dx is None and ctx.fault == "w":
            dw = dw * 1.01
        return dx, dw, None


def checked(fn: Callable[..., Any], times: str = "both", **more: Any) -> CheckReport:
    """What is said of a function."""
    workload = AdHoc("x", make_inputs, more.pop("reference", plain), times=times, **more)
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(0, 1, 2))
    subject.prepare()
    return subject.check()


@pytest.mark.parametrize(("how", "times"), [("mode", "both"), ("inputs", "forward"), ("mode", "backward")])
def test_what_is_wrong_without_gradients_is_incorrect(how: str, times: str) -> None:
    """Whichever pass is timed, and however the function finds out; and the text says when it is wrong."""
    found = checked(without_gradients(how), times).problems
    assert found
    assert all(problem.startswith(APART) and "'out'" in problem for problem in found)


@pytest.mark.parametrize(("fault", "times"), [("x", "both"), ("w", "forward"), ("w", "backward")])
def test_a_gradient_that_is_wrong_alone_is_incorrect(fault: str, times: str) -> None:
    """The text names the gradient; that of the other input is right."""
    found = checked(lambda x, w: Product.apply(x, w, fault), times).problems
    assert found
    assert all(problem.startswith(APART) and f"'grad_{fault}'" in problem for problem in found)


@pytest.mark.parametrize("times", gradients.PASSES)
def test_honest_twins_pass(times: str) -> None:
    """The same functions without the mistake, and nothing is noted of them."""
    for fn in (without_gradients("never"), lambda x, w: Product.apply(x, w, "")):
        report = checked(fn, times)
        assert report.right, report.problems
        assert report.notes == ()


def test_a_kept_result_is_not_the_answer() -> None:
    """A function that gives a copy of its last result where no gradients are asked for is wrong."""
    kept: list[torch.Tensor] = []

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return kept[-1].clone()
        out = kernel(x, w)
        kept.append(out.detach().clone())
        return out

    assert any(problem.startswith(APART) for problem in checked(call).problems)


def test_what_cannot_be_called_so_is_noted() -> None:
    """A function for training only accuses nobody: a note says what was not proven, and the rest is."""

    def trains(fault: str) -> Callable[..., Any]:
        def call(x: torch.Tensor, w: torch.Tensor) -> Any:
            if not torch.is_grad_enabled():
                raise RuntimeError("this kernel is for training")
            return Product.apply(x, w, fault)

        return call

    report = checked(trains(""))
    assert report.right
    assert report.notes == ("not proven under no_grad, which raises RuntimeError: this kernel is for training",)
    assert not checked(trains("w")).right


def test_an_output_that_only_training_has_is_noted() -> None:
    """A log-sum-exp that is saved for the backward pass alone may be missing without one."""

    def both(x: torch.Tensor, w: torch.Tensor) -> Any:
        out = kernel(x, w)
        return {"out": out, "size": out.detach().square().sum() if torch.is_grad_enabled() else None}

    report = checked(both, reference=lambda x, w: {"out": plain(x, w), "size": plain(x, w).detach().square().sum()})
    assert report.right
    assert report.notes == ("not proven under no_grad: 'size' is not returned there",)


def test_what_a_forward_pass_saves_is_in_the_peak_of_a_backward_pass() -> None:
    """Where the backward pass alone is timed, a forward pass that keeps more for it shows in the memory of a call."""

    class Saves(torch.autograd.Function):
        """Keeps everything that backward needs, computed already, in fp64."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(x)
            ctx.save_for_backward((w * (1 - y * y)).double(), y.double(), (y * w).double())
            return kernel(x, w)

        @staticmethod
        def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
            of_x, of_w, _ = ctx.saved_tensors
            return (incoming[0] * of_x).float(), (incoming[0] * of_w).float()

    def peak(fn: Callable[..., Any]) -> int:
        workload = AdHoc("x", make_inputs, plain, times="backward")
        subject = TorchSubject(
            CallableBackend("mine", fn), workload, DeviceInfo("cpu", "cpu-x86_64", "t"), Seeds(0, 1, 2)
        )
        subject.prepare()
        assert subject.check().right
        return subject.finish().peak_memory_bytes or 0

    lean = peak(lambda x, w: Product.apply(x, w, ""))
    assert peak(Saves.apply) > MEMORY_GROWN * lean > 0


def test_what_a_call_overwrites_is_given_anew() -> None:
    """A backward pass that writes its gradient over an input is right when each is asked for alone, too."""

    class Overwrites(torch.autograd.Function):
        """Writes the gradient of x over x."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return kernel(x, w)

        @staticmethod
        def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
            x, w = ctx.saved_tensors
            y = torch.tanh(x)
            return x.data.copy_(incoming[0] * w * (1 - y * y)), incoming[0] * y

    for times in gradients.PASSES:
        assert checked(Overwrites.apply, times, overwrites=("x",)).problems == ()
