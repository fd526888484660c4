"""The records of FlashInfer-Bench's files, checked: definitions, workloads and solutions. SOL-ExecBench has the same.

https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer-trace. Unknown fields are ignored, because a later
minor version may add some; an unknown type of axis, input or element is refused, because it may change the result.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from pytest_attnperf.errors import UsageError, propose_name
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.reports.text.figures import one_line

DTYPE_BITS = {
    **dict.fromkeys(("float64", "int64"), 64),
    **dict.fromkeys(("float32", "int32"), 32),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 16),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"), 8),
    **dict.fromkeys(("float4_e2m1", "float4_e2m1fn_x2"), 4),
}
"""Bits of an element of each dtype that the format knows."""

SIZE_MOST = 1 << 40
"""Largest size of an axis: products of it stay numbers that can be compared with a limit of memory."""

EXPRESSION_LETTERS_MOST = 1000
NAME_LETTERS_MOST = 200

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

T = TypeVar("T", bound=msgspec.Struct)


class TraceAxis(msgspec.Struct, frozen=True):
    """An axis: a 'const' has a `value`, a 'var' gets one from the workload, an 'expr' is computed from others."""

    type: str
    value: int | None = None
    expression: str = ""


class TraceTensor(msgspec.Struct, frozen=True):
    """An input or output: names of its axes and a dtype. A `shape` of None is a Python number, [] a 0-d tensor."""

    dtype: str
    shape: tuple[str, ...] | None
    optional: bool = False


class TraceDefinition(msgspec.Struct, frozen=True):
    """A problem. `reference` is Python code with `run(*inputs)`; `constraints` are Python expressions of axes and
    inputs; `custom_inputs_entrypoint` names a function of the same code that makes inputs."""

    name: str
    op_type: str
    axes: dict[str, TraceAxis]
    inputs: dict[str, TraceTensor]
    outputs: dict[str, TraceTensor]
    reference: str
    constraints: tuple[str, ...] | None = None
    custom_inputs_entrypoint: str | None = None
    description: str | None = None

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Returns the size of every axis, `given` those of the 'var' axes. Raises UsageError for a size that is
        missing, negative or larger than SIZE_MOST, an axis that does not exist, or another value for a constant."""
        found: dict[str, int] = {}
        for name, size in given.items():
            axis = self.axes.get(name)
            if axis is None:
                near = propose_name(name, self.axes)
                raise UsageError(
                    f"axis {name[:80]!r} does not exist in the definition{near}; it has {_join(self.axes)}"
                )
            if axis.type == "const" and size != axis.value:
                raise UsageError(f"axis {name!r} is {axis.value} in the definition, and {size} in the workload")
        for name, axis in self.axes.items():
            if axis.type == "var" and name not in given:
                raise UsageError(f"the workload gives no size of axis {name!r}; it gives {_join(given) or 'none'}")
            if axis.type != "expr":
                found[name] = _require_size(name, given[name] if axis.type == "var" else axis.value)
        for name, axis in self.axes.items():
            if axis.type == "expr":
                found[name] = _require_size(name, evaluate_size(axis.expression, found))
        return found

    def shape_of(self, tensor: TraceTensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns a tensor's shape, () for a number, by the sizes of all axes."""
        return tuple(sizes[axis] for axis in tensor.shape or ())

    def count_bytes(self, sizes: Mapping[str, int]) -> int:
        """Returns how many bytes all inputs and outputs have together."""
        tensors = (*self.inputs.values(), *self.outputs.values())
        return sum(math.prod(self.shape_of(one, sizes)) * DTYPE_BITS[one.dtype] // 8 for one in tensors)


class TraceInput(msgspec.Struct, frozen=True):
    """Where an input's values come from: 'random', 'scalar' with `value`, 'safetensors' with `path` and `tensor_key`,
    or 'custom' (the definition's own function)."""

    type: str
    value: bool | int | float | None = None
    path: str = ""
    tensor_key: str = ""


class TraceWorkload(msgspec.Struct, frozen=True):
    """Sizes of the 'var' axes, and the source of each input; inputs that are not named are random."""

    axes: dict[str, int]
    inputs: dict[str, TraceInput]
    uuid: str


class TraceLine(msgspec.Struct, frozen=True):
    """A line of a workloads file; with an `evaluation` it is the result of a run, and no workload to read."""

    workload: TraceWorkload
    definition: str = ""
    solution: str | None = None
    evaluation: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def is_workload(self) -> bool:
        """True for a line that holds a workload alone."""
        return self.solution is None and bytes(self.evaluation).strip() == b"null"


class TraceSource(msgspec.Struct, frozen=True):
    """A file of a solution."""

    path: str
    content: str


class TraceBuild(msgspec.Struct, frozen=True):
    """How a solution is built: `entry_point` is 'main.py::run'. With `destination_passing_style` the outputs are
    allocated by the caller and passed behind the inputs; without, they are returned."""

    language: str
    entry_point: str
    destination_passing_style: bool = True
    binding: str | None = None


class TraceSolution(msgspec.Struct, frozen=True):
    """An implementation of the definition that it names."""

    name: str
    definition: str
    spec: TraceBuild
    sources: tuple[TraceSource, ...]

    @property
    def entry(self) -> tuple[str, str]:
        """(path of the source, name of the function) of the entry point."""
        path, _, function = self.spec.entry_point.partition("::")
        return path, function


def read_record(data: bytes, kind: type[T], source: str) -> T:
    """Decodes JSON as one of the records above. Raises UsageError, which names `source`, for what is no JSON, holds a
    key twice, or lacks a field."""
    require_unique_keys(data, source, UsageError, "write it once")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{source}: is no {kind.__name__.removeprefix('Trace').lower()}: {one_line(str(error))}"
        ) from None


def check_definition(one: TraceDefinition) -> None:
    """Raises UsageError for an unknown type of axis or element, a shape of an axis that does not exist, names that are
    inputs and outputs, and code that is not Python or has no `run`."""
    require_name("definition", one.name)
    for name, axis in one.axes.items():
        if axis.type not in ("const", "var", "expr"):
            raise UsageError(f"axis {name[:80]!r} has the type {axis.type[:80]!r}; known are const, var and expr")
        if axis.type == "const":
            _require_size(name, axis.value)
    for kind, tensors in (("input", one.inputs), ("output", one.outputs)):
        for name, tensor in tensors.items():
            if not name.isidentifier() or keyword.iskeyword(name):
                raise UsageError(f"{kind} {name[:80]!r} is no name of a parameter in Python")
            _check_tensor(f"{kind} {name!r}", tensor, one.axes)
    if both := sorted(one.inputs.keys() & one.outputs.keys()):
        raise UsageError(f"{_join(both)} is an input and an output; give the output a name of its own")
    if not one.inputs or not one.outputs:
        raise UsageError("it has no inputs or no outputs")
    require_function(one.reference, "run", "reference")


def check_workload(one: TraceWorkload, definition: TraceDefinition) -> None:
    """Raises UsageError for sizes that do not fit the definition, and for inputs of an unknown type or name."""
    definition.sizes(one.axes)
    for name, given in one.inputs.items():
        if name not in definition.inputs:
            near = propose_name(name, definition.inputs)
            raise UsageError(f"input {name[:80]!r} is none of the definition{near}; it has {_join(definition.inputs)}")
        if given.type not in ("random", "scalar", "safetensors", "custom"):
            raise UsageError(
                f"input {name!r} has the type {given.type[:80]!r}; known are random, scalar, safetensors and custom"
            )
        if given.type == "scalar" and (given.value is None or not math.isfinite(given.value)):
            raise UsageError(f"input {name!r} is a scalar whose value is {given.value}; give a finite number")
        if given.type == "safetensors":
            require_inside(f"path of input {name!r}", given.path)
        if given.type == "custom" and not definition.custom_inputs_entrypoint:
            raise UsageError(f"input {name!r} is custom, but the definition has no custom_inputs_entrypoint")


def check_solution(one: TraceSolution) -> None:
    """Raises UsageError for a source outside of its folder or given twice, and an entry point that is in none."""
    require_name("solution", one.name)
    paths = [source.path for source in one.sources]
    for path in paths:
        require_inside("path of a source", path)
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise UsageError(f"source {twice[0][:80]!r} is given twice")
    path, function = one.entry
    if path not in paths or not function.isidentifier():
        raise UsageError(
            f"entry_point is {one.spec.entry_point[:80]!r}; it must be 'FILE::FUNCTION' with one of {_join(paths)}"
        )


def require_name(kind: str, name: str) -> None:
    """Raises UsageError for a name that is empty or longer than NAME_LETTERS_MOST."""
    if not name.strip() or len(name) > NAME_LETTERS_MOST:
        raise UsageError(f"a {kind}'s name must have 1 to {NAME_LETTERS_MOST} letters; {name[:40]!r} has {len(name)}")


def require_inside(what: str, path: str) -> None:
    """Raises UsageError for a path that is absolute, empty, or leaves its folder by '..'."""
    parts = PurePosixPath(path.replace("\\", "/"))
    if not path or "\0" in path or parts.is_absolute() or ".." in parts.parts or ":" in path:
        raise UsageError(f"{what} is {path[:80]!r}; it must be relative and stay in its folder, without '..'")


def require_function(code: str, name: str, what: str) -> None:
    """Raises UsageError for code that is not Python, or does not define the function `name` at its top."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"its {what} is not Python ({one_line(str(error), 120)})") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        raise UsageError(f"its {what} defines no function {name!r}")


def evaluate_size(expression: str, sizes: Mapping[str, int]) -> int:
    """Returns the value of an arithmetic expression of sizes, with + - * / // % only. Raises UsageError for anything
    else, and where it is no whole number."""
    try:
        if len(expression) > EXPRESSION_LETTERS_MOST:
            raise ValueError(f"more than {EXPRESSION_LETTERS_MOST} letters")
        value = _evaluate(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"expression {expression[:80]!r} of an axis cannot be computed ({one_line(str(error))})"
        ) from None
    if value != int(value):
        raise UsageError(f"expression {expression[:80]!r} of an axis is {value}, which is no whole number")
    return int(value)


def _evaluate(node: ast.AST, sizes: Mapping[str, int]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
        if max(abs(left), abs(right)) > SIZE_MOST:
            raise ValueError(f"a part of it exceeds {SIZE_MOST}")
        value: float = _OPERATORS[type(node.op)](left, right)
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _evaluate(node.operand, sizes)
        return -value if isinstance(node.op, ast.USub) else value
    raise ValueError(f"{ast.unparse(node)!r} is neither an axis nor one of + - * / // %")


def _check_tensor(what: str, tensor: TraceTensor, axes: Mapping[str, TraceAxis]) -> None:
    if tensor.dtype not in DTYPE_BITS:
        raise UsageError(f"{what} has the dtype {tensor.dtype[:80]!r}; known are {_join(DTYPE_BITS)}")
    for axis in tensor.shape or ():
        if axis not in axes:
            near = propose_name(axis, axes)
            raise UsageError(f"{what} has the axis {axis[:80]!r}, which does not exist{near}; there are {_join(axes)}")


def _require_size(name: str, size: int | None) -> int:
    if size is None or not 0 <= size <= SIZE_MOST:
        raise UsageError(f"axis {name[:80]!r} has the size {size}; it must be between 0 and {SIZE_MOST}")
    return size


def _join(names: Any) -> str:
    return ", ".join(one_line(str(name), 80) for name in list(names)[:20])
