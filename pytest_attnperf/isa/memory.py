"""Global memory: named buffers far apart, each with its bounds and a record of the bytes that were written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.races import Marks, Races

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_REGION_BITS = 32
_REGION_START = 1 << (_REGION_BITS - 1)
_PADDING = 16
POISON = 0xFF
"""Every byte of what was never written: a NaN in every float type, -1 as an integer."""


@dataclass
class Buffer:
    """One buffer in global memory. `data` and `written` have a byte per byte; 1 is written. `marks` say which waves
    touched it, once one has stored to it."""

    name: str
    base: int
    size: int
    data: Array
    written: Array
    complete: bool = False
    marks: Marks | None = None

    def read_bytes(self) -> bytes:
        """Returns the content."""
        return self.data[: self.size].tobytes()


class GlobalMemory:
    """Buffers, each in the middle of 4 GiB of addresses of its own, so that an address just outside of one is named
    with its distance. An address that its size (at most 4) does not divide is a fault if `aligned`."""

    def __init__(self, *, aligned: bool = True) -> None:
        self.buffers: list[Buffer] = []
        self.aligned = aligned
        self.races = Races()

    def add(self, name: str, size: int, content: bytes | None = None) -> Buffer:
        """Adds a buffer of `size` bytes: with `content` written throughout, else poisoned and unwritten."""
        space = -(-size // _PADDING) * _PADDING + _PADDING
        data = np.full(space, POISON, np.uint8)
        written = np.zeros(space, np.uint8)
        if content is not None:
            data[:size] = np.frombuffer(content, np.uint8)
            written[:size] = 1
        base = ((len(self.buffers) + 1) << _REGION_BITS) + _REGION_START
        self.buffers.append(Buffer(name, base, size, data, written, content is not None))
        return self.buffers[-1]

    def load(self, addresses: Array, size: int, *, coherent: bool = False) -> Array:
        """Returns `size` bytes (1, 2, or a multiple of 4) from each of the n uint64 addresses: uint32 (n, words), a
        narrow value in the low bits. A coherent load orders its wave behind the stores that it meets."""
        width = max(1, size // 4)
        found = np.empty((len(addresses), width), np.uint32)
        for buffer, chosen, offsets in self._split(addresses, size):
            if not (self.aligned or _are_multiples(offsets, size)):
                found[chosen] = join_bytes(buffer.data[offsets[:, None] + np.arange(size)])
            elif size < 4:
                at = offsets if size == 1 else offsets >> 1
                view = buffer.data if size == 1 else buffer.data.view(np.uint16)
                found[chosen, 0] = view[at]
            else:
                at = (offsets >> 2)[:, None] + np.arange(width)
                found[chosen] = buffer.data.view(np.uint32)[at]
            if not buffer.complete:
                self._require_written(buffer, offsets, size)
            if buffer.marks is not None:
                self.races.read(buffer.marks, offsets[:, None] + np.arange(size), coherent=coherent)
        return found

    def store(self, addresses: Array, size: int, values: Array, *, coherent: bool = False) -> None:
        """Stores `values`, uint32 (n, words), as `load` returns them; where lanes collide, the last one wins."""
        for buffer, chosen, offsets in self._split(addresses, size):
            self._note_store(buffer, offsets, size, values[chosen], coherent=coherent)
            if not (self.aligned or _are_multiples(offsets, size)):
                at = offsets[:, None] + np.arange(size)
                buffer.data[at] = np.ascontiguousarray(values[chosen]).view(np.uint8)[:, :size]
                buffer.written[at] = 1
            elif size < 4:
                at = offsets if size == 1 else offsets >> 1
                kind = np.uint8 if size == 1 else np.uint16
                buffer.data.view(kind)[at] = values[chosen, 0].astype(kind)
                buffer.written.view(kind)[at] = 1 if size == 1 else 0x0101
            else:
                at = (offsets >> 2)[:, None] + np.arange(size // 4)
                buffer.data.view(np.uint32)[at] = values[chosen]
                buffer.written.view(np.uint32)[at] = 0x01010101

    def update(self, addresses: Array, size: int, compute: Callable[[int, int], int]) -> list[int]:
        """Replaces 4 or 8 bytes at each of n addresses, one after another, by `compute` of its place and its bits.
        Returns the bits before. Raises ExecutionFault for an address that its size does not divide."""
        old = []
        for place in range(len(addresses)):
            one = addresses[place : place + 1]
            if int(one[0]) % size:
                raise ExecutionFault(f"updates {size} bytes at {int(one[0]):#x}, which {size} does not divide")
            ((buffer, _, offsets),) = self._split(one, size)
            if buffer.marks is None:
                buffer.marks = Marks(buffer.name, len(buffer.data))
            self.races.update(buffer.marks, offsets[:, None] + np.arange(size))
            at = slice(int(offsets[0]), int(offsets[0]) + size)
            if not buffer.complete:
                self._require_written(buffer, offsets, size)
            held = int.from_bytes(buffer.data[at].tobytes(), "little")
            buffer.data[at] = np.frombuffer(compute(place, held).to_bytes(size, "little"), np.uint8)
            old.append(held)
        return old

    def _note_store(self, buffer: Buffer, offsets: Array, size: int, values: Array, *, coherent: bool) -> None:
        if buffer.marks is None:
            buffer.marks = Marks(buffer.name, len(buffer.data))
        at = offsets[:, None] + np.arange(size)
        stored = np.ascontiguousarray(values).view(np.uint8)[:, :size]
        changed = (buffer.data[at] != stored) | (buffer.written[at] == 0)
        self.races.write(buffer.marks, at, changed, coherent=coherent)

    def _require_written(self, buffer: Buffer, offsets: Array, size: int) -> None:
        unwritten = buffer.written[offsets[:, None] + np.arange(size)] == 0
        if unwritten.any():
            lane, byte = np.argwhere(unwritten)[0]
            raise ExecutionFault(
                f"reads byte {offsets[lane] + byte} of {buffer.name}, which nothing wrote; its {size} bytes begin at "
                f"byte {offsets[lane]}"
            )

    def _split(self, addresses: Array, size: int) -> list[tuple[Buffer, Any, Array]]:
        """Returns (buffer, which addresses, their offsets) for each buffer. Raises ExecutionFault for an address in
        none, one whose bytes leave the buffer, and a misaligned one where that is a fault."""
        if not len(addresses):
            return []
        regions = addresses >> np.uint64(_REGION_BITS)
        first = int(regions[0])
        if (regions == regions[0]).all():
            return [self._check(first, slice(None), addresses, size)]
        return [
            self._check(int(region), regions == region, addresses[regions == region], size)
            for region in np.unique(regions)
        ]

    def _check(self, region: int, chosen: Any, addresses: Array, size: int) -> tuple[Buffer, Any, Array]:
        if not 1 <= region <= len(self.buffers):
            named = ", ".join(buffer.name for buffer in self.buffers)
            raise ExecutionFault(f"accesses the address {int(addresses[0]):#x}, near no buffer; there are: {named}")
        buffer = self.buffers[region - 1]
        offsets = addresses.astype(np.int64) - buffer.base
        low, high = int(offsets.min()), int(offsets.max()) + size - buffer.size
        if low < 0 or high > 0:
            side = f"{-low} bytes before the start" if low < 0 else f"{high} bytes beyond the end"
            raise ExecutionFault(
                f"accesses {side} of {buffer.name}, which has {buffer.size} bytes ({size} bytes at a time)"
            )
        unit = min(size, 4)
        if self.aligned and not _are_multiples(offsets, size):
            raise ExecutionFault(f"accesses {size} bytes of {buffer.name} at an offset that {unit} does not divide")
        return buffer, chosen, offsets


def _are_multiples(offsets: Array, size: int) -> bool:
    return not (offsets & (min(size, 4) - 1)).any()


def join_bytes(content: Array) -> Array:
    """Returns uint8 (n, size) as uint32 (n, words); a narrow value stands in the low bits."""
    size = content.shape[1]
    padded = np.zeros((len(content), max(4, size)), np.uint8)
    padded[:, :size] = content
    words: Array = padded.view(np.uint32)
    return words
