"""Attention and its stages in torch's operators: right alone and as a whole, on a CPU and on a GPU."""

from __future__ import annotations

import pytest
import torch

from kernels.native.staged import BACKENDS
from kernels.staged_backend import StagedWorkload
from pytest_attnperf.backends import Pipeline
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues
from tests.kernels.judging import find_wrong_calls

(STAGED,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")

CASES: tuple[StagedWorkload, ...] = (
    Prefill.parse("prefill-b2-s33-kv70-h4-hk2-d40-dv24-f16-causal-lse"),
    Prefill.parse("prefill-b1-s70-kv31-h3-hk1-d64-bf16-causal-lse"),
    Prefill.parse("prefill-b2-s17-h2-d59-f32"),
    Prefill.parse("prefill-b1-s9-kv20-h2-d16-tf32-causal"),
    Prefill.parse("prefill-b1-s1-kv40-h4-hk2-d64-f16-causal"),
    QkScores.parse("qk_scores-b2-s37-kv70-h4-hk2-d40-f16"),
    QkScores.parse("qk_scores-b2-s37-kv20-h3-d40-bf16"),
    QkScores.parse("qk_scores-b1-s37-kv20-h3-hk1-d59-f32"),
    CausalMask.parse("causal_mask-b2-s37-kv70-h4-f32"),
    CausalMask.parse("causal_mask-b1-s70-kv31-h2-f32"),
    RowSoftmax.parse("row_softmax-b2-s37-kv70-h4-f16-causal"),
    RowSoftmax.parse("row_softmax-b1-s70-kv31-h2-bf16-causal"),
    RowSoftmax.parse("row_softmax-b1-s9-kv300-h2-f32"),
    WeightedValues.parse("weighted_values-b2-s37-kv70-h4-hk2-d40-f16-causal"),
    WeightedValues.parse("weighted_values-b1-s70-kv31-h2-d64-bf16-causal"),
    WeightedValues.parse("weighted_values-b2-s9-kv300-h4-hk2-d59-f32"),
)
"""Every family and dtype, grouped heads, more keys than queries and fewer, rows that see no key, a mask of nothing."""


@pytest.mark.parametrize("workload", CASES, ids=lambda workload: workload.id)
def test_right_on_every_small_problem_on_a_cpu(workload: StagedWorkload) -> None:
    """The operators are within budget, and write to what they are given only where they may."""
    assert STAGED.unsupported_reasons(workload, CPU) == []
    assert find_wrong_calls(STAGED, workload, "cpu") == ()


@pytest.mark.gpu
@pytest.mark.parametrize("workload", CASES, ids=lambda workload: workload.id)
def test_right_on_every_small_problem_on_a_gpu(workload: StagedWorkload) -> None:
    """The same operators are within budget on a GPU."""
    assert find_wrong_calls(STAGED, workload, "cuda") == ()


def test_right_as_part_of_a_layer() -> None:
    """From views of canonical tensors the call gives the same as from copies in its own layout."""
    workload = CASES[0]
    inputs = workload.make_inputs(1, "cpu", planted=True)
    prepared = STAGED.prepare(workload, inputs)
    assert isinstance(prepared.call, Pipeline)
    assert prepared.arguments is not None
    own, within = prepared.run(), prepared.call(*prepared.arguments(inputs))
    assert all(map(torch.allclose, within, own))


def test_what_runs_is_declared_and_recorded() -> None:
    """Operators of each stage that runs are declared; how scores, mask and softmax come about is recorded."""
    prefill = Prefill.parse("prefill-b1-s5-h2-d8-f16-causal")
    prepared = STAGED.prepare(prefill, prefill.make_inputs(1, "cpu", planted=False))
    assert prepared.declares.operators == ("aten::matmul", "aten::mul", "aten::masked_fill_", "aten::_softmax")
    assert prepared.declares.never == ("scaled_dot_product",)
    assert prepared.config == {
        "scores": "matmul and scale in f16, then float",
        "mask": "bool, built before timing",
        "softmax": "f32, then rounded",
    }
    wide = QkScores.parse("qk_scores-b1-s5-h2-d8-f32")
    config = STAGED.prepare(wide, wide.make_inputs(1, "cpu", planted=False)).config
    assert config == {"scores": "matmul, scale", "float32_matmul": torch.get_float32_matmul_precision()}
