from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families
from pytest_attnperf.workloads.rope import DTYPES, Rope, rotate


@given(
    batch=st.integers(1, 64),
    seq=st.integers(1, 1 << 17),
    heads=st.integers(1, 128),
    kv_heads=st.integers(0, 128),
    half=st.integers(1, 256),
    dtype=st.sampled_from(DTYPES),
    interleaved=st.booleans(),
)
def test_an_id_parses_back(
    batch: int, seq: int, heads: int, kv_heads: int, half: int, dtype: str, interleaved: bool
) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    workload = Rope(batch, seq, heads, 2 * half, kv_heads, dtype, interleaved)
    again = Families().parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("b=4,s=4096,h=32,hk=8,d=128,f16", "rope-b4-s4096-h32-hk8-d128-f16"),
        ("interleaved, d=64, h=4, s=9, bf16", "rope-b1-s9-h4-d64-bf16-interleaved"),
        ("d=64,h=4,hk=4,s=9", "rope-b1-s9-h4-d64-f16"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed; a line gives the fields in any order."""
    assert Rope.parse_line(line).id == expected
    assert Rope.parse(expected) == Rope.parse_line(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("s=8,h=4", "does not give d; required are s, h, d"),
        ("s=8,h=4,d=7", "head_dim must be even, because elements are rotated in pairs, and at most 512, got 7"),
        ("s=8,h=4,d=514", "at most 512, got 514"),
        ("s=8,h=0,d=8", "heads must be a positive integer, got 0"),
        ("s=8,h=4,d=8,tf32", "dtype 'tf32' is not one of f32, f16, bf16"),
        ("s=8,h=4,d=8,causal", "unknown field 'causal'"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Rope.parse_line(line)


def test_an_id_has_one_form() -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    for text in ("rope-b1-h4-s9-d64-f16", "rope-b1-s9-h4-hk4-d64-f16", "rope-b1-s9-h4-d64"):
        with pytest.raises(WorkloadError, match="not in its canonical form; write 'rope-b1-s9-h4-d64-f16'"):
            Rope.parse(text)
    with pytest.raises(WorkloadError, match="does not give b"):
        Rope.parse("rope-s9-h4-d64-f16")


def test_work_counts_every_tensor_once() -> None:
    """q, k and both tables are read once, q and k written once; 3 operations per element; timed cold."""
    workload = Rope(2, 5, 4, 8, kv_heads=1, dtype="bf16")
    elements = 2 * 5 * (4 + 1) * 8
    assert workload.flops == 3 * elements
    assert workload.bytes_min == 2 * 2 * elements + 2 * 4 * (5 * 4)
    assert (workload.cache_state, workload.non_finite_outputs) == ("cold", frozenset())


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    workload = Rope(2, 5, 4, 8, kv_heads=1, dtype="bf16", interleaved=True)
    definition = workload.definition()
    assert definition.pop("family") == "rope"
    assert definition.pop("theta") == 10000.0
    assert definition.pop("pairs") == "(2 i, 2 i + 1)"
    assert Rope(**definition) == workload
    assert dataclasses.replace(workload, interleaved=False).definition()["pairs"] == "(i, i + head_dim / 2)"


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """q and k are decided by the seed; the tables are those of the positions, in fp32, whatever the seed."""
    import torch

    workload = Rope(2, 5, 4, 8, kv_heads=1, dtype="f16")
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    assert [tuple(tensor.shape) for tensor in once] == [(2, 5, 4, 8), (2, 5, 1, 8), (5, 4), (5, 4)]
    assert [tensor.dtype for tensor in once] == [torch.half, torch.half, torch.float, torch.float]
    assert all(map(torch.equal, once, again))
    assert list(map(torch.equal, once, other)) == [False, False, True, True]
    assert torch.equal(once[2][0], torch.ones(4))
    assert once[3][3].double().allclose(torch.tensor([3 * 10000.0 ** (-i / 4) for i in range(4)]).double().sin())


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_rotation_is_a_product_of_complex_numbers(interleaved: bool) -> None:
    """Pairs as complex numbers are multiplied by e^(i angle): which elements are a pair is all that differs."""
    import torch

    workload = Rope(2, 5, 3, 8, dtype="f32", interleaved=interleaved)
    q, k, cos, sin = (tensor.double() for tensor in workload.make_inputs(1, "cpu", planted=True))
    turn = torch.complex(cos, sin)[:, None, :]
    for name, x in (("q", q), ("k", k)):
        pairs = x.unflatten(-1, (4, 2)) if interleaved else x.unflatten(-1, (2, 4)).transpose(-1, -2)
        turned = torch.view_as_real(torch.complex(pairs[..., 0], pairs[..., 1]) * turn)
        expected = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
        inputs = tuple(tensor.float() for tensor in (q, k, cos, sin))
        assert workload.reference(inputs)[name].allclose(expected)
        assert workload.plain(inputs)[name].double().allclose(expected, atol=1e-6)


def test_scores_depend_on_the_distance_alone() -> None:
    """What the embedding is for: the product of a query and a key is the same when both move on by a token."""
    import torch

    _, _, cos, sin = Rope(1, 9, 1, 16, dtype="f32").make_inputs(1, "cpu", planted=True)
    q, k = (torch.randn(16).double().expand(9, 1, 16) for _ in range(2))
    turned_q, turned_k = (rotate(x, cos.double(), sin.double(), False)[:, 0] for x in (q, k))
    scores = turned_q[2:] @ turned_k[:-2].T
    assert scores.diagonal().allclose(scores[0, 0].expand(7), atol=1e-5)
