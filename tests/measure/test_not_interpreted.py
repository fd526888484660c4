"""What needs Triton's own frames is in `test_interpreting.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError, UnsupportedError
from pytest_attnperf.measure.interpreter_driver import InterpreterDriver
from pytest_attnperf.measure.not_interpreted import InterpretedKernelError, needs_gpu_at, translate_errors

ON_CPU = SimpleNamespace(is_cuda=False, shape=(3, 4), device=SimpleNamespace(type="cpu"))
TORCH = SimpleNamespace(cuda=SimpleNamespace(is_available=bool))
"""A tensor, and torch, as far as these bodies look."""


def _raised_by(module: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work in a function of a module of that name."""
    scope: dict[str, Any] = {"__name__": module, "work": work}
    exec("def call():\n    raise work()\n", scope)
    made: Callable[[], Any] = scope["call"]
    return made


def raised(work: Callable[[], Any], *, interpreted: bool = True) -> Exception:
    """What the work raises, explained."""
    with pytest.raises(Exception) as caught, translate_errors(interpreted):
        work()
    return caught.value


@pytest.mark.parametrize(
    ("module", "kind"),
    [("torch.cuda", AssertionError), ("torch.cuda._utils", ValueError), ("triton.runtime.driver", RuntimeError),
     ("triton.runtime.interpreter", NotImplementedError)],
)  # fmt: skip
def test_where_it_was_raised_says_that_it_needs_a_gpu(module: str, kind: type[Exception]) -> None:
    """torch.cuda, Triton's search for a driver and its interpreter's refusals are unsupported, and say so."""
    error = raised(_raised_by(module, lambda: kind("some words")))
    assert type(error) is UnsupportedError
    assert "interpreted" in str(error)
    assert "some words" in str(error)
    assert str(error).endswith("; run it where there is a GPU")


@pytest.mark.parametrize(
    ("module", "kind"),
    [("mine", AssertionError), ("mine", NotImplementedError), ("mine", RuntimeError), ("mine", AttributeError),
     ("torch.nn.functional", ValueError)],
)  # fmt: skip
def test_an_error_of_the_case_stays_what_it_is(module: str, kind: type[Exception]) -> None:
    """Types and texts alone excuse nothing: '0 active drivers' raised by a test is its own error."""
    error = raised(_raised_by(module, lambda: kind("0 active drivers: CUDA")))
    assert type(error) is kind


def test_what_a_launch_raises_is_said_to_be_interpreted() -> None:
    """An argument that is missing is found out by Triton's interpreter, before the kernel's first line."""
    error = raised(_raised_by("triton.runtime.interpreter", lambda: TypeError("missing argument: 'y'")))
    assert type(error) is InterpretedKernelError
    assert str(error).startswith("interpreted kernel raised TypeError: missing argument: 'y'\n  at ")


def test_what_the_driver_refuses_is_said_once() -> None:
    """A stream is asked of the interpreter's driver."""
    error = raised(lambda: InterpreterDriver().get_current_stream(0))
    assert str(error).startswith(
        "needs a GPU, and is interpreted here: triton.runtime.driver.active.get_current_stream was requested, "
        "but only a GPU has it ("
    )
    assert "test_not_interpreted.py:" in str(error)


def test_our_own_errors_and_those_of_a_gpu_are_left_alone() -> None:
    """A failed case is one already, and where kernels are compiled nothing is unsupported for an error."""
    failed = CaseFailedError("out of memory")

    def fails() -> None:
        raise failed

    assert raised(fails) is failed
    assert type(raised(_raised_by("torch.cuda", lambda: RuntimeError("x")), interpreted=False)) is RuntimeError


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
    assert needs_gpu_at(*innermost(body, tmp_path / "mine.py"))


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
    assert not needs_gpu_at(*innermost(body, tmp_path / "mine.py"))


def test_code_without_a_source_demands_nothing() -> None:
    """What was typed or made while running cannot be read, and stays an error."""
    assert not needs_gpu_at(*innermost("assert x.is_cuda", None))
    assert not needs_gpu_at(sys._getframe(), 10**6)
