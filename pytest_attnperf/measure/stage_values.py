"""The stages of a call, each with the values that one call left before it and behind it, and cold copies of these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.backends import Pipeline, Prepared, Stage, Tensors, Values
from pytest_attnperf.correctness import poison
from pytest_attnperf.measure.copies import Copies, copies_wanted
from pytest_attnperf.measure.timers.base import MAX_CALLS_PER_BLOCK

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.measure.cold_cache import ColdSize

COLD_COPIES_MOST = MAX_CALLS_PER_BLOCK
"""A stage whose inputs are so small that more copies would be needed is timed hot: 64 KiB of 128 MiB, the rows of a
table or of a short cache. Weights of 96 KiB are not: on an H200 a cold decode step of 12 us took 14 % longer than its
hot stages."""


@dataclass(frozen=True)
class Kept:
    """One stage: what it is given, and what it gave when the stages ran once."""

    stage: Stage
    before: Values
    gave: Values

    def run(self) -> Values:
        """The stage again, on what it was given; the mapping is its own, should it change that."""
        return self.stage.run(dict(self.before))

    @property
    def in_place(self) -> bool:
        """Whether something that it gave lies in memory that it was given."""
        return any(poison.overlap(new, old) for new in self.gave.values() for old in self.before.values())

    def put(self, gave: Values) -> None:
        """Put what the stage gave this time into the memory that later stages read."""
        import torch

        with torch.no_grad():
            for name, tensor in gave.items():
                target = self.gave[name]
                if not _same_memory(tensor, target):
                    target.copy_(tensor)


def keep(pipeline: Pipeline, tensors: Tensors) -> tuple[list[Kept], Tensors]:
    """Run every stage once and keep all values; (the stages, what the call returns)."""
    values = pipeline.named(tensors)
    kept = []
    for stage in pipeline.stages:
        before = dict(values)
        gave = stage.run(dict(before))
        kept.append(Kept(stage, before, dict(gave)))
        values.update(gave)
        for name in stage.frees:
            del values[name]
    return kept, tuple(values[name] for name in pipeline.outputs)


def cold_copies(kept: Kept, own: Tensors, size: ColdSize) -> Copies | None:
    """The stage on copies of all that it reads of the call's own inputs; None where it reads none, or too little.

    Views of inputs, as of the rows of a cache, lie in the copies as they lie in the inputs. What earlier stages made
    stays where it is: in the call it has just been written, too.
    """
    mine = {tensor.untyped_storage().data_ptr() for tensor in own if tensor.numel()}
    read = {name: value for name in _names_read(kept) if _storage(value := kept.before[name]) in mine}
    memory = {_storage(value): _bytes_of(value) for value in read.values()}
    wanted = copies_wanted(sum(flat.numel() for flat in memory.values()), size.round_bytes)
    if wanted is None or wanted > COLD_COPIES_MOST:
        return None
    return Copies(tuple(_on_a_copy(kept, read, memory) for _ in range(wanted - 1)), size.note)


def _on_a_copy(kept: Kept, read: Values, memory: dict[int, torch.Tensor]) -> Prepared:
    copied = {storage: flat.clone() for storage, flat in memory.items()}
    moved = {name: _like(value, copied[_storage(value)]) for name, value in read.items()}
    values = {**kept.before, **moved}
    return Prepared(functools.partial(_run, kept.stage.run, values), (), lambda inputs: inputs, lambda raw: dict(raw))


def _run(run: Callable[[Values], Values], values: Values) -> Values:
    return run(dict(values))


class _Noticing(dict[str, Any]):
    """Values that remember which of them were asked for; all of them, once something goes through them."""

    def __init__(self, values: Values) -> None:
        super().__init__(values)
        self.read: dict[str, None] = {}

    def __getitem__(self, name: str) -> Any:
        self.read[name] = None
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Noticed, too."""
        self.read[name] = None
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.read.update(dict.fromkeys(super().keys()))
        return super().__iter__()

    def items(self) -> Any:
        """All of them."""
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        """All of them."""
        return [self[name] for name in self]


def _names_read(kept: Kept) -> Iterable[str]:
    values = _Noticing(kept.before)
    kept.stage.run(values)
    return [name for name in values.read if name in kept.before]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All memory that the tensor is a view of, as bytes."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _like(tensor: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """A view of other bytes, as `tensor` is one of its own."""
    width = tensor.element_size()
    elements = flat[: flat.numel() // width * width].view(tensor.dtype)
    return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
