"""The stages of unfused attention: ids, figures of work, planted inputs, references, and what the budget rejects."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.attention_stages import DTYPES, AttentionStage
from pytest_attnperf.workloads.base import Workload, in_place
from pytest_attnperf.workloads.causal_mask import CausalMask
from pytest_attnperf.workloads.families import Families, Family
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.qk_scores import QkScores
from pytest_attnperf.workloads.row_shape import list_edges
from pytest_attnperf.workloads.row_softmax import RowSoftmax
from pytest_attnperf.workloads.weighted_values import WeightedValues

KINDS: tuple[type[AttentionStage], ...] = (QkScores, CausalMask, RowSoftmax, WeightedValues)
IDS = (
    "qk_scores-b1-s512-kv2048-h8-hk2-d64-f16",
    "causal_mask-b1-s512-kv600-h8-f32",
    "row_softmax-b1-s512-h8-f16-causal",
    "weighted_values-b1-s512-h8-hk2-d64-bf16-causal",
)


def parse(text: str) -> AttentionStage:
    """The workload of an id of any stage."""
    kind = next(kind for kind in KINDS if kind.grammar.family == text.split("-")[0])
    return kind.parse(text)


@st.composite
def stages(draw: st.DrawFn) -> AttentionStage:
    """Any stage that may exist."""
    kind = draw(st.sampled_from(KINDS))
    kv_heads = draw(st.integers(1, 16))
    fields: dict[str, Any] = {
        "batch": draw(st.integers(1, 64)),
        "seq_q": draw(st.integers(2, 1 << 17)),
        "seq_kv": draw(st.integers(2, 1 << 17)),
        "heads": kv_heads * draw(st.integers(1, 16)),
        "dtype": draw(st.sampled_from(kind.grammar.dtypes)),
    }
    if kind in (QkScores, WeightedValues):
        fields |= {"head_dim": draw(st.integers(2, 512)), "kv_heads": kv_heads}
    if kind in (RowSoftmax, WeightedValues):
        fields["causal"] = draw(st.booleans())
    return kind(**fields)


@given(workload=stages())
def test_an_id_parses_back(workload: AttentionStage) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, also by its family."""
    kind = type(workload)
    families = Families([Family(workload.family, kind.parse, kind.parse_line)])
    again = families.parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    assert isinstance(workload, Workload)
    assert workload.cache_state == "hot"


@pytest.mark.parametrize("text", IDS)
def test_ids_are_readable_and_never_change(text: str) -> None:
    """An id is a key of stored baselines, so its text is fixed; a line gives the same in any order, and b is 1."""
    workload = parse(text)
    assert workload.id == text
    words = (re.sub(r"^(b|s|kv|h|hk|d)(\d+)$", r"\1=\2", word) for word in reversed(text.split("-")[1:]))
    line = ", ".join(word for word in words if word != "b=1")
    assert type(workload).parse_line(line) == workload
    definition = workload.definition()
    assert definition.pop("family") == workload.family
    convention = definition.pop("scale", None), definition.pop("mask_alignment", None)
    assert convention == (("1/sqrt(head_dim)", None) if isinstance(workload, QkScores) else (None, "bottom-right"))
    assert type(workload)(**definition) == workload


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        (QkScores, "s=8,h=4", "qk_scores workload 's=8,h=4' does not give d; required are s, h, d"),
        (QkScores, "s=8,h=4,d=8,causal", "unknown field 'causal'"),
        (QkScores, "s=8,h=4,d=513", "head_dim must be at most 512, got 513"),
        (QkScores, "s=8,h=4,hk=3,d=8", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
        (QkScores, "s=8,h=4,d=8,tf32", "qk_scores workload: dtype 'tf32' is not one of f16, bf16, f32"),
        (CausalMask, "s=8,h=4,f16", "causal_mask workload: dtype 'f16' is not one of f32"),
        (CausalMask, "s=1,kv=9,h=4", "seq_q must be at least 2, got 1: the last row sees all keys"),
        (CausalMask, "s=8,h=4,d=8", "unknown field 'd'"),
        (RowSoftmax, "s=8,kv=1,h=4", "seq_kv must be at least 2, got 1: the weight of a single key is the same"),
        (RowSoftmax, "s=0,h=4", "row_softmax workload: seq_q must be a positive integer, got 0"),
        (WeightedValues, "s=8,h=4,d=8,h=5", "gives heads (h) twice"),
        (WeightedValues, "s=8,h=4,d=0", "weighted_values workload: head_dim must be a positive integer, got 0"),
    ],
)
def test_a_malformed_line_names_field_and_value(kind: type[AttentionStage], line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        kind.parse_line(line)


@pytest.mark.parametrize(
    "text", ["qk_scores-b1-s9-kv9-h4-d8-f16", "qk_scores-b1-s9-h4-hk4-d8-f16", "qk_scores-b1-h4-s9-d8"]
)
def test_an_id_has_one_form(text: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match="not in its canonical form; write 'qk_scores-b1-s9-h4-d8-f16'"):
        QkScores.parse(text)


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(5, 5), (3, 7), (7, 3), (1, 4), (2, 1)])
def test_causal_pairs_are_those_that_prefill_counts(seq_q: int, seq_kv: int) -> None:
    """Pairs that are seen are those of attention's own mask, and hidden ones all others, also where rows see no key."""
    stage = WeightedValues(batch=2, seq_q=seq_q, heads=3, seq_kv=seq_kv, head_dim=8, causal=True)
    prefill = Prefill(2, seq_q, 3, 8, seq_kv, causal=True)
    assert stage.visible_pairs == 6 * prefill.visible_pairs
    assert 6 * int(stage.hidden_keys("cpu").sum()) == stage.pairs - stage.visible_pairs


def test_work_counts_what_must_be_moved() -> None:
    """Inputs that are seen are read once, outputs written once; 8 queries, 10 keys: 80 pairs, 28 of them hidden."""
    scores = QkScores.parse("qk_scores-b2-s8-kv10-h4-hk2-d16-f16")
    assert scores.flops == 2 * 16 * (2 * 4 * 80)
    assert scores.bytes_min == 2 * 2 * 16 * (8 * 4 + 10 * 2) + 4 * (2 * 4 * 80)
    mask = CausalMask.parse("causal_mask-b2-s8-kv10-h4-f32")
    assert (mask.flops, mask.bytes_min) == (8 * 28, 4 * 8 * 28)
    softmax = RowSoftmax.parse("row_softmax-b2-s8-kv10-h4-bf16-causal")
    assert (softmax.flops, softmax.bytes_min) == (5 * 8 * 52, 8 * (4 * 52 + 2 * 80))
    assert RowSoftmax.parse("row_softmax-b2-s8-kv10-h4-f32").bytes_min == 8 * 80 * (4 + 4)
    values = WeightedValues.parse("weighted_values-b2-s8-kv10-h4-hk2-d16-f16-causal")
    assert values.flops == 2 * 16 * 8 * 52
    assert values.bytes_min == 2 * (8 * 52 + 2 * 16 * (8 * 4 + 10 * 2))
    assert WeightedValues.parse("weighted_values-b2-s8-kv10-h4-hk2-d16-f16").flops == 2 * 16 * 8 * 80


def test_only_the_mask_works_in_place() -> None:
    """The whole of the mask's one input may change, and its output holds -inf; no other stage writes to an input."""
    import torch

    mask, *others = (parse(text) for text in (IDS[1], IDS[0], *IDS[2:]))
    scores = torch.zeros(3)
    (view,) = in_place(mask).values()
    assert (list(in_place(mask)), view(scores) is scores) == ([0], True)
    assert mask.non_finite_outputs == {"scores"}
    assert [dict(in_place(other)) for other in others] == [{}] * 3
    assert {other.non_finite_outputs for other in others} == {frozenset()}


@pytest.mark.parametrize(
    "text",
    [
        "qk_scores-b2-s5-kv9-h4-hk2-d24-bf16",
        "causal_mask-b2-s5-kv9-h4-f32",
        "row_softmax-b2-s5-kv3-h4-f16-causal",
        "weighted_values-b2-s5-kv9-h4-hk2-d24-bf16-causal",
    ],
)
def test_inputs_are_the_same_for_the_same_seed_only(text: str) -> None:
    """Inputs are decided by the seed, contiguous, of the documented shapes and dtypes."""
    import torch

    workload = parse(text)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    shapes = {
        "qk_scores": [(2, 5, 4, 24), (2, 9, 2, 24)],
        "causal_mask": [(2, 4, 5, 9)],
        "row_softmax": [(2, 4, 5, 3)],
        "weighted_values": [(2, 4, 5, 9), (2, 9, 2, 24)],
    }
    assert [tuple(tensor.shape) for tensor in once] == shapes[workload.family]
    dtype = torch.float32 if workload.family in ("causal_mask", "row_softmax") else torch.bfloat16
    assert all(tensor.is_contiguous() and tensor.dtype == dtype for tensor in once)
    assert all(map(torch.equal, once, again))
    assert not any(map(torch.equal, once, other))


@pytest.mark.parametrize("head_dim", [2, 8, 40, 128])
def test_every_edge_of_the_dimensions_is_planted_in_some_score(head_dim: int) -> None:
    """Some pair has each dimension at a tile's edge large on both sides, and some short pair the last one."""
    count = len(list_edges(head_dim))
    workload = QkScores(batch=1, seq_q=count, heads=2, seq_kv=count + 3, head_dim=head_dim, kv_heads=1, dtype="f32")
    q, k = workload.make_inputs(2, "cpu", planted=True)
    level = float(q.new_tensor(math.sqrt(4.0 * math.sqrt(head_dim))))
    both = {d for d in range(head_dim) if bool((q[..., d] == level).any() and (k[..., d] == level).any())}
    assert set(list_edges(head_dim)) <= both
    assert (q == level).sum(-1).eq(1).all()
    lone = QkScores(batch=1, seq_q=1, heads=1, head_dim=head_dim, dtype="f32")
    for tensor in lone.make_inputs(1, "cpu", planted=True):
        assert float(tensor[..., -1]) == level


@pytest.mark.parametrize(("seq_q", "seq_kv", "causal"), [(300, 300, True), (20, 500, True), (60, 90, False)])
def test_plants_are_at_edges_of_what_a_row_sees(seq_q: int, seq_kv: int, causal: bool) -> None:
    """The planted key has most of a row's weight and is the last it sees or an edge; the last of all is planted for
    every seed, and every edge for some."""
    import torch

    workload = RowSoftmax(batch=1, seq_q=seq_q, heads=3, seq_kv=seq_kv, dtype="f32", causal=causal)
    last = torch.arange(seq_q) + (seq_kv - seq_q) if causal else torch.full((seq_q,), seq_kv - 1)
    places, planted = torch.tensor(list_edges(seq_kv)), set()
    for seed in range(8):
        (scores,) = workload.make_inputs(seed, "cpu", planted=True)
        heaviest, key = torch.softmax(scores.double(), dim=-1).max(dim=-1)
        assert heaviest[..., 16:].gt(0.5).all()  # of fewer keys another may be as heavy
        assert (torch.isin(key, places) | (key == last))[..., 16:].all()
        assert bool((key == seq_kv - 1).any())
        planted |= set(key.flatten().tolist())
    assert set(list_edges(seq_kv)) <= planted


def test_rows_that_see_no_key_weigh_nothing() -> None:
    """With fewer keys than queries the first rows are -inf, their weights 0 exactly, and outputs of them 0."""
    softmax = RowSoftmax.parse("row_softmax-b1-s7-kv3-h2-f16-causal")
    inputs = softmax.make_inputs(1, "cpu", planted=True)
    assert inputs[0][:, :, :4].eq(float("-inf")).all()
    for outputs in (softmax.reference(inputs), softmax.plain(inputs)):
        assert not outputs["weights"][:, :, :4].any()
        assert outputs["weights"][:, :, 4:].sum(-1).allclose(outputs["weights"].new_tensor(1.0), atol=1e-2)
    values = WeightedValues.parse("weighted_values-b1-s7-kv3-h2-d8-f16-causal")
    assert not values.reference(values.make_inputs(1, "cpu", planted=True))["out"][:, :4].any()
    alone = WeightedValues.parse("weighted_values-b1-s3-kv1-h2-d8-f16-causal")
    weights, v = alone.make_inputs(1, "cpu", planted=True)
    assert alone.reference((weights, v))["out"][0, 2].equal(v[0, 0].double())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_stages_make_up_attention(dtype: str) -> None:
    """Reference after reference, each fed what the one before gave, is attention's own reference."""
    prefill = Prefill(2, 6, 4, 16, 9, 2, dtype, causal=True)
    q, k, v = prefill.make_inputs(1, "cpu", planted=True)
    shape: dict[str, Any] = {"batch": 2, "seq_q": 6, "heads": 4, "seq_kv": 9}
    product = {**shape, "dtype": dtype, "head_dim": 16, "kv_heads": 2}
    scores = QkScores(**product).reference((q, k))["scores"]
    masked = CausalMask(**shape).reference((scores.float(),))["scores"]
    weights = RowSoftmax(**shape, dtype=dtype, causal=True).reference((masked,))["weights"]
    out = WeightedValues(**product, causal=True).reference((weights, v))["out"]
    expected = prefill.reference((q, k, v))["out"]
    assert {each.dtype for each in (scores, masked, weights, out)} == {expected.dtype}
    assert out.allclose(expected, rtol=1e-6, atol=1e-6)


def test_plain_outputs_have_the_documented_dtypes() -> None:
    """Scores are fp32 whatever is multiplied, weights and outputs the dtype's; 16-bit scores are rounded to 16 bits."""
    import torch

    for dtype, name in itertools.product(("f16", "f32"), ("qk_scores", "row_softmax", "weighted_values")):
        sizes = "b1-s4-h2" + ("" if name == "row_softmax" else "-d8")
        workload = parse(f"{name}-{sizes}-{dtype}")
        (plain,) = workload.plain(workload.make_inputs(1, "cpu", planted=True)).values()
        stored = torch.float16 if dtype == "f16" else torch.float32
        assert plain.dtype == (torch.float32 if name == "qk_scores" else stored)
        assert name != "qk_scores" or bool(plain.to(stored).float().equal(plain))


def test_scores_of_one_dimension_are_refused() -> None:
    """Planted inputs would make all of them the same."""
    with pytest.raises(WorkloadError, match="head_dim must be at least 2, got 1: planted inputs set one dimension"):
        QkScores(batch=1, seq_q=4, heads=1, head_dim=1)
