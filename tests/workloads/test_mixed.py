from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import mixed
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.batch_spec import BatchPart, format_batch
from pytest_attnperf.workloads.mixed import CACHES, DTYPES, Mixed

SMALL = Mixed("2q17_q9s40_5q1s70", 4, 16, kv_heads=2)


@st.composite
def mixeds(draw: st.DrawFn) -> Mixed:
    """Any workload that may exist."""
    sizes = draw(st.lists(st.tuples(*[st.integers(1, 4096)] * 3), min_size=1, max_size=4))
    kv_heads = draw(st.integers(1, 64))
    return Mixed(
        batch=format_batch(BatchPart(count, q, q + past - 1) for count, q, past in sizes),
        heads=kv_heads * draw(st.integers(1, 16)),
        head_dim=draw(st.integers(1, 512)),
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(DTYPES)),
        page=draw(st.sampled_from([16, 32, 64, 128])),
        window=draw(st.integers(0, 1 << 20)),
        cap=draw(st.integers(0, 100)),
        cache=draw(st.sampled_from(["", *CACHES])),
        sinks=draw(st.booleans()),
    )


@given(workload=mixeds())
def test_an_id_parses_back(workload: Mixed) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    again = Mixed.parse(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Mixed("2q2k_8q1s1k", 32, 128, 8, "bf16"), "mixed-2q2k_8q1s1k-h32-hk8-d128-page16-bf16"),
        (Mixed("q5", 4, 64), "mixed-q5-h4-d64-page16-f16"),
        (
            Mixed("64q1s4096", 8, 64, 1, page=64, window=128, cap=30, cache="kvi8", sinks=True),
            "mixed-64q1s4k-h8-hk1-d64-page64-w128-cap30-f16-kvi8-sinks",
        ),
    ],
)
def test_ids_are_readable_and_never_change(workload: Mixed, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2q2k,8q1s1k,h=32,hk=8,d=128,bf16", Mixed("2q2k_8q1s1k", 32, 128, 8, "bf16")),
        ("2q2k_8q1s1k,h=32,hk=8,d=128,bf16", Mixed("2q2k_8q1s1k", 32, 128, 8, "bf16")),
        ("h=32, 2q2k, d=128 , 8q1s1k", Mixed("2q2k_8q1s1k", 32, 128)),
        ("batch=1q5,h=4,d=64,cache=kvi8,sinks,page=32,w=4,cap=2", Mixed("q5", 4, 64, 4, "f16", 32, 4, 2, "kvi8", True)),
    ],
)
def test_a_line_gives_fields_in_any_order(line: str, expected: Mixed) -> None:
    """A line needs a batch, h and d; bare parts of the batch are joined in order, page is 16 and dtype f16."""
    assert Mixed.parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=4,d=64", "does not give batch; required are batch, h, d, allowed are h="),
        ("q5,h=4", "does not give d"),
        ("q0,h=4,d=64", "batch part 'q0': q must be at least 1, got 0"),
        ("q5,q6x,h=4,d=64", "batch 'q5_q6x': part 'q6x' does not follow the grammar"),
        ("q5,h=4,d=64,f16,f16", "gives dtype (f16) twice"),
        ("q5,batch=q6,h=4,d=64", "gives batch twice"),
        ("q5,,h=4,d=64", "has an empty field"),
        ("q5,h=4,d=64,f32", "dtype 'f32' is not one of f16, bf16"),
        ("q5,h=4,d=64,kvf8e5m2", "unknown field 'kvf8e5m2'"),
        ("q5,h=4,d=64,page=24", "page must be a power of two of at least 16, got 24"),
        ("q5,h=4,d=64,page=0", "page must be a positive integer, got 0"),
        ("q5,h=4,hk=3,d=64", "heads must be a multiple of kv_heads, got heads=4 and kv_heads=3"),
        ("q5,h=4,d=513", "head_dim must be at most 512, got 513"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Mixed.parse_line(line)


@pytest.mark.parametrize(
    "text",
    [
        "mixed-1q5-h4-d64-page16-f16",
        "mixed-q5_q5-h4-d64-page16-f16",
        "mixed-q1024-h4-d64-page16-f16",
        "mixed-q5-h4-hk4-d64-page16-f16",
        "mixed-q5-h4-d64-f16",
        "mixed-h4-q5-d64-page16-f16",
        "mixed-q5-h4-d64-page16-sinks-f16",
    ],
)
def test_an_id_has_one_form(text: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match="not in its canonical form; write 'mixed-"):
        Mixed.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": -1}, "window must be a positive integer, or 0 for none, got -1"),
        ({"cap": 0.5}, "cap must be a positive integer, or 0 for none, got 0.5"),
        ({"cap": True}, "cap must be a positive integer, or 0 for none, got True"),
        ({"cache": "i8"}, "cache must be '' or one of kvf8e4m3, kvi8, got 'i8'"),
        ({"heads": 2.0}, "heads must be a positive integer, got 2.0"),
    ],
)
def test_fields_are_checked_without_text(changes: dict[str, Any], message: str) -> None:
    """What no line can say is refused as well."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        dataclasses.replace(SMALL, **changes)


def visible(part: BatchPart, window: int) -> list[list[bool]]:
    """Whether token i of a sequence sees key j, as the docstring of Mixed states it."""
    positions = range(part.kv - part.q, part.kv)
    return [[key <= p and (not window or key > p - window) for key in range(part.kv)] for p in positions]


@given(q=st.integers(1, 12), past=st.integers(0, 12), count=st.integers(1, 3), window=st.integers(0, 15))
def test_work_is_that_of_the_masks(q: int, past: int, count: int, window: int) -> None:
    """Pairs, keys that are read, and entries of the block table are those of the masks written out."""
    part = BatchPart(count, q, q + past)
    workload = Mixed(part.text, 4, 8, 2, window=window)
    mask = visible(part, window)
    pairs = count * sum(map(sum, mask))
    keys = [key for key, column in enumerate(zip(*mask, strict=True)) if any(column)]
    assert workload.visible_pairs == pairs
    assert workload.flops == 4 * 8 * 4 * pairs
    elements = 2 * count * q * 4 * 8 + 2 * count * len(keys) * 2 * 8
    integers = count * len({key // 16 for key in keys}) + 2 * count + 1
    assert workload.bytes_min == 2 * elements + 4 * integers


def test_an_8_bit_cache_and_sinks_change_the_bytes() -> None:
    """Keys are a byte each, two scales and a sink per head are four bytes each."""
    workload = Mixed("q5s16", 4, 8, 2)
    cached = 2 * 16 * 2 * 8
    assert dataclasses.replace(workload, cache="kvi8").bytes_min == workload.bytes_min - cached + 8
    assert dataclasses.replace(workload, sinks=True).bytes_min == workload.bytes_min + 16


def test_inputs_have_the_documented_shapes() -> None:
    """Shapes, dtypes and order are the docstring's, all tensors are contiguous, and the seed decides them."""
    import torch

    workload = dataclasses.replace(SMALL, dtype="bf16", cache="kvf8e4m3", sinks=True)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    pages = 2 * 2 + 3 + 5 * 5 + 1
    cache = ((pages, 16, 2, 16), torch.float8_e4m3fn)
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in inputs] == [
        ((48, 4, 16), torch.bfloat16),
        cache,
        cache,
        ((8, 5), torch.int32),
        ((9,), torch.int32),
        ((8,), torch.int32),
        ((4,), torch.float32),
        ((1,), torch.float32),
        ((1,), torch.float32),
    ]
    assert inputs[4].tolist() == [0, 17, 34, 43, 44, 45, 46, 47, 48]
    assert inputs[5].tolist() == [17, 17, 40, 70, 70, 70, 70, 70]
    assert all(tensor.is_contiguous() for tensor in inputs)
    again = workload.make_inputs(1, "cpu", planted=True)
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(inputs, again, strict=True))
    assert not torch.equal(inputs[0], workload.make_inputs(2, "cpu", planted=True)[0])


def test_the_reference_is_the_formula() -> None:
    """Every row equals its softmax over the keys of its own pages, written out one row at a time."""
    import torch

    workload = dataclasses.replace(SMALL, window=12, cap=5, cache="kvi8", sinks=True)
    q, k, v, table, starts, lengths, sinks, k_scale, v_scale = workload.make_inputs(1, "cpu", planted=True)
    out = workload.reference((q, k, v, table, starts, lengths, sinks, k_scale, v_scale))["out"]
    for b, (first, last, length) in enumerate(zip(starts[:-1], starts[1:], lengths, strict=True)):
        for token in range(int(first), int(last)):
            position = int(length) - int(last) + token
            keys = range(max(0, position - 11), position + 1)
            slots = [(int(table[b, key // 16]), key % 16) for key in keys]
            for head in range(4):
                rows_k = torch.stack([k[page, slot, head // 2].double() for page, slot in slots]) * k_scale.double()
                rows_v = torch.stack([v[page, slot, head // 2].double() for page, slot in slots]) * v_scale.double()
                scores = 5 * torch.tanh(rows_k @ q[token, head].double() / 4 / 5)
                weights = torch.exp(torch.cat([scores, sinks[head : head + 1].double()]))
                expected = weights[:-1] @ rows_v / weights.sum()
                torch.testing.assert_close(out[token, head], expected)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one sequence's keys and a few rows of scores at a time, the reference is the same."""
    import torch

    inputs = SMALL.make_inputs(1, "cpu", planted=True)
    whole = SMALL.reference(inputs)["out"]
    monkeypatch.setattr(mixed, "CHUNK_BYTES", 1)
    monkeypatch.setattr(mixed, "SCORE_BYTES_CPU", 4 * 40 * 8 * 2)
    torch.testing.assert_close(SMALL.reference(inputs)["out"], whole, rtol=1e-12, atol=1e-12)


def test_the_definition_rebuilds_the_workload() -> None:
    """The stored definition holds every field, and what the id leaves to convention."""
    workload = dataclasses.replace(SMALL, cache="kvi8")
    definition = workload.definition()
    assert definition.pop("family") == "mixed"
    assert definition.pop("scale") == "1/sqrt(head_dim)"
    assert definition.pop("mask_alignment") == "bottom-right"
    assert "amax" in definition.pop("quantisation")
    assert Mixed(**definition) == workload
    assert workload.cache_state == "cold"
    assert workload.non_finite_outputs == frozenset()
