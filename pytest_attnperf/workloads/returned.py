"""Converts what a gated function returned to tensors by name: for any structure, and without its autograd graph."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs

OUT = "out"
"""Name of a single result, and prefix for several results without names of their own."""


def name_outputs(returned: Any, device: torch.device | str | None = None, *, keep_graph: bool = False) -> Outputs:
    """Returns the results of a call by name; leaves out None at any depth.

    A tensor is 'out'; those of a tuple or list are 'out0', 'out1' ... by position; those of a dict, dataclass or named
    tuple have its keys or fields. Nested names are joined: 'state.k', 'state0'.
    Tensors are detached unless `keep_graph`: the same memory without the autograd graph. Python numbers become new
    tensors on `device`: float in torch's default dtype, int in int64, bool in bool. Anything else is returned
    unchanged, for the caller to reject.
    """
    named = dict(_name_tensors(OUT, "", returned, device))
    return named if keep_graph else {name: detach_tensor(value) for name, value in named.items()}


def detach_tensor(value: Any) -> Any:
    """Returns a tensor or parameter without its autograd graph, in the same memory; anything else unchanged. A view
    returned by a custom autograd function cannot even be read once other code has written to its memory: torch then
    fails to determine its gradient function. A detached tensor can."""
    import torch

    if type(value) is torch.nn.Parameter or (type(value) is torch.Tensor and value.requires_grad):
        return torch.Tensor.detach(value)  # the tensor's own `detach` may be a function of the call's
    return value


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """Returns the parts of a dict, dataclass or named tuple by name; None if it has no named parts. Stored values are
    read directly: a subclass could compute during access, which is not timed. Mappings of other kinds return None for
    the same reason."""
    if isinstance(value, UserDict):
        value = value.data
    if isinstance(value, dict):
        return dict(dict.items(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: object.__getattribute__(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, elements_of(value), strict=True))
    return None


def elements_of(value: tuple[Any, ...] | list[Any]) -> Iterator[Any]:
    """Iterates over the elements that a tuple or list stores, even if its class overrides iteration."""
    return tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)


def _name_tensors(name: str, within: str, value: Any, device: torch.device | str | None) -> Iterator[tuple[str, Any]]:
    """Yields (name, tensor) for `value`, or for each of its parts at any depth; numbers become tensors, other objects
    stay.

    name     name of `value` if it is a tensor
    within   name of the container that holds it, '' at the top
    """
    import torch

    if value is None:
        return
    parts = fields_of(value)
    if parts is not None:
        for key, part in parts.items():
            path = f"{within}.{key}" if within else str(key)
            yield from _name_tensors(path, path, part, device)
    elif isinstance(value, (tuple, list)):
        for number, part in enumerate(elements_of(value)):
            path = f"{name}{number}"
            yield from _name_tensors(path, path, part, device)
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(value, dtype=_dtype_of(value), device=device)
    else:
        yield name, value


def _dtype_of(number: bool | float) -> torch.dtype:
    import torch

    if isinstance(number, bool):
        return torch.bool
    return torch.int64 if isinstance(number, int) else torch.get_default_dtype()
