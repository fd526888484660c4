"""The budget of each stage of attention: wrong stages are rejected on planted inputs, honest ones never."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch

from pytest_attnperf.backends import Tensors
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.attention_stages import AttentionStage
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_shape import list_edges
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

SCORES = {dtype: QkScores.parse(f"qk_scores-b2-s40-kv50-h4-hk2-d72-{dtype}") for dtype in ("f16", "bf16", "f32")}
MASK = CausalMask.parse("causal_mask-b2-s40-kv50-h2-f32")
SOFTMAX = {dtype: RowSoftmax.parse(f"row_softmax-b1-s64-kv600-h2-{dtype}-causal") for dtype in ("f16", "bf16", "f32")}
VALUES = {
    dtype: WeightedValues.parse(f"weighted_values-b2-s64-kv300-h4-hk2-d24-{dtype}-causal")
    for dtype in ("f16", "bf16", "f32")
}
KEYLESS = RowSoftmax.parse("row_softmax-b1-s40-kv31-h2-f16-causal")
SEEDS = range(1, 4)

Stage = Callable[..., torch.Tensor]


@functools.cache
def references(workload: AttentionStage) -> References:
    """Of one workload, whose references and yardsticks are computed once for each seed."""
    return References()


def found_wrong(workload: AttentionStage, stage: Stage, seed: int) -> tuple[str, ...]:
    """What the judge's budget says of the result of a stage for planted inputs."""
    inputs = workload.make_inputs(seed, "cpu", planted=True)
    expected = references(workload).compute_expected(workload, inputs, seed=seed, planted=True)
    (name,), got = expected.yardsticks, stage(*(tensor.clone() for tensor in inputs))
    return list_problems(
        [compare_output("one", name, got, expected.reference[name], expected.yardsticks[name], Tolerance())]
    )


def rejected(workload: AttentionStage, stage: Stage) -> bool:
    """Whether every seed shows that a stage is wrong."""
    return all(found_wrong(workload, stage, seed) for seed in SEEDS)


def scores(q: torch.Tensor, k: torch.Tensor, *, heads: slice | list[int] | None = None, scale: float = 0.0) -> Tensors:
    """q and k (B, H, S, D) in fp32, k repeated for the heads of a group, and the scale."""
    group = q.shape[2] // k.shape[2]
    keys = k.repeat_interleave(group, dim=2) if heads is None else k[:, :, heads]
    return q.float().transpose(1, 2) * (scale or 1 / math.sqrt(q.shape[3])), keys.float().transpose(1, 2)


def honest_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """In fp32, 8 dimensions at a time, the last ones first."""
    queries, keys = scores(q, k)
    parts = zip(torch.split(queries, 8, dim=-1), torch.split(keys, 8, dim=-1), strict=True)
    total = torch.zeros(())
    for a, b in reversed(list(parts)):
        total = total + a @ b.mT
    return total


def with_dimension(d: int, times: float) -> Stage:
    """Scores in which one dimension counts that many times."""

    def run(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        queries, keys = scores(q, k)
        queries[..., d] *= times
        return queries @ keys.mT

    return run


def of_other_heads(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Query head h reads key head h % Hk."""
    queries, keys = scores(q, k, heads=[0, 1, 0, 1])
    return queries @ keys.mT


def scaled(power: float) -> Stage:
    """Scores times D to some power."""

    def run(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        queries, keys = scores(q, k, scale=q.shape[3] ** power)
        return queries @ keys.mT

    return run


def masked_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Hidden scores already -inf."""
    queries, keys = scores(q, k)
    found = queries @ keys.mT
    return found.masked_fill(torch.ones(found.shape[2:]).triu(found.shape[3] - found.shape[2] + 1) > 0, -math.inf)


def test_wrong_scores_are_rejected() -> None:
    """A lost or doubled dimension at any edge of a tile, another scale, head or mask shows for every seed, in the dtype
    whose budget is the widest."""
    for d in list_edges(72):
        assert rejected(SCORES["bf16"], with_dimension(d, 0.0)), d
        assert rejected(SCORES["bf16"], with_dimension(d, 2.0)), d
    for stage in (of_other_heads, scaled(0.0), scaled(-1.0), masked_scores):
        assert rejected(SCORES["bf16"], stage), stage


def masked_from(offset: int, value: float = -math.inf) -> Stage:
    """The mask, moved by that many keys."""

    def run(found: torch.Tensor) -> torch.Tensor:
        last = found.shape[3] - found.shape[2] + offset
        return found.masked_fill_(torch.ones(found.shape[2:]).triu(last + 1) > 0, value)

    return run


def half_masked(found: torch.Tensor) -> torch.Tensor:
    """The mask, on the first sequence alone."""
    masked_from(0)(found[:1])
    return found


@pytest.mark.parametrize(
    "stage", [masked_from(1), masked_from(-1), masked_from(-10), masked_from(0, -1e9), half_masked]
)
def test_a_wrong_mask_is_rejected(stage: Stage) -> None:
    """One key more or less, a top-left mask, a large number in place of -inf, and a batch left out all show."""
    assert rejected(MASK, stage)


def test_an_honest_mask_is_not() -> None:
    """The right mask is exact for any seed."""
    assert not any(found_wrong(MASK, masked_from(0), seed) for seed in SEEDS)


def softmax_of(found: torch.Tensor, dtype: torch.dtype, change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    """exp(score - max), changed, over its sum."""
    power = torch.exp(found - found.amax(-1, keepdim=True))
    change(power)
    return (power / power.sum(-1, keepdim=True)).to(dtype)


def times(key: int, factor: float) -> Callable[[torch.Tensor], object]:
    """Multiplies the exponential of one key, or with -1 of the last key that each row sees."""

    def change(power: torch.Tensor) -> None:
        rows, keys = power.shape[2:]
        last = torch.arange(rows) + keys - rows if key < 0 else torch.full((rows,), key)
        power[:, :, torch.arange(rows), last] *= factor

    return change


def test_a_wrong_softmax_is_rejected() -> None:
    """A key at any edge that is lost or counted twice, no maximum subtracted, and 0 / 0 for a row without keys show for
    every seed."""
    workload, stored = SOFTMAX["bf16"], torch.bfloat16
    for key in [-1, *(key for key in list_edges(600) if key < 536)]:  # the first row sees so many
        assert rejected(workload, lambda x, key=key: softmax_of(x, stored, times(key, 0.0))), key
        assert rejected(workload, lambda x, key=key: softmax_of(x, stored, times(key, 2.0))), key
    assert rejected(workload, lambda x: (x.exp() / x.exp().sum(-1, keepdim=True)).to(stored))
    assert rejected(KEYLESS, lambda x: torch.softmax(x, -1).half())


def test_wrong_sums_of_values_are_rejected() -> None:
    """A key that is lost or counted twice, and a value of another head, show for every seed."""

    def run(
        weights: torch.Tensor, v: torch.Tensor, change: Callable[[torch.Tensor], object], head: int
    ) -> torch.Tensor:
        change(weights)
        values = v.roll(head, dims=2).repeat_interleave(2, dim=2).float().transpose(1, 2)
        return (weights.float() @ values).transpose(1, 2).to(v.dtype)

    for key in [-1, *(key for key in list_edges(300) if key < 236)]:
        for factor in (0.0, 2.0):
            assert rejected(VALUES["bf16"], functools.partial(run, change=times(key, factor), head=0)), key
    assert rejected(VALUES["bf16"], functools.partial(run, change=lambda weights: None, head=1))


def online_softmax(found: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Powers of two of products with log2(e), the sum over blocks of 64 keys, a reciprocal."""
    power = torch.exp2((found - found.amax(-1, keepdim=True)) * math.log2(math.e))
    total = sum(part.sum(-1, keepdim=True) for part in torch.split(power, 64, dim=-1))
    return (power * (1.0 / total)).to(dtype)


def blocked_values(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Products of 16 keys at a time, the last ones first, summed in fp32."""
    values = v.repeat_interleave(2, dim=2).float().transpose(1, 2)
    parts = zip(torch.split(weights.float(), 16, dim=-1), torch.split(values, 16, dim=-2), strict=True)
    total = torch.zeros(())
    for a, b in reversed(list(parts)):
        total = total + a @ b
    return total.transpose(1, 2).to(v.dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_honest_stages_pass(dtype: str) -> None:
    """Stages that sum in another order, in fp32, are within budget for each of 6 seeds."""
    stored = SOFTMAX[dtype].stored_as
    for seed in range(6):
        assert found_wrong(SCORES[dtype], honest_scores, seed) == ()
        assert found_wrong(SOFTMAX[dtype], lambda x: online_softmax(x, stored), seed) == ()
        assert found_wrong(VALUES[dtype], blocked_values, seed) == ()


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_honest_stages_pass_for_many_seeds(dtype: str) -> None:
    """The same for 300 seeds."""
    stored = SOFTMAX[dtype].stored_as
    for seed in range(300):
        assert found_wrong(SCORES[dtype], honest_scores, seed) == ()
        assert found_wrong(SOFTMAX[dtype], lambda x: online_softmax(x, stored), seed) == ()
        assert found_wrong(VALUES[dtype], blocked_values, seed) == ()
