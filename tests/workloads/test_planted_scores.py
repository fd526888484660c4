"""Planted keys under ALiBi, under a bias, and between packed sequences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.metrics import compare
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.attention_bias import alibi_slopes
from pytest_attnperf.workloads.planted_keys import PLANTED_BIAS, REACH_NATS, plans
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen


def budgets_off(workload: Prefill | Varlen, inputs: Tensors, got: Outputs) -> float:
    """The largest error of 'out' in budgets."""
    expected = References().get(workload, inputs, seed=2, planted=True)
    yardstick = expected.yardsticks["out"]
    figures = compare("x", "out", got["out"].to(yardstick.dtype), expected.reference["out"], yardstick, Tolerance())
    return figures.max_error / figures.max_budget


@pytest.mark.parametrize("reach", [1, 16, 200])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(300, 300), (40, 400), (400, 40)])
def test_plants_stay_within_the_reach(reach: int, causal: bool, seq_q: int, seq_kv: int) -> None:
    """No planted key is further from its row's own position than the reach, or than one key beyond the mask."""
    found = [
        plant
        for seed in range(4)
        for plan in plans(seq_q, seq_kv, causal=causal, seed=seed, lanes=2, window=100 * causal, reach=reach)
        for plant in plan
    ]
    assert found
    assert max(abs(plant.row + seq_kv - seq_q - plant.key) for plant in found) <= reach


@pytest.mark.parametrize(
    "line", ["s=300,h=8,d=64,f16,alibi", "s=40,kv=2048,h=3,d=64,bf16,alibi", "s=99,h=4,d=8,f16,bias"]
)
def test_a_planted_key_holds_most_of_its_rows_weight(line: str) -> None:
    """The largest weight of a planted row is over half, and of half of these rows over 0.7, whatever is added."""
    workload = Prefill.parse_line(line)
    ordinary, planted = (workload.make_inputs(3, "cpu", planted=planted) for planted in (False, True))
    q, k = (tensor.double().permute(0, 2, 1, 3) for tensor in planted[:2])
    added = workload.split_inputs(planted).added.of_rows(0, workload.seq_q, workload.seq_q, workload.seq_kv, q.dtype)
    assert added is not None
    weights = (q @ k.mT / math.sqrt(workload.head_dim) + added).softmax(-1).amax(-1)[0]  # (H, Sq)
    changed = (ordinary[0] != planted[0]).any(-1)[0].T
    assert changed.any(-1).all()
    assert float(weights[changed].min()) > 0.5
    assert float(weights[changed].median()) > 0.7


def test_every_head_plants_the_last_key_within_its_reach() -> None:
    """A steep head plants near the diagonal only, a flat one across the keys, and no score is beyond the reach."""
    slopes = alibi_slopes(8)
    furthest = []
    for head in (0, 7):
        reach = int(REACH_NATS / slopes[head])
        found = [plant for plan in plans(1000, 1000, causal=True, seed=head, lanes=1, reach=reach) for plant in plan]
        furthest.append(max(abs(plant.row - plant.key) for plant in found))
    assert furthest[0] <= 16 < 500 < furthest[1]


def test_planted_keys_have_the_planted_bias() -> None:
    """Some entries of every head's bias are PLANTED_BIAS exactly, and all others are as drawn."""
    workload = Prefill(1, 70, 2, 64, dtype="f32", bias=True)
    ordinary, planted = (workload.make_inputs(3, "cpu", planted=planted)[3] for planted in (False, True))
    changed = ordinary != planted
    assert (changed.sum(dim=(1, 2)) > 5).all()
    assert (planted[changed] == PLANTED_BIAS).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "i8", "i8,pv16", "i8,kv8"])
@pytest.mark.parametrize("added", ["alibi", "bias"])
def test_a_lost_key_and_a_mask_off_by_one_fail_by_many_budgets(added: str, dtype: str) -> None:
    """A result without the last key, or of a window a key shorter, is off by more than six budgets in every dtype."""
    workload = Prefill.parse_line(f"s=200,h=4,hk=2,d=64,causal,w=60,{added},{dtype}")
    inputs = workload.make_inputs(2, "cpu", planted=True)
    assert budgets_off(workload, inputs, workload.reference(inputs)) <= 1
    assert budgets_off(workload, inputs, replace(workload, window=59).reference(inputs)) > 6
    split = workload.split_inputs(inputs)
    lost = split.qkv[1].clone()
    lost[:, -1] = 0
    assert budgets_off(workload, inputs, workload.reference((inputs[0], lost, *inputs[2:]))) > 6


def test_a_lost_bias_fails_by_many_budgets() -> None:
    """A result in which one planted key has no bias is off by more than eight budgets."""
    workload = Prefill.parse_line("s=64,kv=2048,h=2,d=64,bf16,bias")
    inputs = workload.make_inputs(2, "cpu", planted=True)
    bias = inputs[3].clone()
    bias[:, :, -1] = 0
    assert budgets_off(workload, inputs, workload.reference((*inputs[:3], bias))) > 8


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("side", ["next", "previous"])
def test_a_key_of_the_neighbouring_sequence_fails_by_many_budgets(heads: int, dtype: str, side: str) -> None:
    """A result in which a sequence sees one key of its neighbour too is off by more than eight budgets."""
    workload = Varlen((40, 70, 33), heads, 64, seqs_kv=(1500, 700, 2000), dtype=dtype)
    q, k, v, *_ = inputs = workload.make_inputs(2, "cpu", planted=True)
    sees = slice(1500, 2201) if side == "next" else slice(1499, 2200)
    wrong = workload.reference(inputs)
    alone = Prefill(1, 70, heads, 64, seq_kv=701, dtype=dtype)
    wrong["out"][40:110] = alone.reference((q[None, 40:110], k[None, sees], v[None, sees]))["out"][0]
    if heads > 1 or side == "next":
        assert budgets_off(workload, inputs, wrong) > 8
