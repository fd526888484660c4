from __future__ import annotations

import pytest

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.tools.dispatch.features import parse_shape


@pytest.mark.parametrize(
    ("workload", "axis", "size", "label"),
    [
        ("prefill-b4-s512-h8-d256-f16-causal", "seq_q", 512, "b4 h8 d256 f16 causal"),
        ("prefill-b1-s128-kv512-h4-d64-f16-causal", "seq_kv", 512, "b1 s128 h4 d64 f16 causal"),
        ("decode-b1-kv4096-h32-hk8-d128-page64-bf16", "seq_kv", 4096, "b1 h32 hk8 d128 page64 bf16"),
        ("gemm-m16-n4096-k64-i8", "size_m", 16, "n4096 k64 i8"),
        ("softmax-r256-c1000-f32", "rows", 256, "c1000 f32"),
        ("rope-b1-s256-h4-hk2-d64-f32", "seq", 256, "b1 h4 hk2 d64 f32"),
        ("mla-b32-s1-kv4096-h16-d128-r64-c512-bf16", "seq_kv", 4096, "b32 s1 h16 d128 r64 c512 bf16"),
        ("block-b16-s1-p4095-h32-hk8-d128-bf16", "past", 4095, "b16 s1 h32 hk8 d128 bf16"),
        ("varlen-q5_63-h4-hk2-d64-f16", "", 0, "q5_63 h4 hk2 d64 f16"),
    ],
)
def test_each_family_has_its_size(workload: str, axis: str, size: int, label: str) -> None:
    """Regions run along the length, the keys of a cache, or the rows; packed sequences have no single size."""
    shape, found = parse_shape(workload, {})
    assert (shape.axis, found, shape.label) == (axis, size, label)


def test_sizes_of_one_shape_are_of_one_shape() -> None:
    """Two lengths differ in their size only; a feature, a head dimension or other keys make another shape."""
    first, _ = parse_shape("prefill-b4-s512-h8-d256-f16-causal", {})
    assert first == parse_shape("prefill-b4-s4096-h8-d256-f16-causal", {})[0]
    for other in ("b4-s512-h8-d256-f16", "b4-s512-h8-d64-f16-causal", "b4-s512-kv1024-h8-d256-f16-causal"):
        assert first != parse_shape(f"prefill-{other}", {})[0]


def test_what_repeats_or_is_required_has_no_default() -> None:
    """kv_heads that equal heads are no field; a dtype must be given although the class has one."""
    shape, _ = parse_shape("prefill-b4-s512-h8-d256-f16-causal", {})
    assert {"kv_heads", "seq_kv", "head_dim_v"}.isdisjoint({name for name, _ in shape.fields + shape.defaults})
    assert "dtype" not in dict(shape.defaults)
    assert dict(shape.defaults)["causal"] is False


def test_a_family_that_is_not_built_in_is_read_by_its_definition() -> None:
    """A project's own workloads come with their fields; a text that a caller leaves out is this workload's."""
    definition = {"family": "sparse", "batch": 2, "seq_q": 64, "blocks": [1, 2], "scale": "1/sqrt(d)", "dtype": "f16"}
    shape, size = parse_shape("sparse-b2-s64", definition)
    assert (shape.family, shape.axis, size, shape.find_value("blocks")) == ("sparse", "seq_q", 64, (1, 2))
    assert dict(shape.defaults) == {"scale": "1/sqrt(d)"}


@pytest.mark.parametrize(
    ("workload", "definition", "said"),
    [
        ("prefill-b4", {}, "does not give"),
        ("sparse-b2", {}, "no definition is stored"),
        ("sparse-b2", {"x): import os": 1}, "a name is a Python identifier"),
        ("sparse-b2", {"import": 1}, "a name is a Python identifier"),
        ("sparse-b2", {"__class__": 1}, "a name is a Python identifier"),
        ("sparse-b2", {"nested": {"a": 1}}, "takes numbers, texts and lists"),
        ("sparse-b2", {"limit": float("nan")}, "takes numbers, texts and lists"),
        ("sparse-b2", {"family": 3}, "which is no text"),
    ],
)
def test_what_no_table_can_hold_is_refused(workload: str, definition: dict[str, object], said: str) -> None:
    """A malformed id, an unknown family without fields, and fields that are no names or no plain values."""
    with pytest.raises(WorkloadError, match=said):
        parse_shape(workload, definition)
