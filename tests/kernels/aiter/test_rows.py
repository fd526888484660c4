"""RMSNorm, LayerNorm and softmax of aiter, through stubs in place of its functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.aiter.rows import PARTS
from pytest_attnperf.backends import Backend
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import AttnperfError, UnsupportedError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_problems

torch = pytest.importorskip("torch")
MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
REFERENCES = References()
NORMS = """import torch
def _rms(x, weight, eps):
    x = x.float()
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight.float())
def _layer(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), weight.float(), bias.float(), eps)
def _add(norm, out, x, residual, total, *given):
    total.copy_(x + residual)
    out.copy_(norm(total, *given))
"""
WITH_ADD = "out, input, residual_in, residual_out, weight, epsilon"
RMS = {
    "v0.1.9": f"""{NORMS}
def rms_norm(input, weight, epsilon, use_model_sensitive_rmsnorm=0):
    return _rms(input, weight, epsilon).to(input.dtype)
def rmsnorm2d_fwd_with_add({WITH_ADD}, use_model_sensitive_rmsnorm=0):
    _add(_rms, out, input, residual_in, residual_out, weight, epsilon)
""",
    "v0.1.12": f"""{NORMS}
def rmsnorm2d_fwd_ck(input, weight, epsilon, use_model_sensitive_rmsnorm=0):
    return _rms(input, weight, epsilon).to(input.dtype)
def rmsnorm2d_fwd_with_add_ck({WITH_ADD}, use_model_sensitive_rmsnorm=0):
    _add(_rms, out, input, residual_in, residual_out, weight, epsilon)
def rmsnorm2d_fwd_with_add({WITH_ADD}, use_model_sensitive_rmsnorm=0):
    add_rmsnorm(out, input, residual_in, residual_out, weight, epsilon)
def rmsnorm(out, input, weight, epsilon):
    out.copy_(_rms(input, weight, epsilon))
def add_rmsnorm({WITH_ADD}):
    _add(_rms, out, input, residual_in, residual_out, weight, epsilon)
""",
}
RMS["head"] = f"""{NORMS}
def rms_norm_opus(out, input, weight, epsilon, model_sensitive=0, gemma_norm=False): ...
def rms_norm(input, weight, epsilon, use_model_sensitive_rmsnorm=0): ...
def rmsnorm(out, input, weight, epsilon, gemma_norm=False):
    out.copy_(_rms(input, weight, epsilon))
def add_rmsnorm({WITH_ADD}, gemma_norm=False):
    _add(_rms, out, input, residual_in, residual_out, weight, epsilon)
"""
LAYER = f"""{NORMS}
def layer_norm(input, weight=None, bias=None, EPS=1e-5, x_bias=None):
    return _layer(input, weight, bias, EPS).to(input.dtype)
def layernorm2d_fwd_with_add(out, input, residual_in, residual_out, weight, bias, epsilon, x_bias=None):
    _add(_layer, out, input, residual_in, residual_out, weight, bias, epsilon)
"""
SOFTMAX = "import torch\ndef softmax(x):\n    return torch.softmax(x.float(), -1).to(x.dtype)\n"


def part(name: str, family: str) -> Backend:
    """The part of a backend for one family."""
    return next(one for who, of, one in PARTS if (who, of) == (name, family))


def files(era: str) -> dict[str, str]:
    """Modules of aiter, of an era."""
    flat = "ops/triton/{}.py" if era == "v0.1.9" else "ops/triton/normalization/{}.py"
    return {
        "ops/rmsnorm.py": RMS[era],
        "ops/norm.py": LAYER.replace("EPS", "epsilon"),
        flat.format("rmsnorm"): RMS["v0.1.9"],
        flat.format("norm"): LAYER.replace("EPS", "eps"),
        "ops/triton/softmax.py": SOFTMAX,
    }


RIGHT = (
    ("ck", "v0.1.9", "rmsnorm-r9-c130-f16", "rms_norm"),
    ("ck", "v0.1.9", "rmsnorm-r9-c130-bf16-residual", "rmsnorm2d_fwd_with_add"),
    ("ck", "v0.1.12", "rmsnorm-r9-c130-f16", "rmsnorm2d_fwd_ck"),
    ("ck", "v0.1.12", "rmsnorm-r9-c130-f16-residual", "rmsnorm2d_fwd_with_add_ck"),
    ("aiter.hip", "v0.1.12", "rmsnorm-r9-c130-f16", "rmsnorm"),
    ("aiter.hip", "head", "rmsnorm-r9-c130-bf16-residual", "add_rmsnorm"),
    ("ck", "head", "layernorm-r9-c130-bf16", "layer_norm"),
    ("ck", "v0.1.9", "layernorm-r9-c130-f16-residual", "layernorm2d_fwd_with_add"),
    ("aiter.triton", "v0.1.9", "rmsnorm-r9-c130-f32", "rms_norm"),
    ("aiter.triton", "head", "rmsnorm-r9-c130-f16-residual", "rmsnorm2d_fwd_with_add"),
    ("aiter.triton", "head", "layernorm-r9-c130-f16", "layer_norm"),
    ("aiter.triton", "v0.1.9", "layernorm-r9-c130-f16-residual", "layernorm2d_fwd_with_add"),
    ("aiter.triton", "head", "softmax-r9-c130-f16", "softmax"),
)


@pytest.mark.parametrize(("name", "era", "text", "function"), RIGHT)
def test_right_and_by_the_function_that_it_names(
    aiter_package: Callable[..., Path], name: str, era: str, text: str, function: str
) -> None:
    """Every version's function is given its arguments in its order, with the workload's eps, and the path is told."""
    aiter_package(files(era))
    workload = parse_workload(text)
    backend = part(name, workload.family)
    assert backend.unsupported_reasons(workload, MI300X) == []
    inputs = workload.make_inputs(1, "cpu", planted=True)
    bound = backend.prepare(workload, inputs)
    outputs = bound.outputs(bound.run())
    expected = REFERENCES.compute_expected(workload, inputs, seed=1, planted=True)
    assert find_problems(expected, outputs, backend.tolerance) == ()
    path = {"ck": "ck", "aiter.hip": "hip", "aiter.triton": "triton"}[name]
    assert (bound.config["path"], bound.config["function"]) == (path, function)
    assert all(torch.equal(a, b) for a, b in zip(bound.tensors, inputs, strict=True))


def test_no_composable_kernel_any_more(aiter_package: Callable[..., Path]) -> None:
    """In 2026-08 `rms_norm` runs HIP kernels: it must not be timed under the name `ck`."""
    aiter_package(files("head"))
    workload = parse_workload("rmsnorm-r9-c130-f16")
    with pytest.raises(UnsupportedError, match="has no Composable Kernel RMSNorm any more"):
        part("ck", "rmsnorm").prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_no_out_of_place_hip_kernel_yet(aiter_package: Callable[..., Path]) -> None:
    """v0.1.9 has none: its own adds in place, and would change what is timed next."""
    aiter_package(files("v0.1.9"))
    workload = parse_workload("rmsnorm-r9-c130-f16-residual")
    with pytest.raises(UnsupportedError, match=r"has no aiter\.ops\.rmsnorm\.add_rmsnorm"):
        part("aiter.hip", "rmsnorm").prepare(workload, workload.make_inputs(1, "cpu", planted=False))


def test_a_function_that_became_a_dispatcher_is_refused(aiter_package: Callable[..., Path]) -> None:
    """A CK function that hands the work to the HIP one is found by watching, whatever its name says."""
    text = RMS["v0.1.9"].replace(
        "    return _rms(input, weight, epsilon).to(input.dtype)", "    return _hip(input, weight)"
    )
    further = (
        "def rmsnorm(input, weight):\n    return input\ndef _hip(input, weight):\n    return rmsnorm(input, weight)\n"
    )
    aiter_package({**files("v0.1.9"), "ops/rmsnorm.py": text + further})
    workload = parse_workload("rmsnorm-r9-c130-f16")
    with pytest.raises(AttnperfError, match="is to run aiter's ck, but what ran is: hip"):
        part("ck", "rmsnorm").prepare(workload, workload.make_inputs(1, "cpu", planted=False))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("ck", "rmsnorm-r9-c130-f32", "Composable Kernel's rmsnorm takes bf16, f16, not f32"),
        ("ck", "layernorm-r9-c130-f32", "Composable Kernel's layernorm takes bf16, f16, not f32"),
        ("aiter.hip", "rmsnorm-r9-c8200-f16", "takes rows of up to 8192 elements, not 8200"),
    ],
)
def test_limits(aiter_package: Callable[..., Path], name: str, text: str, told: str) -> None:
    """What C++ checks, and what aiter's dispatcher gives to another kernel."""
    aiter_package(files("head"))
    workload = parse_workload(text)
    (reason,) = part(name, workload.family).unsupported_reasons(workload, MI300X)
    assert told in reason


def test_composable_kernel_switched_off(aiter_package: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_CK=0 closes `ck`, and not the others."""
    aiter_package(files("head"))
    monkeypatch.setenv("ENABLE_CK", "0")
    workload = parse_workload("layernorm-r9-c130-f16")
    assert "ENABLE_CK=0" in "; ".join(part("ck", "layernorm").unsupported_reasons(workload, MI300X))
    assert part("aiter.triton", "layernorm").unsupported_reasons(workload, MI300X) == []
