"""The interface that a kernel author implements, and the registry of backends that suites are parametrised from.

A backend is described without importing its library: `kernels/` must be importable, and a suite collectable, on a
machine that has neither torch nor a compiler. Everything heavy happens inside `prepare`.
"""

from __future__ import annotations

import abc
import enum
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

from pytest_attnperf.errors import UnknownNameError, UsageError, known_names
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.records.listing import find_class_place

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeVar  # Python 3.13's, with a default: `Backend` alone takes any workload

    from pytest_attnperf.workloads.base import Workload

    W = TypeVar("W", default=Any)
else:
    from typing import TypeVar

    W = TypeVar("W")

Tensors = tuple["torch.Tensor", ...]
Outputs = dict[str, "torch.Tensor"]
Values = dict[str, "torch.Tensor"]

TRAFFIC_BYTES = "traffic_bytes"
"""Key of `Prepared.config`: bytes that a call's own loads and stores name, as its backend counts them by a formula."""


@dataclass(frozen=True)
class Declares:
    """What a backend says will run, so that a silent substitute fails. Regular expressions, searched in names.

    kernels     each must match the name of a kernel that ran on the GPU; not checked on a CPU
    operators   each must match the name of a torch operator that ran, e.g. 'aten::_flash_attention_forward'
    never       none may match the name of a kernel or an operator that ran
    host_sync   the call may wait for the device and copy data to the host to decide something
    own_forward  `convert` runs the backend's own forward pass, whose state its backward pass needs; used for op
                 families of backward passes only. `convert` may only change the layout of the incoming gradient
    matrix      at least one kernel of a call must contain matrix instructions (MFMA, WMMA); checked for AMD kernels
                that were timed and whose machine code can be read
    """

    kernels: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    matrix: bool = False
    host_sync: bool = False
    own_forward: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for a text in place of a tuple: each of its letters would be a pattern."""
        for name in ("kernels", "operators", "never"):
            if isinstance(given := getattr(self, name), str):
                raise UsageError(f"Declares({name}={given!r}): give a tuple of patterns, e.g. {name}=({given!r},)")


@dataclass(frozen=True)
class Stage:
    """One stage of a call.

    name     the name in tables, e.g. 'qkv_projection'; 'attention.qk_scores' for a stage within another one
    run      takes all values so far by name, and returns those that it adds or replaces; its allocations belong to it.
             A stage that only makes views launches nothing
    frees    names of values that no later stage reads; they are freed when the whole pipeline is called
    """

    name: str
    run: Callable[[Values], Values]
    frees: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A call made of stages, so that each stage can be timed alone: pass it as `Prepared.call`.

    inputs     names of `Prepared.tensors`, in their order
    stages     at least one; they run in this order, each on the values that earlier stages produced
    outputs    names of the values that the call returns, as a tuple in this order
    """

    inputs: tuple[str, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        """Runs all stages in order on `tensors`, which are named by `inputs`; returns the values named in `outputs`, in
        order. Each stage's values replace or join those so far; the names in its `frees` are dropped after it."""
        values = self.name_arguments(tensors)
        for stage in self.stages:
            values.update(stage.run(values))
            for name in stage.frees:
                del values[name]
        return tuple(values[name] for name in self.outputs)

    def name_arguments(self, tensors: Tensors) -> Values:
        """Returns `tensors` keyed by the names in `inputs`, in order. Raises ValueError if their numbers differ."""
        return dict(zip(self.inputs, tensors, strict=True))


class Side(str, enum.Enum):
    """Where memory lies: before a tensor, behind it, or before, between and behind its elements."""

    BEFORE = "before"
    BEHIND = "behind"
    AROUND = "around"


@dataclass(frozen=True)
class Beside:
    """Memory next to tensors that no call may write to.

    side     where it lies
    what     beside which tensors, in words, e.g. 'tensor 2'
    memory   its bytes; where there are gaps between elements, also the elements
    first    its content when it was made
    """

    side: Side
    what: str
    memory: torch.Tensor
    first: torch.Tensor


class Otherwise(Protocol):
    """Another way to compute the same results; `notes` lists results that the last call did not compute that way."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The results, in words, that the last call could not compute in this other way; empty if there are none."""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Computes the results of the timed call in another way, in a form that `Prepared.outputs` can read."""


@dataclass
class Prepared:
    """A backend bound to one workload: everything built, compiled and converted, nothing timed yet.

    `tensors` are this backend's own inputs, in its own layout and dtype; the timed region is exactly
    `call(*tensors)`, or the call of `call(*setup(*tensors))`. They stay at the same addresses for the life of the case,
    because a captured graph reads them.

    call      computes from `tensors`; returns whatever the kernel returns
    tensors   the result of `convert(inputs)`, owned by this object
    convert   canonical inputs of the workload -> tensors in this backend's layout (never timed)
    outputs   the return value of `call` -> {'out': ..., 'lse': ...} in the workload's canonical layout and dtype
              (never timed)
    setup     `tensors` -> arguments of `call`, run before every call and not timed: copies that the call may overwrite,
              or the forward pass when the call is a backward pass. Only gated functions have one
    config    what was chosen (block sizes, dispatch path), recorded with the result
    declares  names that must, or must not, appear among the kernels and operators that run
    arguments    canonical inputs that another kernel has just computed -> arguments of `call`, as views where the
                 kernel can read that layout; None where `convert` does no work. Part of the timed region of a layer
                 that uses this backend's attention
    beside    memory next to `tensors` that no call may write to, where it is known
    apart     the same results, computed in the other ways a function with gradients is called: checked, never timed
    """

    call: Callable[..., Any]
    tensors: Tensors
    convert: Callable[[Tensors], Tensors]
    outputs: Callable[[Any], Outputs]
    config: dict[str, str] = field(default_factory=dict)
    declares: Declares = field(default_factory=Declares)
    arguments: Callable[[Tensors], Tensors] | None = None
    setup: Callable[..., tuple[Any, ...]] | None = None
    beside: tuple[Beside, ...] = ()
    apart: Otherwise | None = None

    def run(self) -> Any:
        """Makes one call, after `setup` if there is one, and returns what `call` returned, unconverted."""
        return self.call(*self.prepare_arguments())

    def prepare_arguments(self) -> tuple[Any, ...]:
        """Returns the arguments of `call`: `tensors`, or what `setup`, if there is one, now returns for them."""
        return self.tensors if self.setup is None else self.setup(*self.tensors)

    def load(self, inputs: Tensors) -> None:
        """Converts canonical `inputs` and copies them over `tensors`, whose addresses do not change. Raises UsageError
        if `convert` does not return as many tensors in a tuple."""
        converted = self.convert(inputs)
        if not isinstance(converted, (tuple, list)) or len(converted) != len(self.tensors):
            got = f"{len(converted)} tensors" if isinstance(converted, (tuple, list)) else type(converted).__name__
            raise UsageError(
                f"Prepared.convert returned {got}; return a tuple of {len(self.tensors)}, as Prepared.tensors has"
            )
        for own, new in zip(self.tensors, converted, strict=True):
            copy_into(own, new)


def copy_into(own: torch.Tensor, new: torch.Tensor) -> None:
    """Copies `new` into the memory of `own`. If `own` is expanded (stride 0 in a dimension), `new` of the same shape
    must repeat its elements along that dimension too: only the first one is copied."""
    for dim, (size, stride) in enumerate(zip(own.shape, own.stride(), strict=True)):
        if stride == 0 and size > 1 and new.shape == own.shape:
            own, new = own.narrow(dim, 0, 1), new.narrow(dim, 0, 1)
    own.copy_(new)


@dataclass(frozen=True)
class Backend(abc.ABC, Generic[W]):
    """One implementation of one or more op families. Subclasses define `families` and `prepare`.

        @dataclass(frozen=True)
        class Mine(Backend[Rope]):
            families = ("rope",)

            def prepare(self, workload: Rope, inputs: Tensors) -> Prepared: ...

    name             e.g. 'triton.flash'; no hyphen, because ids are joined by hyphens
    cpu_flops_max    the largest workload, in FLOPs, that is worth running without a GPU; 0 means never on a CPU,
                     unless the backend is asked for by name: then only `unsupported_reasons` refuses
    times_on_cpu     False where running without a GPU uses an interpreter, so that the time means nothing
    tolerance        its error budget, with a source when it is not the default
    takes_strides    its call heeds the strides of `Prepared.tensors`, so that other layouts are tried on these even
                     where `convert` makes them contiguous
    invariant        it promises that a sequence, a request or a row has the same bits alone, in a batch, anywhere in
                     it, and in another chunk: a case with other bits is INCORRECT
    """

    name: str
    cpu_flops_max: float = 0.0
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)
    takes_strides: bool = field(default=False, kw_only=True)
    invariant: bool = field(default=False, kw_only=True)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the op families that it implements. Use a class attribute if all instances implement the same."""
        return ()

    @property
    def idea(self) -> str:
        """What it does to be fast, in a few words, for pages that compare backends; '' where nothing is to be said."""
        return ""

    def unsupported_reasons(self, workload: W, device: DeviceInfo) -> list[str]:
        """Returns the reasons, in words, why this backend cannot run the workload on `device`; empty if it can. An
        override must not import a vendor library."""
        return []

    def prepare(self, workload: W, inputs: Tensors) -> Prepared:
        """Builds and compiles for one workload, and converts `inputs` (canonical, contiguous, on the device) into this
        backend's layout; nothing of it is timed. Every backend overrides it: this one raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} has no prepare()")


@dataclass(frozen=True)
class Around(Backend[Any]):
    """A wrapper around another backend, with the same name, families, limits and budget. Subclasses change `prepare`.

    backend    the wrapped backend
    """

    name: str = field(init=False)
    cpu_flops_max: float = field(init=False)
    times_on_cpu: bool = field(init=False)
    tolerance: Tolerance = field(init=False)
    takes_strides: bool = field(init=False)
    invariant: bool = field(init=False)
    backend: Backend

    def __post_init__(self) -> None:
        for name in ("name", "cpu_flops_max", "times_on_cpu", "tolerance", "takes_strides", "invariant"):
            object.__setattr__(self, name, getattr(self.backend, name))

    @property
    def families(self) -> tuple[str, ...]:
        """The op families of the wrapped backend."""
        return self.backend.families

    @property
    def idea(self) -> str:
        """The idea of the wrapped backend."""
        return self.backend.idea

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Returns what the wrapped backend's `unsupported_reasons` returns."""
        return self.backend.unsupported_reasons(workload, device)


@runtime_checkable
class Pinnable(Protocol):
    """A backend that chooses a configuration by itself, and can use a stored one instead."""

    def replay_config(self, config: Mapping[str, str]) -> Backend:
        """Returns this backend with its choices fixed to `config` (a stored `Prepared.config`, and what autotuners
        chose). Raises UsageError when the configuration cannot be replayed, saying what is missing."""


def replay_choice(backend: Backend, config: Mapping[str, str]) -> Backend:
    """Returns the backend with its own choice replayed from a stored configuration, or unchanged if it makes no choice.
    `measure.pinned_backend.pin` calls this first, and then replays the autotuners that the backend uses. Raises
    UsageError as `Pinnable.replay_config` does."""
    return backend.replay_config(config) if isinstance(backend, Pinnable) else backend


_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


class Registry:
    """Backends by name, in the order they were registered; filled through `pytest_attnperf_register_backends`."""

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}

    def add(self, *backends: Backend) -> None:
        """Registers backends under their names. Raises UsageError for one that is no `Backend`, lacks families or
        `prepare`, or whose name is malformed or already registered."""
        for backend in backends:
            _require_complete(backend)
            if not _NAME.fullmatch(backend.name):
                raise UsageError(
                    f"backend name {backend.name!r} is malformed: use letters, digits, '_' and '.', no hyphen "
                    "(a test id joins backend and workload by a hyphen), e.g. 'triton.flash'"
                )
            if backend.name in self._backends:
                raise UsageError(_describe_twice(self._backends[backend.name], backend))
            self._backends[backend.name] = backend

    def replace(self, backend: Backend) -> None:
        """Replaces the backend that has the same name as `backend`. Raises UnknownNameError if there is none."""
        self.get(backend.name)
        self._backends[backend.name] = backend

    def get(self, name: str) -> Backend:
        """Returns the backend of that name. Raises UnknownNameError, which lists the registered names, if there is
        none."""
        if name not in self._backends:
            raise UnknownNameError("backend", name, self._backends)
        return self._backends[name]

    def for_family(self, family: str) -> list[Backend]:
        """Returns the backends of an op family in the order of registration."""
        return [backend for backend in self if family in backend.families]

    def require_families(self, known: Collection[str]) -> None:
        """Raises UsageError if a backend names an op family that is not in `known`: no test would ever run it."""
        for backend in self:
            for family in backend.families:
                if family not in known:
                    where = find_class_place(type(backend))
                    raise UsageError(
                        f"{where}: {backend.name} is of family {family!r}, which is not registered (BUILT_IN of "
                        f"pytest_attnperf/workloads/families.py, or the hook pytest_attnperf_register_workloads); "
                        f"{known_names(family, known)}"
                    )

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def __len__(self) -> int:
        return len(self._backends)


def _describe_twice(first: Backend, second: Backend) -> str:
    """Returns a message that two backends have one name, or that one of them was registered twice."""
    places = [f"{find_class_place(type(one))}: class {type(one).__name__}" for one in (first, second)]
    if first is second:
        return f"{places[0]}: backend {first.name!r} is registered twice: its module is listed twice; remove one line"
    by = places[0] if places[0] == places[1] else f"{places[0]}, and {places[1]}"
    return f"{by}: backend {first.name!r} is registered twice; give one of them another name"


def _require_complete(backend: object) -> None:
    """Raises UsageError, naming class, file and line, if an object is no `Backend` or lacks `families` or `prepare`."""
    kind = backend if isinstance(backend, type) else type(backend)
    lacks = ""
    if isinstance(backend, type):
        lacks = f"is registered as a class: register an instance with a name, e.g. {kind.__name__}('native.mine')"
    elif not isinstance(backend, Backend):
        lacks = "is no Backend: derive it from pytest_attnperf.backends.Backend"
    elif not isinstance(backend.families, tuple) or not backend.families:
        lacks = (
            f"has families = {backend.families!r}: name the op families that it implements as a tuple, e.g. "
            "families = ('rmsnorm',)"
        )
    elif type(backend).prepare is Backend.prepare:
        lacks = "has no prepare(self, workload, inputs): give one that returns a Prepared"
    if lacks:
        raise UsageError(f"{find_class_place(kind)}: class {kind.__name__} {lacks}")
