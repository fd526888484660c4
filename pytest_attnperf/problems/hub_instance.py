"""A workload of a benchmark script as functions of tensors, which the judge can draw, widen and plant.

The script's methods work on attributes of one object. Here every call gets an object that holds nothing but what setup
stored, with the tensors of this call: no result of an earlier call can be found in it.
"""

from __future__ import annotations

import hashlib
import inspect
import random
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from keyword import iskeyword
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UnsupportedError, UsageError
from pytest_attnperf.measure.function_file import load_file
from pytest_attnperf.problems.hub_scripts import VERIFY, WORKLOAD, ScriptWorkload

if TYPE_CHECKING:
    import torch

OUT, KERNEL, DEVICE = "out", "kernel", "device"
"""Attributes of the convention that are no inputs."""

DEPTH_MOST = 4
CONSTANTS = (bool, int, float, complex, str, bytes, type(None))

Path = tuple[Any, ...]
"""Where a tensor is: the attribute's name, then keys and indices."""


@dataclass
class HubInstance:
    """The functions that `attnperf.gate` takes, for one workload. Imports the script and runs its setup when made.

    kernel     what `self.kernel` is
    in_place   names of the tensors in `self.out` if setup fills it: then they are inputs, and each call gets copies

    Raises UsageError for a script that breaks its convention, UnsupportedError for attributes whose tensors cannot be
    given other values, and what the script raises.
    """

    workload: ScriptWorkload
    kernel: Any
    in_place: tuple[str, ...] = field(init=False, default=())
    _kind: type = field(init=False)
    _has_out: bool = field(init=False, default=False)
    _paths: tuple[Path, ...] = field(init=False, default=())
    _template: dict[str, Any] = field(init=False, default_factory=dict)
    _fresh_out: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        path = self.workload.script
        digest = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
        module = load_file(str(path), f"hub_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest}")
        self._kind = getattr(module, self.workload.kind)
        self._learn()

    def _learn(self) -> None:
        """Runs setup once, and remembers where tensors are, and what becomes of `self.out`."""
        import torch

        with torch.random.fork_rng(), _unwritten_as_nan():
            made = self._set_up(0)
        out = made.get(OUT)
        if _is_unwritten(out):
            self._fresh_out = out
        self._has_out = out is not None and self._fresh_out is None
        self._paths = tuple(path for path, _ in _find_tensors(self._list_inputs(made)))
        named = zip(self._list_names(), self._paths, strict=True)
        self.in_place = tuple(name for name, path in named if path[0] == OUT)
        self._template = self._strip(made)
        if not self._paths:
            raise UsageError(
                f"{self._describe_setup()} stores no tensor in an attribute, so that there is nothing to draw again; "
                "store the inputs, as in self.x = torch.randn(...)"
            )

    @property
    def make_inputs(self) -> Callable[..., Any]:
        """Function of a seed that returns the tensors that setup stores. With `planted` if setup fills `self.out`,
        which may depend on them: nothing is planted then."""

        def make(seed: int) -> tuple[torch.Tensor, ...]:
            return self._make(seed)

        def make_unplanted(seed: int, planted: bool = False) -> tuple[torch.Tensor, ...]:
            return self._make(seed)

        return self._name(make_unplanted if self._has_out else make, self._setup_name)

    @property
    def call(self) -> Callable[..., Any]:
        """`benchmark_NAME` as a function of these tensors; returns `self.out`."""
        import torch

        name, fresh = f"{WORKLOAD}{self.workload.name}", self._fresh_out

        def compute(*tensors: torch.Tensor) -> Any:
            instance = self._build(tensors)
            if fresh is not None:
                instance.out = torch.empty_strided(fresh.shape, fresh.stride(), dtype=fresh.dtype, device=fresh.device)
            getattr(instance, name)()
            return instance.out

        return self._with_names(compute, name)

    @property
    def reference(self) -> Callable[..., Any]:
        """`verify_NAME` as a function of these tensors, which finds no result in `self.out`."""
        name = f"{VERIFY}{self.workload.name}"

        def compute(*tensors: torch.Tensor) -> Any:
            instance = self._build(tensors)
            instance.out = None
            expected = getattr(instance, name)()
            if expected is None:
                raise UsageError(
                    f"{self.workload.kind}.{name} returned None: it must return what self.out should be, computed from "
                    "the inputs, and finds no result in self.out"
                )
            return expected

        return self._with_names(compute, name)

    def _make(self, seed: int) -> tuple[torch.Tensor, ...]:
        made = self._set_up(seed)
        found = dict(_find_tensors(self._list_inputs(made)))
        if tuple(found) != self._paths or (changed := _find_difference(self._strip(made), self._template)):
            what = _name_path(changed) if tuple(found) == self._paths else "which attributes hold tensors"
            raise UsageError(
                f"{self._describe_setup()} makes another problem for seed {seed}: {what} changed; only the values of "
                "tensors may follow the seed"
            )
        return tuple(found.values())

    def _set_up(self, seed: int) -> dict[str, Any]:
        """Returns the attributes after setup with this seed."""
        import torch

        instance = self._kind()
        instance.kernel = self.kernel
        instance.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(seed)
        state = random.getstate()
        random.seed(seed)
        try:
            getattr(instance, self._setup_name)()
        finally:
            random.setstate(state)
        return dict(vars(instance))

    def _list_inputs(self, made: dict[str, Any]) -> dict[str, Any]:
        """Returns the attributes that may hold inputs, in the order in which they were stored; `out` last."""
        inputs = {name: value for name, value in made.items() if name not in (KERNEL, DEVICE, OUT)}
        return {**inputs, OUT: made[OUT]} if self._has_out else inputs

    def _strip(self, made: dict[str, Any]) -> dict[str, Any]:
        """Returns the attributes without the values of tensors."""
        whole = {KERNEL: self.kernel, DEVICE: made.get(DEVICE), OUT: None}
        return {**whole, **{name: _put(value, (name,), {}) for name, value in self._list_inputs(made).items()}}

    def _build(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        """Returns a new object with the attributes that setup stored, and these tensors."""
        given = dict(zip(self._paths, tensors, strict=True))
        instance: Any = object.__new__(self._kind)
        vars(instance).update({name: _put(value, (name,), given) for name, value in self._template.items()})
        return instance

    @property
    def _setup_name(self) -> str:
        own = f"setup_{self.workload.name}"
        return own if hasattr(self._kind, own) else "setup"

    def _describe_setup(self) -> str:
        return f"{self.workload.script.name}: {self.workload.kind}.{self._setup_name}"

    def _with_names(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Names a function after the method, and its parameters after the attributes."""
        kind = inspect.Parameter.POSITIONAL_ONLY
        signature = inspect.Signature([inspect.Parameter(one, kind) for one in self._list_names()])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return self._name(function, name)

    def _list_names(self) -> tuple[str, ...]:
        """Returns the names of the inputs: 'args_0' of self.args[0]; 'input0' ... where these are no names."""
        names = tuple(re.sub(r"\W+", "_", _name_path(path)).strip("_") for path in self._paths)
        fit = len({*names}) == len(names) and all(map(str.isidentifier, names)) and not any(map(iskeyword, names))
        return names if fit else tuple(f"input{number}" for number in range(len(names)))

    def _name(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Names a function after the script's method: baselines store the names, wherever this file is."""
        function.__module__, function.__qualname__ = "hub_kernels", f"{self.workload.kind}.{name}"
        return function


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor in a template."""

    path: Path


def _find_tensors(value: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yields the tensors in attributes, and in lists, tuples and dicts of them. Raises UnsupportedError for an object
    that may hold others."""
    if _is_tensor(value):
        yield path, value
    elif isinstance(value, dict) and len(path) <= DEPTH_MOST:
        for key, part in value.items():
            yield from _find_tensors(part, (*path, key))
    elif type(value) in (list, tuple) and len(path) <= DEPTH_MOST:
        for number, part in enumerate(value):
            yield from _find_tensors(part, (*path, number))
    elif not _is_constant(value):
        raise UnsupportedError(
            f"setup stores {type(value).__name__} in {_name_path(path)}: tensors in it cannot be given other values; "
            "store tensors, numbers, texts, functions, and lists, tuples and dicts of them"
        )


def _put(value: Any, path: Path, given: dict[Path, torch.Tensor]) -> Any:
    """Returns a copy of an attribute's lists, tuples and dicts: with slots for tensors if none are given, else with
    the given tensors in the slots."""
    if isinstance(value, _Slot):
        return given[value.path]
    if _is_tensor(value):
        return _Slot(path)
    if isinstance(value, dict):
        return {key: _put(part, (*path, key), given) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put(part, (*path, number), given) for number, part in enumerate(value))
    return value


def _find_difference(one: dict[str, Any], other: dict[str, Any]) -> Path:
    """Returns where two templates differ; () if nowhere. A NaN is equal to itself."""
    for name in (*one, *other):
        mine, theirs = one.get(name), other.get(name)
        if mine != theirs and repr(mine) != repr(theirs):
            return (name,)
    return ()


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_constant(value: Any) -> bool:
    """Returns whether a value is the same for all tensors: no function of the object that setup filled."""
    import torch

    kinds = (*CONSTANTS, torch.dtype, torch.device, torch.Size, type, ModuleType)
    if isinstance(value, (*kinds, torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    owner = getattr(value, "__self__", None)
    is_free = not getattr(value, "__closure__", None) and isinstance(owner, (ModuleType, type(None)))
    return inspect.isroutine(value) and is_free


def _name_path(path: Path) -> str:
    """Returns 'args[0]' of ('args', 0)."""
    return "".join([str(path[0]), *(f"[{part!r}]" for part in path[1:])])


@contextmanager
def _unwritten_as_nan() -> Iterator[None]:
    """In the block, torch fills new memory that nothing was written to: with NaN, and integers with their largest."""
    import torch

    before, only_warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=only_warns)


def _is_unwritten(tensor: Any) -> bool:
    """Returns whether all elements of a tensor are what `_unwritten_as_nan` fills in; False for anything else."""
    import torch

    if not _is_tensor(tensor):
        return False
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return bool(torch.isnan(tensor).all())
    return bool((tensor == (True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max)).all())
