from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import TORCH_DTYPES, Workload
from pytest_attnperf.workloads.families import parse_workload
from pytest_attnperf.workloads.gemm import DTYPES, FP8, INT8_SIZE_K_MAX, OUT_DTYPES, PLANTED_FACTOR, Gemm
from pytest_attnperf.workloads.quantisation import PER_TENSOR

SIZES = st.integers(1, 1 << 17)
PAIRS = [(dtype, out) for dtype, allowed in OUT_DTYPES.items() for out in ("", *allowed)]


@given(
    workload=st.builds(
        Gemm, SIZES, SIZES, SIZES, st.sampled_from(DTYPES), st.sampled_from(["nn", "nt"]), cold=st.booleans()
    ),
    pair=st.sampled_from(PAIRS),
)
def test_an_id_parses_back(workload: Gemm, pair: tuple[str, str]) -> None:
    """Every workload's id parses back to an equal workload with an equal hash, and its definition rebuilds it."""
    workload = dataclasses.replace(workload, dtype=pair[0], out_dtype=pair[1])
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
        (Gemm(1, 2, 3, "i32"), "gemm-m1-n2-k3-i32"),
        (Gemm(1, 2, 3, "f8e4m3fnuz", "nt", out_dtype="f16"), "gemm-m1-n2-k3-f8e4m3fnuz-nt-outf16"),
        (Gemm(1, 2, 3, out_dtype="f32", cold=True), "gemm-m1-n2-k3-f16-cold-outf32"),
        (Gemm(1, 2, 3, "i8", out_dtype="i32"), "gemm-m1-n2-k3-i8"),
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
        ("out=f32,m=16,n=32,k=64,bf16", Gemm(16, 32, 64, "bf16", out_dtype="f32")),
        ("m=16,n=32,k=64,f8e5m2,out=bf16", Gemm(16, 32, 64, "f8e5m2")),
    ],
)
def test_a_line_gives_fields_in_any_order(line: str, expected: Gemm) -> None:
    """A line needs m, n and k; dtype is f16, layout nn and out what the dtype gives by default unless given."""
    assert Gemm.parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m=16,n=32", "does not give k; required are m, n, k"),
        ("m=16,n=0,k=8", "size_n must be a positive integer, got 0"),
        ("m=16,n=8,k=8,b=2", "unknown field 'b'"),
        ("m=16,n=8,k=8,nn,nt", "gives layout (nt) twice"),
        ("m=16,n=8,k=8,tn", "unknown field 'tn'"),
        ("m=16,n=8,k=8,tf32", "dtype 'tf32' is not one of f32, f16, bf16, i8, i32, f8e4m3"),
        ("m=16,n=8,k=8,out=i32", "out_dtype (out) must be one of f16, f32 for f16, got 'i32'"),
        ("m=16,n=8,k=8,i8,out=i8", "out_dtype (out) must be one of i32 for i8, got 'i8'"),
        ("m=16,n=8,k=8,f8e4m3,out=f64", "out_dtype (out) must be one of bf16, f16, f32 for f8e4m3, got 'f64'"),
        ("m=16,n=8,k=8,out", "unknown field 'out'"),
        ("m=1,n=1,k=2147483648,i32", "size_k must be at most 2147483647 for i32, got 2147483648"),
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
        ("gemm-m1-n2-k3-bf16-outbf16", "not in its canonical form; write 'gemm-m1-n2-k3-bf16'"),
        ("gemm-m1-n2-k3-bf16-outf32-nt", "not in its canonical form; write 'gemm-m1-n2-k3-bf16-nt-outf32'"),
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
    assert Gemm(2, 3, 5, "f8e4m3", "nt", out_dtype="f32").bytes_min == 10 + 15 + 4 * 6 + 8
    assert Gemm(2, 3, 5, "i32").bytes_min == 4 * (10 + 15 + 6)


def test_a_definition_says_the_dtype_of_out_and_how_it_is_summed() -> None:
    """Definitions are stored with baselines, so those of older workloads are what they were."""
    sizes = {"family": "gemm", "size_m": 1, "size_n": 2, "size_k": 3, "layout": "nn", "formula": "out = a b"}
    assert Gemm(1, 2, 3).definition() == {**sizes, "dtype": "f16", "sums": "fp32", "out_dtype": "f16"}
    assert Gemm(1, 2, 3, "i8").definition() == {**sizes, "dtype": "i8", "sums": "int32", "out_dtype": "i32"}
    fp8 = {**sizes, "dtype": "f8e5m2", "sums": "fp32", "quantisation": PER_TENSOR}
    assert Gemm(1, 2, 3, "f8e5m2").definition() == {**fp8, "out_dtype": "bf16"}
    assert Gemm(1, 2, 3, "f8e5m2", out_dtype="f16").definition() == {**fp8, "out_dtype": "f16"}


@pytest.mark.parametrize(("dtype", "out_dtype"), [pair for pair in PAIRS if pair[1]])
def test_out_has_the_dtype_that_is_asked_for(dtype: str, out_dtype: str) -> None:
    """The plain result is rounded once to it, from the same inputs as every other."""
    import torch

    workload, default = Gemm(3, 5, 40, dtype, out_dtype=out_dtype), Gemm(3, 5, 40, dtype)
    inputs = workload.make_inputs(1, "cpu", planted=True)
    assert all(map(torch.equal, inputs, default.make_inputs(1, "cpu", planted=True)))
    out = workload.plain(inputs)["out"]
    assert out.dtype == getattr(torch, TORCH_DTYPES[out_dtype])
    if not workload.is_integer:
        fp32 = Gemm(3, 5, 40, dtype, out_dtype="f32").plain(inputs)["out"]
        assert torch.equal(out, fp32.to(out.dtype))


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


@pytest.mark.parametrize("size_k", [1, 2, 3, 31, 97, 4096, 150_000])
def test_no_sum_of_int32_leaves_int32(size_k: int) -> None:
    """The largest values that are drawn, all of one sign, sum to less than 2^31; planted ones are no larger."""
    import torch

    workload = Gemm(3, 2, size_k, "i32")
    assert size_k * workload.integer_largest**2 < 2**31 <= size_k * (workload.integer_largest + 1) ** 2
    for planted in (False, True):
        a, b = (tensor.to(torch.int64) for tensor in workload.make_inputs(1, "cpu", planted=planted))
        assert int((a.abs() @ b.abs()).max()) < 2**31


def test_int32_is_exact_and_planted_beyond_fp32_and_16_bits() -> None:
    """Results are those of 64-bit integers. The first planted sum is too long for fp32, and a too large for int16."""
    import torch

    for layout in ("nn", "nt"):
        workload = Gemm(5, 3, 1000, "i32", layout)
        inputs = workload.make_inputs(1, "cpu", planted=True)
        a, b = inputs[0], inputs[1] if layout == "nn" else inputs[1].t()
        expected = a.to(torch.int64) @ b.to(torch.int64)
        for outputs in (workload.reference(inputs), workload.plain(inputs)):
            assert outputs["out"].dtype == torch.int32
            assert torch.equal(outputs["out"], expected)
        assert int(expected[0, 0]) > 2**28
        assert int(a.abs().max()) > 2**20
        assert set(b[0].tolist()) <= {-1, 0, 1}


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
