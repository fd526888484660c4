"""Reads the parameters of the installed aiter's functions: versions differ, and most low-level calls are positional."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CellType
from typing import Any

from kernels.aiter.package import version_entries
from pytest_attnperf.errors import UnsupportedError

NO_DEFAULT = inspect.Parameter.empty

_OPERATOR = ("loadName", "op_name")
"""Variables in which aiter's wrappers keep the name of their torch operator; the second is v0.1.5's."""


@dataclass(frozen=True)
class EntryPoint:
    """A function of aiter that an adapter calls; the contract tests look for it in source trees and recorded tables.

    module       where it is defined, e.g. 'aiter.ops.triton.attention.mha'
    function     its name there
    needed       parameters without which the adapter cannot call it, passed by name
    offered      parameters passed where the version has them
    positional   parameters passed by position: the first of its parameters, in this order
    old          where the module was in earlier versions; '' if it never moved
    since        first release that has it as the adapter calls it, where v0.1.5 has not; '' otherwise
    until        last release that has it, where e4048607a5 (2026-08-22) has not; '' otherwise
    """

    module: str
    function: str
    needed: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    old: str = ""
    since: str = ""
    until: str = ""

    @property
    def period(self) -> str:
        """Releases that have the function, e.g. 'came with v0.1.12 and went after v0.1.17'; '' if all have it."""
        parts = (f"came with {self.since}" if self.since else "", f"went after {self.until}" if self.until else "")
        return " and ".join(part for part in parts if part)

    @property
    def name(self) -> str:
        """Module and function name, e.g. 'aiter.ops.norm.layer_norm', as tests and tables print it."""
        return f"{self.module}.{self.function}"


@dataclass(frozen=True)
class Taken:
    """One parameter of a function; `default` is NO_DEFAULT where it is required."""

    name: str
    default: Any = NO_DEFAULT
    by_position: bool = True
    by_name: bool = True


def match_arguments(
    function: Callable[..., Any],
    values: Mapping[str, object],
    *,
    positional: bool = False,
    needed: Collection[str] = (),
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Returns (args, kwargs) for `function`: those of `values` that this version takes, by name or by position.

    `needed` names values that change the result. Raises UnsupportedError where the function does not take one of
    these, or requires an argument that `values` lacks.
    """
    taken = parameters_of(function)
    title = f"aiter {version_entries()['aiter']}: {_function_name(function)}"
    names = {one.name for one in taken}
    refused = sorted(set(needed) - names)
    if refused:
        raise UnsupportedError(f"{title} takes no {', '.join(refused)}; it takes {', '.join(sorted(names))}")
    unknown = [one.name for one in taken if one.default is NO_DEFAULT and one.name not in values]
    if unknown:
        raise UnsupportedError(f"{title} asks for {', '.join(unknown)}, which this adapter does not know")
    if not positional:
        leading = [one for one in taken if not one.by_name]
        rest = {one.name: values[one.name] for one in taken if one.by_name and one.name in values}
        return _in_order(leading, values), rest
    last = max((index for index, one in enumerate(taken) if one.by_position and one.name in values), default=-1)
    rest = {one.name: values[one.name] for one in taken if not one.by_position and one.name in values}
    return _in_order(taken[: last + 1], values), rest


def parameters_of(function: Callable[..., Any]) -> list[Taken]:
    """Returns the parameters of an aiter function, in order. Raises UnsupportedError where they cannot be read.

    Read in aiter's `jit/core.py` and `jit/utils/torch_guard.py`, v0.1.5 to 2026-08: a compiled function looks like
    `wrapper_custom(*args, **kwargs)` without `__wrapped__`. It passes everything to the torch operator
    `torch.ops.aiter.<loadName>`, whose schema lists the parameters. Functions that are not registered there
    (`NONE_WRAPPED_OP`) keep the original function in their closure.
    """
    for candidate in _walk_wrapped(function):
        name = _operator_name(candidate)
        schema = _operator_parameters(name) if name else None
        if schema is not None:
            return schema
        try:
            found = list(inspect.signature(candidate).parameters.values())
        except (TypeError, ValueError):
            continue
        if not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in found):
            return [_read_parameter(one) for one in found]
    raise UnsupportedError(
        f"aiter {version_entries()['aiter']}: what {_function_name(function)} takes cannot be read, neither "
        f"from its signature "
        "nor from a torch operator of that name"
    )


def _walk_wrapped(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yields the function, then all functions that it wraps, found by `__wrapped__` or in its closure."""
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [
            value for value in [getattr(one, "__wrapped__", None), *_read_closure(one).values()] if callable(value)
        ]


def _read_closure(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns name -> value of the variables in a function's closure; empty where it has none."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    return {name: _read_cell(cell) for name, cell in zip(code.co_freevars, cells, strict=True)}


def _read_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _operator_name(function: Callable[..., Any]) -> str:
    """Returns the name of the torch operator that a wrapper of aiter calls; '' where its closure names none."""
    cells = _read_closure(function)
    return next((cells[name] for name in _OPERATOR if isinstance(cells.get(name), str)), "")


def _operator_parameters(name: str) -> list[Taken] | None:
    """Returns the parameters of `torch.ops.aiter.<name>` without the leading `dummy` that aiter's wrapper adds; None
    where torch has no such operator."""
    torch = sys.modules.get("torch")
    packet = getattr(torch.ops.aiter, name, None) if torch is not None else None
    if packet is None:
        return None
    schema = getattr(packet, packet.overloads()[0])._schema
    found = [Taken(one.name, one.default_value if one.has_default_value() else NO_DEFAULT) for one in schema.arguments]
    return found[1:] if found and found[0].name == "dummy" else found


def _read_parameter(one: inspect.Parameter) -> Taken:
    return Taken(
        one.name, one.default, by_position=one.kind is not one.KEYWORD_ONLY, by_name=one.kind is not one.POSITIONAL_ONLY
    )


def _in_order(taken: list[Taken], values: Mapping[str, object]) -> tuple[object, ...]:
    """Returns the values of the positional parameters in `taken`, in order; without a value, the default."""
    return tuple(values.get(one.name, one.default) for one in taken if one.by_position)


def _function_name(function: Callable[..., Any]) -> str:
    return _operator_name(function) or str(getattr(function, "__name__", repr(function)))
