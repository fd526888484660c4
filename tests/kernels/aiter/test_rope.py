"""Rotary embedding of aiter, through stubs in place of its functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.aiter.rope import PARTS
from pytest_attnperf.backends import Backend
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_problems

torch = pytest.importorskip("torch")
MI300X = DeviceInfo(kind="rocm", arch="gfx942", product="mi300x")
PARTS_BY_NAME: dict[str, Backend] = {name: one for name, _, one in PARTS}
REFERENCES = References()
ROTATE = """import torch
def _rotated(x, cos, sin, rotate_style):
    assert x.is_contiguous() and cos.shape == (x.shape[0], 1, 1, x.shape[3] // 2) and cos.dtype == torch.float32
    a, b = (x[..., ::2], x[..., 1::2]) if rotate_style == 1 else x.chunk(2, -1)
    pairs = (a * cos - b * sin, b * cos + a * sin)
    return (torch.stack(pairs, -1).flatten(-2) if rotate_style == 1 else torch.cat(pairs, -1)).to(x.dtype)
"""
STYLE = "rotate_style, reuse_freqs_front_part, nope_first, transpose_output=False"
FILES = {
    "ops/rope.py": f"""{ROTATE}
def rope_cached_2c_fwd(input_x, input_y, cos, sin, {STYLE}):
    assert reuse_freqs_front_part and not nope_first
    return _rotated(input_x, cos, sin, rotate_style), _rotated(input_y, cos, sin, rotate_style)
""",
    "ops/triton/rope/rope.py": f"""{ROTATE}
def rope_cached_fwd(x, cos, sin, {STYLE}):
    assert reuse_freqs_front_part and not nope_first
    return _rotated(x, cos, sin, rotate_style)
""",
}


def wrong(name: str, text: str) -> tuple[str, ...]:
    """What the judge's arithmetic finds wrong."""
    workload = parse_workload(text)
    backend = PARTS_BY_NAME[name]
    assert backend.unsupported_reasons(workload, MI300X) == []
    inputs = workload.make_inputs(1, "cpu", planted=True)
    bound = backend.prepare(workload, inputs)
    assert bound.config["path"] == name.removeprefix("aiter.")
    outputs = bound.outputs(bound.run())
    expected = REFERENCES.compute_expected(workload, inputs, seed=1, planted=True)
    return find_problems(expected, outputs, backend.tolerance)


@pytest.mark.parametrize("name", ["aiter.hip", "aiter.triton"])
@pytest.mark.parametrize("text", ["rope-b2-s5-h4-hk2-d16-f16", "rope-b1-s7-h2-d32-bf16-interleaved"])
def test_right(aiter_package: Callable[..., Path], name: str, text: str) -> None:
    """Sequence first, tables as fp32, and the style of the pairs."""
    aiter_package(FILES)
    assert wrong(name, text) == ()


def test_the_other_style_is_found(aiter_package: Callable[..., Path]) -> None:
    """A library that pairs halves where neighbours are asked for is wrong."""
    aiter_package({name: text.replace("rotate_style == 1", "rotate_style == 0") for name, text in FILES.items()})
    assert wrong("aiter.hip", "rope-b2-s5-h4-hk2-d16-f16") != ()


def test_the_old_place(aiter_package: Callable[..., Path]) -> None:
    """Until v0.1.9 rope.py lies in ops/triton itself."""
    aiter_package({"ops/triton/rope.py": FILES["ops/triton/rope/rope.py"]})
    assert wrong("aiter.triton", "rope-b2-s5-h4-hk2-d16-f16") == ()


def test_head_dimensions_of_the_triton_kernel(aiter_package: Callable[..., Path]) -> None:
    """It lays a head over a tile, whose width is a power of 2; HIP takes others."""
    aiter_package(FILES)
    workload = parse_workload("rope-b1-s5-h2-d96-f16")
    assert PARTS_BY_NAME["aiter.triton"].unsupported_reasons(workload, MI300X) == [
        "aiter's Triton rope takes a head_dim that is a power of 2, not 96"
    ]
    assert PARTS_BY_NAME["aiter.hip"].unsupported_reasons(workload, MI300X) == []
