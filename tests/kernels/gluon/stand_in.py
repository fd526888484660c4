"""Executes the source of a Gluon kernel on torch tensors: a stand-in for the namespace `gl`, without layouts.

A program is a function call, so every mask, index, order of waits and number is that of the kernel's own code. Shared
memory holds NaN from the issue of a copy to it until the wait for that copy, and where nothing was written. Not
modelled: lanes, waves (nothing runs beside anything), barriers, layouts, 32-bit overflow.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.experimental.gluon import language
from triton.experimental.gluon._runtime import GluonJITFunction

OPTIONS = {"num_warps", "num_stages", "waves_per_eu"}

UNFENCED: set[int] = set()
"""Where shared memory was stored to by a group of warps since the last fence. Only sm_90 needs fences."""


class StandInError(Exception):
    """The kernel does what no GPU would forgive: it names a place outside of a tensor, or leaves a copy running."""


@dataclass(frozen=True)
class Pointer:
    """A place in a contiguous tensor, or one for each element of `offset`."""

    flat: torch.Tensor
    offset: Any = 0

    @property
    def dtype(self) -> Any:
        """What has the type of an element."""
        return types.SimpleNamespace(element_ty=self.flat.dtype)

    def __add__(self, elements: Any) -> Pointer:
        return Pointer(self.flat, self.offset + elements)

    def places(self, mask: torch.Tensor | None) -> torch.Tensor:
        """The numbers of all elements that the mask leaves. Raises StandInError for one outside of the tensor."""
        where = torch.as_tensor(self.offset)
        kept = where if mask is None else where[mask.expand_as(where)]
        if kept.numel() and not 0 <= int(kept.min()) <= int(kept.max()) < len(self.flat):
            raise StandInError(f"names elements {int(kept.min())} to {int(kept.max())} of {len(self.flat)}")
        return kept


@dataclass
class Shared:
    """Shared memory, or a view of a part of it."""

    values: torch.Tensor

    def index(self, number: Any) -> Shared:
        """The tile of this number."""
        return Shared(self.values[int(number)])

    def slice(self, start: int, length: int) -> Shared:
        """Some of its rows."""
        return Shared(self.values[start : start + length])

    def reinterpret(self, dtype: torch.dtype, shape: list[int], layout: object) -> Shared:
        """The same memory with elements of another type."""
        return Shared(self.values.view(dtype).view(shape))

    def permute(self, order: list[int]) -> Shared:
        """The same memory with its dimensions in another order."""
        return Shared(self.values.permute(order))

    def reshape(self, shape: list[int]) -> Shared:
        """The same memory with other dimensions."""
        return Shared(self.values.view(shape))

    @property
    def place(self) -> int:
        """Where the memory begins of which this is a view."""
        return self.values.untyped_storage().data_ptr()

    def store(self, value: torch.Tensor) -> None:
        """Writes all of it."""
        self.values.copy_(value)
        UNFENCED.add(self.place)

    def load(self, _layout: object) -> torch.Tensor:
        """What it holds now."""
        return self.values.clone()

    @property
    def shape(self) -> list[int]:
        """Its sizes."""
        return [*self.values.shape]

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        return self.values.dtype


@dataclass
class Copies:
    """Asynchronous copies to shared memory, which complete in the order of their groups."""

    groups: list[list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=list)
    uncommitted: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def buffer_load_to_shared(self, dest: Shared, ptr: Pointer, offsets: torch.Tensor) -> None:
        """Starts a copy; what was there is lost at once."""
        self.uncommitted.append((dest.values, buffer_load(ptr, offsets)))
        dest.values.fill_(float("nan"))

    def commit_group(self) -> None:
        """Makes a group of the copies since the last one."""
        self.groups.append(self.uncommitted)
        self.uncommitted = []

    def wait_group(self, num_outstanding: int) -> None:
        """Completes the oldest groups until as many are left."""
        while len(self.groups) > num_outstanding:
            for place, values in self.groups.pop(0):
                place.copy_(values)

    def load_shared_relaxed(self, smem: Shared, layout: object) -> torch.Tensor:
        """What the memory holds now."""
        return smem.values.clone()


def buffer_load(ptr: Pointer, offsets: torch.Tensor) -> torch.Tensor:
    """The elements at unsigned offsets from a pointer. Raises StandInError for a negative one."""
    _check_unsigned(offsets)
    return ptr.flat[(ptr + offsets).places(None)]


def buffer_store(stored: torch.Tensor, ptr: Pointer, offsets: torch.Tensor, mask: torch.Tensor) -> None:
    """Stores what the mask leaves at unsigned offsets from a pointer."""
    _check_unsigned(offsets[mask.expand_as(offsets)])
    store(ptr + offsets, stored, mask)


def store(ptr: Pointer, value: torch.Tensor, mask: torch.Tensor | None = None) -> None:
    """Stores what the mask leaves, one pointer per element."""
    ptr.flat[ptr.places(mask)] = value if mask is None else value[mask.expand_as(value)]


def load(ptr: Pointer, mask: torch.Tensor | None = None, other: float = 0.0) -> torch.Tensor:
    """The elements at pointers that the mask leaves, and `other` in the place of those that it does not."""
    where = torch.as_tensor(ptr.offset)
    values = torch.full(where.shape, other, dtype=ptr.flat.dtype)
    kept = torch.ones_like(where, dtype=torch.bool) if mask is None else mask.expand_as(where)
    values[kept] = ptr.flat[ptr.places(mask).flatten()]
    return values


def atomic_add(ptr: Pointer, value: torch.Tensor, sem: str) -> None:
    """Adds to what is there."""
    assert sem == "relaxed"
    ptr.flat[ptr.places(None)] += value


def _check_unsigned(offsets: torch.Tensor) -> None:
    if offsets.numel() and int(offsets.min()) < 0:
        raise StandInError(f"a buffer instruction takes unsigned offsets, one is {int(offsets.min())}")


def _extremum(choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
    return lambda a, b: choose(torch.as_tensor(a), torch.as_tensor(b))


def _static_assert(condition: object) -> None:
    assert condition


def common_namespace(position: tuple[int, int], grid: tuple[int, int]) -> Any:
    """The functions of `gl` that no architecture has for itself, for one program."""
    return types.SimpleNamespace(
        BlockedLayout=language.BlockedLayout,
        SliceLayout=language.SliceLayout,
        NVMMASharedLayout=types.SimpleNamespace(get_default_for=lambda _shape, _dtype: None),
        DotOperandLayout=language.DotOperandLayout,
        NVMMADistributedLayout=language.NVMMADistributedLayout,
        float32=torch.float32,
        int32=torch.int64,  # overflow is not modelled
        int64=torch.int64,
        program_id=lambda axis: torch.tensor(position[axis]),
        num_programs=lambda axis: torch.tensor(grid[axis]),
        static_assert=_static_assert,
        static_range=range,
        allocate_shared_memory=lambda dtype, shape, _layout: Shared(torch.full(shape, float("nan"), dtype=dtype)),
        arange=lambda start, end, layout: torch.arange(start, end),
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
        full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
        convert_layout=lambda value, _layout, assert_trivial=False: value,
        expand_dims=torch.unsqueeze,
        broadcast=torch.broadcast_tensors,
        minimum=_extremum(torch.minimum),
        maximum=_extremum(torch.maximum),
        max=torch.amax,
        sum=torch.sum,
        where=torch.where,
        exp2=torch.exp2,
        fma=lambda a, b, c: torch.addcmul(
            c.double(), a.double(), torch.tensor(b, dtype=torch.float32).double()
        ).float(),
        log2=torch.log2,
        reshape=torch.reshape,
        permute=torch.permute,
        split=lambda value: value.unbind(-1),
        load=load,
        store=store,
        atomic_add=atomic_add,
    )


@contextmanager
def tensors_with_layouts() -> Iterator[None]:
    """Lets kernels ask a tensor for the layout of its type; it has none."""
    torch.Tensor.type = types.SimpleNamespace(layout=None)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del torch.Tensor.type


class Executed:
    """Takes the place of a kernel: `Executed(kernel)[grid](*arguments)` calls its source for each program in turn."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        size_x, size_y = (*grid, 1)[:2]

        def run(*arguments: Any, **constants: Any) -> None:
            options = {name: constants.pop(name) for name in OPTIONS & constants.keys()}
            for position in ((x, y) for y in range(size_y) for x in range(size_x)):
                gl = common_namespace(position, (size_x, size_y))
                gl.num_warps = lambda: options.get("num_warps", 4)
                self.run_program(gl, [*map(self.as_argument, arguments)], constants)

        return run

    def run_program(self, gl: Any, arguments: list[Any], constants: dict[str, Any]) -> None:
        """Calls the kernel for one program, with gfx950's part of `gl`. Raises StandInError if it leaves copies."""
        copies = Copies()
        cdna4 = types.SimpleNamespace(
            async_copy=copies,
            buffer_load=buffer_load,
            buffer_store=buffer_store,
            mfma=lambda a, b, acc: a.float() @ b.float() + acc,
        )
        gl.amd = types.SimpleNamespace(cdna4=cdna4, AMDMFMALayout=language.amd.AMDMFMALayout)
        bind(self.kernel, {"gl": gl})(*arguments, **constants)
        if copies.groups or copies.uncommitted:
            raise StandInError("a program ends with copies to shared memory on their way")

    def as_argument(self, value: Any) -> Any:
        """What the kernel gets in place of a launch's argument."""
        if isinstance(value, torch.Tensor):
            return Pointer(value.view(-1))
        return torch.tensor(value) if isinstance(value, int) else value


def bind(function: Any, names: dict[str, Any]) -> Callable[..., Any]:
    """The Python function of a Gluon function, and of all that it calls, with other values of these global names."""
    scope: dict[str, Any] = {}
    _add_globals(function.fn, scope)
    scope.update(names)
    return types.FunctionType(function.fn.__code__, scope, function.fn.__name__)


def _add_globals(function: Any, scope: dict[str, Any]) -> None:
    """Adds what the function, and all that it calls in whatever module, find by a global name. No two modules may mean
    different things by one name."""
    for name, value in function.__globals__.items():
        if name in scope:
            continue
        if isinstance(value, GluonJITFunction):
            scope[name] = types.FunctionType(value.fn.__code__, scope, name)
            _add_globals(value.fn, scope)
        else:
            scope[name] = value.value if isinstance(value, language.constexpr) else value
