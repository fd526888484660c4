"""The memory of inputs: copies that keep strides, gaps and shared memory.

A kernel that assumes a transposed or sliced input to be contiguous is right on a dense copy. One that writes to k is
right where v, a view of the same memory, was copied separately. So copies have the layout of their originals, at
addresses of the same alignment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.backends import Beside, Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from pytest_attnperf.backends import Tensors

WORD_BYTES = 4
"""Places of writes are told in units of this."""

ALIGNMENT = 64
"""Copies have their originals' addresses modulo this: torch aligns fresh memory to 64 bytes on a CPU, and to more on a
GPU, and no load is wider than 16."""


@dataclass(frozen=True)
class Guard:
    """Memory around copies that belongs to no input: `size_bytes` behind them, where writes beyond an end go, and as
    much before them if their originals do not begin at the start of their memory, or else with `before`."""

    size_bytes: int = 512
    before: bool = False


def copy_tensors(tensors: Iterable[torch.Tensor]) -> Tensors:
    """Returns copies at other addresses, with the strides of the originals; tensors that share a storage get copies
    that share one, too."""
    return _copy_tensors(tuple(tensors), None)[0]


def copy_guarded(tensors: Iterable[torch.Tensor], guard: Guard | None = None) -> tuple[Tensors, tuple[Beside, ...]]:
    """Returns (copies as of `copy_tensors`, the memory before, between and behind them, where no call may write).

    Reading there changes a result: behind floating-point inputs is NaN; behind others ones, which are valid indices.
    """
    return _copy_tensors(tuple(tensors), guard or Guard())


def describe_write(beside: Beside, before: torch.Tensor) -> str:
    """Returns where memory beside inputs differs from `before`, its earlier content, e.g. '8 bytes, 0 behind
    tensor 2, at address 0x7f0010'; '' if it does not differ."""
    changed = as_integers(beside.memory).ne(as_integers(before)).nonzero()
    if not len(changed):
        return ""
    width = beside.memory.element_size()
    # Whole words, because some bytes of what was written may be those that lay there.
    first = int(changed[0]) * width // WORD_BYTES * WORD_BYTES
    end = -(-(int(changed[-1]) + 1) * width // WORD_BYTES) * WORD_BYTES
    distance = {Side.BEHIND: first, Side.BEFORE: beside.memory.numel() * width - end}.get(beside.side)
    place = (
        f"{beside.side.value} {beside.what}" if distance is None else f"{distance} {beside.side.value} {beside.what}"
    )
    return f"{end - first} bytes, {place}, at address {beside.memory.data_ptr() + first:#x}"


def each_once(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of all memory that `tensor` shows, in which no element occurs twice; `tensor` itself if none does.
    torch refuses to write to an expanded tensor, and would invert elements shared by several windows once for each."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:  # windows that overlap: all memory from the first element to the last
            return tensor.as_strided((memory_span(tensor),), (1,), tensor.storage_offset())
        reach += (size - 1) * stride
    return tensor


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view as integers of the elements' width, of at most 8 bytes, so that every bit is compared."""
    import torch

    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def memory_span(tensor: torch.Tensor) -> int:
    """Returns the number of elements from a tensor's first to its last in memory, both and gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def count_occupied_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Counts the bytes of memory that tensors occupy; expanded elements and shared memory count once."""
    given = tuple(tensors)
    total = 0
    for numbers in _group_by_storage(given):
        members = [given[number] for number in numbers]
        shown = sum(tensor.numel() * tensor.element_size() for tensor in members)
        low, high = _find_extent(members)
        total += min(shown, high - low)
    return total


def _group_by_storage(tensors: Tensors) -> list[list[int]]:
    """Returns lists of tensor numbers that share one storage; empty, sparse and quantized tensors are alone."""
    import torch

    groups: dict[object, list[int]] = {}
    for number, tensor in enumerate(tensors):
        plain = tensor.layout == torch.strided and tensor.numel() and not tensor.is_quantized
        key = (tensor.device, tensor.untyped_storage().data_ptr()) if plain else number
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _copy_tensors(tensors: Tensors, guard: Guard | None) -> tuple[Tensors, tuple[Beside, ...]]:
    import torch

    copies: dict[int, torch.Tensor] = {}
    beside: list[Beside] = []
    with torch.no_grad():
        for numbers in _group_by_storage(tensors):
            members = [tensors[number].detach() for number in numbers]
            if not all(map(_has_plain_bytes, members)) or (
                guard is None and len(members) == 1 and _is_dense(members[0])
            ):
                copies |= {number: tensor.clone() for number, tensor in zip(numbers, members, strict=True)}
                continue
            made, around = _copy_region(members, guard)
            copies |= dict(zip(numbers, made, strict=True))
            which = f"tensor{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            beside += [Beside(side, which, memory, memory.clone()) for side, memory in around]
    return tuple(copies[number] for number in range(len(tensors))), tuple(beside)


def _copy_region(
    tensors: Sequence[torch.Tensor], guard: Guard | None
) -> tuple[Tensors, list[tuple[Side, torch.Tensor]]]:
    """Copies tensors of one storage into one buffer; returns (copies, [(side, memory there)]). The list is empty
    without a guard."""
    import torch

    first, (low, high) = tensors[0], _find_extent(tensors)
    source = _view_bytes(first, low, high - low)
    size_bytes = 0 if guard is None else guard.size_bytes
    # Inputs that begin at the start of their memory keep that property.
    before = size_bytes if low or (guard is not None and guard.before) else 0
    buffer = torch.empty(before + ALIGNMENT + high - low + size_bytes, dtype=torch.uint8, device=first.device)
    start = before + (source.data_ptr() - buffer.data_ptr() - before) % ALIGNMENT
    end = start + high - low
    buffer[start:end].copy_(source)
    made = tuple(_view_typed(buffer, tensor, start - low) for tensor in tensors)
    if guard is None:
        return made, []
    last = max(tensors, key=_find_end)
    behind = torch.empty(0, dtype=last.dtype, device=last.device).set_(
        buffer.untyped_storage(), end // last.element_size(), (size_bytes // last.element_size(),), (1,)
    )
    stop = end + behind.numel() * last.element_size()
    buffer[:start].fill_(1)
    fill_around(behind)
    shown = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if shown != high - low or len(tensors) > 1 or each_once(first) is not first:
        return made, [(Side.AROUND, buffer[:stop])]
    return made, [(Side.BEHIND, buffer[end:stop]), *([(Side.BEFORE, buffer[:start])] if start else [])]


def fill_around(tensor: torch.Tensor) -> None:
    """Fills memory around tensors, which nothing may read: with NaN, or with ones where the type has none."""
    tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 1)


def _has_plain_bytes(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor can be copied bytewise: dense, not empty or quantized, not lazily conjugated or
    negated."""
    import torch

    lazy = tensor.is_conj() or tensor.is_neg()
    return tensor.layout == torch.strided and bool(tensor.numel()) and not tensor.is_quantized and not lazy


def _is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether a clone has the same layout: no gaps, no element twice, address a multiple of ALIGNMENT."""
    aligned = tensor.data_ptr() % ALIGNMENT == 0
    return aligned and memory_span(tensor) == tensor.numel() and each_once(tensor) is tensor


def _find_extent(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Returns (begin, end) in bytes of the part of their one storage that the tensors occupy."""
    return min(int(tensor.storage_offset()) * tensor.element_size() for tensor in tensors), max(map(_find_end, tensors))


def _find_end(tensor: torch.Tensor) -> int:
    elements = memory_span(tensor) if tensor.numel() else 0
    return (int(tensor.storage_offset()) + elements) * tensor.element_size()


def _view_bytes(tensor: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """Returns a uint8 view of `count` bytes of a tensor's storage, from byte `first` on."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), first, (count,), (1,))


def _view_typed(buffer: torch.Tensor, like: torch.Tensor, shift: int) -> torch.Tensor:
    """Returns a view of `buffer` with the dtype, shape and strides of `like`, at the offset of `like` in its storage
    plus `shift` bytes."""
    import torch

    width = like.element_size()
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(
        buffer.untyped_storage(), (like.storage_offset() * width + shift) // width, like.shape, like.stride()
    )
