"""Functions with one subtle mistake, gated with nothing but shapes known of them; and honest twins that pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
BF16 = torch.bfloat16


def rows(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x (96, 1000), w (1000,)."""
    return torch.randn(96, 1000).to(BF16), torch.randn(1000).to(BF16)


def rms_norm(x: torch.Tensor, w: torch.Tensor, columns: int = 1000, eps: float = 1e-6) -> torch.Tensor:
    """Computed in fp32, rounded once; the mean square is over the first `columns`."""
    wide = x.float()
    mean = wide[:, :columns].square().sum(-1, keepdim=True) / x.shape[-1]
    return (wide * torch.rsqrt(mean + eps) * w.float()).to(x.dtype)


def rms_norm_plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """As users write it: upcast, and rounded before the weight."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def in_f16(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The mean square is summed in f16, which holds no more than 65,504."""
    half = x.half()
    mean = half.square().cumsum(-1, dtype=torch.float16)[:, -1:].float() / x.shape[-1]
    return (x.float() * torch.rsqrt(mean + 1e-6) * w.float()).to(x.dtype)


def softmax(x: torch.Tensor, columns: int = 1000, subtract: float = 1.0) -> torch.Tensor:
    """Over rows, in fp32; the sum is over the first `columns`."""
    wide = x.float()
    powers = (wide - subtract * wide.amax(-1, keepdim=True)).exp()
    return (powers / powers[:, :columns].sum(-1, keepdim=True)).to(x.dtype)


def in_fp8(x: torch.Tensor, largest_of: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 32 in fp8, and the step of each."""
    blocks = x.float().unflatten(-1, (-1, 32))
    step = blocks[..., :largest_of].abs().amax(-1, keepdim=True) / 448
    return (blocks / step).to(torch.float8_e4m3fn).flatten(-2), step.squeeze(-1)


def heads(seed: int) -> tuple[torch.Tensor, ...]:
    """q (2, 4, 150, 64), k and v (2, 2, 150, 64): two query heads share one of k and v."""
    return tuple(torch.randn(2, count, 150, 64).to(BF16) for count in (4, 2, 2))


def attention_plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 40) -> torch.Tensor:
    """Causal attention within a window, in fp32."""
    return _attention(q.float(), k.float(), v.float(), window, weights=torch.float32).to(q.dtype)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    window: int = 40,
    keys: int = 150,
    order: tuple[int, ...] = (0, 1),
) -> torch.Tensor:
    """As a kernel computes it: weights rounded to bf16, normalised at the end."""
    k, v = k[:, list(order)], v[:, list(order)]
    masked = k.clone()
    masked[1, :, keys:] = 0  # of the second batch only
    return _attention(q.float(), masked.float(), v.float(), window, weights=BF16).to(q.dtype)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, weights: torch.dtype) -> torch.Tensor:
    k, v = (tensor.repeat_interleave(2, dim=1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    place = torch.arange(q.shape[-2])
    age = place[:, None] - place[None]
    scores = scores.masked_fill((age < 0) | (age >= window), float("-inf"))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers.to(weights).to(v.dtype) @ v) / powers.sum(-1, keepdim=True)


def loses(index: Any) -> Callable[..., torch.Tensor]:
    """2 x with one part of the result zero."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        doubled[index] = 0
        return doubled

    return kernel


class RmsNorm(torch.autograd.Function):
    """Forward as `rms_norm`; the gradient of the weight is summed over all rows but `lost`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, lost: int, ignores: bool) -> torch.Tensor:
        """Keeps what backward needs."""
        ctx.save_for_backward(x, w)
        ctx.lost, ctx.ignores = lost, ignores
        return rms_norm(x, w)

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """In fp32."""
        x, w = (tensor.float() for tensor in ctx.saved_tensors)
        dout = torch.ones_like(x) if ctx.ignores else incoming[0].float()
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        normed, weighted = x * scale, dout * w
        dx = scale * (weighted - normed * (weighted * normed).mean(-1, keepdim=True))
        dw = (dout * normed)[: len(x) - ctx.lost].sum(0)
        return dx.to(BF16), dw.to(BF16), None, None


class Softmax(torch.autograd.Function):
    """As kernels compute it, with what cancels in its gradient; `lost` columns are left out of the sum there."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, lost: int) -> torch.Tensor:
        """Keeps the result."""
        powers = (x - x.amax(-1, keepdim=True)).exp()
        weights = powers / powers.sum(-1, keepdim=True)
        ctx.save_for_backward(weights)
        ctx.lost = lost
        return weights

    @staticmethod
    def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
        """y * (dy - sum(y * dy))."""
        (weights,) = ctx.saved_tensors
        products = weights * incoming[0]
        kept = products[:, : products.shape[-1] - ctx.lost].sum(-1, keepdim=True)
        return weights * (incoming[0] - kept), None


def loss_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (64, 1000) in bf16, labels (64,)."""
    return torch.randn(64, 1000).to(BF16), torch.randint(0, 1000, (64,))


@dataclass(frozen=True)
class Gated:
    """What is gated: an honest function, the liars beside it, and what else `gate` is told."""

    honest: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[..., Any]
    liars: dict[str, Callable[..., Any]]
    more: dict[str, Any] = field(default_factory=dict)


def normal(*shape: int, dtype: torch.dtype = BF16) -> Callable[[int], torch.Tensor]:
    """Makes one tensor."""
    return lambda seed: torch.randn(shape).to(dtype)


GATED = {
    "rms_norm": Gated(
        rms_norm,
        rms_norm_plain,
        rows,
        {
            "last column lost": lambda x, w: rms_norm(x, w, columns=999),
            "tail tile lost": lambda x, w: rms_norm(x, w, columns=896),
            "eps forgotten": lambda x, w: rms_norm(x, w, eps=0.0),
            "mean subtracted": lambda x, w: rms_norm(x - x.float().mean(-1, keepdim=True).to(BF16), w),
            "sums in f16": in_f16,
            "weight one place on": lambda x, w: rms_norm(x, w.roll(1)),
        },
    ),
    "softmax": Gated(
        softmax,
        lambda x: torch.softmax(x, -1),
        normal(96, 1000),
        {
            "last column lost": lambda x: softmax(x, columns=999),
            "no maximum subtracted": lambda x: softmax(x, subtract=0.0),
        },
    ),
    "fp8": Gated(
        in_fp8,
        in_fp8,
        normal(1024, 64),
        {
            "last column lost": lambda x: in_fp8(F.pad(x[:, :-1], (0, 1))),
            "largest of a part": lambda x: in_fp8(x, largest_of=31),
        },
    ),
    "copy": Gated(
        lambda x: x * 2,
        lambda x: x.float().mul(2).to(x.dtype),
        normal(4096, 40),
        {
            "last row lost": loses(-1),
            "last column lost": loses((slice(None), -1)),
            "one row lost": loses(1234),
        },
    ),
    "attention": Gated(
        attention,
        attention_plain,
        heads,
        {
            "window one too long": lambda q, k, v: attention(q, k, v, window=41),
            "window one too short": lambda q, k, v: attention(q, k, v, window=39),
            "keys of the second batch cut": lambda q, k, v: attention(q, k, v, keys=144),
            "heads swapped": lambda q, k, v: attention(q, k, v, order=(1, 0)),
        },
    ),
    "gradients": Gated(
        lambda x, w: RmsNorm.apply(x, w, 0, False),
        rms_norm_plain,
        rows,
        {
            "last row lost in dw": lambda x, w: RmsNorm.apply(x, w, 1, False),
            "incoming gradient ignored": lambda x, w: RmsNorm.apply(x, w, 0, True),
        },
        {"times": "both"},
    ),
    "softmax_gradient": Gated(
        lambda x: Softmax.apply(x, 0),
        lambda x: torch.softmax(x, -1),
        normal(32, 256, dtype=torch.float32),
        {"last column lost": lambda x: Softmax.apply(x, 1)},
        {"times": "both"},
    ),
    "loss": Gated(
        lambda logits, labels: F.cross_entropy(logits.float(), labels),
        lambda logits, labels: F.cross_entropy(logits.float(), labels),
        loss_inputs,
        {
            "last class lost": lambda logits, labels: F.cross_entropy(
                logits.float().index_fill(1, torch.tensor([999]), -1e9), labels.clamp(max=998)
            )
        },
        {"times": "both"},
    ),
}


def proven(gated: Gated, fn: Callable[..., Any], seed: int) -> CheckReport:
    """What a check of the function finds, with this seed."""
    workload = AdHoc("case", gated.inputs, gated.reference, **gated.more)
    subject = TorchSubject(CallableBackend("test.gated", fn), workload, CPU, Seeds(0, seed, seed + 1))
    subject.prepare()
    return subject.check()


each = pytest.mark.parametrize("name", GATED, scope="module")
"""Liars and their twin run one after the other: what they are held against is computed once."""


@each
def test_subtle_mistakes_are_found(name: str) -> None:
    """Whatever the seed, without being told where the edges are."""
    gated = GATED[name]
    for seed in (1, 20):
        assert [liar for liar, fn in gated.liars.items() if not proven(gated, fn, seed).problems] == []


@each
def test_honest_twins_pass(name: str) -> None:
    """The same functions without the mistake, whose inputs are planted alike."""
    for seed in (1, 20, 300):
        assert proven(GATED[name], GATED[name].honest, seed).problems == ()


@pytest.mark.soak
@pytest.mark.parametrize("name", GATED)
def test_honest_twins_pass_on_a_thousand_seeds(name: str) -> None:
    """No honest function is accused in 1,000 draws of planted inputs."""
    gated = GATED[name]
    workload = AdHoc("case", gated.inputs, gated.reference, **gated.more)
    backend = CallableBackend("test.gated", gated.honest)
    prover = Prover(backend, workload, CPU, Seeds(0, 1, 2))
    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    judge = prover.make_judge(prepared)
    for seed in range(1000):
        assert judge.check_call("planted inputs", prepared.run, seed=seed, planted=True).problems == (), seed
