"""What a kernel author implements, and the registry that suites are parametrised from.

A backend is described without importing its library: `kernels/` must be importable, and a suite collectable, on a
machine that has neither torch nor a compiler. Everything heavy happens inside `prepare`.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class Declares:
    """What a backend says will run, so that a silent substitute fails. Regular expressions, searched in names.

    kernels     each must be found in the name of a kernel that ran on the GPU; not asked for on a CPU
    operators   each must be found in the name of a torch operator that ran, e.g. 'aten::_flash_attention_forward'
    never       none may be found in the name of a kernel or an operator that ran
    host_sync   the call may wait for the device, and copy what it decides by to the host
    own_forward  `convert` runs the backend's own forward pass, whose state its backward pass needs; heeded for op
                families of backward passes only. The incoming gradient is brought into a layout, and no more
    matrix      some kernel of a call must hold matrix instructions (MFMA, WMMA); asked of AMD kernels that were timed
                and whose machine code can be read
    """

    kernels: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    matrix: bool = False
    host_sync: bool = False
    own_forward: bool = False


@dataclass(frozen=True)
class Stage:
    """One stage of a call.

    name     as tables name it, e.g. 'qkv_projection'; 'attention.qk_scores' for one within another stage
    run      takes all values so far by name, and gives those that it adds or replaces; what it allocates is part of it.
             A stage that only makes views launches nothing
    frees    names of values that no later stage reads; they are let go when the whole is called
    """

    name: str
    run: Callable[[Values], Values]
    frees: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A call made of stages, so that the time of each can be told: give it as `Prepared.call`.

    inputs     names of `Prepared.tensors`, in their order
    stages     at least one; they run in this order, each on what those before it left
    outputs    names of the values that the call returns, as a tuple in this order
    """

    inputs: tuple[str, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    def __call__(self, *tensors: torch.Tensor) -> Tensors:
        """The values named in `outputs`, after every stage has run."""
        values = self.name_arguments(tensors)
        for stage in self.stages:
            values.update(stage.run(values))
            for name in stage.frees:
                del values[name]
        return tuple(values[name] for name in self.outputs)

    def name_arguments(self, tensors: Tensors) -> Values:
        """The call's arguments by name. Raises ValueError for another number of them."""
        return dict(zip(self.inputs, tensors, strict=True))


@dataclass(frozen=True)
class Beside:
    """Memory beside inputs that no call may write to.

    where    in words, e.g. 'behind tensor 2'
    memory   its bytes; where there are gaps between elements, also the elements
    first    what it held when it was made
    """

    where: str
    memory: torch.Tensor
    first: torch.Tensor


class Otherwise(Protocol):
    """Another way to the same results; `notes` say what of them the last call did not compute in that way."""

    @property
    def notes(self) -> tuple[str, ...]:
        """In words."""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """What `Prepared.outputs` reads."""


@dataclass
class Prepared:
    """A backend bound to one workload: everything built, compiled and converted, nothing timed yet.

    `tensors` are this backend's own inputs, in its own layout and dtype; the timed region is exactly
    `call(*tensors)`, or the call of `call(*setup(*tensors))`. They stay at the same addresses for the life of the case,
    because a captured graph reads them.

    call      computes from `tensors`; returns whatever the kernel returns
    tensors   what `convert(inputs)` gave, owned here
    convert   canonical inputs of the workload -> tensors in this backend's layout (never timed)
    outputs   the return value of `call` -> {'out': ..., 'lse': ...} in the workload's canonical layout and dtype
              (never timed)
    setup     what `tensors` are made into before every call, untimed: copies that the call may overwrite, or the
              forward pass of a call that is its backward pass. Only gated functions have one
    config    what was chosen (block sizes, dispatch path), recorded with the result
    declares  names that must, or must not, be among what runs
    arguments    canonical inputs that another kernel has just computed -> what `call` takes, as views where the kernel
                 can read them as they lie; None where `convert` does no work. Part of the timed region of a layer that
                 this backend's attention is built into
    beside    memory beside `tensors` that no call may write to, where it is known
    apart     gives what `call` does, computed as a function with gradients is called elsewhere: proven, and never timed
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
        """The timed call, behind what comes before it."""
        return self.call(*self.prepare_arguments())

    def prepare_arguments(self) -> tuple[Any, ...]:
        """What the timed call takes."""
        return self.tensors if self.setup is None else self.setup(*self.tensors)

    def load(self, inputs: Tensors) -> None:
        """Put other canonical inputs into the same memory."""
        for own, new in zip(self.tensors, self.convert(inputs), strict=True):
            copy_into(own, new)


def copy_into(own: torch.Tensor, new: torch.Tensor) -> None:
    """Copy `new` into the memory of `own`, which may be expanded; `new` then repeats its elements likewise."""
    for dim, (size, stride) in enumerate(zip(own.shape, own.stride(), strict=True)):
        if stride == 0 and size > 1 and new.shape == own.shape:
            own, new = own.narrow(dim, 0, 1), new.narrow(dim, 0, 1)
    own.copy_(new)


@dataclass(frozen=True)
class Backend(abc.ABC, Generic[W]):
    """One implementation of one or more op families, and the base of all: a subclass gives `families` and `prepare`.

        @dataclass(frozen=True)
        class Mine(Backend[Rope]):
            families = ("rope",)

            def prepare(self, workload: Rope, inputs: Tensors) -> Prepared: ...

    name             e.g. 'triton.flash'; no hyphen, because ids are joined by hyphens
    cpu_flops_max    the largest workload worth running where there is no GPU; 0 keeps it off CPUs altogether
    times_on_cpu     False where running without a GPU means an interpreter, whose time says nothing
    tolerance        its error budget, with a source when it is not the default
    """

    name: str
    cpu_flops_max: float = 0.0
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of the op families it implements: a line of the class where all of its instances have the same."""
        return ()

    def unsupported_reasons(self, workload: W, device: DeviceInfo) -> list[str]:
        """Why this workload cannot run here; empty means it can. Never imports a vendor library."""
        return []

    def prepare(self, workload: W, inputs: Tensors) -> Prepared:
        """Build, compile and convert for one workload; `inputs` are canonical tensors, contiguous, on the device."""
        raise NotImplementedError(f"{type(self).__name__} has no prepare()")


@dataclass(frozen=True)
class Around(Backend[Any]):
    """A backend around another, with its name, families, limits and budget; a subclass changes what `prepare` gives.

    backend    the other
    """

    name: str = field(init=False)
    cpu_flops_max: float = field(init=False)
    times_on_cpu: bool = field(init=False)
    tolerance: Tolerance = field(init=False)
    backend: Backend

    def __post_init__(self) -> None:
        for name in ("name", "cpu_flops_max", "times_on_cpu", "tolerance"):
            object.__setattr__(self, name, getattr(self.backend, name))

    @property
    def families(self) -> tuple[str, ...]:
        """The other's."""
        return self.backend.families

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """The other's."""
        return self.backend.unsupported_reasons(workload, device)


@runtime_checkable
class Pinnable(Protocol):
    """A backend that chooses a configuration by itself, and can be told to use one that was stored instead."""

    def replay_config(self, config: Mapping[str, str]) -> Backend:
        """The same backend, which runs with what `config` (a stored `Prepared.config`, and what autotuners chose) says.

        Raises UsageError when the configuration cannot be replayed, saying what is missing.
        """


def replay_choice(backend: Backend, config: Mapping[str, str]) -> Backend:
    """The backend with its own choice replayed from a stored configuration; as it is where it makes no choice itself.

    Autotuners that it uses are replayed by `measure.pinned_backend.pin`, which calls this first. Raises UsageError as
    `Pinnable.replay_config` does.
    """
    return backend.replay_config(config) if isinstance(backend, Pinnable) else backend


_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


class Registry:
    """Backends by name, in the order they were registered; filled through `pytest_attnperf_register_backends`."""

    def __init__(self) -> None:
        self._backends: dict[str, Backend] = {}

    def add(self, *backends: Backend) -> None:
        """Register backends. Raises UsageError for an incomplete one, and for a malformed or duplicate name."""
        for backend in backends:
            _require_complete(backend)
            if not _NAME.fullmatch(backend.name):
                raise UsageError(
                    f"backend name {backend.name!r} is malformed: use letters, digits, '_' and '.', no hyphen "
                    "(a test id joins backend and workload by a hyphen), e.g. 'triton.flash'"
                )
            if backend.name in self._backends:
                raise UsageError(f"backend {backend.name!r} is registered twice")
            self._backends[backend.name] = backend

    def replace(self, backend: Backend) -> None:
        """Put another implementation under a name that exists. Raises UnknownNameError otherwise."""
        self.get(backend.name)
        self._backends[backend.name] = backend

    def get(self, name: str) -> Backend:
        """The backend of that name. Raises UnknownNameError listing what exists."""
        if name not in self._backends:
            raise UnknownNameError("backend", name, self._backends)
        return self._backends[name]

    def for_family(self, family: str, names: Iterable[str] | None = None) -> list[Backend]:
        """Backends of a family, optionally only those named; an unknown name raises UnknownNameError."""
        wanted = {self.get(name).name for name in names} if names is not None else None
        return [b for b in self if family in b.families and (wanted is None or b.name in wanted)]

    def require_families(self, known: Collection[str]) -> None:
        """Raise UsageError for a backend of an op family that is none of these: no test would ask for it."""
        for backend in self:
            for family in backend.families:
                if family not in known:
                    where = find_class_place(type(backend))
                    raise UsageError(f"{where}: {backend.name} is of family {family!r}; {known_names(family, known)}")

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def __len__(self) -> int:
        return len(self._backends)


def _require_complete(backend: object) -> None:
    """Raise UsageError that names the class of a backend, its file and line, and what it lacks."""
    kind = type(backend)
    lacks = ""
    if not isinstance(backend, Backend):
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
