from __future__ import annotations

import pytest
import torch

from kernels.native.gemm import BACKENDS, fp8_formats
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.gemm import Gemm
from tests.kernels.judging import find_wrong

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
(MATMUL,) = BACKENDS

ON_CPU = (
    "gemm-m65-n47-k129-f16",
    "gemm-m64-n96-k200-bf16-nt",
    "gemm-m1-n130-k77-f32-nt",
    "gemm-m33-n5-k1000-f32",
    "gemm-m33-n40-k64-i8",
    "gemm-m5-n33-k31-i8-nt",
    "gemm-m33-n5-k131-i32",
    "gemm-m5-n33-k31-i32-nt",
)


def gpu(arch: str) -> DeviceInfo:
    """A device of that architecture."""
    return DeviceInfo(kind="cuda" if arch.startswith("sm_") else "rocm", arch=arch, product=arch)


@pytest.mark.parametrize("text", ON_CPU)
def test_right_on_a_cpu(text: str) -> None:
    """What is not refused is within budget, and integers are exact, in both layouts and on ragged sizes."""
    assert MATMUL.unsupported_reasons(Gemm.parse(text), CPU) == []
    assert find_wrong(MATMUL, Gemm.parse(text)) == ()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "text",
    [
        "gemm-m65-n47-k129-f16",
        "gemm-m64-n96-k200-bf16-nt",
        "gemm-m33-n5-k1000-f32",
        "gemm-m33-n40-k64-i8-nt",
        "gemm-m48-n48-k64-i8-nt",
        "gemm-m33-n48-k64-f8e4m3-nt",
        "gemm-m33-n48-k64-f8e4m3-nt-outf16",
    ],
)
def test_right_on_a_gpu(text: str) -> None:
    """The same on a GPU, with fp8 where it has OCP's formats."""
    major, minor = torch.cuda.get_device_capability()
    arch = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] if torch.version.hip else f"sm_{major}{minor}"
    if reasons := MATMUL.unsupported_reasons(Gemm.parse(text), gpu(arch)):
        pytest.skip("; ".join(reasons))
    assert find_wrong(MATMUL, Gemm.parse(text), "cuda") == ()


@pytest.mark.parametrize(
    ("text", "arch", "reasons"),
    [
        ("gemm-m64-n64-k64-f8e4m3-nt", "sm_90", []),
        ("gemm-m64-n64-k64-f8e4m3-nt", "sm_80", ["sm_80 multiplies no fp8 format in hardware, not f8e4m3"]),
        ("gemm-m64-n64-k64-f8e4m3-nt", "gfx942", [
            "gfx942 multiplies f8e4m3fnuz, f8e5m2fnuz in hardware, not f8e4m3"
        ]),
        ("gemm-m64-n64-k64-f8e5m2-nt", "gfx950", []),
        ("gemm-m64-n64-k64-f8e5m2-nt", "sm_90", [
            "cuBLASLt multiplies no two matrices that are both f8e5m2 (its documentation, cublasLtMatmul)"
        ]),
        ("gemm-m64-n64-k64-f8e4m3fnuz-nt-outf16", "gfx942", []),
        ("gemm-m64-n64-k64-f8e4m3fnuz-nt-outf32", "gfx942", []),
        ("gemm-m64-n64-k64-f8e4m3-nt-outf32", "sm_90", [
            "an f32 result of f8e4m3 must have fp32 precision, but the tensor cores add fp8 products with about 14 "
            "bits (arXiv:2412.19437, section 3.3.2)"
        ]),
        ("gemm-m64-n64-k64-i32-nt", "sm_90", ["torch multiplies no int32 matrices on a GPU"]),
        ("gemm-m64-n64-k64-bf16-outf32", "sm_90", ["torch.matmul gives bf16 for bf16, not f32"]),
        ("gemm-m64-n65-k64-f8e4m3", "sm_90", [
            "torch._scaled_mm needs n divisible by 16, got 65",
            "torch._scaled_mm takes b stored (N, K) only: add nt to the workload",
        ]),
        ("gemm-m16-n64-k60-i8", "sm_90", [
            "torch._int_mm needs k divisible by 8, got 60",
            "torch._int_mm on a GPU takes at least 17 rows, m is 16",
            "cuBLASLt has no int8 kernel for b stored (K, N): add nt to the workload",
        ]),
    ],
)  # fmt: skip
def test_says_what_torch_refuses(text: str, arch: str, reasons: list[str]) -> None:
    """Formats, sizes and layouts that the operator does not take are refused with the value seen."""
    assert MATMUL.unsupported_reasons(Gemm.parse(text), gpu(arch)) == reasons


def test_fp8_is_refused_on_a_cpu() -> None:
    """There is no product of fp8 to compare with on a CPU."""
    workload = Gemm.parse("gemm-m64-n64-k64-f8e4m3-nt")
    assert MATMUL.unsupported_reasons(workload, CPU) == ["torch._scaled_mm is used on GPUs only: few CPUs multiply fp8"]


def test_each_device_has_its_fp8_formats() -> None:
    """OCP's on NVIDIA from sm_89 on, gfx950 and RDNA4; the fnuz ones on gfx942; none on others."""
    ocp, fnuz = {"f8e4m3", "f8e5m2"}, {"f8e4m3fnuz", "f8e5m2fnuz"}
    expected = {"sm_90": ocp, "sm_89": ocp, "sm_80": set(), "gfx950": ocp, "gfx1201": ocp, "gfx942": fnuz}
    expected |= {"gfx90a": set(), "gfx1100": set()}
    assert {arch: set(fp8_formats(gpu(arch))) for arch in expected} == expected


def test_what_ran_is_declared() -> None:
    """The operator of each kind of dtype must be among what ran."""
    operators = {"f16": "aten::matmul", "i32": "aten::matmul", "i8": "aten::_int_mm", "f8e4m3-nt": "aten::_scaled_mm"}
    for text, operator in operators.items():
        workload = Gemm.parse(f"gemm-m32-n32-k32-{text}")
        prepared = MATMUL.prepare(workload, workload.make_inputs(1, "cpu", planted=False))
        assert prepared.declares.operators == (operator,)
        assert prepared.config == {"operator": operator}
