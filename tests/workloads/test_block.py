"""The block family: ids, lines, work figures, inputs, and a reference that agrees with plain formulas."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload, in_place
from pytest_attnperf.workloads.block import DTYPES, Block
from pytest_attnperf.workloads.block_inputs import REGIMES
from pytest_attnperf.workloads.paged_cache import POISON

EVERYTHING = "block-b2-s3-p5-room16-e24-h4-hk2-d8-f16-bias-hostref"


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Any workload that may exist."""
    kv_heads, seq, past = draw(st.integers(1, 64)), draw(st.integers(1, 1 << 17)), draw(st.integers(0, 1 << 17))
    dtype = draw(st.sampled_from(DTYPES))
    regime = draw(st.sampled_from(["", *(name for name, dtypes in REGIMES.items() if dtype in dtypes)]))
    return Block(
        batch=draw(st.integers(1, 256)),
        seq=seq,
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=2 * draw(st.integers(1, 256)),
        past=past,
        room=draw(st.sampled_from([0, past + seq, past + seq + draw(st.integers(0, 1 << 17))])),
        kv_heads=kv_heads,
        hidden=draw(st.just(0) | st.integers(2, 1 << 15)),  # 0: heads x head_dim; 1 is refused
        dtype=dtype,
        bias=draw(st.booleans()),
        hostref=draw(st.booleans()),
        regime=regime,
        out_bias=draw(st.booleans()),
        layers=1 if past or regime else draw(st.integers(1, 96)),
    )


@settings(deadline=None, max_examples=50)
@given(workload=blocks())
def test_an_id_parses_back(workload: Block) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, and its definition rebuilds it."""
    again = Block.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    fields = {field.name for field in dataclasses.fields(Block)}
    assert Block(**{name: value for name, value in workload.definition().items() if name in fields}) == workload


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "b=1,s=1,p=4095,room=8192,e=4096,h=32,hk=8,d=128,f16,bias",
            "block-b1-s1-p4095-room8192-h32-hk8-d128-f16-bias",
        ),
        ("s=16,p=8,room=24,h=28,hk=4,d=128,e=3584,bf16", "block-b1-s16-p8-h28-hk4-d128-bf16"),
        (
            "b=1,s=32,p=0,room=64,e=96,h=4,hk=2,d=32,f16,bias,hostref,large",
            "block-b1-s32-room64-e96-h4-hk2-d32-f16-bias-hostref-large",
        ),
        ("l=4,out_bias,d=32,h=4,s=7,bias", "block-b1-s7-h4-d32-l4-f16-bias-out_bias"),
        ("overflow,d=32,h=4,s=7,b=3", "block-b3-s7-h4-d32-f16-overflow"),
        ("s=7,h=4,d=32,hk=0,room=0,e=0,f32", "block-b1-s7-h4-d32-f32"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    workload = Block.parse_line(line)
    assert workload.id == expected
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=4,d=16", "does not give s; required are s, h, d"),
        ("s=8,h=4,d=16,x=3", "unknown field 'x'"),
        ("s=0,h=4,d=16", "seq must be a positive integer, got 0"),
        ("s=8,h=4,hk=3,d=16", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
        ("s=8,h=4,d=15", "head_dim must be even, because elements are rotated in pairs, and at most 512, got 15"),
        ("s=8,h=4,d=514", "at most 512, got 514"),
        ("s=8,p=60,room=64,h=4,d=16", "cache too small: room must be at least past + seq = 60 + 8 = 68, got room=64"),
        ("s=8,h=4,d=16,i8", "dtype 'i8' is not one of f32, f16, bf16"),
        ("s=8,h=4,d=16,bf16,overflow", "regime 'overflow' is for dtype f16, got bf16: nothing overflows there"),
        ("s=8,h=4,d=16,large,tiny", "gives regime (tiny) twice"),
        ("s=8,h=4,d=16,l=0", "layers must be a positive integer, got 0"),
        ("s=8,p=8,h=4,d=16,l=2", "layers=2 is for prompts of ordinary values, without p and a regime, got p=8: each"),
        ("s=8,h=4,d=16,l=2,tiny", "without p and a regime, got p=0 and tiny: each layer would need rows of its own"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Block.parse_line(line)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("past", -1, "past must be a count of positions already filled, 0 or more, got -1"),
        ("past", True, "past must be a count"),
        ("room", 8.0, "room must be a positive integer, or 0 for past + seq, got 8.0"),
        ("kv_heads", -1, "kv_heads must be a positive integer, or 0 for heads, got -1"),
        ("hidden", "64", "hidden must be a positive integer, or 0 for heads * head_dim, got '64'"),
        ("regime", "big", "regime must be one of large, tiny, huge, equal, overflow, or empty, got 'big'"),
    ],
)
def test_fields_are_checked_also_without_text(field: str, value: Any, message: str) -> None:
    """A field that no line could give is refused with its name, its value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        dataclasses.replace(Block(1, 8, 4, 16), **{field: value})


def test_a_definition_says_new_fields_only_where_they_are_set() -> None:
    """Entries that are older than a bias of the output or a stack of layers keep their definition."""
    plain, full = (Block.parse_line(line).definition() for line in ("s=8,h=4,d=16", "s=8,h=4,d=16,out_bias,l=2"))
    assert full.items() - plain.items() == {("out_bias", True), ("layers", 2)}
    assert not {"out_bias", "layers"} & plain.keys()


def test_an_id_has_one_form() -> None:
    """An id that says what is implied is refused, and the right one is told."""
    with pytest.raises(WorkloadError, match=re.escape("write 'block-b1-s8-h4-d16-f16'")):
        Block.parse("block-b1-s8-p0-h4-d16-f16")


def test_the_work_is_that_counted_by_hand() -> None:
    """Flops and bytes are the sums that the docstrings name, for a layer small enough to write them down."""
    workload = Block.parse("block-b2-s3-p5-room16-h4-hk2-d2-f16-bias")
    # 6 tokens of 8 elements; w_qkv is 16 x 8, w_out 8 x 8; tokens see 6, 7 and 8 keys of 4 heads.
    assert workload.flops == 2 * 6 * 8 * (16 + 8) + 4 * 2 * 2 * 4 * (6 + 7 + 8)
    read = 6 * 8 + 16 * 8 + 8 * 8 + 16 + 2 * (2 * 5 * 2 * 2)
    written = 6 * 8 + 2 * (2 * 3 * 2 * 2)
    assert workload.bytes_min == 2 * (read + written) + 4 * 3 * 2
    assert (workload.length, workload.rows_qkv, workload.visible_pairs) == (8, 16, 21)
    one, four = (Block.parse(f"block-b2-s3-h4-hk2-d2{layers}-f16-out_bias") for layers in ("", "-l4"))
    assert (four.flops, four.bytes_min) == (4 * one.flops, one.bytes_min)
    assert one.bytes_min - Block.parse("block-b2-s3-h4-hk2-d2-f16").bytes_min == 2 * 8


@pytest.mark.parametrize(
    ("line", "attention", "cache_state"),
    [
        ("b=2,s=9,p=7,room=32,h=4,hk=2,d=32,bf16", "prefill-b2-s9-kv16-h4-hk2-d32-bf16-causal", "hot"),
        ("s=1,h=4,d=32", "prefill-b1-s1-h4-d32-f16-causal", "hot"),
        ("b=3,s=8,p=7,room=32,h=4,hk=2,d=32,f32", "decode-b3-q8-kv32-h4-hk2-d32-f32", "cold"),
        ("s=1,p=1,h=4,d=32", "decode-b1-kv2-h4-d32-f16", "cold"),
    ],
)
def test_its_attention_is_a_workload_of_its_own(line: str, attention: str, cache_state: str) -> None:
    """A few tokens over a filled cache are a decode with the cache's room, all others a prefill of their own keys."""
    workload = Block.parse_line(line)
    assert workload.attention.id == attention
    assert workload.cache_state == cache_state
    assert workload.is_decode == (workload.attention.family == "decode")


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes and order, and are contiguous."""
    torch = pytest.importorskip("torch")
    workload = Block.parse(EVERYTHING)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    cache = (2, 16, 2, 8)
    shapes = [(2, 3, 24), (64, 24), (24, 32), (64,), cache, cache, (16, 4), (16, 4)]
    assert [tuple(tensor.shape) for tensor in once] == shapes
    assert [tensor.dtype for tensor in once] == [torch.float16] * 6 + [torch.float32] * 2
    assert all(tensor.is_contiguous() for tensor in once)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(once[:6], other[:6], strict=True))
    unbiased = dataclasses.replace(workload, bias=False)
    assert unbiased.split_inputs(unbiased.make_inputs(1, "cpu", planted=True)).b_qkv is None


def test_only_new_rows_of_the_caches_change_in_place() -> None:
    """`in_place` names both caches, and of each gives a view of the new rows, which come filled with poison."""
    pytest.importorskip("torch")
    for line in (EVERYTHING, EVERYTHING.replace("-bias", ""), EVERYTHING.replace("-bias", "-bias-out_bias")):
        workload = Block.parse(line)
        inputs = workload.make_inputs(1, "cpu", planted=True)
        parts, views = workload.split_inputs(inputs), in_place(workload)
        caches = [number for number, tensor in enumerate(inputs) if tensor is parts.k_cache or tensor is parts.v_cache]
        assert sorted(views) == caches
        for number, view in views.items():
            cache = inputs[number]
            assert (cache[:, 5:] == POISON).all()
            assert (cache[:, :5] != POISON).all()
            view(cache).fill_(0)
            assert (cache[:, 5:8] == 0).all()
            assert (cache[:, 8:] == POISON).all()


@pytest.mark.parametrize(
    "line", ["b=2,s=11,h=4,hk=2,d=8,e=24", "b=2,s=3,p=9,room=20,h=3,d=16,bias,out_bias", "s=1,h=2,d=8"]
)
def test_the_reference_is_the_formula(line: str) -> None:
    """out, k and v are what loops over tokens, heads and keys give, with complex numbers for the rotation."""
    torch = pytest.importorskip("torch")
    workload = Block.parse_line(line)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    found = workload.reference(inputs)
    parts = workload.split_inputs(inputs)
    x, w_qkv, w_out = (tensor.double() for tensor in parts[:3])
    bias, out_bias = (0 if given is None else given.double() for given in (parts.b_qkv, parts.b_out))
    half = workload.head_dim // 2
    unit = torch.complex(parts.cos.double(), parts.sin.double())
    for b in range(workload.batch):
        keys, values = (list(cache[b, : workload.past].double()) for cache in (parts.k_cache, parts.v_cache))
        for i in range(workload.seq):
            qkv = (w_qkv @ x[b, i] + bias).view(-1, 2, half)
            turned = torch.view_as_real(torch.complex(qkv[:, 0], qkv[:, 1]) * unit[workload.past + i])
            rotated = turned.permute(0, 2, 1).reshape(-1, 2 * half)
            keys.append(rotated[workload.heads : workload.heads + workload.kv_heads])
            values.append(qkv.flatten(1)[workload.heads + workload.kv_heads :])
            attended = []
            for h in range(workload.heads):
                kv = h * workload.kv_heads // workload.heads
                scores = torch.stack([key[kv] @ rotated[h] for key in keys]) / math.sqrt(2 * half)
                attended.append(scores.softmax(0) @ torch.stack([value[kv] for value in values]))
            torch.testing.assert_close(found["out"][b, i], w_out @ torch.cat(attended) + out_bias)
            torch.testing.assert_close(found["k"][b, i], keys[-1])
            torch.testing.assert_close(found["v"][b, i], values[-1])


def test_a_stack_is_its_layers_one_after_another() -> None:
    """Each layer has what went into the one before it plus its result; k and v are those of the last."""
    torch = pytest.importorskip("torch")
    stack = Block.parse_line("b=2,s=9,h=4,hk=2,d=8,e=24,l=3,f32,bias,out_bias")
    inputs = stack.make_inputs(1, "cpu", planted=True)
    one, (x, *others) = dataclasses.replace(stack, layers=1), inputs
    x = x.double()
    for _ in range(3):
        found = one.reference((x, *others))
        x = x + found["out"]
    for name, expected in stack.reference(inputs).items():
        torch.testing.assert_close(expected, found[name], rtol=1e-12, atol=1e-12)


def test_a_prompt_token_by_token_is_the_prompt_at_once() -> None:
    """Layers of one token each, fed the cache that grows, give every row of the layer of the whole prompt."""
    torch = pytest.importorskip("torch")
    whole = Block(2, 9, 4, 8, kv_heads=2, hidden=24, dtype="f32", bias=True)
    inputs = whole.make_inputs(3, "cpu", planted=True)
    expected, parts = whole.reference(inputs), whole.split_inputs(inputs)
    k_cache, v_cache = (torch.full((2, 9, 2, 8), math.nan, dtype=torch.float64) for _ in range(2))
    for i in range(9):
        token = dataclasses.replace(whole, seq=1, past=i, room=9)
        own = (parts.x[:, i : i + 1], *inputs[1:4], k_cache, v_cache, parts.cos, parts.sin)
        found = token.reference(own)
        k_cache[:, i : i + 1], v_cache[:, i : i + 1] = found["k"], found["v"]
        torch.testing.assert_close(found["out"], expected["out"][:, i : i + 1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(k_cache, expected["k"], rtol=1e-12, atol=1e-12)


def test_the_plain_computation_rounds_to_the_dtype() -> None:
    """It stores f16, k and v within a rounding or two of the reference; f32 is as close as f32 can be."""
    torch = pytest.importorskip("torch")
    for dtype, stored, largest in (("f16", torch.float16, 2e-3), ("bf16", torch.bfloat16, 2e-2), ("f32", None, 1e-5)):
        workload = Block(1, 20, 4, 16, past=3, dtype=dtype)
        inputs = workload.make_inputs(1, "cpu", planted=True)
        reference, plain = workload.reference(inputs), workload.plain(inputs)
        assert {name: tensor.shape for name, tensor in plain.items()} == {n: t.shape for n, t in reference.items()}
        for name, tensor in plain.items():
            assert tensor.dtype == (stored or torch.float32)
            error = float((tensor.double() - reference[name]).abs().max())
            assert largest / 1000 < error < largest * float(reference[name].abs().max())


def test_hostref_changes_nothing_on_a_cpu() -> None:
    """Inputs, reference and plain computation are the ordinary ones."""
    torch = pytest.importorskip("torch")
    for line in ("s=9,h=2,d=16,bf16,bias", "s=9,h=2,d=16,f16,large"):
        ordinary, host = Block.parse_line(line), Block.parse_line(f"{line},hostref")
        ours, theirs = ordinary.make_inputs(1, "cpu", planted=True), host.make_inputs(1, "cpu", planted=True)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        for name, tensor in ordinary.reference(ours).items():
            assert torch.equal(tensor, host.reference(theirs)[name])


@pytest.mark.gpu
def test_hostref_gives_a_gpu_what_a_cpu_has() -> None:
    """On a GPU inputs and the fp64 reference are those of a CPU, to the bit; without it the reference is fp32."""
    torch = pytest.importorskip("torch")
    workload = Block.parse_line("b=2,s=33,p=7,h=4,hk=2,d=32,f16,bias,hostref")
    on_cpu, on_gpu = (workload.make_inputs(1, device, planted=True) for device in ("cpu", "cuda"))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(on_cpu, on_gpu, strict=True))
    expected, found = workload.reference(on_cpu), workload.reference(on_gpu)
    assert all(tensor.is_cuda and torch.equal(tensor.cpu(), expected[name]) for name, tensor in found.items())
    near = dataclasses.replace(workload, hostref=False).reference(on_gpu)
    assert near["out"].dtype == torch.float32
    torch.testing.assert_close(near["out"].double(), found["out"], rtol=1e-4, atol=1e-5)


def test_a_hidden_size_of_one_is_refused() -> None:
    """An output token of one element proves nothing."""
    with pytest.raises(WorkloadError, match="hidden must be at least 2, got 1: an output token of one element"):
        Block.parse_line("s=3,h=1,d=4,e=1")
