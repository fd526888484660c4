from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import bandwidth
from pytest_attnperf.workloads.bandwidth import DTYPES, KINDS, Bandwidth, canonical_outputs
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import Families


@given(kind=st.sampled_from(KINDS), kib=st.integers(1, 1 << 24), dtype=st.sampled_from(DTYPES))
def test_an_id_parses_back(kind: str, kib: int, dtype: str) -> None:
    """Every workload's id parses back to an equal workload with an equal hash."""
    workload = Bandwidth(kind, kib=kib, dtype=dtype)
    again = Families().parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    assert workload.array_bytes == kib * 1024
    assert isinstance(workload, Workload)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("copy,mib=256", "bandwidth-copy-mib256-f32"),
        ("kib=96, triad, f16", "bandwidth-triad-kib96-f16"),
        ("kind=read,kib=2048,bf16", "bandwidth-read-mib2-bf16"),
    ],
)
def test_ids_are_readable_and_never_change(line: str, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed; whole MiB are written as such."""
    assert Bandwidth.parse_line(line).id == expected
    assert Bandwidth.parse(expected) == Bandwidth.parse_line(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mib=4", "does not give kind; required are kind, allowed are mib=, kib=, dtype="),
        ("move,mib=4", "unknown field 'move'; allowed are mib=, kib=, dtype= (or a bare f32"),
        ("copy", "one of mib and kib must be a positive integer, the size of an array, got mib=0 and kib=0"),
        ("copy,mib=1,kib=1", "got mib=1 and kib=1"),
        ("copy,read,mib=1", "gives kind (read) twice"),
        ("copy,mib=-1", "mib must be a positive integer of at most 18 digits, got '-1'"),
        ("copy,mib=1,i8", "dtype 'i8' is not one of f32, f16, bf16"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Bandwidth.parse_line(line)


@pytest.mark.parametrize("value", [0.5, True, -1, "8"])
def test_sizes_are_integers(value: Any) -> None:
    """A size that is no positive integer is refused also when it is not read from text, and so is an unknown kind."""
    with pytest.raises(WorkloadError, match="kib must be a positive integer or 0, got"):
        Bandwidth("copy", kib=value)
    with pytest.raises(WorkloadError, match="kind 'move' is not one of copy, read, write, triad"):
        Bandwidth("move", mib=1)


def test_an_id_has_one_form() -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    for text in ("bandwidth-copy-kib2048-f32", "bandwidth-mib2-copy-f32", "bandwidth-copy-mib2"):
        with pytest.raises(WorkloadError, match="not in its canonical form; write 'bandwidth-copy-mib2-f32'"):
            Bandwidth.parse(text)


def test_work_counts_every_array_once() -> None:
    """Bytes are those of the arrays, the sums and the row; operations are one per element, of triad two."""
    size = 3 * 1024
    expected = {"copy": 2 * size, "read": size + 3 * 4, "write": size + 2 * 256, "triad": 3 * size}
    for kind in KINDS:
        workload = Bandwidth(kind, kib=3, dtype="f16")
        assert workload.bytes_min == expected[kind]
        assert workload.flops == (2 if kind == "triad" else 1) * size // 2
        assert workload.cache_state == ("hot" if kind == "write" else "cold")
        assert workload.non_finite_outputs == frozenset()


def test_the_definition_is_plain_and_says_what_is_convention() -> None:
    """Size in bytes, kind and dtype are stored, with the scalar, the stretch of a sum or the length of the row."""
    convention = {"copy": {}, "read": {"sum_over_bytes": 1024}, "write": {"pattern": 256}, "triad": {"scalar": 3.0}}
    for kind in KINDS:
        held = {"family": "bandwidth", "kind": kind, "array_bytes": 2048, "dtype": "f32"}
        assert Bandwidth(kind, kib=2).definition() == {**held, **convention[kind]}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_references_are_what_the_docstring_says(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Element by element, in Python's numbers, and whatever is computed at once."""
    import torch

    workload = Bandwidth(kind, kib=3, dtype=dtype)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    whole = workload.reference(inputs)
    monkeypatch.setattr(bandwidth, "CHUNK_ELEMENTS", 256)
    again = workload.reference(inputs)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    if kind == "copy":
        assert torch.equal(whole["out"].view(inputs[0].dtype), inputs[0])
    elif kind == "write":
        pattern, written = inputs[0].tolist(), whole["out"].view(inputs[0].dtype).tolist()
        assert written == [pattern[i % 256] for i in range(workload.elements)]
    elif kind == "read":
        words = inputs[0].view(torch.int32).tolist()
        sums = [sum(words[first : first + 256]) % 2**32 for first in range(0, len(words), 256)]
        assert [value % 2**32 for value in whole["sums"].tolist()] == sums
    else:
        b, c = (tensor.tolist() for tensor in inputs)
        assert whole["out"].tolist() == [one + 3.0 * two for one, two in zip(b, c, strict=True)]


def test_what_a_call_returns_is_read_in_place() -> None:
    """Words of a copy lie in the memory of the copy; sums and triads are passed on as they are."""
    import torch

    result = torch.randn(8)
    for kind in ("copy", "write"):
        (out,) = canonical_outputs(kind)(result).values()
        assert out.dtype == torch.int32
        assert out.data_ptr() == result.data_ptr()
    assert canonical_outputs("read")(result) == {"sums": result}
    assert canonical_outputs("triad")(result) == {"out": result}
