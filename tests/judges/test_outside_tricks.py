"""Tricks that an outsider thought of and the judge tells, each with an honest twin that differs by nothing else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Trick:
    """One trick: the function that plays it, the same without it, and what the text must say."""

    liar: Callable[..., Any]
    twin: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[int], Any]
    clue: str
    more: dict[str, Any] = field(default_factory=dict)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[int], torch.Tensor]:
    """Makes one tensor."""
    return lambda seed: torch.randn(shape).to(dtype)


def heads(seed: int) -> tuple[torch.Tensor, ...]:
    """q (1024, 64), k and v (256, 64): one draw of the reference makes a budget."""
    return tuple(torch.randn(rows, 64).to(BF16) for rows in (1024, 256, 256))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """In fp32, rounded once."""
    return (torch.softmax(q.float() @ k.float().mT / 8, -1) @ v.float()).to(q.dtype)


def by_tiles(forgets_below: float) -> Callable[..., torch.Tensor]:
    """Attention tile by tile, which does not rescale the sum where the maximum has grown by less than this."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        wide_q, wide_k, wide_v = (tensor.float() for tensor in (q, k, v))
        out = torch.zeros_like(wide_q)
        largest = torch.full_like(wide_q[..., :1], -1e30)
        total = torch.zeros_like(largest)
        for first in range(0, len(k), 64):
            keys, values = wide_k[first : first + 64], wide_v[first : first + 64]
            scores = wide_q @ keys.mT / 8
            grown = torch.maximum(largest, scores.amax(-1, keepdim=True))
            weights, factor = (scores - grown).exp(), (largest - grown).exp()
            total = total * factor.masked_fill(grown - largest < forgets_below, 1.0)
            total = total + weights.sum(-1, keepdim=True)
            out, largest = out * factor + weights @ values, grown
        return (out / total).to(q.dtype)

    return call


def narrow_weights(below: float) -> Callable[..., torch.Tensor]:
    """Attention whose weights under this share of their row's largest are kept in fp8."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(q.float() @ k.float().mT / 8, -1)
        small = weights < below * weights.amax(-1, keepdim=True)
        weights = torch.where(small, weights.to(torch.float8_e4m3fn).float(), weights)
        return (weights @ v.float()).to(q.dtype)

    return call


def kernel_without_gradients(wrong: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Softmax of scores that are scaled wrongly unless gradients are off."""
    return lambda x: torch.softmax(x * wrong if torch.is_grad_enabled() else x, -1)


class Tanh(torch.autograd.Function):
    """Keeps its result; `how` says what backward does to memory that is not its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, how: str) -> torch.Tensor:
        """As torch's."""
        out = torch.tanh(x)
        ctx.save_for_backward(out)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """dy * (1 - y * y)."""
        (out,) = ctx.saved_tensors
        if ctx.how == "result":
            out.data.square_().neg_().add_(1)
            return incoming[0] * out, None
        gradient = incoming[0] * (1 - out * out)
        if ctx.how == "incoming":
            incoming[0].data.mul_(2)
        return gradient, None


tanh: Callable[..., torch.Tensor] = Tanh.apply


def naive_softplus(x: torch.Tensor) -> torch.Tensor:
    """Overflows where exp does."""
    return torch.log(1 + x.exp())


def last_of_equals(x: torch.Tensor) -> torch.Tensor:
    """The place of a row's largest, the last one where several are."""
    return x.shape[-1] - 1 - x.flip(-1).argmax(-1)


def clamped(largest: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Doubles what was clamped."""
    return lambda x: (x.float().clamp(-largest, largest) * 2).to(x.dtype)


class ComputedWhenRead(dict[str, Any]):
    """A dict of a result that is computed, by numpy, when somebody asks for it."""

    def items(self) -> Any:
        """Compute."""
        self["out"].numpy()[:] = np.tanh(self["x"].numpy())
        return [("out", self["out"])]


def kept_for_reader(x: torch.Tensor) -> Any:
    """Nothing but a promise."""
    return ComputedWhenRead(out=torch.empty_like(x), x=x.clone())


BOTH = {"times": "both"}
TRICKS = {
    "sum not rescaled where the maximum hardly grows": Trick(by_tiles(0.5), by_tiles(0.0), attention, heads, "off by"),
    "small weights in fp8": Trick(narrow_weights(0.1), narrow_weights(0.0), attention, heads, "off by"),
    "wrong where gradients are enabled": Trick(
        kernel_without_gradients(1.1),
        kernel_without_gradients(1.0),
        lambda x: x.softmax(-1),
        normal(256, 256),
        "off by",
    ),
    "backward overwrites the result": Trick(
        lambda x: tanh(x, "result"), lambda x: tanh(x, ""), torch.tanh, normal(256, 256), "off by", BOTH
    ),
    "backward scales the incoming gradient": Trick(
        lambda x: tanh(x, "incoming"),
        lambda x: tanh(x, ""),
        torch.tanh,
        normal(256, 256),
        "changed its inputs",
        BOTH,
    ),
    "softplus overflows": Trick(naive_softplus, F.softplus, lambda x: F.softplus(x), normal(256, 256), "Inf"),
    "last of equal elements": Trick(
        last_of_equals, lambda x: x.argmax(-1), lambda x: torch.argmax(x, -1), normal(256, 256), "off by"
    ),
    "computed where a dict is read": Trick(
        kept_for_reader,
        lambda x: {"out": x.tanh()},
        lambda x: {"out": x.tanh()},
        normal(256, 256),
        "'out'",
    ),
    "negated by whoever reads it": Trick(
        lambda x: torch._neg_view(x * x), lambda x: -(x * x), lambda x: -(x * x), normal(256, 256), "neg bit"
    ),
    "garbage collection left off": Trick(
        lambda x: (gc.disable(), x.tanh())[1],
        torch.tanh,
        torch.tanh,
        normal(256, 256),
        "whether Python collects garbage",
    ),
    "clamped to 60": Trick(
        clamped(60.0), clamped(1e30), lambda x: (x.float() * 2).to(x.dtype), normal(256, 256, dtype=BF16), "off by"
    ),
    "sigmoid in place of erf": Trick(
        lambda x: (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype),
        lambda x: F.gelu(x.float()).to(x.dtype),
        lambda x: F.gelu(x.float()).to(x.dtype),
        normal(256, 256, dtype=BF16),
        "off by",
    ),
}


def problems(trick: Trick, fn: Callable[..., Any], seed: int) -> tuple[str, ...]:
    """What a check and the last call find."""
    workload = AdHoc("x", trick.inputs, trick.reference, **trick.more)
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(timed=0, check=seed, final=seed + 1))
    subject.prepare()
    report = subject.check()
    return report.problems or subject.finish().check.problems


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_is_told(name: str) -> None:
    """The trick is INCORRECT with any seed, and the text says where it shows."""
    for seed in (1, 20):
        assert any(TRICKS[name].clue in problem for problem in problems(TRICKS[name], TRICKS[name].liar, seed))


@pytest.mark.parametrize("name", TRICKS)
def test_its_twin_passes(name: str) -> None:
    """The same function without the trick is right."""
    for seed in (1, 20):
        assert problems(TRICKS[name], TRICKS[name].twin, seed) == ()


def test_a_layout_that_is_left_to_the_reader_is_noted() -> None:
    """A transposed result is right, as many kernels return one, and a note says so; one in order has none."""
    noted = [check(lambda x: (x * 2).mT), check(lambda x: (x * 2).mT.contiguous())]
    assert [report.right for report in noted] == [True, True]
    assert ["strides" in " ".join(report.notes) for report in noted] == [True, False]


def check(fn: Callable[..., Any]) -> CheckReport:
    """What a check says of a function that doubles and transposes."""
    workload = AdHoc("x", normal(256, 256), lambda x: (x * 2).mT.contiguous())
    subject = TorchSubject(CallableBackend("mine", fn), workload, CPU, Seeds(timed=0, check=1, final=2))
    subject.prepare()
    return subject.check()
