"""The mla_block family: ids, lines, work figures, inputs, and a reference that agrees with plain formulas."""

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
from pytest_attnperf.workloads.mla import DTYPES
from pytest_attnperf.workloads.mla_block import MlaBlock
from pytest_attnperf.workloads.paged_cache import POISON

SIZES = "e=24,h=3,q=20,d=8,r=4,c=12"
EVERYTHING = "mla_block-b2-s3-p5-room16-e24-h3-q20-d8-dv6-r4-c12-f16-mask-fp8w-expanded"


@st.composite
def blocks(draw: st.DrawFn) -> MlaBlock:
    """Any workload that may exist."""
    seq, past = draw(st.integers(1, 1 << 17)), draw(st.integers(0, 1 << 17))
    return MlaBlock(
        batch=draw(st.integers(1, 256)),
        seq=seq,
        hidden=draw(st.integers(2, 1 << 15)),
        heads=draw(st.integers(1, 128)),
        nope_dim=draw(st.integers(1, 256)),
        rope_dim=2 * draw(st.integers(1, 128)),
        latent_dim=draw(st.integers(1, 1024)),
        q_rank=draw(st.integers(0, 2048)),
        value_dim=draw(st.integers(0, 256)),
        past=past,
        room=draw(st.sampled_from([0, past + seq, past + seq + draw(st.integers(0, 1 << 17))])),
        dtype=draw(st.sampled_from(DTYPES)),
        mask=draw(st.booleans()),
        fp8w=draw(st.booleans()),
        expanded=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=50)
@given(workload=blocks())
def test_an_id_parses_back(workload: MlaBlock) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, and its definition rebuilds it."""
    again = MlaBlock.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    fields = {field.name for field in dataclasses.fields(MlaBlock)}
    assert MlaBlock(**{name: value for name, value in workload.definition().items() if name in fields}) == workload


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "b=32,s=1,p=4095,e=7168,h=16,q=1536,d=128,r=64,c=512,bf16,fp8w",
            "mla_block-b32-s1-p4095-e7168-h16-q1536-d128-r64-c512-bf16-fp8w",
        ),
        ("expanded,s=3,p=5,room=16,b=2,dv=6,f16,fp8w,mask," + SIZES, EVERYTHING),
        ("s=7,p=0,room=7,e=24,h=3,q=0,d=8,dv=8,r=4,c=12,f32", "mla_block-b1-s7-e24-h3-d8-r4-c12-f32"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    workload = MlaBlock.parse_line(line)
    assert workload.id == expected
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("s=8,h=3,d=8,r=4,c=12", "does not give e; required are s, e, h, d, r, c"),
        (f"s=8,x=3,{SIZES}", "unknown field 'x'"),
        (f"s=0,{SIZES}", "seq must be a positive integer, got 0"),
        ("s=8,e=24,h=3,d=8,r=3,c=12", "rope_dim must be even, because elements are rotated in pairs, and at most 512"),
        ("s=8,e=1,h=3,d=8,r=4,c=12", "hidden must be at least 2, got 1"),
        (f"s=8,p=60,room=64,{SIZES}", "room must be at least past + seq = 60 + 8 = 68, got room=64"),
        (f"s=8,{SIZES},i8", "dtype 'i8' is not one of f16, bf16, f32"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        MlaBlock.parse_line(line)


@pytest.mark.parametrize(("field", "value"), [("past", -1), ("room", 8.0), ("q_rank", True)])
def test_fields_are_checked_also_without_text(field: str, value: Any) -> None:
    """A field that no line could give is refused with its name, its value and what is allowed."""
    with pytest.raises(
        WorkloadError, match=re.escape(f"{field} must be a positive integer, or 0 for none, got {value}")
    ):
        dataclasses.replace(MlaBlock(1, 8, 24, 3, 8, 4, 12), **{field: value})


def test_the_work_is_that_counted_by_hand() -> None:
    """Flops and bytes are the sums that the docstrings name, for a layer small enough to write them down."""
    workload = MlaBlock.parse(EVERYTHING.replace("-mask", "").replace("-fp8w", ""))
    weights = 20 * 24 + 36 * 20 + 16 * 24 + 42 * 12 + 24 * 18  # wq_a, wq_b, wkv_a, wkv_b, wo
    pairs = 6 + 7 + 8  # of one head and sequence
    assert workload.flops == 2 * 6 * weights + 2 * (2 * 3 * pairs) * (12 + 6)
    latent = dataclasses.replace(workload, expanded=False)
    assert latent.flops == 2 * 6 * (weights - 42 * 12) + latent.attention.flops
    moved = 2 * 6 * 24 + weights + 20 + 12  # x and out, weights, norms
    assert workload.bytes_min == 2 * (moved + 2 * 8 * 3 * (12 + 6)) + 4 * (3 * 4)
    assert latent.bytes_min == 2 * (moved + 2 * 8 * (12 + 4)) + 4 * (3 * 4)
    whole = dataclasses.replace(workload, mask=True, fp8w=True)
    # Each weight is one block of a scale; the mask is 3 x 8.
    assert whole.bytes_min == workload.bytes_min - weights + 4 * 5 + 2 * 3 * 8
    assert whole.flops == 2 * 6 * weights + 2 * (2 * 3 * 3 * 8) * (12 + 6)


@pytest.mark.parametrize(
    ("line", "attention", "cache_state"),
    [
        (f"b=2,s=9,p=7,room=32,{SIZES},dv=6,bf16", "mla-b2-s9-kv16-h3-d8-dv6-r4-c12-bf16-causal", "hot"),
        (f"s=1,{SIZES}", "mla-b1-s1-h3-d8-r4-c12-f16", "hot"),
        (f"s=8,p=1,{SIZES},f32", "mla-b1-s8-kv9-h3-d8-r4-c12-f32-causal", "cold"),
        (f"s=9,{SIZES},f32,mask", "mla-b1-s9-h3-d8-r4-c12-f32", "hot"),
    ],
)
def test_its_attention_is_a_workload_of_its_own(line: str, attention: str, cache_state: str) -> None:
    """Its queries over all latents; causal unless one token sees all, or a mask decides."""
    workload = MlaBlock.parse_line(line)
    assert workload.attention.id == attention
    assert workload.cache_state == cache_state


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes and order, and are contiguous."""
    torch = pytest.importorskip("torch")
    workload = MlaBlock.parse(EVERYTHING)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    caches = [(2, 16, 3, 12), (2, 16, 3, 6)]
    weights = [(20, 24), (36, 20), (16, 24), (42, 12), (24, 18)]
    shapes = [(2, 3, 24), *weights, (20,), (12,), *[(1, 1)] * 5, *caches, (16, 2), (16, 2), (3, 8)]
    assert [tuple(tensor.shape) for tensor in once] == shapes
    half, fp8, single = torch.float16, torch.float8_e4m3fn, torch.float32
    assert [tensor.dtype for tensor in once] == [
        half,
        *[fp8] * 5,
        half,
        half,
        *[single] * 5,
        half,
        half,
        single,
        single,
        half,
    ]
    assert all(tensor.is_contiguous() for tensor in once)
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(once, again, strict=True))
    tables = (workload.tensor_names.index("cos"), workload.tensor_names.index("sin"))
    differ = [not torch.equal(a.float(), b.float()) for a, b in zip(once, other, strict=True)]
    assert differ == [number not in tables for number in range(len(once))]
    assert len(dataclasses.replace(workload, q_rank=0, mask=False, fp8w=False).tensor_names) == 10


@pytest.mark.parametrize("text", [EVERYTHING, EVERYTHING.replace("-expanded", "").replace("-fp8w", "")])
def test_only_new_rows_of_the_caches_change_in_place(text: str) -> None:
    """`in_place` names both caches, and of each gives a view of the new rows, which come filled with poison."""
    pytest.importorskip("torch")
    workload = MlaBlock.parse(text)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    views = in_place(workload)
    assert [workload.tensor_names[number] for number in sorted(views)] == list(workload.cache_shapes)
    for number, view in views.items():
        cache = inputs[number]
        assert (cache[:, 5:] == POISON).all()
        assert (cache[:, :5] != POISON).all()
        view(cache).fill_(0)
        assert (cache[:, 5:8] == 0).all()
        assert (cache[:, 8:] == POISON).all()


def test_a_mask_hides_keys_but_never_a_tokens_own() -> None:
    """Masks are finite or -inf, differ by seed, and let keys through that are later than the token."""
    torch = pytest.importorskip("torch")
    workload = MlaBlock.parse_line(f"s=40,p=9,{SIZES},mask")
    for planted in (False, True):
        mask = workload.make_inputs(1, "cpu", planted=planted)[-1].float()
        hidden = mask == -math.inf
        assert 0.15 < float(hidden.float().mean()) < 0.35
        assert not bool(hidden[torch.arange(40), 9 + torch.arange(40)].any())
        assert bool((~hidden).triu(10).any())
        assert bool(mask[~hidden].isfinite().all())


def expected_outputs(workload: MlaBlock, inputs: Any) -> dict[str, Any]:
    """The definition written out by token, head and key in fp64, with complex numbers for the rotation."""
    import torch

    w = workload
    g = {name: tensor.double() for name, tensor in w.name_inputs(inputs).items()}
    if w.fp8w:
        for name, (rows, columns) in w.weight_shapes.items():
            blocks = (torch.arange(rows)[:, None] // 128, torch.arange(columns)[None] // 128)
            g[name] = g[name] * g[f"{name}_scale"][blocks]
    unit = torch.complex(g["cos"], g["sin"])

    def turn(x: Any, position: int) -> Any:
        return torch.view_as_real(torch.view_as_complex(x.reshape(-1, 2).contiguous()) * unit[position]).flatten()

    def norm(x: Any, weight: Any) -> Any:
        return x / (x.square().mean() + 1e-6).sqrt() * weight

    w_kv, both = g["wkv_b"].view(w.heads, -1, w.latent_dim), {name: g[name].clone() for name in w.cache_shapes}
    out = torch.zeros(w.batch, w.seq, w.hidden, dtype=torch.float64)
    queries = torch.zeros(w.batch, w.seq, w.heads, w.key_dim, dtype=torch.float64)
    for b in range(w.batch):
        for i in range(w.seq):
            x, at = g["x"][b, i], w.past + i
            q = g["wq_b"] @ norm(g["wq_a"] @ x, g["q_norm"]) if w.q_rank else g["wq"] @ x
            down = g["wkv_a"] @ x
            latent, k_pe = norm(down[: w.latent_dim], g["kv_norm"]), turn(down[w.latent_dim :], at)
            for h in range(w.heads):
                one = q[h * w.key_dim : (h + 1) * w.key_dim]
                queries[b, i, h] = torch.cat([one[: w.nope_dim], turn(one[w.nope_dim :], at)])
                if w.expanded:
                    both["k_cache"][b, at, h] = torch.cat([w_kv[h, : w.nope_dim] @ latent, k_pe])
                    both["v_cache"][b, at, h] = w_kv[h, w.nope_dim :] @ latent
            if not w.expanded:
                both["kv_cache"][b, at], both["pe_cache"][b, at] = latent, k_pe
    for b in range(w.batch):
        for i in range(w.seq):
            out[b, i] = g["wo"] @ torch.cat(
                [attended(w, g, both, w_kv, queries[b, i, h], (b, i, h)) for h in range(w.heads)]
            )
    written = {name: cache[:, w.past : w.length] for name, cache in both.items()}
    return {"out": out, **dict(zip(("k", "v") if w.expanded else ("kv", "pe"), written.values(), strict=True))}


def attended(w: MlaBlock, g: Any, both: Any, w_kv: Any, query: Any, where: tuple[int, int, int]) -> Any:
    """What one query of a head gets."""
    import torch

    b, i, h = where
    scores, values = [], []
    for j in range(w.length if w.mask else w.past + i + 1):
        if w.expanded:
            key, value = both["k_cache"][b, j, h], both["v_cache"][b, j, h]
        else:
            latent = both["kv_cache"][b, j]
            key = torch.cat([w_kv[h, : w.nope_dim] @ latent, both["pe_cache"][b, j]])
            value = w_kv[h, w.nope_dim :] @ latent
        scores.append(query @ key / math.sqrt(w.key_dim) + (g["mask"][i, j] if w.mask else 0.0))
        values.append(value)
    return torch.stack(scores).softmax(0) @ torch.stack(values)


@pytest.mark.parametrize(
    "line",
    [
        f"b=2,s=5,{SIZES},dv=6",
        f"b=2,s=2,p=4,room=9,{SIZES},fp8w,bf16",
        "s=3,p=2,e=24,h=2,d=8,r=4,c=12,f32",
        f"s=4,p=3,{SIZES},mask",
        f"b=2,s=3,p=4,room=9,{SIZES},dv=6,expanded,mask,fp8w",
        "s=1,e=160,h=4,q=140,d=32,r=8,c=136,fp8w",
    ],
)
def test_the_reference_is_the_formula(line: str) -> None:
    """out and the new rows are what loops over tokens, heads and keys give, in the naive form."""
    torch = pytest.importorskip("torch")
    workload = MlaBlock.parse_line(line)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    found, expected = workload.reference(inputs), expected_outputs(workload, inputs)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9)


def test_both_kinds_of_caches_give_the_same() -> None:
    """Caches of keys and values of heads that were projected from latents give what the latents give."""
    torch = pytest.importorskip("torch")
    latent = MlaBlock.parse_line(f"b=2,s=3,p=4,{SIZES},dv=6,f32")
    given_ = latent.name_inputs(latent.make_inputs(1, "cpu", planted=False))
    up = given_["kv_cache"].double() @ given_["wkv_b"].double().t()
    up = up.view(2, latent.room, 3, 14)
    shared = given_["pe_cache"].double()[:, :, None].expand(-1, -1, 3, -1)
    given_ |= {"k_cache": torch.cat([up[..., :8], shared], dim=-1), "v_cache": up[..., 8:]}
    expanded = dataclasses.replace(latent, expanded=True)
    found = expanded.reference(tuple(given_[name] for name in expanded.tensor_names))
    expected = latent.reference(tuple(given_[name] for name in latent.tensor_names))
    torch.testing.assert_close(found["out"], expected["out"], rtol=1e-12, atol=1e-12)


def test_a_prompt_token_by_token_is_the_prompt_at_once() -> None:
    """Layers of one token each, fed the caches that grow, give every row of the layer of the whole prompt."""
    torch = pytest.importorskip("torch")
    whole = MlaBlock.parse_line(f"b=2,s=7,{SIZES},f32")
    given_ = whole.name_inputs(whole.make_inputs(3, "cpu", planted=True))
    expected = whole.reference(tuple(given_.values()))
    caches = {name: torch.full(shape, math.nan, dtype=torch.float64) for name, shape in whole.cache_shapes.items()}
    for i in range(7):
        token = dataclasses.replace(whole, seq=1, past=i, room=7)
        found = token.reference(tuple({**given_, **caches, "x": given_["x"][:, i : i + 1]}.values()))
        caches["kv_cache"][:, i : i + 1], caches["pe_cache"][:, i : i + 1] = found["kv"], found["pe"]
        torch.testing.assert_close(found["out"], expected["out"][:, i : i + 1], rtol=1e-12, atol=1e-12)


def test_the_plain_computation_rounds_to_the_dtype() -> None:
    """It stores f16, kv and pe within a rounding or two of the reference; f32 is as close as f32 can be."""
    torch = pytest.importorskip("torch")
    for dtype, stored, largest in (("f16", torch.float16, 3e-3), ("bf16", torch.bfloat16, 3e-2), ("f32", None, 1e-5)):
        workload = MlaBlock.parse_line(f"s=20,p=3,e=64,h=4,q=48,d=16,r=8,c=32,{dtype},fp8w")
        inputs = workload.make_inputs(1, "cpu", planted=True)
        reference, plain = workload.reference(inputs), workload.plain(inputs)
        assert {name: tensor.shape for name, tensor in plain.items()} == {n: t.shape for n, t in reference.items()}
        for name, tensor in plain.items():
            assert tensor.dtype == (stored or torch.float32)
            error = float((tensor.double() - reference[name]).abs().max())
            assert largest / 1000 < error < largest * float(reference[name].abs().max())
