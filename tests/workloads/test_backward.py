from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_gradients
from pytest_attnperf.workloads.backward import DTYPES, Backward
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families, Family, workloads_from_text
from pytest_attnperf.workloads.prefill import Prefill

pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def backwards(draw: st.DrawFn) -> Backward:
    """Any workload that may exist."""
    kv_heads = draw(st.integers(1, 64))
    return Backward(
        batch=draw(st.integers(1, 512)),
        seq_q=draw(st.integers(2, 1 << 20)),
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=draw(st.integers(1, 512)),
        seq_kv=draw(st.one_of(st.just(0), st.integers(2, 1 << 20))),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.booleans()),
        cold=draw(st.booleans()),
    )


@given(workload=backwards())
def test_an_id_parses_back(workload: Backward) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    again = Backward.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Backward(1, 512, 8, 64, kv_heads=2, dtype="bf16", causal=True), "backward-b1-s512-h8-hk2-d64-bf16-causal"),
        (Backward(4, 63, 4, 128, seq_kv=130), "backward-b4-s63-kv130-h4-d128-f16"),
        (Backward(1, 63, 4, 64, dtype="f32"), "backward-b1-s63-h4-d64-f32"),
        (Backward(1, 63, 4, 64, causal=True, cold=True), "backward-b1-s63-h4-d64-f16-causal-cold"),
    ],
)
def test_ids_are_readable_and_never_change(workload: Backward, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected
    assert isinstance(workload, Workload)
    assert (workload.family, workload.cache_state) == ("backward", "cold" if workload.cold else "hot")


def test_a_default_written_out_is_the_same_workload() -> None:
    """seq_kv and kv_heads given as their defaults make no second workload."""
    assert Backward(1, 64, 4, 32) == Backward(1, 64, 4, 32, seq_kv=64, kv_heads=4)
    assert hash(Backward(1, 64, 4, 32)) == hash(Backward(1, 64, 4, 32, seq_kv=64, kv_heads=4))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("b=2,s=512,h=8,d=64,causal,bf16", Backward(2, 512, 8, 64, dtype="bf16", causal=True)),
        (" d = 64 , h=8, s=512 ", Backward(1, 512, 8, 64, dtype="f16")),
        ("s=8,h=4,d=16,cold", Backward(1, 8, 4, 16, cold=True)),
        ("s=40,kv=8,h=4,hk=2,d=16,dtype=f32,causal=1", Backward(1, 40, 4, 16, 8, 2, "f32", causal=True)),
    ],
)
def test_a_line_gives_fields_in_any_order(line: str, expected: Backward) -> None:
    """A line needs s, h and d; b is 1, dtype f16 and the mask off unless given."""
    assert Backward.parse_line(line) == expected


BAD_LINES = [
    ("s=8,h=4", "backward workload 's=8,h=4' does not give d; required are s, h, d, allowed are b=, s=, kv=, h=, hk="),
    ("s=8,h=4,d=16,lse", "unknown field 'lse'; allowed are b="),
    ("s=0,h=4,d=16", "seq_q must be a positive integer, got 0"),
    ("s=8,h=4,hk=3,d=16", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
    ("s=8,h=4,d=513", "head_dim must be at most 512, got 513"),
    ("s=1,h=4,d=16", "seq_kv must be at least 2, got 1: a single key has the weight 1"),
    ("s=8,kv=1,h=4,d=16", "seq_kv must be at least 2, got 1"),
    ("s=8,h=4,d=16,dtype=f8e4m3", "backward workload: dtype 'f8e4m3' is not one of f32, f16, bf16"),
    ("s=8,h=4,d=16,dtype=tf32", "backward workload: dtype 'tf32' is not one of f32, f16, bf16"),
    ("s=8,h=4,d=16,dtype=f64", "backward workload: dtype 'f64' is not one of f32, f16, bf16"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Backward.parse_line(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefill-b1-s8-h4-d16-f16", "starts with 'prefill', not with 'backward'"),
        ("backward-s8-h4-d16-f16", "does not give b"),
        ("backward-b1-h4-s8-d16-f16", "not in its canonical form; write 'backward-b1-s8-h4-d16-f16'"),
        ("backward-b1-s8-h4-d16", "not in its canonical form; write 'backward-b1-s8-h4-d16-f16'"),
    ],
)
def test_an_id_has_one_form(text: str, message: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Backward.parse(text)


@pytest.mark.parametrize("value", [0.5, True, -1, "8"])
def test_fields_are_integers(value: Any) -> None:
    """A size that is no positive integer is refused also when it is not read from text."""
    with pytest.raises(WorkloadError, match="batch must be a positive integer, got"):
        dataclasses.replace(Backward(1, 8, 4, 16), batch=value)


@pytest.mark.parametrize(("seq_q", "seq_kv"), [(5, 5), (3, 8), (8, 3), (1, 4), (4, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_flops_count_the_pairs_of_the_mask(seq_q: int, seq_kv: int, causal: bool) -> None:
    """Useful work is 10 D for every pair a mask written out lets through, which is 2.5 times the forward pass."""
    workload = Backward(3, seq_q, 2, 8, seq_kv=seq_kv, causal=causal)
    seen = torch.ones(seq_q, seq_kv, dtype=torch.bool)
    pairs = int((seen.tril(seq_kv - seq_q) if causal else seen).sum())
    assert workload.visible_pairs == pairs
    assert workload.flops == 10 * 8 * pairs * 2 * 3
    if not causal or seq_kv >= seq_q:
        assert workload.flops == 2.5 * Prefill(3, seq_q, 2, 8, seq_kv=seq_kv, causal=causal).flops


def test_bytes_min_counts_every_tensor_once() -> None:
    """The least traffic is what all inputs and outputs weigh: q, k, v, dout, out, lse, dq, dk and dv."""
    workload = Backward(2, 10, 4, 16, seq_kv=30, kv_heads=2, dtype="bf16")
    inputs = workload.make_inputs(0, "cpu", planted=False)
    tensors = [*inputs, *workload.plain(inputs).values()]
    assert workload.bytes_min == sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    workload = Backward(1, 8, 4, 16, kv_heads=2, causal=True)
    definition = workload.definition()
    assert definition.pop("family") == "backward"
    assert definition.pop("scale") == "1/sqrt(head_dim)"
    assert definition.pop("mask_alignment") == "bottom-right"
    assert Backward(**definition) == workload
    assert {type(value) for value in definition.values()} <= {int, str, bool}
    assert Backward(1, 8, 4, 16).definition()["mask_alignment"] == "none"
    assert "cold" not in definition  # as in baselines stored before a workload could be cold
    assert Backward(1, 8, 4, 16, cold=True).definition()["cold"] is True


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes and dtypes, and are contiguous."""
    workload = Backward(2, 5, 4, 16, seq_kv=7, kv_heads=2, dtype="bf16")
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    rows, keys = (2, 5, 4, 16), (2, 7, 2, 16)
    assert [tuple(tensor.shape) for tensor in once] == [rows, keys, keys, rows, rows, (2, 4, 5)]
    assert [tensor.dtype for tensor in once] == [torch.bfloat16] * 5 + [torch.float32]
    assert all(tensor.is_contiguous() for tensor in once)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("line", ["b=2,s=9,kv=12,h=4,hk=2,d=16,causal", "s=9,kv=4,h=2,d=16,causal", "s=7,h=2,d=8"])
def test_out_and_lse_are_the_forward_passes(line: str) -> None:
    """`out` and `lse` are attention's of the very q, k and v handed out; rows without keys have 0 and -inf."""
    workload = Backward.parse_line(line)
    q, k, v, _, out, lse = workload.make_inputs(3, "cpu", planted=True)
    k, v = (tensor.repeat_interleave(workload.heads // workload.kv_heads, dim=2) for tensor in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / workload.head_dim**0.5
    if workload.causal:
        seen = torch.ones(workload.seq_q, workload.seq_kv, dtype=torch.bool).tril(workload.seq_kv - workload.seq_q)
        scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1).nan_to_num(nan=0.0)
    expected = torch.einsum("bhij,bjhd->bihd", weights, v.double())
    torch.testing.assert_close(out, expected.to(out.dtype), rtol=2.0**-10, atol=1e-7)
    torch.testing.assert_close(lse, scores.logsumexp(-1).float(), rtol=2.0**-23, atol=1e-6)


def test_outputs_are_the_gradients_and_always_finite() -> None:
    """Reference and plain give dq, dk and dv of q, k, v and dout, finite also where rows see no key."""
    workload = Backward.parse_line("b=2,s=40,kv=16,h=4,hk=2,d=16,causal,bf16")
    inputs = workload.make_inputs(5, "cpu", planted=True)
    reference, plain = workload.reference(inputs), workload.plain(inputs)
    expected = attention_gradients.compute_reference(*inputs[:4], causal=True)
    assert reference.keys() == plain.keys() == {"dq", "dk", "dv"}
    assert workload.non_finite_outputs == frozenset()
    for name, like in (("dq", inputs[0]), ("dk", inputs[1]), ("dv", inputs[2])):
        assert torch.equal(reference[name], expected[name])
        assert (plain[name].shape, plain[name].dtype) == (like.shape, like.dtype)
        assert plain[name].isfinite().all()


def test_planted_inputs_show_a_lost_gradient_of_the_last_key() -> None:
    """Zero for the last key's dk is beyond twice plain's error for each of 8 seeds when planted, else for few of them.

    Only the last of 16 rows sees the last of 4,096 keys, so that its dk is a 4,096th of the row unless it is planted.
    """
    workload = Backward(1, 16, 2, 64, seq_kv=4096, dtype="bf16", causal=True)
    shown = {False: 0, True: 0}
    for planted in shown:
        for seed in range(8):
            inputs = workload.make_inputs(seed, "cpu", planted=planted)
            dk, plain = workload.reference(inputs)["dk"], workload.plain(inputs)["dk"]
            step = 2.0**-7 * dk.abs().clamp(min=float(dk.square().mean().sqrt()))
            allowed = 2 * (plain.double() - dk).abs().max() + step
            shown[planted] += bool((dk.abs() > allowed)[0, -1].any())
    assert shown[True] == 8
    assert shown[False] <= 4


def test_a_project_registers_the_family_in_one_line() -> None:
    """`Families` takes it as it takes prefill, and reads its ids and lines."""
    family = Family("backward", Backward.parse, Backward.parse_line, "gradients of attention")
    families = Families([family])
    assert families.parse_workload("backward-b1-s8-h4-d16-f16") == Backward(1, 8, 4, 16)
    assert workloads_from_text("s=8,h=4,d=16", family) == [Backward(1, 8, 4, 16)]
