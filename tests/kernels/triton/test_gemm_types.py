"""Matrix multiplication of int32, in e5m2 and the fnuz formats, and into other dtypes than the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.triton.gemm.backend import BACKENDS
from pytest_attnperf.correctness.metrics import MismatchError
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.gemm import Gemm
from suites.gemm_workloads import GEMM_TYPES

pytestmark = pytest.mark.usefixtures("one_thread")

SEED = 1
BY_NAME: dict[str, Any] = {backend.name: backend for backend in BACKENDS}
FORMATS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")

# Tiles are 32 x 32 x 32, of multiply-reduce 8 x 32 x 32 and 8 x 16 x 64: below, at, and past their edges.
CASES = (
    "triton.gemm/gemm-m33-n65-k97-i32",
    "triton.gemm/gemm-m64-n31-k64-i32-nt",
    "triton.gemm/gemm-m1-n1-k1-i32",
    "triton.gemm_multiply_reduce/gemm-m5-n33-k131-i32",
    "triton.gemm_multiply_reduce/gemm-m8-n47-k64-i32-nt",
    "triton.gemm/gemm-m33-n40-k70-f16-outf32",
    "triton.gemm/gemm-m31-n33-k65-f8e5m2-nt-outf16",
    "triton.gemm_stream_k/gemm-m65-n33-k130-bf16-nt-outf32",
    "triton.gemm_stream_k/gemm-m33-n65-k97-f8e4m3fnuz-nt-outf16",
    "triton.gemm_multiply_reduce/gemm-m3-n33-k65-f8e5m2fnuz-outf32",
    "triton.gemm_multiply_reduce/gemm-m3-n33-k65-f8e4m3-outf32",
)
ALL_BITS = ("gemm 33 65 97 nn", "gemm 5 31 33 nt", "gemm 1 1 1 nn", "multiply_reduce 7 33 65 nn")

Judge = Callable[..., tuple[str, ...]]


@pytest.fixture(scope="module")
def interpreted(interpret: Any) -> Any:
    """What every case gave, computed by the interpreter in one process."""
    return interpret("kernels.triton.gemm.backend", CASES)


@pytest.mark.parametrize("case", CASES)
def test_right_under_the_interpreter(case: str, interpreted: Any, judge: Judge) -> None:
    """int32 is exact, and results in the dtype that is asked for are within budget, on ragged sizes."""
    found = interpreted[case]
    workload = Gemm.parse(case.partition("/")[2])
    assert judge(workload.id, found["outputs"]) == ()
    assert found["outputs"]["out"].dtype == workload.out_stored_as
    assert found["unchanged"]
    assert found["replays"]


@pytest.mark.parametrize("case", ALL_BITS)
def test_int32_of_all_bits_is_right_modulo_2_32(case: str, interpret: Any) -> None:
    """Products of int8 digits give what 64-bit integers give, cut to 32 bits, also where sums and operands overflow."""
    import torch

    found = interpret("tests.kernels.triton.multiply_int32", ALL_BITS)[case]
    expected = (found["a"].to(torch.int64) @ found["b"].to(torch.int64)).to(torch.int32)
    assert torch.equal(found["out"], expected)


def summed_in_fp32(a: Any, b: Any) -> Any:
    """Products and sums are rounded to fp32."""
    import torch

    return (a.float() @ b.float()).double().clamp(-(2**31), 2**31 - 1).to(torch.int32)


def cut_to_16_bits(a: Any, b: Any) -> Any:
    """a is read as int16."""
    import torch

    return multiplied(a.to(torch.int16), b)


def without_the_highest_digit(a: Any, b: Any) -> Any:
    """The fourth of the four int8 digits of a is left out."""
    import torch

    low = a.to(torch.int64) & 0xFFFFFF
    return multiplied(torch.where(low >= 0x800000, low - 0x1000000, low), b)


def without_the_tail(a: Any, b: Any) -> Any:
    """The positions of K past the last whole tile of 32 are lost."""
    whole = a.shape[1] // 32 * 32
    return multiplied(a[:, :whole], b[:whole])


def multiplied(a: Any, b: Any) -> Any:
    """The honest product."""
    import torch

    return (a.to(torch.int64) @ b.to(torch.int64)).to(torch.int32)


@pytest.mark.parametrize("text", ["gemm-m33-n65-k97-i32", "gemm-m4-n3-k4097-i32"])
@pytest.mark.parametrize("liar", [summed_in_fp32, cut_to_16_bits, without_the_tail])
def test_a_wrong_product_of_int32_is_rejected(text: str, liar: Callable[[Any, Any], Any], judge: Judge) -> None:
    """A sum in fp32, an operand of 16 bits and a lost tail of K are found; the honest product is not."""
    a, b = Gemm.parse(text).make_inputs(SEED, "cpu", planted=True)
    assert judge(text, {"out": multiplied(a, b)}) == ()
    assert judge(text, {"out": liar(a, b)}) != ()


def test_a_lost_digit_is_rejected(judge: Judge) -> None:
    """With a short K, a has all four digits, so a product of three is found."""
    text = "gemm-m33-n65-k97-i32"
    a, b = Gemm.parse(text).make_inputs(SEED, "cpu", planted=True)
    assert judge(text, {"out": without_the_highest_digit(a, b)}) != ()


@pytest.mark.parametrize(
    ("text", "returned", "asked"),
    [
        ("gemm-m3-n5-k7-i32", "float64", "int32"),
        ("gemm-m3-n5-k7-f16-outf32", "float16", "float32"),
        ("gemm-m3-n5-k7-f16", "float32", "float16"),
    ],
)
def test_another_dtype_than_was_asked_for_is_rejected(text: str, returned: str, asked: str, judge: Judge) -> None:
    """The right numbers in another dtype are not the output of the workload."""
    import torch

    workload = Gemm.parse(text)
    out = workload.plain(workload.make_inputs(SEED, "cpu", planted=True))["out"]
    with pytest.raises(MismatchError, match=f"output 'out' has dtype torch.{returned}, expected torch.{asked}"):
        judge(text, {"out": out.to(getattr(torch, returned))})


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"])
@pytest.mark.parametrize("read_as", FORMATS)
def test_fp8_that_is_read_in_another_format_is_rejected(dtype: str, read_as: str, judge: Judge) -> None:
    """The same bytes as e5m2 instead of e4m3, or as OCP's format instead of the fnuz one, are another product."""
    import torch

    workload = Gemm.parse(f"gemm-m33-n47-k97-{dtype}-nt-outf16")
    a, b, a_scale, b_scale = workload.make_inputs(SEED, "cpu", planted=True)
    told = getattr(torch, read_as)
    product = a.view(told).double() @ b.view(told).double().t() * (a_scale * b_scale).double()
    assert (judge(workload.id, {"out": product.half()}) == ()) == (workload.stored_as == told)


@pytest.mark.parametrize("dtype", ["f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"])
def test_a_lost_tail_of_fp8_is_rejected(dtype: str, judge: Judge) -> None:
    """One position of K past the last tile is found, whatever the format."""
    workload = Gemm.parse(f"gemm-m33-n47-k97-{dtype}-nt")
    a, b, a_scale, b_scale = (tensor.double() for tensor in workload.make_inputs(SEED, "cpu", planted=True))
    honest, short = (a[:, :k] @ b[:, :k].t() * a_scale * b_scale for k in (97, 96))
    assert judge(workload.id, {"out": honest.bfloat16()}) == ()
    assert judge(workload.id, {"out": short.bfloat16()}) != ()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_an_f32_sum_of_fewer_bits_is_rejected(dtype: str, judge: Judge) -> None:
    """Sums as tensor cores cut them and sums that are rounded are right; one that keeps 20 bits between tiles of 32 is
    not, nor is one that is stored in 16 bits on the way."""
    import torch

    from pytest_attnperf.workloads.precision import multiply_as_tensor_core

    text = f"gemm-m33-n47-k200-{dtype}-outf32"
    a, b = (tensor.float() for tensor in Gemm.parse(text).make_inputs(SEED, "cpu", planted=True))
    short = torch.zeros(33, 47)
    for start in range(0, 200, 32):
        total = short + a[:, start : start + 32] @ b[start : start + 32]
        short = (total.view(torch.int32) & ~0xF).view(torch.float32)
    assert judge(text, {"out": multiply_as_tensor_core(a, b)}) == judge(text, {"out": a @ b}) == ()
    assert judge(text, {"out": short}) != ()
    assert judge(text, {"out": (a @ b).to(Gemm.parse(text).stored_as).float()}) != ()


def device(arch: str) -> DeviceInfo:
    """A device of that architecture."""
    return DeviceInfo(kind="cuda" if arch.startswith("sm_") else "rocm", arch=arch, product=arch)


def test_every_suite_case_runs_where_the_format_is_multiplied() -> None:
    """An MI300X takes the fnuz formats, an H200, an MI350X and RDNA4 OCP's e5m2, all int32; others say what they
    multiply."""
    pytest.importorskip("triton")
    taken = {
        arch: {each.dtype for each in GEMM_TYPES if not BY_NAME["triton.gemm"].unsupported_reasons(each, device(arch))}
        for arch in ("gfx90a", "gfx942", "gfx950", "gfx1201", "sm_90")
    }
    ocp = {"f8e5m2", "i32"}
    fnuz = {"f8e4m3fnuz", "f8e5m2fnuz", "i32"}
    assert taken == {"gfx90a": {"i32"}, "gfx942": fnuz, "gfx950": ocp, "gfx1201": ocp, "sm_90": ocp}
    (reason,) = BY_NAME["triton.gemm"].unsupported_reasons(Gemm.parse("gemm-m8-n8-k8-f8e5m2"), device("gfx942"))
    assert reason == "gfx942 multiplies f8e4m3fnuz, f8e5m2fnuz in hardware, not f8e5m2"


@pytest.mark.parametrize(
    ("name", "arch", "refused"),
    [
        ("triton.gemm", "sm_90", True),
        ("triton.gemm_stream_k", "sm_90", True),
        ("triton.gemm_multiply_reduce", "sm_90", False),
        ("triton.gemm", "gfx950", False),
    ],
)
def test_an_f32_result_of_fp8_needs_longer_sums_than_tensor_cores_have(name: str, arch: str, refused: bool) -> None:
    """NVIDIA's fp8 sums are refused with their bits; the kernel without matrix instructions adds in fp32."""
    pytest.importorskip("triton")
    reasons = BY_NAME[name].unsupported_reasons(Gemm.parse("gemm-m4-n8-k8-f8e4m3-outf32"), device(arch))
    assert ["about 14 bits" in reason for reason in reasons] == [True] * refused


@pytest.mark.parametrize("name", ["triton.gemm_stream_k", "triton.gemm_data_parallel"])
def test_stream_k_says_that_it_has_no_tile_for_int32(name: str) -> None:
    """Its tiles are chosen for a product per operand pair; the reason names the backend that takes int32."""
    pytest.importorskip("triton")
    (reason,) = BY_NAME[name].unsupported_reasons(Gemm.parse("gemm-m8-n8-k8-i32"), device("gfx942"))
    assert reason == "stream-K has no tile for i32, each of whose products is ten of int8; use triton.gemm"


def test_out_dtypes_that_do_not_fit_are_named() -> None:
    """Integers give int32 only; floats give fp32, fp16 or bf16."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.triton.gemm.kernel import empty_result

    half, whole = torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, dtype=torch.int32)
    assert empty_result(half, 4, torch.float32).dtype == torch.float32
    with pytest.raises(UsageError, match=r"out_dtype must be one of torch.int32 for torch.int32, got torch.float32"):
        empty_result(whole, 4, torch.float32)
    with pytest.raises(UsageError, match=r"one of torch.float32, .* for torch.float16, got torch.int8"):
        empty_result(half, 4, torch.int8)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_a_gpu(case: str, judge: Judge) -> None:
    """The compiled kernels give the same as the interpreter, within budget and bit for bit again."""
    import torch

    from kernels.triton.triton_backend import arch_of

    name, _, text = case.partition("/")
    workload = Gemm.parse(text)
    if reasons := BY_NAME[name].unsupported_reasons(workload, device(arch_of(torch.device("cuda")))):
        pytest.skip("; ".join(reasons))
    prepared = BY_NAME[name].prepare(workload, workload.make_inputs(SEED, "cuda", planted=True))
    outputs, again = (prepared.outputs(prepared.run()) for _ in range(2))
    assert judge(text, outputs, device="cuda") == ()
    assert torch.equal(outputs["out"], again["out"])
