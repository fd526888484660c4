from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.prefill import Prefill


@st.composite
def prefills(draw: st.DrawFn) -> Prefill:
    """Any workload that may exist."""
    kv_heads, seq_q = draw(st.integers(1, 64)), draw(st.integers(1, 1 << 20))
    causal, dtype = draw(st.booleans()), draw(st.sampled_from(sorted(Prefill.grammar.dtypes)))
    added = draw(st.sampled_from(["none", "alibi", "bias"]))
    return Prefill(
        batch=draw(st.integers(1, 512)),
        seq_q=seq_q,
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=draw(st.integers(1, 512)),
        seq_kv=draw(st.integers(0, 1 << 20)),
        kv_heads=kv_heads,
        dtype=dtype,
        causal=causal,
        lse=draw(st.booleans()),
        window=draw(st.integers(0, 1 << 20)) if causal else 0,
        cold=draw(st.booleans()),
        head_dim_v=draw(st.integers(0, 512)),
        alibi=added == "alibi",
        bias=added == "bias",
        int8=draw(st.sampled_from(["", "pv16", "kv8"])) if dtype == "i8" else "",
    )


@given(workload=prefills())
def test_an_id_parses_back(workload: Prefill) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    again = Prefill.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Prefill(4, 512, 8, 256, causal=True), "prefill-b4-s512-h8-d256-f16-causal"),
        (
            Prefill(1, 512, 32, 128, seq_kv=2048, kv_heads=8, dtype="bf16", causal=True, lse=True),
            "prefill-b1-s512-kv2048-h32-hk8-d128-bf16-causal-lse",
        ),
        (Prefill(1, 63, 4, 64, dtype="f32"), "prefill-b1-s63-h4-d64-f32"),
        (Prefill(1, 63, 4, 64, causal=True, window=256), "prefill-b1-s63-h4-d64-w256-f16-causal"),
        (Prefill(1, 63, 4, 64, seq_kv=31, dtype="i8", causal=True), "prefill-b1-s63-kv31-h4-d64-i8-causal"),
        (Prefill(1, 63, 4, 64, dtype="f8e4m3fnuz", lse=True), "prefill-b1-s63-h4-d64-f8e4m3fnuz-lse"),
        (Prefill(1, 63, 4, 64, dtype="tf32"), "prefill-b1-s63-h4-d64-tf32"),
        (Prefill(1, 63, 4, 64, lse=True, cold=True), "prefill-b1-s63-h4-d64-f16-lse-cold"),
        (Prefill(1, 63, 4, 192, head_dim_v=128), "prefill-b1-s63-h4-d192-dv128-f16"),
        (Prefill(1, 63, 4, 64, causal=True, lse=True, alibi=True), "prefill-b1-s63-h4-d64-f16-causal-lse-alibi"),
        (Prefill(1, 63, 4, 64, bias=True, cold=True), "prefill-b1-s63-h4-d64-f16-bias-cold"),
        (Prefill(1, 63, 4, 64, dtype="i8", int8="pv16"), "prefill-b1-s63-h4-d64-i8-pv16"),
        (
            Prefill(1, 63, 4, 64, seq_kv=8, dtype="i8", int8="kv8", causal=True),
            "prefill-b1-s63-kv8-h4-d64-i8-kv8-causal",
        ),
    ],
)
def test_ids_are_readable_and_never_change(workload: Prefill, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected
    assert isinstance(workload, Workload)


def test_a_default_written_out_is_the_same_workload() -> None:
    """seq_kv and kv_heads given as their defaults make no second workload."""
    assert Prefill(1, 64, 4, 32) == Prefill(1, 64, 4, 32, seq_kv=64, kv_heads=4)
    assert hash(Prefill(1, 64, 4, 32)) == hash(Prefill(1, 64, 4, 32, seq_kv=64, kv_heads=4))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("b=1,s=512,h=8,d=64,causal,f16", Prefill(1, 512, 8, 64, causal=True)),
        (" d = 64 , h=8, s=512 ", Prefill(1, 512, 8, 64)),
        ("s=8,kv=32,h=4,hk=2,d=16,dtype=bf16,lse", Prefill(1, 8, 4, 16, 32, 2, "bf16", lse=True)),
        ("s=8,h=4,d=16,f32,causal=true,lse=0", Prefill(1, 8, 4, 16, dtype="f32", causal=True)),
        ("s=8,h=4,d=16,f8e5m2,causal,w=3", Prefill(1, 8, 4, 16, dtype="f8e5m2", causal=True, window=3)),
        ("s=8,h=4,d=16,f16,cold", Prefill(1, 8, 4, 16, cold=True)),
        ("s=8,h=4,d=16,dv=8,i8,kv8,alibi", Prefill(1, 8, 4, 16, dtype="i8", head_dim_v=8, alibi=True, int8="kv8")),
        ("s=8,kv=8,h=4,d=16,i8,int8=pv16,bias=1", Prefill(1, 8, 4, 16, dtype="i8", bias=True, int8="pv16")),
        ("s=8,kv=5,h=4,d=16,dtype=tf32,causal,w=0", Prefill(1, 8, 4, 16, seq_kv=5, dtype="tf32", causal=True)),
    ],
)
def test_a_line_gives_fields_in_any_order(line: str, expected: Prefill) -> None:
    """A line needs s, h and d; b is 1, dtype f16 and the mask off unless given."""
    assert Prefill.parse_line(line) == expected


BAD_LINES = [
    ("s=8,h=4", "does not give d; required are s, h, d, allowed are b=, s=, kv=, h=, hk=, d=, dv=, w=, "),
    ("s=8,h=4,d=16,x=3", "unknown field 'x'; allowed are b="),
    ("s=8,h=4,d=16,noncausal", "unknown field 'noncausal'"),
    ("s=8,h=4,d=16,s=9", "gives seq_q (s) twice"),
    ("s=8,h=4,d=16,f16,bf16", "twice"),
    ("s=0,h=4,d=16", "seq_q must be a positive integer, got 0"),
    ("s=-8,h=4,d=16", "s must be a positive integer of at most 18 digits, got '-8'"),
    ("s=8.5,h=4,d=16", "s must be a positive integer of at most 18 digits, got '8.5'"),
    ("s,h=4,d=16", "s must be a positive integer of at most 18 digits, got nothing"),
    ("s=8,h=4,hk=3,d=16", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
    ("s=8,h=4,d=513", "head_dim must be at most 512, got 513"),
    ("s=8,h=4,d=16,dv=513", "head_dim_v must be at most 512, got 513"),
    ("s=8,h=4,d=16,alibi,bias", "alibi and bias cannot be combined; add the slopes to the bias"),
    ("s=8,h=4,d=16,pv16", "int8=pv16 needs dtype i8, got f16"),
    ("s=8,h=4,d=16,f8e4m3,kv8", "int8=kv8 needs dtype i8, got f8e4m3"),
    ("s=8,h=4,d=16,i8,kv8,pv16", "gives int8"),
    ("s=8,h=4,d=16,w=4", "window needs causal, got window=4 without it"),
    ("s=8,h=4,d=16,causal,w=-4", "w must be a positive integer of at most 18 digits, got '-4'"),
    (
        "s=8,h=4,d=16,dtype=f64",
        "dtype 'f64' is not one of f32, f16, bf16, tf32, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, i8",
    ),
    ("s=8,h=4,d=16,causal=maybe", "causal must be one of true, false, 1, 0, yes, no, got 'maybe'"),
    ("s=8,,h=4,d=16", "has an empty field"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Prefill.parse_line(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("decode-b1-s8-h4-d16-f16", "starts with 'decode', not with 'prefill'"),
        ("prefill-s8-h4-d16-f16", "does not give b"),
        ("prefill-b1-h4-s8-d16-f16", "not in its canonical form; write 'prefill-b1-s8-h4-d16-f16'"),
        ("prefill-b1-s8-kv8-h4-d16-f16", "not in its canonical form"),
        ("prefill-b1-s8-h4-d16", "not in its canonical form; write 'prefill-b1-s8-h4-d16-f16'"),
        ("prefill-b1-s8-h4-d16-dv16-f16", "not in its canonical form; write 'prefill-b1-s8-h4-d16-f16'"),
        ("prefill-b1-s8-h4-d16-f16-alibi-causal", "write 'prefill-b1-s8-h4-d16-f16-causal-alibi'"),
        ("prefill-b1-s8-h4-d16-i8-causal-kv8", "not in its canonical form; write 'prefill-b1-s8-h4-d16-i8-causal'"),
        ("prefill-b1-s8-h4-d16-f16-window4", "unknown field 'window4'"),
        ("prefill-b1-s8-h4-d16-w0-f16-causal", "not in its canonical form; write 'prefill-b1-s8-h4-d16-f16-causal'"),
        ("prefill-b1-s8-h4-d16-f16-causal-w4", "not in its canonical form; write 'prefill-b1-s8-h4-d16-w4-f16-causal'"),
    ],
)
def test_an_id_has_one_form(text: str, message: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Prefill.parse(text)


@pytest.mark.parametrize("value", [0.5, True, -1, "8"])
def test_fields_are_integers(value: Any) -> None:
    """A size that is no positive integer is refused also when it is not read from text."""
    with pytest.raises(WorkloadError, match="batch must be a positive integer, got"):
        dataclasses.replace(Prefill(1, 8, 4, 16), batch=value)


@pytest.mark.parametrize("value", [0.5, True, -1, "8"])
def test_a_window_is_an_integer(value: Any) -> None:
    """A window that is neither 0 nor a positive integer is refused with the value seen."""
    message = re.escape(f"window must be a positive integer, or 0 for none, got {value!r}")
    with pytest.raises(WorkloadError, match=message):
        Prefill(1, 8, 4, 16, causal=True, window=value)


def visible(workload: Prefill) -> list[list[bool]]:
    """Whether row i sees key j, as the docstring of Prefill states it."""
    last = [row + workload.seq_kv - workload.seq_q for row in range(workload.seq_q)]
    window = workload.window or workload.seq_q + workload.seq_kv
    return [
        [not workload.causal or last_key - window < key <= last_key for key in range(workload.seq_kv)]
        for last_key in last
    ]


@given(
    seq_q=st.integers(1, 20),
    seq_kv=st.integers(1, 20),
    window=st.integers(0, 25),
    causal=st.booleans(),
)
def test_pairs_rows_and_keys_are_those_of_the_mask(seq_q: int, seq_kv: int, window: int, causal: bool) -> None:
    """The counts of visible pairs, of rows without keys and of keys that are seen are those of the mask written out."""
    workload = Prefill(1, seq_q, 1, 8, seq_kv=seq_kv, causal=causal, window=window if causal else 0)
    mask = visible(workload)
    assert workload.visible_pairs == sum(map(sum, mask))
    assert workload.flops == 4 * 8 * workload.visible_pairs > 0
    assert workload.rows_without_keys == sum(not any(row) for row in mask)
    assert workload.keys_seen == sum(any(column) for column in zip(*mask, strict=True))


def test_only_lse_of_rows_without_keys_may_be_infinite() -> None:
    """The log-sum-exp of a causal problem with fewer keys than queries may hold -inf; no other output of any may."""
    short = Prefill(1, 8, 4, 16, seq_kv=5, causal=True, lse=True)
    assert short.non_finite_outputs == {"lse"}
    for changed in ({"lse": False}, {"causal": False}, {"seq_kv": 8}, {"seq_kv": 9, "window": 2}):
        assert dataclasses.replace(short, **changed).non_finite_outputs == frozenset()


def test_causal_counts_the_pairs_of_the_drawn_mask() -> None:
    """The 2 by 4 mask of the docstring has 3 + 4 visible pairs, and useful work counts only those."""
    workload = Prefill(batch=3, seq_q=2, heads=2, head_dim=8, seq_kv=4, causal=True)
    assert workload.visible_pairs == 7
    assert workload.flops == 4 * 8 * 7 * 2 * 3
    assert dataclasses.replace(workload, causal=False).visible_pairs == 8


def test_bytes_min_counts_every_tensor_once() -> None:
    """q and out have H heads, k and v Hk, and lse is fp32 whatever the dtype."""
    workload = Prefill(2, 10, 4, 16, seq_kv=30, kv_heads=2, dtype="bf16", lse=True)
    assert workload.bytes_min == 2 * (2 * (2 * 10 * 4 * 16) + 2 * (2 * 30 * 2 * 16)) + 4 * (2 * 4 * 10)


def test_bytes_min_of_8_bits_counts_scales_and_a_wider_result() -> None:
    """Inputs are a byte each, three fp32 scales are 12 bytes, and out is bf16; tf32 is as wide as f32."""
    workload = Prefill(2, 10, 4, 16, seq_kv=30, kv_heads=2, dtype="f8e4m3", lse=True)
    q, k = 2 * 10 * 4 * 16, 2 * 30 * 2 * 16
    assert workload.bytes_min == q + 2 * k + 12 + 2 * q + 4 * (2 * 4 * 10)
    assert dataclasses.replace(workload, dtype="tf32").bytes_min == 4 * (2 * q + 2 * k) + 4 * (2 * 4 * 10)


def test_bytes_min_leaves_out_what_no_row_reads() -> None:
    """Keys before every row's window, and queries that see no key, need not be read; all of out must be written."""
    windowed = Prefill(1, 10, 1, 16, seq_kv=100, causal=True, window=20)
    assert windowed.bytes_min == 2 * 16 * (2 * 10 + 2 * 29)
    short = Prefill(1, 10, 1, 16, seq_kv=4, causal=True)
    assert short.bytes_min == 2 * 16 * (4 + 2 * 4 + 10)


OLD_DEFINITION = {
    "family": "prefill",
    "batch": 1,
    "seq_q": 8,
    "heads": 4,
    "head_dim": 16,
    "seq_kv": 8,
    "kv_heads": 2,
    "dtype": "f16",
    "causal": True,
    "lse": False,
    "scale": "1/sqrt(head_dim)",
    "mask_alignment": "bottom-right",
}


def test_the_definition_of_an_ordinary_problem_never_changes() -> None:
    """Stored baselines compare definitions, so what has no window and no 8-bit inputs says nothing of them."""
    assert Prefill(1, 8, 4, 16, kv_heads=2, causal=True).definition() == OLD_DEFINITION


@pytest.mark.parametrize(
    ("changed", "added"),
    [
        ({"window": 3}, {"window": 3}),
        ({"dtype": "i8"}, {"quantisation": "per tensor: value = stored * scale, scale = amax / largest finite"}),
        ({"dtype": "tf32"}, {}),
        ({"cold": True}, {}),
        ({"seq_kv": 5}, {"rows_without_keys": "out = 0, lse = -inf"}),
        ({"head_dim_v": 8}, {}),
        ({"bias": True}, {}),
        ({"alibi": True}, {"alibi_bias": "score(h, i, j) -= slope_h |i + Skv - Sq - j|, slopes of arXiv:2108.12409"}),
        (
            {"dtype": "i8", "int8": "kv8"},
            {"quantisation": "per tensor: value = stored * scale, scale = amax / largest finite"},
        ),
    ],
)
def test_the_definition_says_what_is_not_ordinary(changed: dict[str, Any], added: dict[str, Any]) -> None:
    """A window, the meaning of a scale, and what rows without keys give are stored where they apply."""
    definition = dataclasses.replace(Prefill(1, 8, 4, 16, kv_heads=2, causal=True), **changed).definition()
    assert definition == {**OLD_DEFINITION, **changed, **added}


def test_a_workload_is_hot_unless_it_says_otherwise() -> None:
    """A cold one is another problem with other baselines; its work is the same."""
    hot, cold = Prefill(1, 8, 4, 16), Prefill(1, 8, 4, 16, cold=True)
    assert (hot.cache_state, cold.cache_state) == ("hot", "cold")
    assert hot != cold
    assert (hot.flops, hot.bytes_min) == (cold.flops, cold.bytes_min)


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    workload = Prefill(1, 8, 4, 16, kv_heads=2, causal=True)
    definition = workload.definition()
    assert definition.pop("family") == "prefill"
    assert definition.pop("scale") == "1/sqrt(head_dim)"
    assert definition.pop("mask_alignment") == "bottom-right"
    assert Prefill(**definition) == workload
    assert {type(value) for value in definition.values()} <= {int, str, bool}


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes, and are contiguous in the workload's dtype."""
    import torch

    workload = Prefill(2, 5, 4, 16, seq_kv=7, kv_heads=2, dtype="bf16")
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    assert [tuple(tensor.shape) for tensor in once] == [(2, 5, 4, 16), (2, 7, 2, 16), (2, 7, 2, 16)]
    assert all(tensor.is_contiguous() and tensor.dtype == torch.bfloat16 for tensor in once)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once, other, strict=True))
