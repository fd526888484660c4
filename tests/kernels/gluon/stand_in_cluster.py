"""What `stand_in` lacks for rows that a cluster shares: its CTAs, which a tensor's first dimension counts.

A cluster is a function call. What a copy to shared memory brings is NaN until it is awaited, and stays so where the
mask is false, because a kernel must not need what it did not ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.kernels.gluon.stand_in import Copies, Executed, Pointer, Shared, StandInError, bind, tensors_with_layouts


@dataclass
class Cluster:
    """Copies to shared memory, and numbers told that nobody has heard, by box."""

    copies: Copies = field(default_factory=Copies)
    told: dict[int, tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def start_copy(self, slot: Shared, pointer: Pointer, mask: torch.Tensor | None) -> None:
        """Starts a copy; what was there is lost at once. Raises StandInError for memory that another copy fills."""
        if any(place.data_ptr() == slot.values.data_ptr() for place, _ in self._under_way()):
            raise StandInError("two copies to the same slot are on their way")
        self.copies.uncommitted.append((slot.values, load(pointer, mask)))
        slot.values.fill_(float("nan"))

    def tell(self, _box: object, turn: Any, first: torch.Tensor, second: torch.Tensor) -> None:
        """Sends two numbers of each CTA. Raises StandInError for a box that still holds what nobody has heard."""
        if self.told.get(int(turn) % 2) is not None:
            raise StandInError("tells numbers before the others have heard those of two turns ago")
        self.told[int(turn) % 2] = int(turn), first.clone(), second.clone()

    def hear(self, _box: object, turn: Any, members: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What was told in a turn. Raises StandInError if nothing was, for which a GPU would wait for ever."""
        told, first, second = self.told.pop(int(turn) % 2, (-1, None, None))
        if told != turn or first is None or second is None:
            raise StandInError("waits for what nobody tells")
        return first[members], second[members]

    def finish(self) -> None:
        """Raises StandInError if a program ends with copies or numbers on their way."""
        if self.told or any(self._under_way()):
            raise StandInError("a program ends with copies to shared memory, or numbers, on their way")

    def _under_way(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [one for group in (*self.copies.groups, self.copies.uncommitted) for one in group]


def load(pointer: Pointer, mask: Any = None, other: float = float("nan"), cache_modifier: str = "") -> torch.Tensor:
    """The elements at a pointer, `other` where the mask is false."""
    offsets = torch.as_tensor(pointer.offset)
    kept = torch.ones_like(offsets, dtype=torch.bool) if mask is None else mask.expand_as(offsets)
    values = torch.full(offsets.shape, other, dtype=pointer.flat.dtype)
    values[kept] = pointer.flat[pointer.places(kept)]
    return values


def store(pointer: Pointer, value: torch.Tensor, mask: Any = None, cache_modifier: str = "") -> None:
    """Stores what the mask leaves, one pointer per element."""
    kept = torch.ones_like(value, dtype=torch.bool) if mask is None else mask.expand_as(value)
    pointer.flat[pointer.places(kept)] = value[kept]


@dataclass
class Slots(Shared):
    """Shared memory whose values are read as a tensor."""

    def index(self, number: Any) -> Slots:
        """The slot of this number."""
        return Slots(self.values[int(number)])

    def load(self, _layout: object) -> torch.Tensor:
        """What the memory holds now."""
        return self.values.clone()


class ExecutedInCluster(Executed):
    """As `Executed`, for kernels over rows: `ExecutedInCluster(kernel)[(clusters,)](*arguments)`."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        run = super().__getitem__((grid[0], 1))

        def without_ctas(*arguments: Any, num_ctas: int, **constants: Any) -> None:
            if num_ctas != constants["SHARE"]:
                raise StandInError(f"{num_ctas} CTAs in a cluster for a row in {constants['SHARE']} shares")
            run(*arguments, **constants)

        return without_ctas

    def run_program(self, gl: Any, arguments: list[Any], constants: dict[str, Any]) -> None:
        """Calls the kernel for one cluster. Raises StandInError if it leaves something on its way."""
        cluster = Cluster()
        gl.allocate_shared_memory = lambda dtype, shape, _layout: Slots(torch.full(shape, float("nan"), dtype=dtype))
        gl.load, gl.store, gl.rsqrt = load, store, torch.rsqrt
        names = {
            "gl": gl,
            "async_copy": cluster.copies,
            "start_async_copy": cluster.start_copy,
            "meet": lambda _any: None,
            "tell": cluster.tell,
            "hear": cluster.hear,
        }
        with tensors_with_layouts():
            bind(self.kernel, names)(*arguments, **constants)
        cluster.finish()
