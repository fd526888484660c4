"""Reads the statement that raised, and says whether it asks for a tensor or a device that only a GPU has."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Sequence
from types import FrameType

GPU_TYPES = ("cuda", "hip", "xpu")
"""Device types of torch and Triton that are no CPU."""


def demands_gpu(frame: FrameType, line: int) -> bool:
    """Whether the line is an assertion, or a `raise` below an `if`, that cannot be met by tensors on a CPU.

    `assert x.is_cuda`, `assert x.device.type == "cuda" and ok`, `if not x.is_cuda: raise`, `if x.device.type != "cuda":
    raise`. What is joined by `or`, or where the source is not there, does not count.
    """
    return any(_demands(statement, line) for statement in ast.walk(_source(frame)))


def _demands(statement: ast.AST, line: int) -> bool:
    if isinstance(statement, ast.Assert):
        return _covers(statement, line) and _fails_on_cpu(statement.test)
    if isinstance(statement, ast.If):
        below, otherwise = _raises(statement.body, line), _raises(statement.orelse, line)
        return (below and _holds_on_cpu(statement.test)) or (otherwise and _fails_on_cpu(statement.test))
    return False


def _raises(body: Sequence[ast.stmt], line: int) -> bool:
    return any(isinstance(inner, ast.Raise) and _covers(inner, line) for inner in body)


def _fails_on_cpu(test: ast.expr) -> bool:
    """A condition that is false wherever there is no GPU."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_fails_on_cpu(part) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _holds_on_cpu(test.operand)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        return test.func.attr == "is_available" and _ends_in_cuda(test.func.value)
    return _is_cuda(test) or _compares(test, (ast.Eq, ast.Is, ast.In))


def _holds_on_cpu(test: ast.expr) -> bool:
    """A condition that is true wherever there is no GPU."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(_holds_on_cpu(part) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _fails_on_cpu(test.operand)
    return _compares(test, (ast.NotEq, ast.IsNot, ast.NotIn))


def _is_cuda(test: ast.expr) -> bool:
    return isinstance(test, ast.Attribute) and test.attr == "is_cuda"


def _ends_in_cuda(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in GPU_TYPES


def _compares(test: ast.expr, by: tuple[type[ast.cmpop], ...]) -> bool:
    """Whether a device is held against a GPU's type: `x.device.type == "cuda"`, `"cuda" in str(x.device)`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], by):
        return False
    parts = [inner for side in (test.left, *test.comparators) for inner in ast.walk(side)]
    names = {inner.attr for inner in parts if isinstance(inner, ast.Attribute)}
    names |= {inner.id for inner in parts if isinstance(inner, ast.Name)}
    types = [inner.value for inner in parts if isinstance(inner, ast.Constant) and isinstance(inner.value, str)]
    return "device" in names and bool(types) and all(text.startswith(GPU_TYPES) for text in types)


def _covers(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _source(frame: FrameType) -> ast.Module:
    """The file that the frame's code stands in; empty where it cannot be read."""
    name = inspect.getsourcefile(frame.f_code) or frame.f_code.co_filename
    try:
        return ast.parse("".join(linecache.getlines(name, frame.f_globals)))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])
