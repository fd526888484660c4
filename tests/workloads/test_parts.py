from __future__ import annotations

import pytest
import torch

from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.parts import find_rows, list_parts, name_rows, take

IDS = (
    "prefill-b3-s40-kv70-h4-hk2-d16-f16-causal-lse",
    "prefill-b1-s20-h4-d16-f32-bias",
    "prefill-b4-s20-h4-d16-f32-causal-alibi",
    "prefill-b2-s40-h4-d16-f8e4m3-causal",
    "prefill-b2-s40-h4-d16-i8-kv8",
    "varlen-q9_20_13-h4-hk2-d16-f16-causal",
    "varlen-q9_20_13-kv12_20_30-h4-hk2-d16-f16-lse-bias",
    "varlen-q9_20_13-h4-d16-f8e4m3-alibi",
    "backward-b3-s30-h4-d16-f16-causal",
    "varlen_backward-q9_20_13-h4-d16-f16-causal",
    "decode-b5-kv70-h4-hk2-d16-f16-ragged-lse",
    "decode-b5-q4-kv70-h4-hk2-d16-page16-f16-kvf8e4m3-sinks-ragged-lse",
    "decode-b1-kv70-h4-d16-page16-f16",
    "mixed-2q9_3q1s30_q5s20-h4-hk2-d16-page16-f16-kvf8e4m3-sinks",
    "gemm-m16-n24-k16-f16",
    "gemm-m16-n24-k16-f8e4m3",
    "softmax-r12-c40-f16",
    "rmsnorm-r12-c40-f16-residual",
    "layernorm-r5-c40-bf16",
    "rope-b3-s9-h4-hk2-d16-f16",
    "mla-b3-s12-h2-d16-r8-c32-f16-causal-lse",
    "qk_scores-b3-s12-h4-d16-f16",
    "row_softmax-b3-s12-h4-f16-causal",
    "weighted_values-b3-s12-h4-d16-f16-causal",
    "causal_mask-b3-s12-h4-f32",
)


@pytest.mark.parametrize("id", IDS)
def test_a_part_is_a_problem_whose_results_the_whole_has_too(id: str) -> None:
    """The reference gives each part of each family, to rounding, what it gives the same rows of the whole; the part's
    inputs have the shapes that its workload makes, but for caches in pages, which stay whole."""
    workload = parse_workload(id)
    inputs = workload.make_inputs(3, "cpu", planted=True)
    whole, made = workload.reference(inputs), 0
    for variant, make in list_parts(workload):
        if (part := make()) is None:
            continue
        own, like = part.inputs(inputs), part.workload.make_inputs(3, "cpu", planted=False)
        for tensor, other in zip(own, like, strict=True):
            assert tensor.shape == other.shape or "page" in id, (variant, tensor.shape, other.shape)
            assert tensor.dtype == other.dtype
            assert tensor.is_contiguous()
        got, expected = part.workload.reference(own), part.outputs(whole)
        assert set(got) == set(expected) == set(whole)
        for name, tensor in got.items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
        made += 1
    assert made


def test_families_that_do_not_say_have_no_parts() -> None:
    """Arrays that are copied have no rows."""
    assert not list(list_parts(parse_workload("bandwidth-copy-kib96-f16")))


def test_sequences_of_a_ragged_batch_keep_their_lengths() -> None:
    """Reversed, each request has its own number of keys, not what another batch of this size would have drawn."""
    workload = parse_workload("decode-b5-kv70-h4-hk2-d16-page16-f16-ragged")
    part = dict(list_parts(workload))["reversed"]()
    assert part is not None
    assert part.workload.lengths == workload.lengths[::-1]  # type: ignore[attr-defined]
    inputs = workload.make_inputs(1, "cpu", planted=False)
    assert part.inputs(inputs)[4].tolist() == list(workload.lengths[::-1])  # type: ignore[attr-defined]


def test_variants_are_named_by_what_they_take() -> None:
    """One row can only be doubled; of four there is also a half."""
    assert name_rows(1) == {"doubled": (0, 0)}
    assert name_rows(2) == {"alone": (1,), "reversed": (1, 0), "doubled": (0, 1, 0, 1)}
    assert name_rows(4)["half"] == (0, 1)


def test_rows_are_taken_with_their_layout() -> None:
    """A transposed tensor gives transposed rows, and 8-bit floats their bits."""
    tensor = torch.arange(24.0).reshape(4, 3, 2).transpose(0, 1)
    taken = take(tensor, (2, 0, 2), 0)
    assert torch.equal(taken, tensor[[2, 0, 2]])
    assert taken.stride(1) > taken.stride(0)
    eight = torch.randn(5, 4).to(torch.float8_e4m3fn)
    assert torch.equal(take(eight, (4, 1), 0).view(torch.uint8), eight.view(torch.uint8)[[4, 1]])


def norm(x: torch.Tensor, w: torch.Tensor) -> Outputs:
    """Rows of x, scaled by w."""
    return {"out": x / x.square().mean(-1, keepdim=True).sqrt() * w}


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Outputs:
    """(B, S, H, D), with the log-sum-exp (H, B, S)."""
    scores = torch.einsum("bshd,bthd->bhst", q, k)
    out = torch.einsum("bhst,bthd->bshd", scores.softmax(-1), v)
    return {"out": out, "lse": scores.logsumexp(-1).transpose(0, 1)}


def draw(*shapes: tuple[int, ...]) -> Tensors:
    """Tensors of these shapes, in fp64."""
    torch.manual_seed(1)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def test_the_reference_says_which_dimension_holds_rows() -> None:
    """A weight of the same size is none of the rows; a batch of 1 leaves the heads; outputs may hold rows elsewhere."""
    rows = find_rows(lambda given: norm(*given), draw((6, 6), (6,)))
    assert (rows.count, dict(rows.inputs), dict(rows.outputs)) == (6, {0: 0}, {"out": 0})
    rows = find_rows(lambda given: attend(*given), draw((2, 5, 3, 4), (2, 5, 3, 4), (2, 5, 3, 4)))
    assert (rows.count, dict(rows.inputs), dict(rows.outputs)) == (2, {0: 0, 1: 0, 2: 0}, {"out": 0, "lse": 1})
    rows = find_rows(lambda given: attend(*given), draw((1, 5, 3, 4), (1, 7, 3, 4), (1, 7, 3, 4)))
    assert (rows.count, dict(rows.inputs), dict(rows.outputs)) == (5, {0: 1}, {"out": 1, "lse": 2})


def test_what_depends_on_its_place_is_no_row() -> None:
    """Rotation by position, a running sum and a normalised batch have no rows along that dimension."""
    place = torch.arange(6.0, dtype=torch.float64)[:, None]
    (x,) = draw((6, 3))
    assert find_rows(lambda given: {"out": given[0] * (place[: len(given[0])] + 1)}, (x,)).inputs == {0: 1}
    assert find_rows(lambda given: {"out": given[0].cumsum(0)}, (x,)).inputs == {0: 1}
    with pytest.raises(WorkloadError, match="computes no dimension of its first input row by row"):
        find_rows(lambda given: {"out": given[0] / given[0].norm()}, (x,))
    with pytest.raises(WorkloadError, match="computes no dimension of its first input row by row"):
        find_rows(lambda given: {"out": given[0].sum()}, (torch.tensor(1.0),))
