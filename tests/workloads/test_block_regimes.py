"""Regimes of the block family: the values are what is said, and every computation of them can be judged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.correctness.metrics import find_constant_value, measure_yardstick
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.block_inputs import HUGE, REGIMES
from pytest_attnperf.workloads.rope import rotate

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

IN_DTYPES = [(regime, dtype) for regime, dtypes in REGIMES.items() for dtype in dtypes]
SHAPES = ("b=2,s=40,h=4,hk=2,d=32,e=128", "b=2,s=1,p=39,room=48,h=4,hk=2,d=32,e=128,bias")


def queries_and_keys(block: Block, inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated queries (B, S, H, D) and all keys (B, past + S, H, D) in fp64."""
    import torch

    parts = block.split_inputs(inputs)
    bias = 0 if parts.b_qkv is None else parts.b_qkv.double()
    rows = (parts.x.double() @ parts.w_qkv.double().T + bias).view(block.batch, block.seq, -1, block.head_dim)
    cos, sin = (table[block.past : block.length] for table in (parts.cos, parts.sin))
    turned = torch.stack([rotate(one, cos, sin, False) for one in rows])
    keys = torch.cat([parts.k_cache[:, : block.past].double(), turned[:, :, block.heads : -block.kv_heads]], dim=1)
    return turned[:, :, : block.heads], keys.repeat_interleave(block.heads // block.kv_heads, dim=2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("regime", "dtype"), IN_DTYPES)
def test_every_regime_can_be_judged(regime: str, dtype: str, shape: str) -> None:
    """Reference and plain computation are finite and vary, the yardstick is small against what it measures, and
    planting changes nothing."""
    torch = pytest.importorskip("torch")
    workload = Block.parse_line(f"{shape},{dtype},{regime}")
    inputs = workload.make_inputs(1, "cpu", planted=True)
    unplanted = workload.make_inputs(1, "cpu", planted=False)
    assert all(torch.equal(a, b) for a, b in zip(inputs, unplanted, strict=True))
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    allowed = {"f32": 1e-4, "f16": 0.02, "bf16": 0.15}[dtype]
    for name, truth in reference.items():
        assert find_constant_value(truth) is None
        yardstick = measure_yardstick(name, truth, plain[name])  # raises where anything is not finite
        assert 0 < yardstick.max_error < allowed * float(truth.abs().max())
        assert yardstick.rms_error < allowed / 3 * float(truth.square().mean().sqrt())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_large_scores_overflow_an_exponential(dtype: str, shape: str) -> None:
    """Scores have a standard deviation of about 40, and some are beyond 88.7, where exp leaves fp32."""
    pytest.importorskip("torch")
    workload = Block.parse_line(f"{shape},{dtype},large")
    q, k = queries_and_keys(workload, workload.make_inputs(1, "cpu", planted=False))
    scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) / math.sqrt(workload.head_dim)
    assert 30 < float(scores.std()) < 55
    assert float(scores.max()) > 88.7


@pytest.mark.parametrize("shape", SHAPES)
def test_tiny_values_are_near_the_smallest_normal_ones(shape: str) -> None:
    """q and k are about 2^-13, some elements below 2^-14, and scores are nearly 0."""
    pytest.importorskip("torch")
    workload = Block.parse_line(f"{shape},f16,tiny")
    q, k = queries_and_keys(workload, workload.make_inputs(1, "cpu", planted=False))
    for values in (q, k):
        assert 2**-14 < float(values.square().mean().sqrt()) < 2**-12
        assert 0.2 < float((values.abs() < 2**-14).double().mean()) < 0.6
    assert float((q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_huge_values_leave_scores_ordinary(dtype: str) -> None:
    """x, v and 'out' are huge, and scores have a standard deviation of about 1."""
    pytest.importorskip("torch")
    workload = Block.parse_line(f"{SHAPES[0]},{dtype},huge")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    q, k = queries_and_keys(workload, inputs)
    scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) / math.sqrt(workload.head_dim)
    assert 0.8 < float(scores.std()) < 1.25
    for values in (inputs[0].double(), *(workload.reference(inputs)[name] for name in ("out", "v"))):
        assert 3 * HUGE[dtype] < float(values.abs().max()) < 8 * HUGE[dtype]


def test_equal_scores_give_the_mean_of_the_values() -> None:
    """Every query is 0, so 'out' is the running mean of all values seen so far, projected."""
    torch = pytest.importorskip("torch")
    workload = Block.parse_line("s=20,p=13,h=4,hk=2,d=32,f16,bias,equal")
    inputs = workload.make_inputs(1, "cpu", planted=True)
    parts, found = workload.split_inputs(inputs), workload.reference(inputs)
    assert (queries_and_keys(workload, inputs)[0] == 0).all()
    values = torch.cat([parts.v_cache[:, :13].double(), found["v"]], dim=1)
    mean = values.cumsum(dim=1)[:, 13:] / torch.arange(14, 34)[:, None, None]
    torch.testing.assert_close(found["out"], mean.repeat_interleave(2, dim=2).flatten(2) @ parts.w_out.double().T)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_f16_sum_of_values_overflows(shape: str) -> None:
    """Values are positive and finite, no two can be added in f16, and 'out' is far from overflowing."""
    torch = pytest.importorskip("torch")
    workload = Block.parse_line(f"{shape},f16,overflow")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    reference = workload.reference(inputs)
    past = workload.split_inputs(inputs).v_cache[:, : workload.past]
    values = torch.cat([past, workload.plain(inputs)["v"]], dim=1)
    assert float(values.min()) > 35000
    assert (values[:, 1:] + values[:, :-1]).isinf().all()
    assert float(reference["out"].abs().max()) < 5000
