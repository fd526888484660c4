from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import QUANTISED, Workload
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.varlen import Varlen


@st.composite
def varlens(draw: st.DrawFn) -> Varlen:
    """Any workload that may exist, of a few sequences."""
    count, kv_heads, causal = draw(st.integers(1, 6)), draw(st.integers(1, 16)), draw(st.booleans())
    lengths = st.lists(st.integers(1, 1 << 20), min_size=count, max_size=count).map(tuple)
    dtype, added = draw(st.sampled_from(sorted(Varlen.grammar.dtypes))), draw(st.sampled_from(["", "alibi", "bias"]))
    return Varlen(
        seqs_q=draw(lengths),
        heads=kv_heads * draw(st.integers(1, 8)),
        head_dim=draw(st.integers(1, 512)),
        seqs_kv=draw(st.one_of(st.just(()), lengths)),
        kv_heads=kv_heads,
        dtype=dtype,
        causal=causal,
        lse=draw(st.booleans()),
        window=draw(st.integers(0, 5000)) if causal else 0,
        alibi=added == "alibi",
        cold=draw(st.booleans()),
        bias=added == "bias",
        int8=draw(st.sampled_from(["", "pv16", "kv8"])) if dtype == "i8" else "",
        out=draw(st.sampled_from(["", "f16", "bf16", "f32"])) if dtype in QUANTISED else "",
    )


@given(workload=varlens())
def test_an_id_parses_back(workload: Varlen) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    assert Varlen.parse(workload.id) == workload
    assert hash(Varlen.parse(workload.id)) == hash(workload)
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (
            Varlen((63, 1000, 2049), 8, 64, kv_heads=2, causal=True),
            "varlen-q63_1000_2049-h8-hk2-d64-f16-causal",
        ),
        (Varlen((512,) * 8 + (63,), 8, 64, dtype="bf16"), "varlen-q8x512_63-h8-d64-bf16"),
        (
            Varlen((5, 7), 4, 40, seqs_kv=(9, 9), causal=True, lse=True, window=3, alibi=True, cold=True),
            "varlen-q5_7-kv2x9-h4-d40-w3-f16-causal-lse-alibi-cold",
        ),
        (
            Varlen((5, 7), 4, 40, seqs_kv=(8, 8), dtype="i8", causal=True, bias=True, int8="kv8", out="f32"),
            "varlen-q5_7-kv2x8-h4-d40-i8-kv8-outf32-causal-bias",
        ),
    ],
)
def test_ids_are_readable_and_never_change(workload: Varlen, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=8,d=64", "does not give q; required are q, h, d"),
        ("q=0,h=8,d=64", "sequence lengths '0' hold a zero; every length and every count must be at least 1"),
        ("q=5_0,h=8,d=64", "sequence lengths '5_0' hold a zero"),
        ("q=5-6,h=8,d=64", "q must match"),
        ("q=5_6,kv=5,h=8,d=64", "seqs_q and seqs_kv must be equally many, got 2 and 1"),
        ("q=5_6,h=8,hk=3,d=64", "varlen workload: heads must be a multiple of kv_heads, got heads=8 and kv_heads=3"),
        ("q=5_6,h=8,d=513", "varlen workload: head_dim must be at most 512, got 513"),
        ("q=5_6,h=8,d=64,w=4", "varlen workload: window needs causal, got window=4 without it"),
        ("q=5_6,h=8,d=64,dtype=f8", "varlen workload: dtype 'f8' is not one of f32, f16, bf16, tf32, f8e4m3"),
        ("q=5_6,h=8,d=64,alibi,bias", "varlen workload: alibi and bias cannot be combined"),
        ("q=5_6,h=8,d=64,kv8", "varlen workload: int8=kv8 needs dtype i8, got f16"),
        ("q=5_6,h=8,d=64,out=f32", "varlen workload: out=f32 needs an 8-bit dtype, got f16, whose result is f16"),
        ("q=5_6,h=8,d=64,i8,out=f64", "out must match f16|bf16|f32, got 'f64'"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Varlen.parse_line(line)


@pytest.mark.parametrize("lengths", [(5, 0), (-1,), (2.5,), (True,), ()])
def test_lengths_are_positive_integers(lengths: Any) -> None:
    """A sequence of nothing, and a batch of none, are refused also when they are not read from text."""
    with pytest.raises(WorkloadError, match="varlen workload: seqs_q must be a positive integer, got"):
        Varlen(lengths, 4, 16)
    with pytest.raises(WorkloadError, match="varlen workload: seqs_kv must be a positive integer, got"):
        Varlen((5, 6), 4, 16, seqs_kv=(0, 4))


def test_an_id_has_one_form() -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape("not in its canonical form; write 'varlen-q2x5-h4-d16-f16'")):
        Varlen.parse("varlen-q5_5-h4-d16-f16")
    with pytest.raises(WorkloadError, match=re.escape("not in its canonical form; write 'varlen-q5_6-h4-d16-f16'")):
        Varlen.parse("varlen-q5_6-kv5_6-h4-d16-f16")


def test_work_is_that_of_the_sequences() -> None:
    """Pairs, FLOPs and bytes are those of dense problems of batch 1; offsets are added, slopes counted once."""
    workload = Varlen((10, 30), 4, 16, seqs_kv=(20, 25), kv_heads=2, causal=True, lse=True, window=8, alibi=True)
    dense = [
        Prefill(1, seq_q, 4, 16, seq_kv=seq_kv, kv_heads=2, causal=True, lse=True, window=8, alibi=True)
        for seq_q, seq_kv in ((10, 20), (30, 25))
    ]
    assert workload.sequences == tuple(dense)
    assert workload.flops == sum(one.flops for one in dense)
    assert workload.bytes_min == sum(one.bytes_min for one in dense) - 4 * 4 + 2 * 3 * 4
    assert (workload.rows_without_keys, workload.batch, workload.max_q, workload.max_kv) == (5, 2, 30, 25)
    assert workload.non_finite_outputs == {"lse"}
    assert replace(workload, lse=False).non_finite_outputs == frozenset()


def test_shared_inputs_count_once() -> None:
    """Scales, and of the bias those positions that some sequence's mask lets through."""
    workload = Varlen((2, 3), 4, 16, seqs_kv=(5, 3), dtype="i8", causal=True, bias=True, out="f16")
    dense = [Prefill(1, seq_q, 4, 16, seq_kv=seq_kv, dtype="i8", causal=True) for seq_q, seq_kv in ((2, 5), (3, 3))]
    # Rows 0 and 1 see 4 and 5 keys of the first sequence, row 2 sees 3 of the second.
    assert workload.bytes_min == sum(one.bytes_min for one in dense) - 3 * 4 + 2 * 3 * 4 + 4 * (4 + 5 + 3) * 2
    # With a window of 1, row 0 sees key 3 and key 0, row 1 keys 4 and 1, row 2 key 2.
    narrow = replace(workload, window=1)
    alone = [replace(one, window=1) for one in dense]
    assert narrow.bytes_min == sum(one.bytes_min for one in alone) - 3 * 4 + 2 * 3 * 4 + 4 * 5 * 2
    full = replace(workload, causal=False)
    assert full.bytes_min - replace(full, bias=False).bytes_min == 4 * (2 * 5 + 3) * 2


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_bias_that_is_read_is_that_which_some_mask_lets_through(data: st.DataObject) -> None:
    """The count of its positions is that of the union of the sequences' masks, written out."""
    count, causal = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    lengths = st.lists(st.integers(1, 12), min_size=count, max_size=count).map(tuple)
    window = data.draw(st.integers(0, 14)) if causal else 0
    workload = Varlen(
        data.draw(lengths), 1, 16, seqs_kv=data.draw(lengths), causal=causal, window=window, bias=True, dtype="f32"
    )
    read = torch.zeros(workload.max_q, workload.max_kv, dtype=torch.bool)
    for seq_q, seq_kv in zip(workload.seqs_q, workload.seqs_kv, strict=True):
        last = torch.arange(seq_q)[:, None] + seq_kv - seq_q
        key = torch.arange(seq_kv)[None, :]
        seen = (key <= last) & (key > last - (window or 1 << 30)) if causal else key == key + 0 * last
        read[:seq_q, :seq_kv] |= seen
    assert workload.bytes_min == replace(workload, bias=False).bytes_min + 4 * int(read.sum())


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    workload = Varlen((10, 10, 30), 4, 16, causal=True)
    definition = workload.definition()
    assert [definition.pop(name) for name in ("family", "scale", "mask_alignment")] == [
        "varlen",
        "1/sqrt(head_dim)",
        "bottom-right, by sequence",
    ]
    assert definition["seqs_q"] == definition["seqs_kv"] == "2x10_30"
    assert Varlen.parse_line("q=2x10_30,h=4,d=16,causal") == workload
    with_more = replace(workload, window=3, alibi=True, cold=True, seqs_kv=(5, 10, 30)).definition()
    assert with_more.keys() - definition.keys() - {"family", "scale", "mask_alignment"} == {
        "window",
        "alibi",
        "alibi_bias",
        "cold",
        "rows_without_keys",
    }


def test_inputs_of_8_bits_come_in_one_order() -> None:
    """q, k, v and the offsets, then scales, then the bias, which has room for the longest sequences."""
    workload = Varlen((5, 33), 4, 16, seqs_kv=(40, 7), kv_heads=2, dtype="i8", int8="kv8", bias=True, out="f16")
    inputs = workload.make_inputs(1, "cpu", planted=True)
    assert [str(tensor.dtype).removeprefix("torch.") for tensor in inputs] == [
        *("float16", "int8", "int8", "int32", "int32"),
        *("float32", "float32", "float16"),
    ]
    assert tuple(inputs[7].shape) == (4, 33, 40)
    split = workload.split_inputs(inputs)
    assert split.bias is inputs[7]
    assert split.scales == {"k": inputs[5], "v": inputs[6]}
    assert workload.plain(inputs)["out"].dtype == torch.float16
    assert workload.definition()["bias_matrix"] == "(H, max Sq, max Skv), rows and keys counted in each sequence"


@pytest.mark.parametrize("alibi", [False, True])
def test_inputs_are_packed_and_decided_by_the_seed(alibi: bool) -> None:
    """Shapes and offsets are those of flash_attn_varlen_func; the same seed gives the same inputs."""
    workload = Varlen((5, 33), 4, 16, seqs_kv=(40, 7), kv_heads=2, dtype="bf16", alibi=alibi)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    assert [tuple(tensor.shape) for tensor in once] == [(38, 4, 16), (47, 2, 16), (47, 2, 16), (3,), (3,)] + [
        (4,)
    ] * alibi
    assert [once[3].tolist(), once[4].tolist()] == [[0, 5, 38], [0, 40, 47]]
    assert once[3].dtype == once[4].dtype == torch.int32
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once[:3], other[:3], strict=True))


def expected_of(workload: Varlen, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """torch's attention in fp64, of all sequences at once under one mask (Tq, Tk) that holds them apart."""
    q, k, v = (tensor.double().permute(1, 0, 2) for tensor in inputs[:3])
    added = torch.full((workload.heads, q.shape[1], k.shape[1]), float("-inf"), dtype=torch.float64)
    for rows, keys in workload.iterate_slices():
        row = torch.arange(rows.stop - rows.start)[:, None] + (keys.stop - keys.start) - (rows.stop - rows.start)
        key = torch.arange(keys.stop - keys.start)[None, :]
        seen = (key <= row) & (key > row - (workload.window or 1 << 30)) if workload.causal else key == key
        block = torch.zeros(workload.heads, *seen.shape, dtype=torch.float64)
        if workload.alibi:
            block = -inputs[5].double()[:, None, None] * (row - key).abs()
        if workload.bias:
            block = inputs[5].double()[:, : rows.stop - rows.start, : keys.stop - keys.start]
        added[:, rows, keys] = block.masked_fill(~seen, float("-inf"))
    group = workload.heads // workload.kv_heads
    k, v = (tensor.repeat_interleave(group, dim=0) for tensor in (k, v))
    return scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=added[None])[0].permute(1, 0, 2)


@st.composite
def small(draw: st.DrawFn) -> Varlen:
    """Small workloads of up to four sequences, some with rows that see no key."""
    count, causal = draw(st.integers(1, 4)), draw(st.booleans())
    lengths = st.lists(st.integers(1, 40), min_size=count, max_size=count).map(tuple)
    added = draw(st.sampled_from(["", "alibi", "bias"]))
    return Varlen(
        draw(lengths),
        4,
        8,
        seqs_kv=draw(lengths),
        kv_heads=draw(st.sampled_from([1, 2, 4])),
        dtype=draw(st.sampled_from(["f32", "f16", "bf16"])),
        causal=causal,
        window=draw(st.integers(0, 20)) if causal else 0,
        alibi=added == "alibi",
        bias=added == "bias",
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(workload=small(), seed=st.integers(0, 1000), planted=st.booleans())
def test_the_reference_agrees_with_torch_under_one_mask(workload: Varlen, seed: int, planted: bool) -> None:
    """The reference is torch's own attention in fp64 over all rows and keys, with a mask between the sequences."""
    inputs = workload.make_inputs(seed, "cpu", planted=planted)
    torch.testing.assert_close(workload.reference(inputs)["out"], expected_of(workload, inputs), rtol=0, atol=1e-11)


def test_lse_is_packed_as_flash_attention_has_it() -> None:
    """(H, Tq): the log-sum-exp of every sequence beside the one before; -inf where a row sees no key."""
    workload = Varlen((5, 9), 4, 16, seqs_kv=(7, 4), causal=True, lse=True)
    inputs = workload.make_inputs(1, "cpu", planted=False)
    for outputs in (workload.reference(inputs), workload.plain(inputs)):
        assert tuple(outputs["lse"].shape) == (4, 14)
        assert outputs["lse"].isinf().any(0).tolist() == [False] * 5 + [True] * 5 + [False] * 4
        assert bool((outputs["out"][5:10] == 0).all())
    one = workload.make_sequence(0)
    alone = one.reference((inputs[0][None, :5], inputs[1][None, :7], inputs[2][None, :7]))
    assert torch.equal(workload.reference(inputs)["lse"][:, :5], alone["lse"][0])
