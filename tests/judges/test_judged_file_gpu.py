"""`attnperf judge` on a GPU: its limits let the driver start, and the verdict is by what the kernel computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

REFERENCE = """
import torch
def make_inputs(seed):
    return torch.randn(512, 1024, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
def reference(x):
    return torch.softmax(x.float(), -1).to(x.dtype)
"""
TRITON = """
import torch, triton, triton.language as tl
@triton.jit
def softmax(x, out, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    powers = tl.exp(tl.load(x + at) - tl.max(tl.load(x + at), 0))
    tl.store(out + at, powers / tl.sum(powers, 0))
def kernel(x):
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1])
    return out
"""
KERNELS = {
    "torch's own": ("import torch\ndef kernel(x):\n    return torch.softmax(x, -1)\n", "RIGHT"),
    "Triton, compiled under the limits": (TRITON, "RIGHT"),
    "off by 1 %": ("import torch\ndef kernel(x):\n    return torch.softmax(x, -1) * 1.01\n", "INCORRECT"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_file_is_judged_on_a_gpu(name: str, tmp_path: Path) -> None:
    """A right one is timed beside its reference, and every limit but that of the device's memory is enforced."""
    text, verdict = KERNELS[name]
    (tmp_path / "kernel.py").write_text(text)
    (tmp_path / "reference.py").write_text(REFERENCE)
    command = [
        sys.executable,
        "-m",
        "pytest_attnperf.cli",
        "judge",
        "kernel.py",
        "--reference",
        "reference.py",
        "--json",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    judged = json.loads(ran.stdout)
    assert judged["verdict"] == verdict, (judged["summary"], ran.stderr)
    assert (judged["times"]["kernel_us"] is not None) == (verdict == "RIGHT")
    assert [limit["name"] for limit in judged["limits"] if not limit["enforced"]] == ["device memory"]
