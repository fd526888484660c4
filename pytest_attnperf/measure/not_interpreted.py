"""Translates errors of interpreted cases: what needs a GPU is UNSUPPORTED, and an error in a kernel names its line.

The decision uses the type and the place of an error, never its text. An error stays an error unless it is known to need
a GPU, e.g. because the statement that raised requires a tensor or device of a GPU.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from pytest_attnperf.errors import AttnperfError, CaseFailedError, UnsupportedError
from pytest_attnperf.measure.interpreter_driver import NeedsGpuError

INTERPRETER = "triton.runtime.interpreter"
NOT_THE_USERS = ("triton", "torch", "numpy", "pytest_attnperf")
"""Packages whose frames do not show where a kernel is."""

GPU_TYPES = ("cuda", "hip", "xpu")
"""Device types of torch and Triton other than the CPU."""


class InterpretedKernelError(CaseFailedError):
    """An interpreted kernel raised; the message names its file, line and function."""


@contextlib.contextmanager
def translate_errors(interpreted: bool) -> Iterator[None]:
    """Translates errors that are raised inside the context if kernels are interpreted; else passes all on.

    Raises UnsupportedError for what needs a GPU and InterpretedKernelError for an error in a kernel, else the original.
    """
    try:
        yield
    except Exception as error:
        if not interpreted or (isinstance(error, AttnperfError) and not isinstance(error, NeedsGpuError)):
            raise
        raised = Raised.from_error(error)
        if reason := raised.reason_needs_gpu():
            raise UnsupportedError(reason) from error
        if raised.in_kernel:
            raise InterpretedKernelError(raised.describe_error()) from error
        raise


@dataclass(frozen=True)
class Raised:
    """The original error, and the frames that it passed through.

    root        the error that was raised first, inside the kernel if there is one
    in_kernel   whether an interpreted kernel, or its launch, raised it
    frames      (frame, line), outermost first
    """

    root: BaseException
    in_kernel: bool
    frames: tuple[tuple[FrameType, int], ...]

    @classmethod
    def from_error(cls, error: BaseException) -> Raised:
        """Makes the record of an error; follows Triton's InterpreterErrors, one per kernel function, to their cause."""
        frames = list(traceback.walk_tb(error.__traceback__))
        root, in_kernel = error, False
        while _is_interpreter_error(root) and root.__cause__ is not None:
            root, in_kernel = root.__cause__, True
            frames += traceback.walk_tb(root.__traceback__)
        in_kernel = in_kernel or any(_module_name(frame) == INTERPRETER for frame, _ in frames)
        return cls(root, in_kernel, tuple(frames))

    def reason_needs_gpu(self) -> str:
        """Returns why the code that raised the error can only run on a GPU; '' if it is not known to need one."""
        if isinstance(self.root, NeedsGpuError) or self._gpu_was_asked():
            return f"needs a GPU, and is interpreted here: {self._what_and_where()}; run it where there is a GPU"
        if self._interpreter_lacks():
            return f"cannot be interpreted: {self._what_and_where()}; run it where there is a GPU"
        return ""

    def describe_error(self) -> str:
        """Returns the error, then a line 'at file:line in function: source' for each of the user's frames it passed."""
        places = [place for frame, line in self.frames if (place := _format_place(frame, line, source=True))]
        return "\n".join(
            [f"interpreted kernel raised {_format_error(self.root)}", *(f"  at {place}" for place in places)]
        )

    def _gpu_was_asked(self) -> bool:
        """Tells whether the error comes from torch.cuda, Triton's search for a driver, or a check for GPU tensors."""
        frame, line = self.frames[-1]
        module = _module_name(frame)
        if module == "triton.runtime.driver" or module == "torch.cuda" or module.startswith("torch.cuda."):
            return True
        return not self.in_kernel and needs_gpu_at(frame, line)

    def _interpreter_lacks(self) -> bool:
        """Tells whether the error was raised because Triton's interpreter refuses or lacks the operation."""
        frame, _ = self.frames[-1]
        if isinstance(self.root, NotImplementedError):
            return _module_name(frame) == INTERPRETER
        if isinstance(self.root, AttributeError):
            return type(self.root.obj).__module__ == INTERPRETER or (
                self.in_kernel and _is_number_for_tensor(self.root)
            )
        if isinstance(self.root, ValueError):  # a builtin of Triton's language, called without a compiler
            return (
                self.in_kernel and _module_name(frame) == "triton.language.core" and frame.f_code.co_name == "wrapper"
            )
        return False

    def _what_and_where(self) -> str:
        places = [place for frame, line in self.frames if (place := _format_place(frame, line))]
        said = str(self.root) if isinstance(self.root, NeedsGpuError) else _format_error(self.root)
        return f"{said} ({places[-1]})" if places else said


def _is_interpreter_error(error: BaseException) -> bool:
    kind = type(error)
    return kind.__name__ == "InterpreterError" and kind.__module__.startswith("triton.")


def _is_number_for_tensor(error: AttributeError) -> bool:
    """Tells whether code used a tensor's attribute on a number, e.g. a loop index, which is an int if interpreted."""
    tensor = getattr(sys.modules.get("triton.language"), "tensor", None)
    return type(error.obj) in (int, float, bool) and hasattr(tensor, error.name or "")


def _format_error(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _module_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _format_place(frame: FrameType, line: int, *, source: bool = False) -> str:
    """Returns `kernels.py:12 in softmax`, with the source line if `source`; '' for a library's frame."""
    if _module_name(frame).partition(".")[0] in NOT_THE_USERS:
        return ""
    name = frame.f_code.co_filename
    shown = os.path.relpath(name) if name.startswith(os.getcwd() + os.sep) else name
    place = f"{shown}:{line} in {frame.f_code.co_name}"
    text = linecache.getline(name, line).strip() if source else ""
    return f"{place}: {text}" if text else place


def needs_gpu_at(frame: FrameType, line: int) -> bool:
    """Tells whether the line is an assertion, or a `raise` below an `if`, that CPU tensors can never pass.

    Examples: `assert x.is_cuda`, `assert x.device.type == "cuda" and ok`, `if not x.is_cuda: raise`, `if x.device.type
    != "cuda": raise`. A condition joined by `or`, or without readable source, does not count.
    """
    return any(_is_gpu_demand(statement, line) for statement in ast.walk(_parse_source(frame)))


def _is_gpu_demand(statement: ast.AST, line: int) -> bool:
    if isinstance(statement, ast.Assert):
        return _has_line(statement, line) and _is_false_on_cpu(statement.test)
    if isinstance(statement, ast.If):
        below, otherwise = _has_raise(statement.body, line), _has_raise(statement.orelse, line)
        return (below and _is_true_on_cpu(statement.test)) or (otherwise and _is_false_on_cpu(statement.test))
    return False


def _has_raise(body: Sequence[ast.stmt], line: int) -> bool:
    return any(isinstance(inner, ast.Raise) and _has_line(inner, line) for inner in body)


def _is_false_on_cpu(test: ast.expr) -> bool:
    """Tells whether a condition is false wherever there is no GPU."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_false_on_cpu(part) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_true_on_cpu(test.operand)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        return test.func.attr == "is_available" and _ends_in_cuda(test.func.value)
    return _is_cuda(test) or _is_device_comparison(test, (ast.Eq, ast.Is, ast.In))


def _is_true_on_cpu(test: ast.expr) -> bool:
    """Tells whether a condition is true wherever there is no GPU."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(_is_true_on_cpu(part) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_false_on_cpu(test.operand)
    return _is_device_comparison(test, (ast.NotEq, ast.IsNot, ast.NotIn))


def _is_cuda(test: ast.expr) -> bool:
    return isinstance(test, ast.Attribute) and test.attr == "is_cuda"


def _ends_in_cuda(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in GPU_TYPES


def _is_device_comparison(test: ast.expr, by: tuple[type[ast.cmpop], ...]) -> bool:
    """Tells whether a device is compared with a GPU type: `x.device.type == "cuda"`, `"cuda" in str(x.device)`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], by):
        return False
    parts = [inner for side in (test.left, *test.comparators) for inner in ast.walk(side)]
    names = {inner.attr for inner in parts if isinstance(inner, ast.Attribute)}
    names |= {inner.id for inner in parts if isinstance(inner, ast.Name)}
    types = [inner.value for inner in parts if isinstance(inner, ast.Constant) and isinstance(inner.value, str)]
    return "device" in names and bool(types) and all(text.startswith(GPU_TYPES) for text in types)


def _has_line(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _parse_source(frame: FrameType) -> ast.Module:
    """Parses the source file of the frame's code; returns an empty module if it cannot be read or parsed."""
    name = inspect.getsourcefile(frame.f_code) or frame.f_code.co_filename
    try:
        return ast.parse("".join(linecache.getlines(name, frame.f_globals)))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
