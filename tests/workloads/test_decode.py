"""The decode family: ids, lines, work figures, inputs, and a reference that agrees with plain formulas."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.decode import DTYPES, Decode
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.paged_cache import CACHE_DTYPES

EVERYTHING = "decode-b3-q4-kv100-h4-hk2-d32-page16-cap30-w20-bf16-kvf8e4m3-sinks-ragged-lse"


@st.composite
def decodes(draw: st.DrawFn) -> Decode:
    """Any workload that may exist, of few sequences."""
    kv_heads, batch = draw(st.integers(1, 64)), draw(st.integers(1, 8))
    queries = draw(st.integers(1, 8))
    return Decode(
        batch=batch,
        seq_kv=draw(st.integers(queries, 1 << 20)),
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=draw(st.integers(1, 512)),
        queries=queries,
        kv_heads=kv_heads,
        page=draw(st.sampled_from([0, 16, 32, 64, 128, 1024])),
        cap=draw(st.integers(0, 100)),
        window=draw(st.integers(0, 1 << 20)),
        dtype=draw(st.sampled_from(DTYPES)),
        kv_dtype=draw(st.sampled_from(["", *CACHE_DTYPES])),
        sinks=draw(st.booleans()),
        ragged=batch > 1 and draw(st.booleans()),
        lse=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=50)
@given(workload=decodes())
def test_an_id_parses_back(workload: Decode) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, also through the registry."""
    again = parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@settings(deadline=None, max_examples=50)
@given(workload=decodes())
def test_lengths_are_within_their_room(workload: Decode) -> None:
    """Lengths hold the new tokens' keys and at least a quarter of the room, one fills it, whatever is asked."""
    assert len(workload.lengths) == workload.batch
    assert max(workload.lengths) == workload.seq_kv
    assert min(workload.lengths) >= max(workload.queries, workload.seq_kv / 4)
    assert workload.lengths == dataclasses.replace(workload, lse=not workload.lse).lengths


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("b=64,kv=4096,h=32,hk=8,d=128,f16", "decode-b64-kv4096-h32-hk8-d128-f16"),
        (
            "b=16,q=4,kv=8192,h=32,hk=8,d=128,page=16,cap=30,bf16,kvf8e4m3,sinks,ragged",
            "decode-b16-q4-kv8192-h32-hk8-d128-page16-cap30-bf16-kvf8e4m3-sinks-ragged",
        ),
        ("kv=70,h=4,d=32,kv_dtype=kvi8,lse,w=9", "decode-b1-kv70-h4-d32-w9-f16-kvi8-lse"),
        ("q=1,hk=4,kv=70,h=4,d=32,page=0,cap=0,w=0,f32", "decode-b1-kv70-h4-d32-f32"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    workload = Decode.parse_line(line)
    assert workload.id == expected
    assert isinstance(workload, Workload)
    assert workload.cache_state == "cold"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=4,d=16", "does not give kv; required are kv, h, d"),
        ("kv=8,h=4,d=16,x=3", "unknown field 'x'"),
        ("kv=8,h=4,hk=3,d=16", "heads must be a multiple of kv_heads=3, got heads=4"),
        ("kv=8,h=4,d=513", "head_dim must be at most 512, got head_dim=513"),
        ("kv=16,q=9,h=4,d=16", "queries (q) must be at most 8, got queries=9"),
        ("kv=3,q=4,h=4,d=16", "seq_kv (kv) must be at least queries=4, whose keys it holds, got seq_kv=3"),
        ("kv=8,h=4,d=16,page=24", "page must be a power of two of at least 16, got 24"),
        ("kv=8,h=4,d=16,kv_dtype=kvi4", "unknown field 'kv_dtype'"),
        ("kv=8,h=4,d=16,ragged", "ragged needs batch (b) of at least 2, got batch=1"),
        ("kv=8,h=4,d=16,i8", "dtype 'i8' is not one of f32, f16, bf16"),
        ("b=0,kv=8,h=4,d=16", "batch must be a positive integer, got 0"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Decode.parse_line(line)


@pytest.mark.parametrize(("field", "value"), [("cap", -1), ("window", True), ("page", 16.0), ("kv_dtype", "i8")])
def test_fields_are_checked_also_without_text(field: str, value: Any) -> None:
    """A field that no line could give is refused with its name."""
    with pytest.raises(WorkloadError, match=f"{field} must be"):
        dataclasses.replace(Decode(1, 8, 4, 16), **{field: value})


def test_the_definition_is_complete_and_plain() -> None:
    """The stored definition rebuilds the workload and says what the id leaves to convention."""
    definition = Decode.parse(EVERYTHING).definition()
    for name in ("family", "scale", "mask_alignment", "quantisation"):
        assert isinstance(definition.pop(name), str)
    assert definition.pop("lengths") == list(Decode.parse(EVERYTHING).lengths)
    assert Decode(**definition) == Decode.parse(EVERYTHING)


def test_work_counts_only_keys_that_exist() -> None:
    """Flops and bytes are those of the keys that some token sees, counted one by one."""
    for text in (EVERYTHING, "decode-b3-kv50-h4-hk2-d16-f32-ragged", "decode-b2-q3-kv9-h2-d16-w20-f16"):
        workload = Decode.parse(text)
        window = workload.window or workload.seq_kv
        seen = [
            {(i, j) for i in range(workload.queries) for j in range(n) if 0 <= i + n - workload.queries - j < window}
            for n in workload.lengths
        ]
        assert workload.flops == 4 * workload.head_dim * workload.heads * sum(map(len, seen))
        assert workload.keys_seen == sum(len({j for _, j in pairs}) for pairs in seen)
    plain = Decode.parse("decode-b64-kv4096-h32-hk8-d128-f16")
    assert plain.bytes_min == 2 * 64 * 4096 * 8 * 128 * 2 + 2 * 64 * 32 * 128 * 2 + 64 * 4


def test_inputs_are_the_same_for_the_same_seed_only() -> None:
    """Inputs are decided by the seed, have the documented shapes and order, and are contiguous."""
    torch = pytest.importorskip("torch")
    workload = Decode.parse(EVERYTHING)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    pages = sum(math.ceil(length / 16) for length in workload.lengths) + 1
    cache = (pages, 16, 2, 32)
    assert [tuple(tensor.shape) for tensor in once] == [(3, 4, 4, 32), cache, cache, (3, 7), (3,), (4,), (1,), (1,)]
    assert all(tensor.is_contiguous() for tensor in once)
    assert once[1].dtype == torch.float8_e4m3fn
    same = [torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(once, again, strict=True)]
    assert all(same)
    assert not torch.equal(once[0], other[0])
    assert not torch.equal(once[3], other[3])


def test_the_reference_is_the_formula() -> None:
    """Contiguous and paged, with every feature, out and lse are what a loop over keys gives in fp64."""
    torch = pytest.importorskip("torch")
    for text in (EVERYTHING, EVERYTHING.replace("-page16", "")):
        workload = Decode.parse(text)
        inputs = workload.make_inputs(1, "cpu", planted=False)
        parts, found = workload.split_inputs(inputs), workload.reference(inputs)
        assert parts.k_scale is not None
        assert parts.v_scale is not None
        assert parts.sinks is not None
        b, i, h, length = 1, 2, 3, workload.lengths[1]
        position = length - workload.queries + i
        scores, values = [], []
        for j in range(position - workload.window + 1, position + 1):
            where = (b, j) if parts.table is None else (int(parts.table[b, j // 16]), j % 16)
            key, value = (cache[where][h // 2].double() for cache in (parts.k, parts.v))
            product = float(parts.q[b, i, h].double() @ key) * float(parts.k_scale) / math.sqrt(32)
            scores.append(30 * math.tanh(product / 30))
            values.append(value * float(parts.v_scale))
        weights = torch.tensor([math.exp(score) for score in scores], dtype=torch.float64)
        total = weights.sum() + math.exp(float(parts.sinks[h]))
        torch.testing.assert_close(found["out"][b, i, h], (weights[:, None] * torch.stack(values)).sum(0) / total)
        torch.testing.assert_close(found["lse"][b, h, i], total.log())
