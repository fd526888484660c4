"""What a user types, on an NVIDIA GPU with compute-sanitizer: a Triton kernel that writes past its output is told by
name, and its twin is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.sanitizers import find_sanitizer

pytestmark = pytest.mark.gpu

KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def scale_rows(x, out, size, BLOCK: tl.constexpr, BEYOND: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < size, other=1.0)
    tl.store(out + offsets, values * 2, mask=offsets < size + BEYOND)

def make(beyond):
    def scale(x):
        out = torch.empty_like(x)
        size = x.numel()
        scale_rows[(triton.cdiv(size + beyond, 256),)](x, out, size, BLOCK=256, BEYOND=beyond)
        return out
    return scale
"""
SUITE = """
import pytest, torch
from writing import make

@pytest.mark.parametrize("beyond", [0, 16])
def test_scale(attnperf, beyond):
    attnperf.gate(f"scale_{beyond}", make(beyond), reference=lambda x: x * 2,
                  inputs=lambda seed: (torch.randn(1000, device="cuda"),))
"""


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_a_write_past_the_output_is_told(tool: str, tmp_path: Path) -> None:
    """Only memcheck sees it, by kernel, kind and line; all call the twin right. Without a tool both are right."""
    try:
        find_sanitizer(tool)
    except UsageError as error:
        pytest.skip(str(error))
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "writing.py").write_text(KERNEL)
    (tmp_path / "test_scale.py").write_text(SUITE)
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:randomly", "--attnperf-device=gpu", *args]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=550
        )

    if tool == "memcheck":
        untold = run("--attnperf-trials=none")
        assert untold.returncode == 0, untold.stdout[-4000:]
    result = run(f"--attnperf-sanitize={tool}")
    said = result.stdout[-8000:]
    assert "PASSED test_scale.py::test_scale[0]" in said, said
    if tool == "memcheck":
        assert "FAILED test_scale.py::test_scale[16]" in said, said
        assert "memcheck: Invalid __global__ write of size 4 bytes in kernel scale_rows, at " in said, said
        assert "writing.py:8" in said, said
