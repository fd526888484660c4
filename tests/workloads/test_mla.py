from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.mla import Mla


@st.composite
def mlas(draw: st.DrawFn) -> Mla:
    """Any workload that may exist."""
    seq_q, causal = draw(st.integers(1, 1 << 20)), draw(st.booleans())
    return Mla(
        batch=draw(st.integers(1, 512)),
        seq_q=seq_q,
        heads=draw(st.integers(1, 128)),
        nope_dim=draw(st.integers(1, 256)),
        rope_dim=draw(st.integers(1, 128)),
        latent_dim=draw(st.integers(1, 1024)),
        seq_kv=draw(st.integers(seq_q if causal else 0, 1 << 21)),
        value_dim=draw(st.integers(0, 256)),
        dtype=draw(st.sampled_from(["f16", "bf16", "f32"])),
        causal=causal,
        lse=draw(st.booleans()),
    )


@given(workload=mlas())
def test_an_id_parses_back(workload: Mla) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    again = Mla.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Mla(2, 128, 16, 64, 32, 256, causal=True), "mla-b2-s128-h16-d64-r32-c256-f16-causal"),
        (Mla(32, 1, 16, 128, 64, 512, 4096, dtype="bf16"), "mla-b32-s1-kv4096-h16-d128-r64-c512-bf16"),
        (
            Mla(1, 2, 4, 24, 8, 48, 9, 16, "f32", causal=True, lse=True),
            "mla-b1-s2-kv9-h4-d24-dv16-r8-c48-f32-causal-lse",
        ),
        (Mla(1, 8, 4, 24, 8, 48, 8, 24), "mla-b1-s8-h4-d24-r8-c48-f16"),
    ],
)
def test_ids_are_readable_and_never_change(workload: Mla, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected
    assert isinstance(workload, Workload)


def test_a_line_gives_fields_in_any_order() -> None:
    """A line needs s, h, d, r and c; b is 1, dtype f16 and the mask off unless given."""
    assert Mla.parse_line("c=48, r=8, d=24, h=4, s=8") == Mla(1, 8, 4, 24, 8, 48)
    line = "b=2,s=2,kv=9,h=4,d=24,dv=16,r=8,c=48,bf16,causal,lse"
    assert Mla.parse_line(line) == Mla(2, 2, 4, 24, 8, 48, 9, 16, "bf16", causal=True, lse=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "s=8,h=4,d=16,r=8",
            "does not give c; required are s, h, d, r, c, allowed are b=, s=, kv=, h=, d=, dv=, r=, c=",
        ),
        ("s=8,h=4,d=16,r=8,c=32,hk=2", "unknown field 'hk'"),
        ("s=8,h=4,d=16,r=0,c=32", "rope_dim must be a positive integer, got 0"),
        ("s=8,h=4,d=16,r=8,c=3.5", "c must be a positive integer of at most 18 digits, got '3.5'"),
        ("s=8,h=4,d=16,r=8,c=32,dtype=tf32", "dtype 'tf32' is not one of f16, bf16, f32"),
        ("s=8,kv=5,h=4,d=16,r=8,c=32,causal", "causal needs seq_kv of at least seq_q, got seq_kv=5 and seq_q=8"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Mla.parse_line(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefill-b1-s8-h4-d16-r8-c32-f16", "starts with 'prefill', not with 'mla'"),
        ("mla-s8-h4-d16-r8-c32-f16", "does not give b"),
        ("mla-b1-s8-h4-d16-dv16-r8-c32-f16", "not in its canonical form; write 'mla-b1-s8-h4-d16-r8-c32-f16'"),
        ("mla-b1-s8-kv8-h4-d16-r8-c32-f16", "not in its canonical form"),
    ],
)
def test_an_id_has_one_form(text: str, message: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Mla.parse(text)


@pytest.mark.parametrize("value", [0.5, True, -1, "8"])
def test_fields_are_integers(value: Any) -> None:
    """A size that is no positive integer is refused also when it is not read from text."""
    with pytest.raises(WorkloadError, match="batch must be a positive integer, got"):
        dataclasses.replace(Mla(1, 8, 4, 16, 8, 32), batch=value)


@given(seq_q=st.integers(1, 20), more=st.integers(0, 20), causal=st.booleans())
def test_pairs_are_those_of_the_mask(seq_q: int, more: int, causal: bool) -> None:
    """The count of visible pairs is that of the mask written out."""
    workload = Mla(1, seq_q, 1, 8, 8, 8, seq_q + more, causal=causal)
    seen = [not causal or key <= row + more for row in range(seq_q) for key in range(seq_q + more)]
    assert workload.visible_pairs == sum(seen)


def test_work_figures_are_exact() -> None:
    """Operations of both forms, the smaller counted, and bytes, for a problem small enough to count by hand."""
    workload = Mla(2, 3, 4, 5, 6, 7, 8, 9, "bf16", causal=True, lse=True)
    pairs = 6 + 7 + 8
    assert workload.flops_naive == 2 * 4 * (8 * 2 * 7 * (5 + 9) + pairs * 2 * (5 + 6 + 9))
    assert workload.flops_absorbed == 2 * 4 * (3 * 2 * 7 * (5 + 9) + pairs * 2 * (7 + 6 + 7))
    assert workload.flops == min(workload.flops_naive, workload.flops_absorbed)
    elements = 2 * 3 * 4 * (5 + 6 + 9) + 2 * 8 * (7 + 6) + 4 * (5 + 9) * 7
    assert workload.bytes_min == 2 * elements + 2 * 3 * 4 * 4


def test_the_cheaper_form_is_counted() -> None:
    """A long prompt of DeepSeek-V2's dimensions is counted as naive, a step of decoding as absorbed."""
    prompt = Mla(1, 2048, 16, 128, 64, 512, causal=True)
    step = Mla(32, 1, 16, 128, 64, 512, 4096)
    assert prompt.flops == prompt.flops_naive < prompt.flops_absorbed
    assert step.flops == step.flops_absorbed < step.flops_naive


def test_decoding_is_cold() -> None:
    """Up to 8 queries per sequence are timed with cold caches, more with hot ones; no output is ever infinite."""
    assert [Mla(1, seq_q, 2, 8, 8, 8, 64).cache_state for seq_q in (1, 8, 9)] == ["cold", "cold", "hot"]
    assert Mla(1, 8, 2, 8, 8, 8, lse=True, causal=True).non_finite_outputs == frozenset()


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    workload = Mla(1, 8, 4, 16, 8, 32, causal=True)
    definition = workload.definition()
    assert definition.pop("family") == "mla"
    assert definition.pop("scale") == "1/sqrt(nope_dim + rope_dim)"
    assert definition.pop("mask_alignment") == "bottom-right"
    assert Mla(**definition) == workload
    assert {type(value) for value in definition.values()} <= {int, str, bool}


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes, and are contiguous in the workload's dtype."""
    import torch

    workload = Mla(2, 3, 4, 16, 8, 32, seq_kv=7, value_dim=24, dtype="bf16")
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    assert [tuple(tensor.shape) for tensor in once] == [(2, 3, 4, 16), (2, 3, 4, 8), (2, 7, 32), (2, 7, 8), (4, 40, 32)]
    assert all(tensor.is_contiguous() and tensor.dtype == torch.bfloat16 for tensor in once)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("causal", [True, False])
def test_the_reference_is_the_naive_form(causal: bool) -> None:
    """Written out by head with projected keys and values, the definition gives the reference's out and lse."""
    import torch

    workload = Mla(2, 5, 3, 16, 8, 32, seq_kv=9, value_dim=24, causal=causal, lse=True)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    q_nope, q_pe, latent, k_pe, wkv_b = (tensor.double() for tensor in inputs)
    projected = torch.einsum("btc,hdc->bhtd", latent, wkv_b)
    k_nope, v = projected[..., :16], projected[..., 16:]
    k = torch.cat([k_nope, k_pe[:, None].expand(-1, 3, -1, -1)], dim=-1)
    q = torch.cat([q_nope, q_pe], dim=-1).transpose(1, 2)
    scores = q @ k.transpose(-1, -2) / 24**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(5, 9, dtype=torch.bool).triu(5), float("-inf"))
    given_ = workload.reference(inputs)
    torch.testing.assert_close(given_["out"], (scores.softmax(-1) @ v).transpose(1, 2))
    torch.testing.assert_close(given_["lse"], scores.logsumexp(-1))


@pytest.mark.parametrize(
    "text",
    [
        "mla-b2-s1-kv4096-h8-d128-r64-c512-f16",
        "mla-b1-s40-kv700-h2-d64-r32-c256-f32-causal",
        "mla-b1-s40-kv64-h2-d16-r8-c32-f32",
        "mla-b1-s40-kv64-h2-d40-r8-c16-f32-causal",
    ],
)
def test_planted_keys_hold_most_of_a_row(text: str) -> None:
    """The last key dominates a row wherever there is one for it: losing it moves that row by more than a quarter."""
    workload = Mla.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    q_nope, q_pe, latent, k_pe, wkv_b = inputs
    whole = workload.reference(inputs)["out"].double()
    without = latent.clone()
    without[:, -1] = 0
    moved = workload.reference((q_nope, q_pe, without, k_pe, wkv_b))["out"].double() - whole
    assert float((moved.norm(dim=-1) / whole.norm(dim=-1)).max()) > 0.25


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed in pieces of one row, the reference is the same."""
    import torch

    from pytest_attnperf.workloads import mla

    workload = Mla(2, 5, 3, 16, 8, 32, seq_kv=9, causal=True, lse=True)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    whole = workload.reference(inputs)
    monkeypatch.setattr(mla, "SCORE_BYTES_CPU", 1)
    pieces = workload.reference(inputs)
    for name, expected in whole.items():
        torch.testing.assert_close(pieces[name], expected)
