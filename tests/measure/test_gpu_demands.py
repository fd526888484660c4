from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure.gpu_demands import demands_gpu

ON_CPU = SimpleNamespace(is_cuda=False, shape=(3, 4), device=SimpleNamespace(type="cpu"))
TORCH = SimpleNamespace(cuda=SimpleNamespace(is_available=bool))
"""A tensor, and torch, as far as these bodies look."""


def innermost(body: str, file: Path | None) -> tuple[FrameType, int]:
    """The frame and line that the body of a function of a tensor `x` raises at; its source is in the file, if any."""
    source = "\n    ".join(["def call(x):", *body.splitlines()])
    if file is not None:
        file.write_text(source)
    scope: dict[str, Any] = {"torch": TORCH}
    exec(compile(source, str(file or "<typed>"), "exec"), scope)
    with pytest.raises((AssertionError, ValueError, IndexError)) as caught:
        scope["call"](ON_CPU)
    trace = caught.tb
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame, trace.tb_lineno


@pytest.mark.parametrize(
    "body",
    [
        "assert x.is_cuda, 'x must be on a GPU'",
        "assert x.is_cuda and x.shape == (3, 5)",
        "assert x.device.type in ('cuda', 'hip')",
        "device = x.device\nassert device.type == 'cuda'",
        "assert torch.cuda.is_available()",
        "if not x.is_cuda or x.shape is None:\n    raise ValueError('CUDA only')",
        "if x.device.type != 'cuda':\n    raise ValueError",
        "if x.device.type == 'cuda':\n    pass\nelse:\n    raise ValueError",
    ],
)
def test_what_no_cpu_meets_demands_a_gpu(body: str, tmp_path: Path) -> None:
    """An assertion or a `raise` that a tensor on a CPU always ends in."""
    assert demands_gpu(*innermost(body, tmp_path / "mine.py"))


@pytest.mark.parametrize(
    "body",
    [
        "assert x.shape == (3, 5), 'is_cuda'",
        "assert x.is_cuda or x.shape == (3, 5)",
        "assert x.device.type in ('meta', 'cuda')",
        "if not x.is_cuda:\n    if x.shape[0] != 4:\n        raise ValueError('4 rows are wanted')",
        "if not x.is_cuda:\n    x.shape[7]",
        "raise ValueError('CUDA only')",
    ],
)
def test_what_a_cpu_may_meet_is_an_error(body: str, tmp_path: Path) -> None:
    """Whatever the text says: another condition, one among several that suffice, or another line of the same branch."""
    assert not demands_gpu(*innermost(body, tmp_path / "mine.py"))


def test_code_without_a_source_demands_nothing() -> None:
    """What was typed or made while running cannot be read, and stays an error."""
    assert not demands_gpu(*innermost("assert x.is_cuda", None))
    assert not demands_gpu(sys._getframe(), 10**6)
