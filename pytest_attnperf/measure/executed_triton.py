"""Turns a launch of a Triton kernel into the source that Triton would compile for it, and launches that.

Types, constants and divisibility follow Triton's own specialisation (`specialize_impl` of 3.9): None and the integer 1
become constants, pointers and integers may be divisible by 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.kernel_builds import TritonSource
from pytest_attnperf.measure.interpreter_driver import NotCompiled

if TYPE_CHECKING:
    from pytest_attnperf.measure.executing import Executor

POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float64": "*fp64",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "float8_e4m3fnuz": "*fp8e4b8",
    "float8_e5m2fnuz": "*fp8e5b16",
    "bool": "*i1",
    **{f"int{bits}": f"*i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"*u{bits}" for bits in (8, 16, 32, 64)},
}
"""torch dtype -> type of a pointer to it, as Triton writes it."""

ALIGNMENT = 16


@dataclass(frozen=True)
class BoundLaunch:
    """Arguments of a launch by name, in the kernel's order, and the compiler's options among its keywords."""

    values: Mapping[str, Any]
    options: Mapping[str, Any]


def make_run(executor: Executor) -> Callable[..., Any]:
    """Returns the function that replaces `JITFunction.run`: it launches through `executor`, and only compiles for a
    warm-up."""

    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        for hook in function.pre_run_hooks:
            hook(*args, **kwargs)
        bound = bind_arguments(function, args, kwargs)
        source = make_source(function, bound)
        if warmup:
            executor.compile(source, function.__name__)
            return NotCompiled(function.__name__)
        differs: tuple[str, ...] = ()
        given = None if executor.given is None else executor.given[0].source
        if isinstance(given, TritonSource) and (given.module, given.function) == (source.module, source.function):
            differs = tuple(list_differences(given, function, bound))
            source = source if differs else given
        sizes = grid(dict(bound.values)) if callable(grid) else grid
        arguments = [value for name, value in bound.values.items() if name in source.signature]
        executor.launch_source(source, function.__name__, sizes, arguments, differs)
        return None

    return run


def bind_arguments(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BoundLaunch:
    """Returns the launch's arguments by name, with defaults. Raises TypeError for missing or too many ones."""
    names = set(function.arg_names)
    bound = function.signature.bind(*args, **{name: value for name, value in kwargs.items() if name in names})
    bound.apply_defaults()
    options = {name: value for name, value in kwargs.items() if name not in names and value is not None}
    return BoundLaunch({name: _plain(bound.arguments[name]) for name in function.arg_names}, options)


def make_source(function: Any, bound: BoundLaunch) -> TritonSource:
    """Returns what Triton compiles for this launch. Raises UsageError for an argument of a type it cannot declare."""
    signature: dict[str, str] = {}
    constants: dict[str, object] = {}
    divisible = []
    for parameter in function.params:
        name, value = parameter.name, bound.values[parameter.name]
        if _is_constant(parameter, value):
            constants[name] = value
            continue
        signature[name] = _type_of(value, function, name)
        if not parameter.do_not_specialize_on_alignment and _is_divisible(value):
            divisible.append(name)
    options = {name: value for name, value in bound.options.items() if name != "debug"}
    return TritonSource(function.fn.__module__, function.__name__, signature, constants, divisible, options)


def list_differences(given: TritonSource, function: Any, bound: BoundLaunch) -> list[str]:
    """Returns in what the launch differs from what `given` was compiled for; [] where its object serves the launch.

    An object that takes an argument of any value serves all values: a launch with 1, or with a number that 16 divides,
    may use the object that was compiled without knowing that.
    """
    found = []
    defaults = {one.name: one.default for one in function.params if one.has_default}
    constants = {name: value for name, value in defaults.items() if name not in given.signature}
    for name, value in {**constants, **given.constants}.items():
        if type(bound.values[name]) in (int, float, bool, str, type(None)) and bound.values[name] == value:
            continue
        found.append(f"{name}: {_show(bound.values[name])} launched, {value!r} built")
    for name, kind in given.signature.items():
        value = bound.values[name]
        if value is None and kind.startswith("*"):
            continue  # passed as a null pointer, and reading through it is a fault
        if value is None or not _fits(value, kind, function, name):
            found.append(f"{name}: {_show(value)} launched, {kind} built")
        elif name in given.divisible_by_16 and not _is_divisible(value):
            found.append(f"{name}: {_show(value)} launched, divisible by 16 built")
    launched, built = bound.options, given.options
    return found + [
        f"{name}: {launched.get(name)} launched, {built.get(name)} built"
        for name in sorted({*launched, *built} - {"debug"})
        if launched.get(name) != built.get(name)
    ]


def _plain(value: Any) -> Any:
    """Returns the value of a `tl.constexpr`, and any other argument itself."""
    return value.value if type(value).__name__ == "constexpr" else value


def _is_constant(parameter: Any, value: Any) -> bool:
    if parameter.is_constexpr or value is None:
        return True
    return type(value) is int and value == 1 and not parameter.do_not_specialize


def _type_of(value: Any, function: Any, name: str) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
    if isinstance(value, float):
        return "fp32"
    kind = POINTERS.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    if kind is None or not hasattr(value, "untyped_storage"):
        raise UsageError(
            f"{function.__name__}: {name} is a {type(value).__name__}, which the interpreter of machine code cannot "
            "pass; tensors, numbers and None can be"
        )
    return kind


def _fits(value: Any, kind: str, function: Any, name: str) -> bool:
    found = _type_of(value, function, name)
    return found == kind or (kind in ("i64", "u64") and found in ("i32", "i64"))


def _is_divisible(value: Any) -> bool:
    """Returns whether an integer, or the address of a tensor, is divisible by 16. Memory begins at such an address in
    the interpreter, wherever torch put it."""
    if hasattr(value, "untyped_storage"):
        return bool(value.storage_offset() * value.element_size() % ALIGNMENT == 0)
    return type(value) is int and value % ALIGNMENT == 0


def _show(value: Any) -> str:
    if hasattr(value, "untyped_storage"):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return repr(value)
