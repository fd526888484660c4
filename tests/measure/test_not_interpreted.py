"""What needs Triton's own frames is in `test_interpreting.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError, UnsupportedError
from pytest_attnperf.measure.interpreter_driver import InterpreterDriver
from pytest_attnperf.measure.not_interpreted import InterpretedKernelError, explaining


def _raised_by(module: str, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work in a function of a module of that name."""
    scope: dict[str, Any] = {"__name__": module, "work": work}
    exec("def call():\n    raise work()\n", scope)
    made: Callable[[], Any] = scope["call"]
    return made


def raised(work: Callable[[], Any], *, interpreted: bool = True) -> Exception:
    """What the work raises, explained."""
    with pytest.raises(Exception) as caught, explaining(interpreted):
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
        "needs a GPU, and is interpreted here: triton.runtime.driver.active.get_current_stream was asked for, which "
        "only a GPU has ("
    )
    assert "test_not_interpreted.py:" in str(error)


def test_our_own_errors_and_those_of_a_gpu_are_left_alone() -> None:
    """A failed case is one already, and where kernels are compiled nothing is unsupported for an error."""
    failed = CaseFailedError("out of memory")

    def fails() -> None:
        raise failed

    assert raised(fails) is failed
    assert type(raised(_raised_by("torch.cuda", lambda: RuntimeError("x")), interpreted=False)) is RuntimeError
