from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.backward import DTYPES, Backward
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

MIXED = VarlenBackward((5, 9, 1), 4, 16, seqs_kv=(7, 4, 3), kv_heads=2, dtype="bf16", causal=True)
"""Longer keys, rows without keys, and a single row."""


@st.composite
def varlen_backwards(draw: st.DrawFn) -> VarlenBackward:
    """Any workload that may exist."""
    batch, kv_heads = draw(st.integers(1, 6)), draw(st.integers(1, 64))
    lengths = st.lists(st.integers(2, 1 << 20), min_size=batch, max_size=batch).map(tuple)
    return VarlenBackward(
        seqs_q=draw(lengths),
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=draw(st.integers(1, 512)),
        seqs_kv=draw(st.one_of(st.just(()), lengths)),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.booleans()),
        cold=draw(st.booleans()),
    )


@given(workload=varlen_backwards())
def test_an_id_parses_back(workload: VarlenBackward) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    again = parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("q=63_1000,h=8,hk=2,d=64,causal", "varlen_backward-q63_1000-h8-hk2-d64-f16-causal"),
        ("d=64,q=2x512_63,kv=512_512_63,h=8,bf16", "varlen_backward-q2x512_63-h8-d64-bf16"),
        ("q=4,kv=9,h=2,d=8,f32,cold", "varlen_backward-q4-kv9-h2-d8-f32-cold"),
        ("q=4_5,kv=2x9,h=2,d=8", "varlen_backward-q4_5-kv2x9-h2-d8-f16"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed; a line gives fields in any order."""
    workload = VarlenBackward.parse_line(line)
    assert workload.id == expected
    assert isinstance(workload, Workload)
    assert (workload.family, workload.cache_state) == ("varlen_backward", "cold" if workload.cold else "hot")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=4,d=16", "does not give q; required are q, h, d, allowed are h="),
        ("q=63_0,h=4,d=16", "sequence lengths '63_0' hold a zero"),
        ("q=63_,h=4,d=16", "q must match"),
        ("q=8_8,kv=8,h=4,d=16", "seqs_q and seqs_kv must be equally many, got 2 and 1"),
        ("q=8,h=4,hk=3,d=16", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
        ("q=8,h=4,d=513", "head_dim must be at most 512, got 513"),
        ("q=8_3,kv=2x1,h=4,d=16", "seqs_kv must hold a length of at least 2, got only 1"),
        ("q=8,h=4,d=16,tf32", "dtype 'tf32' is not one of f32, f16, bf16"),
        ("q=8,h=4,d=16,b=2", "unknown field 'b'"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        VarlenBackward.parse_line(line)


@pytest.mark.parametrize("lengths", [(), (8, 0), (8, 2.5), (True,)])
def test_lengths_are_positive_integers(lengths: Any) -> None:
    """Lengths are checked also when they are not read from text."""
    with pytest.raises(WorkloadError, match="seqs_q must be a positive integer, got"):
        VarlenBackward(lengths, 4, 16)


@pytest.mark.parametrize("text", ["q8_8-h4-d16-f16", "h4-q8-d16-f16", "q8-kv8-h4-d16-f16"])
def test_an_id_has_one_form(text: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match="not in its canonical form"):
        VarlenBackward.parse(f"varlen_backward-{text}")


def test_work_is_that_of_the_sequences() -> None:
    """flops are those of dense problems, one key alone included; bytes are what all tensors weigh."""
    sequences = (Backward(1, 5, 4, 16, 7, 2, causal=True), Backward(1, 9, 4, 16, 4, 2, causal=True))
    last = 10 * 16 * 3 * 4  # one row that sees three keys
    assert MIXED.flops == sum(one.flops for one in sequences) + last
    alone = VarlenBackward((3, 2), 1, 8, seqs_kv=(1, 2))
    assert alone.visible_pairs == 3 + 4
    assert VarlenBackward((3, 2), 1, 8, seqs_kv=(1, 2), causal=True).visible_pairs == 1 + 3
    inputs = MIXED.make_inputs(0, "cpu", planted=False)
    tensors = [*inputs, *MIXED.plain(inputs).values()]
    assert MIXED.bytes_min == sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition says the lengths as text, and what the id leaves to convention."""
    definition = MIXED.definition()
    assert (definition["seqs_q"], definition["seqs_kv"]) == ("5_9_1", "7_4_3")
    assert (definition["scale"], definition["mask_alignment"]) == ("1/sqrt(head_dim)", "bottom-right")
    assert {type(value) for value in definition.values()} <= {int, str, bool}
    assert "cold" not in definition


def test_inputs_are_packed_and_the_same_for_the_same_seed_only() -> None:
    """Shapes and dtypes are flash_attn_varlen_func's; the seed decides the values and the offsets never change."""
    once, again, other = (MIXED.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    rows, keys = (15, 4, 16), (14, 2, 16)
    assert [tuple(tensor.shape) for tensor in once] == [rows, keys, keys, rows, rows, (4, 15), (4,), (4,)]
    assert [tensor.dtype for tensor in once] == [torch.bfloat16] * 5 + [torch.float32] + [torch.int32] * 2
    assert (once[6].tolist(), once[7].tolist()) == ([0, 5, 14, 15], [0, 7, 11, 14])
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once[:6], other[:6], strict=True))


def test_a_sequence_is_a_dense_problem() -> None:
    """Forward results and gradients of every sequence are those of the dense family, whatever stands beside it."""
    inputs = MIXED.make_inputs(3, "cpu", planted=True)
    reference, plain = MIXED.reference(inputs), MIXED.plain(inputs)
    assert MIXED.non_finite_outputs == frozenset()
    for (rows, keys), dense in zip(MIXED.iterate_slices(), MIXED.sequences, strict=True):
        assert dense is not None
        q, dout, out = (inputs[place][None, rows] for place in (0, 3, 4))
        k, v = (inputs[place][None, keys] for place in (1, 2))
        forward = dense._with_forward(q, k, v, dout)
        assert torch.equal(forward[4], out)
        assert torch.equal(forward[5], inputs[5][None, :, rows])
        for packed, alone in ((reference, dense.reference(forward)), (plain, dense.plain(forward))):
            for name, place in (("dq", rows), ("dk", keys), ("dv", keys)):
                assert torch.equal(packed[name][place], alone[name][0])


def test_the_reference_is_autograds() -> None:
    """With a block-diagonal mask over all packed rows, torch.autograd in fp64 gives the same gradients."""
    inputs = MIXED.make_inputs(5, "cpu", planted=True)
    leaves = [tensor.double().requires_grad_() for tensor in inputs[:3]]
    seen = torch.zeros(15, 14, dtype=torch.bool)
    for rows, keys in MIXED.iterate_slices():
        block = torch.ones(rows.stop - rows.start, keys.stop - keys.start, dtype=torch.bool)
        seen[rows, keys] = block.tril(block.shape[1] - block.shape[0])
    q, k, v = leaves[0], *(tensor.repeat_interleave(2, dim=1) for tensor in leaves[1:])
    scores = (torch.einsum("ihd,jhd->hij", q, k) / 4).masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1).masked_fill(~seen, 0.0)
    gradients = torch.autograd.grad(torch.einsum("hij,jhd->ihd", weights, v), leaves, inputs[3].double())
    for (name, got), expected in zip(MIXED.reference(inputs).items(), gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10, msg=name)


def test_keys_are_planted_in_every_sequence() -> None:
    """Every sequence but the single row holds a row that one key dominates."""
    workload = VarlenBackward((64, 200), 2, 64, dtype="f32", causal=True)
    plain_inputs, planted = (workload.make_inputs(1, "cpu", planted=flag) for flag in (False, True))
    for rows, keys in workload.iterate_slices():
        assert not torch.equal(planted[0][rows], plain_inputs[0][rows])
        assert not torch.equal(planted[1][keys], plain_inputs[1][keys])
