"""Work that an outsider moved to where no clock runs: the judge tells it, and lets its honest twin pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pytest_attnperf.backends import Backend, Declares, Outputs, Prepared, Tensors
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.softmax import Softmax

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)


def as_they_are(inputs: Tensors) -> Tensors:
    """No layout."""
    return inputs


@dataclass(frozen=True)
class Own(Backend):
    """A registered backend made of its three parts."""

    families = ("softmax", "backward")
    name: str = field(default="mine", init=False)
    cpu_flops_max: float = field(default=float("inf"), init=False)
    times_on_cpu: bool = field(default=True, kw_only=True)
    tolerance: Tolerance = field(default_factory=Tolerance, kw_only=True)
    call: Callable[..., Any]
    outputs: Callable[[Any], Outputs]
    convert: Callable[[Tensors], Tensors] = as_they_are
    declares: Declares = field(default_factory=Declares)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """On copies of what `convert` gives."""
        own = tuple(tensor.clone() for tensor in self.convert(inputs))
        return Prepared(self.call, own, self.convert, self.outputs, declares=self.declares)


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
        workload = AdHoc("x", lambda: (torch.randn(256, 64), torch.randn(64, 128)), torch.matmul, times="backward")
        return problems(CallableBackend("mine", fn), workload)

    said = found(PeekingProduct.apply)
    assert any("'grad_" in text and "off by" in text for text in said), said
    assert found(Product.apply) == ()


def attention_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, *_: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """(dq, dk, dv) of attention without a mask, as many key heads as query heads."""
    wide_q, wide_k, wide_v, wide_dout = (tensor.float().transpose(1, 2) for tensor in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5
    weights = torch.softmax(wide_q @ wide_k.mT * scale, -1)
    towards = wide_dout @ wide_v.mT
    scores = weights * (towards - (towards * weights).sum(-1, keepdim=True)) * scale
    found = (scores @ wide_k, scores.mT @ wide_q, weights.mT @ wide_dout)
    return tuple(gradient.transpose(1, 2).contiguous() for gradient in found)


def own_forward(inputs: Tensors) -> Tensors:
    """The inputs, and the weights that a forward pass would leave."""
    q, k, v, dout, *_ = inputs
    weights = torch.softmax(q.transpose(1, 2) @ k.transpose(1, 2).mT * q.shape[-1] ** -0.5, -1)
    return q, k, v, dout.transpose(1, 2).contiguous().transpose(1, 2), weights


def test_a_forward_pass_of_ones_own_is_no_place_for_the_backward_pass() -> None:
    """A backend that may run its own forward pass before the call may not compute gradients there, which follow from
    the incoming gradient and from q, k and v together; what a forward pass leaves may lie there."""
    workload = Backward(1, 16, 2, 32, dtype="f32")

    def found(convert: Callable[[Tensors], Tensors], call: Callable[..., Any]) -> tuple[str, ...]:
        def named(raw: Any) -> Outputs:
            return dict(zip(("dq", "dk", "dv"), raw, strict=True))

        return problems(Own(call, named, convert, Declares(own_forward=True)), workload)

    early = found(lambda inputs: attention_gradients(*inputs), lambda *given: tuple(one.clone() for one in given))
    assert any("work is done before the call" in text and "input 3" in text for text in early), early
    assert found(own_forward, attention_gradients) == ()


def test_an_exp_of_each_element_is_no_layout() -> None:
    """The dearest part of a softmax cannot be done in `convert`, element by element; a cast can."""

    def late(x: torch.Tensor) -> torch.Tensor:
        weights = (x - x.amax(-1, keepdim=True)).exp()
        return (weights / weights.sum(-1, keepdim=True)).float()

    def found(convert: Callable[[Tensors], Tensors], call: Callable[..., Any]) -> tuple[str, ...]:
        return problems(Own(call, lambda raw: {"out": raw}, convert), Softmax(64, 256, dtype="f32"))

    early = found(lambda inputs: (inputs[0].double().exp(),), lambda x: (x / x.sum(-1, keepdim=True)).float())
    assert any("are not proportional to input 0" in text for text in early), early
    assert found(lambda inputs: (inputs[0].double(),), late) == ()


class Hidden:
    """Numbers where no tensor is."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x.numpy().copy()


def computed_late(raw: Any) -> Outputs:
    """The softmax that the call did not compute."""
    x = raw[1].x - raw[1].x.max(-1, keepdims=True)
    weights = np.exp(x)
    return {"out": torch.from_numpy(weights / weights.sum(-1, keepdims=True))}


def test_a_result_comes_from_the_tensors_that_were_returned() -> None:
    """What is computed of an object beside a decoy is told, whatever the decoy's size; numpy may look at the result."""
    workload = Softmax(64, 256, dtype="f32")
    for size in (8, 2**20):
        late = problems(Own(lambda x, size=size: [torch.zeros(size), Hidden(x)], computed_late), workload)
        assert any("come from something else than the tensors that the call returned" in text for text in late), late
    honest = Own(lambda x: torch.softmax(x, -1), lambda raw: {"out": torch.from_numpy(raw.numpy())})
    assert problems(honest, workload) == ()


def test_what_convert_keeps_is_no_result() -> None:
    """A backend that computes while inputs pass through `convert`, and keeps the result, has another input's."""
    kept: list[torch.Tensor] = []

    def keeps(inputs: Tensors) -> Tensors:
        kept[:] = [torch.softmax(inputs[0], -1)]
        return inputs

    def found(call: Callable[..., Any]) -> tuple[str, ...]:
        return problems(Own(call, lambda raw: {"out": raw}, keeps), Softmax(64, 256, dtype="f32"))

    assert any("off by" in text for text in found(lambda x: kept[0].clone()))
    assert found(lambda x: torch.softmax(x, -1)) == ()
