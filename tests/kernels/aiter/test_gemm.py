"""Matrix multiplication of aiter, through stubs in place of its functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.aiter.gemm import PARTS
from pytest_attnperf.backends import Backend, Prepared
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

torch = pytest.importorskip("torch")
MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
BACKENDS: dict[str, Backend] = {name: one for name, _, one in PARTS}
REFERENCES = References()
SCALED = """
def _scaled(a, w, x_scale, w_scale, dtype):
    assert x_scale.shape == (a.shape[0], 1) and w_scale.shape == (1, w.shape[0]) and dtype.itemsize == 2
    return ((a.float() @ w.float().T) * x_scale * w_scale).to(dtype)
"""
FILES = {
    "ops/gemm_op_a8w8.py": f"""import torch
{SCALED}
def gemm_a8w8_ck(XQ, WQ, x_scale, w_scale, Out, bias=None, splitK=0):
    return _scaled(XQ, WQ, x_scale, w_scale, Out)
def gemm_a8w8_CK(XQ, WQ, x_scale, w_scale, bias=None, dtype=torch.bfloat16, splitK=None):
    return gemm_a8w8_ck(XQ, WQ, x_scale, w_scale, dtype)
""",
    "ops/gemm_op_a16w16.py": """import torch
def gemm_a16w16_asm(A, B, out, bias=None, splitK=None, kernelName=None, bpreshuffle=False):
    out.copy_(A.float() @ B.float().T)
    return out
""",
    "tuned_gemm.py": """import torch
def torch_gemm(a, b, otype):
    return (a.float() @ b.float().T).to(otype)
def asm_gemm(a, b, otype):
    return torch_gemm.__wrapped__(a, b, otype) if hasattr(torch_gemm, "__wrapped__") else torch_gemm(a, b, otype)
solMap = {"torch": torch_gemm, "asm": asm_gemm}
def gemm_a16w16(A, B, bias=None, otype=None, scale_a=None, scale_b=None, scale_c=None):
    return solMap["asm" if A.shape[0] > 16 else "torch"](A, B, otype)
""",
    "ops/triton/gemm/basic/gemm_a16w16.py": """import torch
def gemm_a16w16(x, w, bias=None, dtype=torch.bfloat16, y=None, config=None, activation=None, backend=None):
    assert backend == "triton"
    return (x.float() @ w.float().T).to(dtype)
""",
    "ops/triton/gemm/basic/gemm_a8w8.py": f"""import torch
{SCALED}
def gemm_a8w8(x, w, x_scale, w_scale, bias=None, dtype=torch.bfloat16, y=None, config=None):
    return _scaled(x, w, x_scale, w_scale, dtype)
""",
}


def bound_and_wrong(name: str, text: str) -> tuple[Prepared, tuple[str, ...]]:
    """Prepared with planted inputs, and what the judge's arithmetic finds wrong."""
    workload = parse_workload(text)
    backend = BACKENDS[name]
    assert backend.unsupported_reasons(workload, MI300X) == []
    inputs = workload.make_inputs(1, "cpu", planted=True)
    bound = backend.prepare(workload, inputs)
    outputs = bound.outputs(bound.run())
    expected = REFERENCES.compute_expected(workload, inputs, seed=1, planted=True)
    yardstick = expected.yardsticks["out"]
    found = compare_output(workload.id, "out", outputs["out"], expected.reference["out"], yardstick, backend.tolerance)
    return bound, list_problems([found])


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("ck", "gemm-m9-n32-k48-f8e4m3fnuz", "ck"),
        ("ck", "gemm-m9-n32-k48-f8e4m3fnuz-nt", "ck"),
        ("ck", "gemm-m9-n32-k48-f8e4m3fnuz-nt-outf16", "ck"),
        ("aiter.asm", "gemm-m9-n64-k128-bf16", "asm"),
        ("aiter.triton", "gemm-m9-n33-k50-f16", "triton"),
        ("aiter.triton", "gemm-m9-n33-k50-bf16-nt", "triton"),
        ("aiter.triton", "gemm-m9-n32-k48-f8e4m3fnuz", "triton"),
        ("aiter.auto", "gemm-m9-n33-k50-f16", "torch"),
        ("aiter.auto", "gemm-m19-n33-k50-f16-nt", "asm"),
    ],
)
def test_right(aiter_package: Callable[..., Path], name: str, text: str, path: str) -> None:
    """Weights as (N, K) from both layouts, one scale per row and column, the output's type, and the path that ran."""
    aiter_package(FILES)
    bound, wrong = bound_and_wrong(name, text)
    assert wrong == ()
    assert (bound.config["path"], bound.config["weights"]) == (path, "(N, K)")


def test_the_workspace_of_older_versions(aiter_package: Callable[..., Path]) -> None:
    """Up to v0.1.9 the assembly function asks for a workspace, which its own module makes."""
    text = """import torch
def get_semaphore_workspace(device):
    return torch.zeros((16, 64), dtype=torch.int32, device=device)
def gemm_a16w16_asm(A, B, out, semaphore, bias=None, splitK=None, kernelName=None, bpreshuffle=False):
    assert semaphore.shape == (16, 64)
    return out.copy_(A.float() @ B.float().T)
"""
    aiter_package({**FILES, "ops/gemm_op_a16w16.py": text})
    assert bound_and_wrong("aiter.asm", "gemm-m9-n64-k128-bf16")[1] == ()


def test_weights_read_the_wrong_way_are_found(aiter_package: Callable[..., Path]) -> None:
    """A library that takes (K, N) of square weights computes something else."""
    text = FILES["ops/gemm_op_a16w16.py"].replace("B.float().T", "B.float()")
    aiter_package({**FILES, "ops/gemm_op_a16w16.py": text})
    assert bound_and_wrong("aiter.asm", "gemm-m9-n128-k128-bf16")[1] != ()


def test_another_path_than_promised_is_refused(aiter_package: Callable[..., Path]) -> None:
    """On RDNA, and later perhaps elsewhere, aiter gives its 8-bit product to Triton."""
    text = FILES["ops/gemm_op_a8w8.py"].replace(
        "return gemm_a8w8_ck(XQ, WQ, x_scale, w_scale, dtype)",
        "from aiter.ops.triton.gemm.basic import gemm_a8w8\n"
        "    return gemm_a8w8.gemm_a8w8(XQ, WQ, x_scale, w_scale, dtype=dtype)",
    )
    aiter_package({**FILES, "ops/gemm_op_a8w8.py": f"import aiter.ops.triton.gemm.basic.gemm_a8w8\n{text}"})
    with pytest.raises(AttnperfError, match="is to run aiter's ck, but what ran is: triton"):
        bound_and_wrong("ck", "gemm-m9-n32-k48-f8e4m3fnuz")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("ck", "gemm-m16-n64-k64-f16", "gemm_a8w8_CK takes f8e4m3, f8e4m3fnuz, not f16"),
        ("ck", "gemm-m16-n64-k64-f8e4m3", "gfx942 does not multiply f8e4m3; aiter's fp8 is the one of its hardware"),
        ("ck", "gemm-m16-n64-k64-i8", "this workload wants int32 sums"),
        ("aiter.triton", "gemm-m16-n64-k64-i8", "this workload wants int32 sums"),
        ("ck", "gemm-m16-n64-k64-i32", "gemm_a8w8_CK takes f8e4m3, f8e4m3fnuz, not i32"),
        ("ck", "gemm-m16-n64-k64-f8e4m3fnuz-nt-outf32", "gemm_a8w8_CK writes bf16, f16, not f32"),
        ("aiter.auto", "gemm-m16-n64-k64-bf16-outf32", "tuned_gemm.gemm_a16w16 writes bf16, f16, not f32"),
        ("aiter.triton", "gemm-m16-n64-k64-f8e5m2fnuz", "takes bf16, f16, f8e4m3, f8e4m3fnuz, not f8e5m2fnuz"),
        ("aiter.asm", "gemm-m16-n64-k64-f16", "gemm_a16w16_asm takes bf16, not f16"),
        ("aiter.asm", "gemm-m16-n65-k64-bf16", "needs n divisible by 64, got 65"),
        ("aiter.auto", "gemm-m16-n64-k64-f32", "tuned_gemm.gemm_a16w16 takes bf16, f16, not f32"),
    ],
)
def test_limits(aiter_package: Callable[..., Path], name: str, text: str, told: str) -> None:
    """Element types, and what the launcher of the assembly kernels checks."""
    aiter_package(FILES)
    (reason,) = BACKENDS[name].unsupported_reasons(parse_workload(text), MI300X)
    assert told in reason


def test_assembly_on_other_architectures(aiter_package: Callable[..., Path]) -> None:
    """Its kernels exist as binaries for two."""
    aiter_package(FILES)
    mi250 = DeviceInfo(kind="rocm", arch="gfx90a", product="mi250")
    (reason,) = BACKENDS["aiter.asm"].unsupported_reasons(parse_workload("gemm-m16-n64-k64-bf16"), mi250)
    assert reason == "aiter's assembly is for gfx942, gfx950, not for gfx90a"


def test_composable_kernel_switched_off(aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_CK=0 closes `ck`; assembly and Triton do without it."""
    aiter_package(FILES)
    workload = parse_workload("gemm-m64-n128-k128-f8e4m3fnuz-nt")
    assert BACKENDS["ck"].unsupported_reasons(workload, MI300X) == []
    monkeypatch.setenv("ENABLE_CK", "0")
    (reason,) = BACKENDS["ck"].unsupported_reasons(workload, MI300X)
    assert reason.startswith("ENABLE_CK=0 makes aiter take Triton")
    assert BACKENDS["aiter.triton"].unsupported_reasons(workload, MI300X) == []
    bf16 = parse_workload("gemm-m64-n128-k128-bf16-nt")
    assert BACKENDS["aiter.asm"].unsupported_reasons(bf16, MI300X) == []
