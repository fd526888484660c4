"""Checks that a call does not change tensors that the reference reads but that are no inputs.

If a call rounds a weight of its closure in place, the reference computes from the rounded weight, and every comparison
passes. So the bits of these tensors are summed before the first call of a process and after checks. What a call keeps
for itself (caches, counters, workspaces) is not checked, unless the reference reads it.

These tensors come from the reference's closure, its defaults, globals, and the modules among them. The search calls
nothing and computes no attribute: it reads only dictionaries, by the names that the code uses. Tensors reached in other
ways (`getattr`, a function that makes them) are not found.
"""

from __future__ import annotations

import contextlib
import functools
import math
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads.input_memory import as_integers, each_once

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference

BYTES_MOST = 2**30
"""Largest number of bytes that are summed; tensors that would exceed it are not checked."""

ROW = 1024
"""Words whose sum is multiplied by a factor of its own, so that rows in another order give another sum."""

NOTICED = 1e-3
"""A reference depends on a tensor if its result changes by this part of itself without it."""

Sum = tuple[str, tuple[int, ...], int]
"""Dtype, shape and sum of the bits."""


class OutsideTensors:
    """Watches tensors that a reference reads besides its inputs.

    inputs   the reference runs on them once, if it reaches such tensors: those that it changes itself are not watched
    """

    def __init__(self, reference: Reference, inputs: Tensors) -> None:
        self._reference = reference
        self._before = self._compute_sums()
        if self._before:
            # An error of the reference is reported where its results are needed.
            with contextlib.suppress(Exception):
                reference.compute_plain(inputs)
            again = self._compute_sums()
            self._before = {name: own for name, own in self._before.items() if again.get(name) == own}

    @property
    def watched_names(self) -> tuple[str, ...]:
        """Names of the tensors that the reference reads besides its inputs and whose bits are compared."""
        return tuple(self._before)

    def list_problems(self, inputs: Tensors) -> tuple[str, ...]:
        """Returns a problem, in words, for each watched tensor whose bits changed since construction and on which the
        reference's result for `inputs` depends; () if there is none."""
        if not self._before:
            return ()
        now = self._compute_sums()
        changed = [name for name, before in self._before.items() if now.get(name, before) != before]
        tensors = find_reached_tensors(self._reference.fn) if changed else {}
        return tuple(
            f"the call changed a tensor that is no input: {name!r}, {tuple(tensors[name].shape)} "
            f"{str(tensors[name].dtype).removeprefix('torch.')}, which the reference reads, too, so that it computes "
            "from the changed values: work on a copy, or make it one of inputs()"
            for name in changed
            if name in tensors and self._is_read(tensors[name], inputs)
        )

    def _compute_sums(self) -> dict[str, Sum]:
        chosen: dict[str, torch.Tensor] = {}
        left = BYTES_MOST
        for name, tensor in find_reached_tensors(self._reference.fn).items():
            size = tensor.numel() * tensor.element_size()
            if size <= left:
                chosen[name], left = tensor, left - size
        sums = [(tensor, _sum_of_bits(tensor)) for tensor in chosen.values()]
        return {
            name: (str(tensor.dtype), tuple(tensor.shape), int(total))
            for name, (tensor, total) in zip(chosen, sums, strict=True)
        }

    def _is_read(self, tensor: torch.Tensor, inputs: Tensors) -> bool:
        """Overwrites the tensor, runs the reference again, and restores it; returns whether the result changed, or it
        raised. Returns False for a tensor that the reference writes to itself."""
        import torch

        before = _sum_of_bits(tensor)
        results = self._reference.compute_plain(inputs)
        if bool(_sum_of_bits(tensor) != before):
            return False
        own = each_once(tensor.detach())
        kept = own.clone()
        try:
            with torch.inference_mode():
                # Integers become 0, because an index out of range would end more than this case.
                own.fill_(math.nan if own.is_floating_point() or own.is_complex() else 0)
            return _are_apart(results, self._reference.compute_plain(inputs))
        except Exception:
            return True  # an error means that the values are read
        finally:
            with torch.inference_mode():
                own.copy_(kept)


def _are_apart(results: Outputs, others: Outputs) -> bool:
    """Returns whether any element of an output differs from that of the same name in `others` by more than NOTICED x
    (its size + the output's root mean square)."""
    import torch

    for name, result in results.items():
        one, other = result.double(), others[name].double()
        finite = one[one.isfinite()]
        size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        if not torch.allclose(one, other, rtol=NOTICED, atol=NOTICED * size, equal_nan=True):
            return True
    return False


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Sums a tensor's bits as integers, with a factor for each ROW words, in row-major order whatever its strides.
    Returns shape (), int64, on the tensor's device."""
    import torch

    with torch.no_grad():
        own = tensor.detach()
        own = torch.view_as_real(own.resolve_conj()) if own.is_complex() else own
        flat = as_integers(own.resolve_neg().contiguous()).view(-1)
        width = 8 // flat.element_size()
        if flat.storage_offset() % width == 0 and flat.numel() % width == 0:
            flat = flat.view(torch.int64)
        whole = flat.numel() // ROW
        rows = flat[: whole * ROW].view(whole, ROW).sum(1, dtype=torch.int64)
        factors = 2 * torch.arange(1, whole + 1, dtype=torch.int64, device=flat.device) + 1
        return (rows * factors).sum() + flat[whole * ROW :].sum(dtype=torch.int64)


NOT_OURS = frozenset({"torch", "triton", "numpy", "scipy", "pytest", "pytest_attnperf", "builtins", "einops"})
"""Packages whose functions hold no weights of a user."""

OBJECTS_MOST = 5000
"""Largest number of objects that are visited for one function."""

DEPTH_MOST = 8
"""Largest nesting depth of containers and functions."""


def find_reached_tensors(fn: Callable[..., Any]) -> dict[str, torch.Tensor]:
    """Returns {name as in the code: tensor} of plain tensors that calls of `fn` can read besides their arguments: in
    its closure, defaults, globals and modules. An error during the search ends it silently."""
    walk = _Walk()
    # An object that cannot be inspected is no problem of the case.
    with contextlib.suppress(Exception):
        walk.visit_value("", fn, (), 0)
    return walk.found


class _Walk:
    """Visits everything that functions refer to, each object once."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}
        self._seen: set[tuple[int, int]] = set()
        self._kept: list[Any] = []  # keeps objects alive: Python may give a freed object's id to another one

    def visit_value(self, name: str, value: Any, names: Iterable[str], depth: int) -> None:
        """Adds to `found` the tensors that are reached from one object, up to DEPTH_MOST levels deep.

        name    what tensors are called in messages
        names   attributes and globals that the code referring to the object uses; only these are visited
        """
        import torch

        if isinstance(value, (str, bytes, int, float, type, type(None))) or depth > DEPTH_MOST:
            return
        if isinstance(value, types.FunctionType):
            self._visit_function(name, value, None, depth)
        elif isinstance(value, types.MethodType):
            self._visit_method(name, value.__func__, value.__self__, depth)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.visit_value(name, part, names, depth + 1)
        elif self._is_new(value):
            if isinstance(value, torch.Tensor):
                self._visit_tensor(name, value)
            elif isinstance(value, torch.nn.Module):
                self._visit_module(name, value, depth)
            elif isinstance(value, Mapping):
                for key, part in value.items():
                    self.visit_value(f"{name}[{key!r}]" if name else str(key), part, names, depth + 1)
            elif isinstance(value, (list, tuple, set, frozenset)):
                for number, part in enumerate(value):
                    self.visit_value(f"{name}[{number}]", part, names, depth + 1)
            else:
                self._visit_object(name, value, names, depth)

    def _is_new(self, value: Any, owner: Any = None) -> bool:
        key = (id(value), id(owner))
        if key in self._seen or len(self._seen) > OBJECTS_MOST:
            return False
        self._seen.add(key)
        self._kept += [value, owner]
        return True

    def _visit_tensor(self, name: str, tensor: torch.Tensor) -> None:
        import torch

        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        if plain and tensor.numel() and not tensor.is_quantized and tensor.device.type != "meta":
            while name in self.found:
                name += "'"
            self.found[name] = tensor

    def _visit_module(self, name: str, module: torch.nn.Module, depth: int) -> None:
        """Visits the parameters and buffers of a torch module, then everything that its forward() refers to."""
        for key, tensor in (*module.named_parameters(), *module.named_buffers()):
            if self._is_new(tensor):
                self._visit_tensor(f"{name}.{key}" if name else key, tensor)
        self._visit_method(name, type(module).forward, module, depth)

    def _visit_object(self, name: str, value: Any, names: Iterable[str], depth: int) -> None:
        """Visits those attributes in `names` that a Python module or an instance holds, and what its __call__ refers
        to. Skips modules of NOT_OURS."""
        own = getattr(value, "__dict__", {})
        if isinstance(value, types.ModuleType) and _is_shared_module(value.__name__):
            return
        for key in names:
            if key in own:
                self.visit_value(f"{name}.{key}", own[key], names, depth + 1)
        called = next((vars(kind)["__call__"] for kind in type(value).__mro__ if "__call__" in vars(kind)), None)
        if isinstance(called, types.FunctionType):
            self._visit_method(name, called, value, depth)

    def _visit_method(self, name: str, fn: Any, owner: Any, depth: int) -> None:
        if isinstance(fn, types.FunctionType):
            self._visit_function(name, fn, owner, depth)
            return
        self.visit_value(name, fn, (), depth + 1)

    def _visit_function(self, name: str, fn: types.FunctionType, owner: Any, depth: int) -> None:
        """Visits a function's closure, defaults and globals, and, of `owner`, the object that it is a method of, the
        attributes and methods that its code names. Skips functions of NOT_OURS, and those seen before."""
        if depth > DEPTH_MOST or _is_shared_module(fn.__module__ or "") or not self._is_new(fn, owner):
            return
        names = _names_in(fn.__code__)
        for key, part in _list_own(fn).items():
            self.visit_value(key, part, names, depth + 1)
        for key in names:
            if key in fn.__globals__:
                self.visit_value(key, fn.__globals__[key], names, depth + 1)
            if owner is None or isinstance(owner, type):
                continue
            attributes, method = getattr(owner, "__dict__", {}), getattr(type(owner), key, None)
            if key in attributes:
                self.visit_value(f"{name or 'self'}.{key}", attributes[key], names, depth + 1)
            elif isinstance(method, types.FunctionType):
                self._visit_function(name, method, owner, depth + 1)


def _list_own(fn: types.FunctionType) -> dict[str, Any]:
    """Returns {name in the code: value} of a function's defaults and closure; empty cells are left out."""
    code = fn.__code__
    arguments = code.co_varnames[: code.co_argcount]
    defaults = fn.__defaults__ or ()
    held = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)) | (fn.__kwdefaults__ or {})
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # nothing is in it yet
            held[name] = cell.cell_contents
    return held


def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names of globals and attributes that the code uses, including those of functions nested in it."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= dict.fromkeys(_names_in(constant))
    return tuple(names)


def _is_shared_module(module: str) -> bool:
    return module.partition(".")[0] in NOT_OURS
