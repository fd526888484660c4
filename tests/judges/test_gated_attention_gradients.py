"""Attention's gradients as every flash kernel computes them, gated against all scores in plain torch; and liars."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import CheckReport, DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo("cpu", "cpu-x86_64", "test", interpreted=True)
BF16 = torch.bfloat16
LENGTH, WIDTH = 256, 64
SCALE = WIDTH**-0.5
FAULTS = (
    "mask off by one",
    "sum of the last row lost",
    "one key's gradient lost",
    "scale lost in one head",
    "last tile of queries lost",
)


def scores(q: torch.Tensor, k: torch.Tensor, lag: int = 0) -> torch.Tensor:
    """Of the keys that are not later than the query less `lag`, in fp32; the first query sees the first key always."""
    place = torch.arange(LENGTH)
    seen = place[None] <= (place[:, None] - lag).clamp(min=0)
    return (q.float() @ k.float().transpose(-1, -2) * SCALE).masked_fill(~seen, -math.inf)


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """What matrix units take."""
    return tensor.to(BF16).float()


class Flash(torch.autograd.Function):
    """Keeps the result and a log-sum-exp of each row, and takes sum(weights * their gradients) from the result."""

    @staticmethod
    def forward(context: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, fault: str) -> torch.Tensor:
        """Weights rounded to bf16, normalised at the end."""
        all_scores = scores(q, k)
        top = all_scores.amax(-1, keepdim=True)
        weights = (all_scores - top).exp()
        total = weights.sum(-1, keepdim=True)
        out = (rounded(weights) @ v.float() / total).to(BF16)
        context.save_for_backward(q, k, v, out, top + total.log())
        context.fault = fault
        return out

    @staticmethod
    def backward(context: Any, *incoming: torch.Tensor) -> tuple[Any, ...]:
        """Of q, k and v, each rounded once at the end."""
        q, k, v, out, log_sum = context.saved_tensors
        fault, gradient = context.fault, incoming[0].float()
        weights = (scores(q, k, lag=int(fault == "mask off by one")) - log_sum).exp()
        sums = (out.float() * gradient).sum(-1, keepdim=True)
        if fault == "sum of the last row lost":
            sums[..., -1, :] = 0
        of_scores = rounded(weights * (gradient @ v.float().transpose(-1, -2) - sums))
        scale = torch.full((1, q.shape[1], 1, 1), SCALE)
        if fault == "scale lost in one head":
            scale[:, 1] = 1.0
        of_q = of_scores @ k.float() * scale
        of_k = of_scores.transpose(-1, -2) @ q.float() * SCALE
        if fault == "one key's gradient lost":
            of_k[..., LENGTH // 2, :] = 0
        if fault == "last tile of queries lost":
            weights[..., -16:, :] = 0
        of_v = rounded(weights).transpose(-1, -2) @ gradient
        return of_q.to(BF16), of_k.to(BF16), of_v.to(BF16), None


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As users write it; its gradients know every weight in fp32."""
    place = torch.arange(LENGTH)
    all_scores = (q @ k.transpose(-1, -2)).float() * SCALE
    return all_scores.masked_fill(place[None] > place[:, None], -math.inf).softmax(-1).to(v.dtype) @ v


def heads(seed: int) -> tuple[torch.Tensor, ...]:
    """q, k and v (1, 4, 256, 64) in bf16."""
    return tuple(torch.randn(1, 4, LENGTH, WIDTH).to(BF16) for _ in "qkv")


@functools.cache
def problem() -> AdHoc:
    """The same for every function: what its inputs bear is found out once, and references are computed once."""
    return AdHoc("case", heads, plain, times="both")


def proven(fault: str, seed: int) -> CheckReport:
    """What a check of the gradients finds."""
    backend = CallableBackend("test.flash", lambda q, k, v: Flash.apply(q, k, v, fault))
    subject = TorchSubject(backend, problem(), CPU, Seeds(0, seed, seed + 1))
    subject.prepare()
    return subject.check()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_subtle_mistake_is_found(fault: str) -> None:
    """Whatever the seed."""
    for seed in (1, 20):
        assert proven(fault, seed).problems


def test_rounding_the_result_first_is_no_mistake() -> None:
    """Where one key takes nearly all of the weight, a gradient that is nearly zero is off by far more than its size."""
    for seed in (1, 20, 37, 300):
        assert proven("", seed).problems == ()


@pytest.mark.soak
def test_no_seed_accuses_it() -> None:
    """No flash kernel is accused in 300 draws of planted inputs."""
    workload = problem()
    backend = CallableBackend("test.flash", lambda q, k, v: Flash.apply(q, k, v, ""))
    prepared = backend.prepare(workload, workload.make_inputs(0, "cpu", planted=False))
    judge = Prover(backend, workload, CPU, Seeds(0, 1, 2)).make_judge(prepared)
    for seed in range(300):
        assert judge.check_call("planted inputs", prepared.run, seed=seed, planted=True).problems == (), seed
