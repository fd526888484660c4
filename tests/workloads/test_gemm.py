from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.gemm import DTYPES, FP8, INT8_SIZE_K_MAX, PLANTED_FACTOR, Gemm

SIZES = st.integers(1, 1 << 17)


@given(
    workload=st.builds(
        Gemm, SIZES, SIZES, SIZES, st.sampled_from(DTYPES), st.sampled_from(["nn", "nt"]), cold=st.booleans()
    )
)
def test_an_id_parses_back(workload: Gemm) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, and its definition rebuilds it."""
    again = parse_workload(workload.id)
    assert again == workload
    assert hash(again) == hash(workload)
    names = {field.name for field in dataclasses.fields(Gemm)}
    assert Gemm(**{name: value for name, value in workload.definition().items() if name in names}) == workload
    assert {type(value) for value in workload.definition().values()} <= {int, str, bool}


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Gemm(8192, 8192, 8192), "gemm-m8192-n8192-k8192-f16"),
        (Gemm(16, 4096, 4096, "i8"), "gemm-m16-n4096-k4096-i8"),
        (Gemm(2048, 14336, 4096, "bf16", "nt"), "gemm-m2048-n14336-k4096-bf16-nt"),
        (Gemm(1, 2, 3, "f8e5m2fnuz", "nt", cold=True), "gemm-m1-n2-k3-f8e5m2fnuz-nt-cold"),
    ],
)
def test_ids_are_readable_and_never_change(workload: Gemm, expected: str) -> None:
    """An id is a key of stored baselines, so its text is fixed."""
    assert workload.id == expected
    assert isinstance(workload, Workload)
    assert workload.cache_state == ("cold" if workload.cold else "hot")
    assert workload.non_finite_outputs == frozenset()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("m=16,n=32,k=64", Gemm(16, 32, 64)),
        (" nt , k=64, bf16, n=32,m=16 ", Gemm(16, 32, 64, "bf16", "nt")),
        ("m=16,n=32,k=64,dtype=i8,layout=nn,cold", Gemm(16, 32, 64, "i8", cold=True)),
    ],
)
def test_a_line_gives_fields_in_any_order(line: str, expected: Gemm) -> None:
    """A line needs m, n and k; dtype is f16 and layout nn unless given."""
    assert Gemm.parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m=16,n=32", "does not give k; required are m, n, k"),
        ("m=16,n=0,k=8", "size_n must be a positive integer, got 0"),
        ("m=16,n=8,k=8,b=2", "unknown field 'b'"),
        ("m=16,n=8,k=8,nn,nt", "gives layout (nt) twice"),
        ("m=16,n=8,k=8,tn", "unknown field 'tn'"),
        ("m=16,n=8,k=8,tf32", "dtype 'tf32' is not one of f32, f16, bf16, i8, f8e4m3"),
        ("m=16,n=8,k=133145,i8", "size_k must be at most 133144 for i8, got 133145"),
    ],
)
def test_a_malformed_line_names_field_and_value(line: str, message: str) -> None:
    """What is wrong with a line is said with the field, the value and what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Gemm.parse_line(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemm-m1-n2-k3-f16-nn", "not in its canonical form; write 'gemm-m1-n2-k3-f16'"),
        ("gemm-n2-m1-k3-f16", "not in its canonical form; write 'gemm-m1-n2-k3-f16'"),
        ("gemm-m1-n2-f16", "does not give k"),
        ("prefill-m1-n2-k3-f16", "starts with 'prefill', not with 'gemm'"),
    ],
)
def test_an_id_has_one_form(text: str, message: str) -> None:
    """Two ids of one workload would be two baselines, so every other spelling is refused."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        Gemm.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size_m": True}, "size_m must be a positive integer, got True"),
        ({"layout": "tt"}, "layout 'tt' is not one of nn, nt"),
    ],
)
def test_fields_are_checked_also_when_not_parsed(changes: dict[str, Any], message: str) -> None:
    """A value that no text could give is refused with what is allowed."""
    with pytest.raises(WorkloadError, match=re.escape(message)):
        dataclasses.replace(Gemm(1, 2, 3), **changes)


def test_work_is_counted_exactly() -> None:
    """2 M N K operations; every matrix once, out in its own width, and two fp32 scales for fp8."""
    assert Gemm(2, 3, 5).flops == 60
    assert Gemm(2, 3, 5, "bf16").bytes_min == 2 * (10 + 15 + 6)
    assert Gemm(2, 3, 5, "f32").bytes_min == 4 * (10 + 15 + 6)
    assert Gemm(2, 3, 5, "i8").bytes_min == 10 + 15 + 4 * 6
    assert Gemm(2, 3, 5, "f8e4m3", "nt").bytes_min == 10 + 15 + 2 * 6 + 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_inputs_have_the_documented_shapes(dtype: str, layout: str) -> None:
    """a is (M, K), b (K, N) or (N, K), contiguous and decided by the seed; fp8 comes with two fp32 scales."""
    import torch

    workload = Gemm(5, 6, 7, dtype, layout)
    once, again, other = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 1, 2))
    shapes = [(5, 7), (7, 6) if layout == "nn" else (6, 7), *([(1,), (1,)] if dtype in FP8 else [])]
    assert [tuple(tensor.shape) for tensor in once] == shapes
    assert all(tensor.is_contiguous() for tensor in once)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(torch.equal(a.float(), b.float()) for a, b in zip(once, other, strict=True))


def test_the_reference_of_floats_is_the_product_in_fp64() -> None:
    """Both layouts give a b of the stored values, in fp64 on a CPU; plain rounds it to the output's dtype."""
    import torch

    for layout in ("nn", "nt"):
        workload = Gemm(2100, 3, 5, "bf16", layout)
        a, b = workload.make_inputs(3, "cpu", planted=True)
        expected = a.double() @ (b if layout == "nn" else b.t()).double()
        assert torch.equal(workload.reference((a, b))["out"], expected)
        assert torch.equal(workload.plain((a, b))["out"], expected.float().bfloat16())


def test_integers_are_exact_to_the_last() -> None:
    """Sums of the largest products at the largest K are right as int32, which fp32 could not hold."""
    import torch

    workload = Gemm(1, 2, INT8_SIZE_K_MAX, "i8")
    a, b = torch.full((1, INT8_SIZE_K_MAX), 127), torch.full((INT8_SIZE_K_MAX, 2), 127)
    b[0, 1] = 126
    inputs = (a.to(torch.int8), b.to(torch.int8))
    expected = torch.tensor([[127 * 127 * INT8_SIZE_K_MAX, 127 * 127 * INT8_SIZE_K_MAX - 127]], dtype=torch.int32)
    for outputs in (workload.reference(inputs), workload.plain(inputs)):
        assert outputs["out"].dtype == torch.int32
        assert torch.equal(outputs["out"], expected)


def test_scales_multiply_the_result() -> None:
    """fp8: value = stored * scale, so doubling a scale doubles the result, which is stored in bf16."""
    import torch

    workload = Gemm(4, 5, 6, "f8e4m3", "nt")
    a, b, a_scale, b_scale = workload.make_inputs(1, "cpu", planted=False)
    once, doubled = (workload.reference((a, b, a_scale, b_scale * factor))["out"] for factor in (1, 2))
    assert torch.equal(2 * once, doubled)
    assert torch.allclose(once, a.double() * a_scale.double() @ (b.double() * b_scale.double()).t())
    assert workload.plain((a, b, a_scale, b_scale))["out"].dtype == torch.bfloat16


def test_planted_positions_are_both_sides_of_every_edge_of_k() -> None:
    """The ends, the middle, and where the tail after tiles of 16 to 256 starts, are larger in a; nothing else is."""
    workload = Gemm(3, 4, 1000, "f32")
    assert workload.planted_positions == (0, 499, 500, 767, 768, 895, 896, 959, 960, 991, 992, 999)
    (plain_a, plain_b), (a, b) = (workload.make_inputs(1, "cpu", planted=planted) for planted in (False, True))
    changed = (a != plain_a).any(dim=0).nonzero().flatten().tolist()
    assert tuple(changed) == workload.planted_positions
    assert bool((a[:, changed] == plain_a[:, changed] * PLANTED_FACTOR).all())
    assert bool((b == plain_b).all())
    assert Gemm(3, 4, 1).planted_positions == (0,)
