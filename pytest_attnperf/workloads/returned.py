"""What a gated function returned, as tensors by name: whatever structure it has, and without its autograd graph."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs

OUT = "out"
"""Name of a single result, and what the names of several without names of their own begin with."""


def name_outputs(returned: Any, device: torch.device | str | None = None, *, keep_graph: bool = False) -> Outputs:
    """Name the results of a call; None is left out, wherever it stands.

    A tensor is 'out'; those of a tuple, list or other sequence are 'out0', 'out1' ... by their place; those of a dict,
    dataclass or named tuple have its keys or fields. Nested names are joined: 'state.k', 'state0'.

    Tensors are detached unless their graph is to be kept: the same memory without the autograd graph that made them.
    Python numbers become tensors of their own on `device`, in torch's default type. Anything else is given as it is,
    for the caller to refuse.
    """
    named = dict(_name_tensors(OUT, "", returned, device))
    return named if keep_graph else {name: detach_tensor(value) for name, value in named.items()}


def detach_tensor(value: Any) -> Any:
    """A tensor or parameter without its autograd graph, in the same memory; anything else as it is.

    What a custom autograd function returned as a view may not even be read once its memory has been written to by
    anybody else: torch then fails to find out its gradient function. What was detached from it may.
    """
    import torch

    if type(value) is torch.nn.Parameter or (type(value) is torch.Tensor and value.requires_grad):
        return value.detach()
    return value


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the parts of a dict, dataclass or named tuple by name; None for what has no named parts.

    They are read as they are stored: a subclass could compute in its own access while nobody times it. A mapping of
    another kind has no parts for the same reason.
    """
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
    """Iterate over a tuple or list as it is stored, whatever a subclass does."""
    return tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)


def _name_tensors(name: str, within: str, value: Any, device: torch.device | str | None) -> Iterator[tuple[str, Any]]:
    """Pairs of name and tensor. `within` is the name of what holds `value`, '' at the top."""
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
