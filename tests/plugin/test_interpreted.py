"""Triton kernels of another project where there is no GPU: interpreted, proven, and never timed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from pytest_attnperf.testing.project import full_results

KERNELS = """
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    values = tl.load(x + place, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + place, values / tl.sum(values, 0), mask=inside)

@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (32768, 8192)], key=["count"])
@triton.heuristics({"EVEN": lambda args: args["count"] % args["BLOCK"] == 0})
@triton.jit
def double_kernel(x, y, count, left_out, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count - left_out
    tl.store(y + place, 2 * tl.load(x + place, mask=inside), mask=inside)

@triton.jit
def assembly_kernel(x, y, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    values = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [values], tl.float32, True, 1)
    tl.store(y + tl.arange(0, BLOCK), values)

@triton.jit
def of_other_size(values, BLOCK: tl.constexpr):
    return values + tl.arange(0, 2 * BLOCK)

@triton.jit
def broken_kernel(x, y, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(y + tl.arange(0, BLOCK), of_other_size(values, BLOCK))

def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=16384)
    return y

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return double(gradient)

def backward(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(Backward.apply(x).square().sum(), x)[0]

def double(x, left_out=0):
    x = x.contiguous()
    y = torch.empty_like(x)
    with torch.cuda.device(x.device):
        double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), left_out)
    return y

def launched(kernel):
    def call(x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y, BLOCK=x.numel())
        return y
    return call

def on_a_gpu(x):
    assert x.is_cuda and x.is_contiguous()
    return 2 * x
"""
SUITE = """
import pytest
import torch
import kernels

CASES = {
    "softmax": (kernels.softmax, lambda x: torch.softmax(x, -1)),
    "torch": (lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, -1)),
    "autotuned": (kernels.double, lambda x: 2 * x),
    "backward": (kernels.backward, lambda x: 8 * x),
    "masked": (lambda x: kernels.double(x, left_out=1), lambda x: 2 * x),
    "assembly": (kernels.launched(kernels.assembly_kernel), torch.exp2),
    "on_a_gpu": (kernels.on_a_gpu, lambda x: 2 * x),
    "broken": (kernels.launched(kernels.broken_kernel), lambda x: 2 * x),
}

@pytest.mark.parametrize("name", CASES)
def test_one(attnperf, name):
    fn, reference = CASES[name]
    attnperf.gate("mine", fn, reference=reference, inputs=lambda seed: torch.randn(4, 16384))
"""
NOT_TIMED = "interpreted: Triton runs without compiling here; its time says nothing"

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.usefixtures("own_process"),
]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder outside this repository with kernels, and cases of them that are large enough to be drawn once."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(kernels=KERNELS, test_mine=SUITE)
    return pytester


def _run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:randomly", "--attnperf-device=cpu", "-rs", *args, timeout=300)


def _cases(project: pytest.Pytester) -> dict[str, dict[str, Any]]:
    """The cases of the last run by the name of their function."""
    run = full_results(project.path / ".attnperf" / "results.json")
    return {case["key"]["workload"].partition("[")[2].rstrip("]"): case for case in run["cases"]}


def test_interpreted_kernels_are_proven_and_not_timed(project: pytest.Pytester) -> None:
    """Right and wrong kernels are told apart, autotuned and in a backward, too; none has a time, a torch function has
    one; what needs a GPU is skipped with its reason, and what is broken names the line of the kernel.
    """
    result = _run(project, "--attnperf", "--no-attnperf-strict")
    cases = _cases(project)
    assert {name: case["verdict"] for name, case in cases.items()} == {
        "softmax": "RIGHT",
        "torch": "NO_BASELINE",
        "autotuned": "RIGHT",
        "backward": "RIGHT",
        "masked": "INCORRECT",
        "assembly": "UNSUPPORTED",
        "on_a_gpu": "UNSUPPORTED",
        "broken": "ERROR",
    }
    assert [name for name, case in cases.items() if case["median_us"] is not None] == ["torch"]
    assert [name for name, case in cases.items() if NOT_TIMED in case["notes"]] == [
        "softmax", "autotuned", "backward", "masked"
    ]  # fmt: skip
    result.stdout.fnmatch_lines_random(
        [
            f"3 right, {NOT_TIMED}",
            f"  note: {NOT_TIMED}",
            "InterpretedKernelError: interpreted kernel raised ValueError: *",
            "    at kernels.py:* in broken_kernel: tl.store(y + tl.arange(0, BLOCK), of_other_size(values, BLOCK))",
            "    at kernels.py:* in of_other_size: return values + tl.arange(0, 2 * BLOCK)",
            "SKIPPED * cannot be interpreted: NotImplementedError: *(kernels.py:* in assembly_kernel); run it where *",
            "SKIPPED * needs a GPU, and is interpreted here: AssertionError (kernels.py:* in on_a_gpu); run it where *",
        ]
    )


@pytest.mark.soak
def test_no_baseline_is_stored_of_an_interpreted_kernel(project: pytest.Pytester) -> None:
    """--update-baselines proves it, says why it records nothing, and writes no file."""
    result = _run(project, "--update-baselines", "-k", "softmax")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"1 right, {NOT_TIMED}"])
    assert not (project.path / "baselines").exists()
