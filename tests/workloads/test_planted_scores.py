"""Planted keys under ALiBi, under a bias, and between packed sequences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.attention_math import alibi_slopes
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.loud_rows import APART, CLEAR, LOUD, can_have_loud_row
from pytest_attnperf.workloads.mixed import Mixed
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.planted_keys import PLANTED_BIAS, REACH_NATS, make_plans
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen


def budgets_off(workload: Workload, inputs: Tensors, got: Outputs) -> float:
    """The largest error of 'out' in budgets."""
    expected = References().compute_expected(workload, inputs, seed=2, planted=True)
    yardstick = expected.yardsticks["out"]
    figures = compare_output(
        "x", "out", got["out"].to(yardstick.dtype), expected.reference["out"], yardstick, Tolerance()
    )
    return figures.max_error / figures.max_budget


@pytest.mark.parametrize("reach", [1, 16, 200])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(300, 300), (40, 400), (400, 40)])
def test_plants_stay_within_the_reach(reach: int, causal: bool, seq_q: int, seq_kv: int) -> None:
    """No planted key is further from its row's own position than the reach, or than one key beyond the mask."""
    found = [
        plant
        for seed in range(4)
        for plan in make_plans(seq_q, seq_kv, causal=causal, seed=seed, lanes=2, window=100 * causal, reach=reach)
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
    added = workload.split_inputs(planted).added_terms.of_rows(
        0, workload.seq_q, workload.seq_q, workload.seq_kv, q.dtype
    )
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
        found = [
            plant for plan in make_plans(1000, 1000, causal=True, seed=head, lanes=1, reach=reach) for plant in plan
        ]
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


def loudest(inputs: Tensors, *, causal: bool) -> list[float]:
    """The three largest scores of the row (B, S, H, D) that has the largest of all that it sees."""
    q, k = (tensor.double().permute(0, 2, 1, 3) for tensor in inputs[:2])
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[-1])
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(~seen, -math.inf)
    top = scores.topk(3).values.flatten(0, -2)
    found: list[float] = top[top[:, 0].argmax()].tolist()
    return found


@pytest.mark.parametrize("dtype", ["f32", "tf32", "bf16", "f16"])
@pytest.mark.parametrize("shape", ["b=2,s=33,kv=40,h=4,hk=2,d=32,causal", "s=16,kv=900,h=2,d=128", "s=40,h=2,d=16"])
def test_one_row_is_loud(shape: str, dtype: str) -> None:
    """For every seed some row has scores of 105 and 85, and no third one near, whatever the dtype."""
    workload = Prefill.parse_line(f"{shape},{dtype}")
    for seed in range(20):
        first, second, third = loudest(workload.make_inputs(seed, "cpu", planted=True), causal=workload.causal)
        assert first == pytest.approx(LOUD, abs=1)
        assert second == pytest.approx(LOUD - APART, abs=1)
        assert third <= LOUD - CLEAR + 1


def test_no_row_is_loud_where_it_would_excuse_others() -> None:
    """A log-sum-exp in bf16 has planted scores of about 20; one in fp32 has a loud row, 8-bit queries none."""
    planted = Prefill.parse_line("s=40,h=2,d=64,lse,bf16").make_inputs(0, "cpu", planted=True)
    assert loudest(planted, causal=False)[0] < 25
    assert can_have_loud_row("f32", lse=True)
    assert not can_have_loud_row("i8")


PROBLEMS = {
    "varlen": Varlen((40, 3), 4, 64, seqs_kv=(50, 70), dtype="bf16", causal=True),
    "decode": Decode(3, 200, 4, 64, dtype="f16"),
    "paged": Decode(3, 200, 4, 64, dtype="bf16", page=16),
    "mixed": Mixed("2q7s80_1q1s120", 4, 64, dtype="bf16"),
    "mla": Mla(2, 4, 4, 32, 16, 64, seq_kv=90, dtype="f32"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_clamped_scores_fail_by_many_budgets(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every family of attention a softmax of scores of 50 at most is off by more than six budgets."""
    workload = PROBLEMS[problem]
    inputs = workload.make_inputs(2, "cpu", planted=True)
    assert budgets_off(workload, inputs, workload.reference(inputs)) <= 1
    softmax = torch.softmax
    with monkeypatch.context() as patched:
        patched.setattr(torch, "softmax", lambda scores, dim: softmax(scores.clamp(max=50), dim))
        clamped = workload.reference(inputs)
    assert budgets_off(workload, inputs, clamped) > 6
