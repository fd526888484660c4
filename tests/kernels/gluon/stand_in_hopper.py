"""What `stand_in` lacks for sm_90: groups of warps side by side, their barriers, TMA, and asynchronous products.

Each group of warps is a thread. One runs at a time, until it waits for a barrier that is not complete; the last one of
`gl.warp_specialize`, which loads, goes first, so that it is as far ahead as the barriers let it. A copy arrives when
somebody waits for its barrier, and a product reads shared memory when it is waited for: each as late as it may.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.experimental.gluon import language
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tests.kernels.gluon.stand_in import UNFENCED, Executed, Shared, StandInError, bind, tensors_with_layouts


class Group:
    """A group of warps: a thread that runs while it has the baton."""

    def __init__(self, function: Callable[..., None], arguments: Any) -> None:
        self.turn, self.pause = threading.Semaphore(0), threading.Semaphore(0)
        self.may_run: Callable[[], bool] = lambda: True
        self.done = self.abandoned = False
        self.error: BaseException | None = None
        self.products: list[Product] = []
        self.stores: list[tuple[Described, list[int], Shared]] = []
        self.thread = threading.Thread(target=self._run, args=(function, arguments))

    def _run(self, function: Callable[..., None], arguments: Any) -> None:
        self.turn.acquire()
        try:
            if not self.abandoned:
                function(*arguments)
        except BaseException as error:
            self.error = error
        self.done = True
        self.pause.release()

    def block(self, ready: Callable[[], bool]) -> None:
        """Gives the baton back, until `ready()` and no group before this one can run."""
        self.may_run = ready
        self.pause.release()
        self.turn.acquire()
        if self.abandoned:
            raise StandInError("another group of warps failed")


@dataclass
class Barrier:
    """An mbarrier: a phase ends when `count` have arrived and all expected bytes are there."""

    count: int = 0
    arrived: int = 0
    expected: int = 0
    phases: int = 0
    copies: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def complete(self, phase: int) -> bool:
        """Whether the phase of this parity has ended; lets copies arrive that end it."""
        self.advance()
        return self.phases % 2 != phase

    def advance(self) -> None:
        """Ends the phase if all have arrived and all that is expected is on its way."""
        coming = sum(values.numel() * values.element_size() for _, values in self.copies)
        if self.arrived == self.count and self.expected == coming:
            for place, values in self.copies:
                place.copy_(values)
            self.copies, self.arrived, self.expected = [], 0, 0
            self.phases += 1


@dataclass(frozen=True)
class Barriers:
    """Barriers in shared memory."""

    each: list[Barrier]

    @property
    def shape(self) -> list[int]:
        """As of shared memory."""
        return [len(self.each), 1]

    def index(self, number: Any) -> Barrier:
        """The barrier of this number."""
        return self.each[int(number)]


@dataclass
class Product:
    """An asynchronous product, which is a tensor once it was waited for."""

    a: Any
    b: Shared
    acc: Any
    use_acc: bool
    value: torch.Tensor | None = None

    def finish(self) -> None:
        """Reads the operands, and computes it; a product before it, to which it adds, is finished."""
        a = self.a.values if isinstance(self.a, Shared) else self.a
        acc = self.acc.value if isinstance(self.acc, Product) else self.acc
        self.value = a.float() @ self.b.values.float() + (acc if self.use_acc else 0.0)

    def refuse(self, *_: Any, **_named: Any) -> Any:
        """Raises StandInError: only a later product may add to one that is not waited for."""
        raise StandInError("a product is read that is not waited for")

    __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __getitem__ = refuse
    __torch_function__ = classmethod(refuse)
    shape = property(refuse)


@dataclass(frozen=True)
class Described:
    """What TMA copies: blocks of a contiguous tensor, which its descriptor may give more dimensions."""

    given: TensorDescriptor

    @property
    def block_shape(self) -> list[int]:
        """Sizes of a block."""
        return [*self.given.block_shape]

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        return self.given.base.dtype

    @property
    def layout(self) -> Any:
        """Of a block in shared memory."""
        return self.given.layout

    def elements(self, coord: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Which elements of the block at these coordinates the descriptor has, and the numbers of these in the tensor.

        Addresses are computed modulo 2^64, as TMA does. Raises StandInError for one outside of the tensor.
        """
        base, strides = self.given.base, self.given.strides
        bytes_to_block = sum(int(at) * stride for at, stride in zip(coord, strides, strict=True)) * base.element_size()
        inside = torch.ones(self.block_shape, dtype=torch.bool)
        offsets = torch.zeros(self.block_shape, dtype=torch.long)
        for axis, (at, size) in enumerate(zip(coord, self.given.shape, strict=True)):
            steps = torch.arange(self.block_shape[axis])
            steps = steps.view([-1 if axis == other else 1 for other in range(len(coord))])
            inside &= (int(at) + steps >= 0) & (int(at) + steps < size)
            offsets += steps * strides[axis]
        places = offsets[inside] + bytes_to_block % 2**64 // base.element_size()
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < base.numel():
            raise StandInError(f"TMA names elements {int(places.min())} to {int(places.max())} of {base.numel()}")
        return inside, places

    def read(self, coord: list[Any]) -> torch.Tensor:
        """The block at these coordinates, 0 where the descriptor has nothing."""
        inside, places = self.elements(coord)
        values = torch.zeros(self.block_shape, dtype=self.dtype)
        values[inside] = self.given.base.view(-1)[places]
        return values

    def write(self, coord: list[Any], values: torch.Tensor) -> None:
        """Writes what the descriptor has of the block at these coordinates."""
        inside, places = self.elements(coord)
        self.given.base.view(-1)[places] = values[inside]


class ExecutedOnHopper(Executed):
    """As `Executed`, for kernels of sm_90."""

    def as_argument(self, value: Any) -> Any:
        """A descriptor stays one."""
        return Described(value) if isinstance(value, TensorDescriptor) else super().as_argument(value)

    def run_program(self, gl: Any, arguments: list[Any], constants: dict[str, Any]) -> None:
        """Calls the kernel for one program, with sm_90's part of `gl`."""
        program = Program()
        UNFENCED.clear()
        allocate = gl.allocate_shared_memory
        gl.allocate_shared_memory = lambda dtype, shape, layout: (
            program.make_barriers(shape) if dtype == torch.int64 else allocate(dtype, shape, layout)
        )
        gl.warp_specialize = program.run_groups
        mbarrier = types.SimpleNamespace(
            MBarrierLayout=language.nvidia.hopper.mbarrier.MBarrierLayout,
            init=program.init,
            expect=program.expect,
            arrive=program.arrive,
            wait=lambda barrier, phase: program.group.block(lambda: barrier.complete(int(phase))),
        )
        hopper = types.SimpleNamespace(
            mbarrier=mbarrier,
            tma=types.SimpleNamespace(store_wait=program.wait_stores),
            fence_async_shared=program.fence,
            warpgroup_mma=program.multiply,
            warpgroup_mma_wait=program.wait_products,
        )
        gl.nvidia = types.SimpleNamespace(hopper=hopper)
        names = {"gl": gl, "load_by_tma": program.load, "store_by_tma": program.store, "range": count_up}
        names["reinterpret"] = Shared.reinterpret
        with tensors_with_layouts():
            bind(self.kernel, names)(*arguments, **constants)


def count_up(*bounds: Any) -> Iterator[torch.Tensor]:
    """`range` over values of a kernel, which are tensors."""
    return map(torch.tensor, range(*map(int, bounds)))


class Program:
    """The groups of warps of a program, and what they do to each other."""

    def __init__(self) -> None:
        self.group = Group(lambda: None, ())

    def make_barriers(self, shape: list[int]) -> Any:
        """One barrier, or several."""
        return Barrier() if len(shape) == 1 else Barriers([Barrier() for _ in range(shape[0])])

    def init(self, barrier: Barrier, count: int) -> None:
        """Sets how many arrivals end a phase."""
        barrier.count = count

    def expect(self, barrier: Barrier, bytes: int) -> None:
        """Arrives, and adds bytes to those that must come."""
        barrier.arrived += 1
        barrier.expected += bytes

    def arrive(self, barrier: Barrier, count: int, pred: Any = True) -> None:
        """Arrives, unless the predicate is false. Raises StandInError for one too many."""
        barrier.arrived += count if pred else 0
        if barrier.arrived > barrier.count:
            raise StandInError(f"{barrier.arrived} arrive at a barrier for {barrier.count}")
        if not barrier.copies:
            barrier.advance()
        self.group.block(lambda: True)

    def load(self, desc: Described, coord: list[Any], barrier: Barrier, result: Shared) -> None:
        """Starts a copy: what was there is lost at once. Rows that the tensor has not are 0."""
        values = desc.read(coord)
        result.values.fill_(float("nan"))
        barrier.copies.append((result.values, values))

    def store(self, desc: Described, coord: list[Any], src: Shared) -> None:
        """Starts to store what the descriptor has of a block. Raises StandInError for shared memory that was stored to
        since the last fence."""
        if src.place in UNFENCED:
            raise StandInError("TMA may store what was there before: no fence")
        self.group.stores.append((desc, [*map(int, coord)], src))

    def wait_stores(self, pendings: int) -> None:
        """Completes the oldest stores of the group until as many are left; each reads shared memory no earlier."""
        while len(self.group.stores) > pendings:
            desc, coord, src = self.group.stores.pop(0)
            desc.write(coord, src.values)

    def fence(self) -> None:
        """Lets TMA and products see what the group stored."""
        UNFENCED.clear()

    def multiply(self, a: Any, b: Shared, acc: Any, *, use_acc: bool = True, is_async: bool = False) -> Any:
        """A product, computed at once or when it is waited for. Raises StandInError for shared memory that was stored
        to since the last fence."""
        if any(isinstance(each, Shared) and each.place in UNFENCED for each in (a, b)):
            raise StandInError("a product may read what was there before: no fence")
        if a.shape[1] != b.shape[0]:
            raise StandInError(f"a product of {[*a.shape]} and {[*b.shape]}")
        product = Product(a, b, acc, use_acc)
        self.group.products.append(product)
        return product if is_async else self.wait_products(0, [product])

    def wait_products(self, num_outstanding: int, deps: list[Any]) -> Any:
        """Completes the oldest products until as many are left, and returns the values of `deps`; one that is not
        completed stays a product."""
        while len(self.group.products) > num_outstanding:
            self.group.products.pop(0).finish()
        values = [dep.value if isinstance(dep, Product) and dep.value is not None else dep for dep in deps]
        return values[0] if len(values) == 1 else tuple(values)

    def run_groups(self, functions: list[tuple[Any, Any]], _warps: list[int], _registers: list[int]) -> None:
        """Runs the groups, the last one first. Raises the first error of one, or StandInError if all of them wait."""
        groups = [Group(function, arguments) for function, arguments in functions][::-1]
        for group in groups:
            group.thread.start()
        while waiting := [group for group in groups if not group.done]:
            self.group = next((group for group in waiting if group.may_run()), waiting[0])
            stuck = not self.group.may_run()
            if stuck or any(group.error for group in groups):
                error = next((one.error for one in groups if one.error), StandInError("all groups of warps wait"))
                self._abandon(waiting)
                raise error
            self.group.turn.release()
            self.group.pause.acquire()
        for group in groups:
            group.thread.join()
            if group.error:
                raise group.error
            if group.stores:
                raise StandInError("a group ends while TMA stores from its shared memory")

    def _abandon(self, groups: list[Group]) -> None:
        for group in groups:
            group.abandoned = True
            group.turn.release()
            group.thread.join()
