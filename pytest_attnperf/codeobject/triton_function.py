"""Compares a declared Triton kernel with its function: the arguments, and their specialisation in a launch.

Runs in a compile worker: standard library and Triton only. Triton's objects are `Any`, because its types differ
between versions.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import TritonSource

_INTEGER = re.compile(r"[iu]\d+")
_ATTRIBUTES = dict[tuple[int, ...], list[list[Any]]]


@dataclass(frozen=True)
class Specialisation:
    """Input of `ASTSource`: every argument's type by name, and by position its value or its attributes."""

    signature: dict[str, str]
    constants: dict[tuple[int, ...], object]
    attributes: _ATTRIBUTES


def jit_function(source: TritonSource, who: str) -> Any:
    """Returns the `@triton.jit` function that `source` names, imported, without autotuner or heuristics, because
    constants are declared. Raises CodeObjectError, which begins with `who`, if it cannot be imported, is no such
    function, or is interpreted."""
    from triton.runtime.jit import JITFunction

    where = f"{who}: {source.module}.{source.function}"
    try:
        module = _import_module(source.module)
    except Exception as error:
        raise CodeObjectError(f"{where}: the module cannot be imported ({type(error).__name__}: {error})") from error
    found = getattr(module, source.function, None)
    while found is not None and not isinstance(found, JITFunction) and hasattr(found, "fn"):
        if type(found).__name__ == "InterpretedFunction" or os.environ.get("TRITON_INTERPRET") == "1":
            raise CodeObjectError(
                f"{where} is interpreted here: TRITON_INTERPRET was 1 when it was imported. Compile in a process of "
                "its own that does not have it"
            )
        found = found.fn
    if not isinstance(found, JITFunction):
        known = ", ".join(sorted(name for name, value in vars(module).items() if isinstance(value, JITFunction)))
        raise CodeObjectError(
            f"{where} is {'not there' if found is None else f'a {type(found).__name__}'}, not a @triton.jit function; "
            f"the module has: {known or 'none'}"
        )
    return found


def source_class(function: Any) -> Any:
    """Returns Triton's class of sources for the function: `ASTSource`, or `GluonASTSource` for a `@gluon.jit` one."""
    if getattr(function, "is_gluon", lambda: False)():
        return importlib.import_module("triton.experimental.gluon._runtime").GluonASTSource
    return importlib.import_module("triton.compiler").ASTSource


def _import_module(name: str) -> ModuleType:
    """Imports the module `name`, also without a GPU, and returns it. Triton 3.3's autotuner asks the GPU's driver for a
    timer at import; then a driver without a GPU stands in."""
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "active drivers" not in str(error):
            raise
    from triton.runtime.driver import driver

    before = dict(vars(driver))  # its own `reset_active` looks for a GPU
    driver.set_active(_NoGpu())
    try:
        return importlib.import_module(name)
    finally:
        vars(driver).update(before)


class _NoGpu:
    """Replaces Triton's driver while a module is imported."""

    def get_benchmarker(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"it asks the GPU's driver for {name} when it is imported, and there is no GPU")


def specialise_arguments(source: TritonSource, function: Any, backend: Any, who: str) -> Specialisation:
    """Returns the types, constants and attributes with which a launch with the declared arguments compiles the
    function. Raises CodeObjectError, which begins with `who`, for a missing, duplicate or unknown argument, and for an
    argument in divisible_by_16 that is neither pointer nor integer."""
    constants = {**_default_constants(source, function), **source.constants}
    names = list(function.arg_names)
    _check_names(names, source, constants, f"{who}: {source.function}")
    marks = _Marks(backend)
    attributes: _ATTRIBUTES = {}
    for index, parameter in enumerate(function.params):
        kind = source.signature.get(parameter.name, "constexpr")
        aligned = parameter.name in source.divisible_by_16
        if aligned and not (kind.startswith("*") or _INTEGER.fullmatch(kind)):
            raise CodeObjectError(
                f"{who}: {source.function}: divisible_by_16 names {parameter.name}, whose type is {kind}; "
                "only pointers and integers are divisible by 16"
            )
        if kind != "constexpr" and not parameter.do_not_specialize:
            known = marks.list_attributes(kind, aligned=aligned and not parameter.do_not_specialize_on_alignment)
            if known:
                attributes[index,] = known
    return Specialisation(
        signature={name: source.signature.get(name, "constexpr") for name in names},
        constants={(names.index(name),): value for name, value in constants.items()},
        attributes=attributes,
    )


def reachable_functions(function: Any) -> list[Any]:
    """Returns the function and every Triton function that it calls, at any depth, except Triton's own library."""
    found: dict[int, Any] = {}
    pending = [function]
    while pending:
        each = pending.pop()
        if id(each) not in found and not each.fn.__module__.startswith("triton."):
            found[id(each)] = each
            pending.extend(_called_functions(each.fn))
    return list(found.values())


def _called_functions(python: Any) -> Iterator[Any]:
    """Yields the Triton functions that a Python function names in its code, in its own scope or as members of a
    module."""
    names = _list_names(python.__code__)
    cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
    scope = {**python.__globals__, **{name: _read_cell(cell) for name, cell in cells}}
    for name in names:
        value = scope.get(name)
        values = [getattr(value, each, None) for each in names] if isinstance(value, ModuleType) else [value]
        yield from (each for each in values if hasattr(getattr(each, "fn", None), "__code__"))


def _read_cell(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _list_names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_list_names, inner))


def _default_constants(source: TritonSource, function: Any) -> dict[str, object]:
    """Returns name -> default value of the parameters that the declaration omits, as in a launch."""
    return {
        parameter.name: parameter.default
        for parameter in function.params
        if parameter.name not in source.signature and parameter.has_default
    }


def _check_names(names: list[str], source: TritonSource, constants: dict[str, object], where: str) -> None:
    findings = {
        "both in signature and in constants": source.signature.keys() & source.constants.keys(),
        "no argument of it": {*source.signature, *constants, *source.divisible_by_16} - set(names),
        "neither in signature nor in constants": set(names) - source.signature.keys() - constants.keys(),
    }
    wrong = [f"{what}: {', '.join(sorted(found))}" for what, found in findings.items() if found]
    if wrong:
        raise CodeObjectError(f"{where}: {'; '.join(wrong)}. It takes: {', '.join(names)}")


class _Marks:
    """The attributes that the backend gets for an argument in a launch.

    Triton asks its backend for a string of marks per tensor, and turns it into attributes: 'D' is divisible by 16. On
    AMD, 'S' is smaller than 2 GiB, if buffer instructions are on (an environment variable up to Triton 3.5, the
    default from 3.6). This class asks the backend for a pointer to a small tensor in the same way.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def list_attributes(self, kind: str, *, aligned: bool) -> list[list[Any]]:
        """Returns the backend's attributes for an argument of type `kind`; `aligned`: its value is divisible by 16."""
        return list(self._backend.parse_attr(self._pointer_marks(aligned) if kind.startswith("*") else "D" * aligned))

    def _pointer_marks(self, aligned: bool) -> str:
        ask = getattr(self._backend, "get_tensor_specialization", None)
        with self._small_tensors():
            if ask is not None:
                return str(ask(_Pointer(), align=aligned))
            return str(self._backend.get_arg_specialization(_Pointer(), "tensor", align=aligned))  # up to 3.5

    @contextlib.contextmanager
    def _small_tensors(self) -> Iterator[None]:
        """Makes the AMD backend regard every tensor as smaller than 2 GiB inside a `with` block. Its own check would
        import torch."""
        name = "is_within_2gb"
        before = [(owner, vars(owner)[name]) for owner in type(self._backend).__mro__ if name in vars(owner)]
        for owner, _ in before:
            setattr(owner, name, staticmethod(lambda _tensor: True))
        try:
            yield
        finally:
            for owner, original in before:
                setattr(owner, name, original)


class _Pointer:
    """Stands for a small tensor: the only part of it that a backend reads."""

    def data_ptr(self) -> int:
        return 0
