"""Errors of cases that run interpreted: what needs a GPU is UNSUPPORTED, and what a kernel does wrong names its line.

The line between both is drawn by where and as what an error was raised, never by its text. Whatever is not known to
need a GPU stays an error.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from pytest_attnperf.errors import AttnperfError, CaseFailedError, UnsupportedError
from pytest_attnperf.measure.gpu_demands import demands_gpu
from pytest_attnperf.measure.interpreter_driver import NeedsGpuError

INTERPRETER = "triton.runtime.interpreter"
NOT_THE_USERS = ("triton", "torch", "numpy", "pytest_attnperf")
"""Packages whose frames say nothing about where a kernel stands."""


class InterpretedKernelError(CaseFailedError):
    """A kernel that ran interpreted raised; the text names its file, line and function."""


@contextlib.contextmanager
def explaining(interpreted: bool) -> Iterator[None]:
    """Turn what a case raises, where kernels are interpreted, into what it means; elsewhere nothing is done.

    Raises UnsupportedError for what needs a GPU and InterpretedKernelError for what a kernel raised; all else as it is.
    """
    try:
        yield
    except Exception as error:
        if not interpreted or (isinstance(error, AttnperfError) and not isinstance(error, NeedsGpuError)):
            raise
        raised = Raised.by(error)
        if reason := raised.needs_gpu():
            raise UnsupportedError(reason) from error
        if raised.in_kernel:
            raise InterpretedKernelError(raised.text()) from error
        raise


@dataclass(frozen=True)
class Raised:
    """The error behind all others, and the frames that it came through.

    root        what was raised first, inside the kernel where there is one
    in_kernel   whether an interpreted kernel raised it, or its launch
    frames      (frame, line), outermost first
    """

    root: BaseException
    in_kernel: bool
    frames: tuple[tuple[FrameType, int], ...]

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """Follow Triton's InterpreterErrors, one for each kernel or function of one, to their cause."""
        frames = list(traceback.walk_tb(error.__traceback__))
        root, in_kernel = error, False
        while _is_interpreter_error(root) and root.__cause__ is not None:
            root, in_kernel = root.__cause__, True
            frames += traceback.walk_tb(root.__traceback__)
        in_kernel = in_kernel or any(_module(frame) == INTERPRETER for frame, _ in frames)
        return cls(root, in_kernel, tuple(frames))

    def needs_gpu(self) -> str:
        """Why this can run on a GPU only; '' where it is not known to."""
        if isinstance(self.root, NeedsGpuError) or self._gpu_was_asked():
            return f"needs a GPU, and is interpreted here: {self._what_and_where()}; run it where there is a GPU"
        if self._interpreter_lacks():
            return f"cannot be interpreted: {self._what_and_where()}; run it where there is a GPU"
        return ""

    def text(self) -> str:
        """What was raised, and the kernel's own lines on the way there."""
        places = [place for frame, line in self.frames if (place := _place(frame, line, source=True))]
        return "\n".join([f"interpreted kernel raised {_said(self.root)}", *(f"  at {place}" for place in places)])

    def _gpu_was_asked(self) -> bool:
        """By torch.cuda, by Triton's search for a driver, or by a condition of the caller that no CPU meets."""
        frame, line = self.frames[-1]
        module = _module(frame)
        if module == "triton.runtime.driver" or module == "torch.cuda" or module.startswith("torch.cuda."):
            return True
        return not self.in_kernel and demands_gpu(frame, line)

    def _interpreter_lacks(self) -> bool:
        """Whether the interpreter refused, lacks the operation, or never replaced it by its own."""
        frame, _ = self.frames[-1]
        if isinstance(self.root, NotImplementedError):
            return _module(frame) == INTERPRETER
        if isinstance(self.root, AttributeError):
            return type(self.root.obj).__module__ == INTERPRETER or (
                self.in_kernel and _is_number_for_tensor(self.root)
            )
        if isinstance(self.root, ValueError):  # a builtin of the language outside any compiler
            return self.in_kernel and _module(frame) == "triton.language.core" and frame.f_code.co_name == "wrapper"
        return False

    def _what_and_where(self) -> str:
        places = [place for frame, line in self.frames if (place := _place(frame, line))]
        said = str(self.root) if isinstance(self.root, NeedsGpuError) else _said(self.root)
        return f"{said} ({places[-1]})" if places else said


def _is_interpreter_error(error: BaseException) -> bool:
    kind = type(error)
    return kind.__name__ == "InterpreterError" and kind.__module__.startswith("triton.")


def _is_number_for_tensor(error: AttributeError) -> bool:
    """Whether a number was asked for what a tensor has; the index of a loop is one, and interpreted an int."""
    tensor = getattr(sys.modules.get("triton.language"), "tensor", None)
    return type(error.obj) in (int, float, bool) and hasattr(tensor, error.name or "")


def _said(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _place(frame: FrameType, line: int, *, source: bool = False) -> str:
    """`kernels.py:12 in softmax`, with the line itself where wanted; '' for a frame of a library."""
    if _module(frame).partition(".")[0] in NOT_THE_USERS:
        return ""
    name = frame.f_code.co_filename
    shown = os.path.relpath(name) if name.startswith(os.getcwd() + os.sep) else name
    place = f"{shown}:{line} in {frame.f_code.co_name}"
    text = linecache.getline(name, line).strip() if source else ""
    return f"{place}: {text}" if text else place
