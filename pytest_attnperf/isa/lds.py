"""The LDS of a workgroup: bytes, which of them were written, and which wave touched them since the last barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import POISON, Array, join_bytes

_SEVERAL = 0xFF
_EVERY_BYTE, _LOWEST_BYTE, _SEVERAL_WORD = np.uint32(0x01010101), np.uint32(0xFF), np.uint32(0xFFFFFFFF)


class LdsWatch(Protocol):
    """Is told of accesses."""

    def __call__(self, offsets: Array, size: int, *, writes: bool) -> None:
        """Notes the bytes at which active lanes access `size` bytes each."""


class Lds:
    """`size` bytes. A wave is named by its number + 1; 0 is none.

    Two waves race if both touch a byte between two barriers and at least one changes it: the hardware orders neither.
    A wave may write what a byte holds already, as compilers do for values that several waves have.
    Raises ExecutionFault for a race, an unwritten byte, an address beyond the end and, if `aligned`, one that is not.
    """

    def __init__(self, size: int, *, aligned: bool = True) -> None:
        self.size = size
        self.watch: LdsWatch | None = None
        self.aligned = aligned
        space = -(-size // 16) * 16
        self.data = np.full(space, POISON, np.uint8)
        self._written = np.zeros(space, np.uint8)
        self._writers = np.zeros(space, np.uint8)
        self._readers = np.zeros(space, np.uint8)
        # Bytes that only atomics changed since the last barrier.
        self._atomic = np.zeros(space, np.uint8)
        # The same bytes as words: most accesses are of whole words, which are checked at once.
        self._words = {
            "data": self.data.view(np.uint32),
            "written": self._written.view(np.uint32),
            "writers": self._writers.view(np.uint32),
            "readers": self._readers.view(np.uint32),
            "atomic": self._atomic.view(np.uint32),
        }

    def pass_barrier(self) -> None:
        """Forgets who touched what: every wave has come to the barrier."""
        self._writers[:] = 0
        self._readers[:] = 0
        self._atomic[:] = 0

    def load(self, addresses: Array, size: int, wave: int) -> Array:
        """Returns `size` bytes (1, 2 or a multiple of 4) from each of the n addresses: uint32 (n, words)."""
        offsets = self._check_addresses(addresses, size)
        if self.watch is not None:
            self.watch(offsets, size, writes=False)
        if size < 4 or not (self.aligned or _are_words(offsets)):
            at = offsets[:, None] + np.arange(size)
            self._mark_read(at, wave)
            return join_bytes(self.data[at])
        words = _words_at(offsets, size)
        mine = np.uint32(wave + 1) * _EVERY_BYTE
        writers, readers = self._words["writers"][words], self._words["readers"][words]
        wrong = (writers != 0) & (writers != mine) | (self._words["written"][words] != _EVERY_BYTE)
        mixed = readers != (readers & _LOWEST_BYTE) * _EVERY_BYTE
        if np.count_nonzero(wrong | mixed):
            self._mark_read((words[..., None] * 4 + np.arange(4)).reshape(len(offsets), size), wave)
        else:
            self._words["readers"][words] = np.where((readers == 0) | (readers == mine), mine, _SEVERAL_WORD)
        found: Array = self._words["data"][words]
        return found

    def store(self, addresses: Array, size: int, values: Array, wave: int) -> None:
        """Stores the low `size` bytes of each row of `values`, uint32 (n, words)."""
        offsets = self._check_addresses(addresses, size)
        if self.watch is not None:
            self.watch(offsets, size, writes=True)
        mine = np.uint32(wave + 1) * _EVERY_BYTE
        if size >= 4 and (self.aligned or _are_words(offsets)):
            words = _words_at(offsets, size)
            touched = self._words["writers"][words] | self._words["readers"][words]
            if ((touched == 0) | (touched == mine)).all():
                self._words["data"][words] = values
                self._words["written"][words] = _EVERY_BYTE
                self._words["writers"][words] = mine
                self._words["atomic"][words] = 0
                return
        at = offsets[:, None] + np.arange(size)
        stored = np.ascontiguousarray(values).view(np.uint8)[:, :size]
        writers = self._writers[at]
        same = (self.data[at] == stored) & (self._written[at] != 0)
        self._check_race(np.where(same, 0, writers), at, wave, "writes", "wrote")
        self._check_race(np.where(same, 0, self._readers[at]), at, wave, "writes", "read")
        self.data[at] = stored
        self._written[at] = 1
        self._writers[at] = np.where((writers == 0) | (writers == wave + 1), wave + 1, _SEVERAL)
        self._atomic[at] = 0

    def update(self, addresses: Array, size: int, compute: Callable[[int, int], int], wave: int) -> list[int]:
        """Replaces 4 or 8 bytes at each of n addresses, one after another, by `compute` of its place and its bits.
        Returns the bits before. Atomics of several waves do not race with one another, but with reads and writes.
        Raises ExecutionFault for an address that its size does not divide."""
        offsets = self._check_addresses(addresses, size)
        old = []
        for place, offset in enumerate(offsets.tolist()):
            if offset % size:
                raise ExecutionFault(f"updates {size} bytes of the LDS at {offset}, which {size} does not divide")
            at = np.arange(offset, offset + size)
            others = np.where(self._atomic[at] != 0, 0, self._writers[at])
            self._check_race(others, at, wave, "updates", "wrote")
            self._check_race(self._readers[at], at, wave, "updates", "read")
            self._require_written(at)
            held = int.from_bytes(self.data[at].tobytes(), "little")
            self.data[at] = np.frombuffer(compute(place, held).to_bytes(size, "little"), np.uint8)
            writers = self._writers[at]
            self._writers[at] = np.where((writers == 0) | (writers == wave + 1), wave + 1, _SEVERAL)
            self._atomic[at] = 1
            old.append(held)
        return old

    def _require_written(self, at: Array) -> None:
        if not self._written[at].all():
            byte = int(at[self._written[at] == 0][0])
            raise ExecutionFault(f"reads byte {byte} of the LDS, which nothing wrote")

    def _mark_read(self, at: Array, wave: int) -> None:
        """Checks the bytes `at` (n, size) one by one, and marks them as read."""
        self._check_race(self._writers[at], at, wave, "reads", "wrote")
        self._require_written(at)
        readers = self._readers[at]
        self._readers[at] = np.where((readers == 0) | (readers == wave + 1), wave + 1, _SEVERAL)

    def _check_addresses(self, addresses: Array, size: int) -> Array:
        """Returns the addresses as int64, all of them within the LDS and, if they must be, aligned."""
        offsets = addresses.astype(np.int64)
        unit = min(size, 4)
        if np.count_nonzero((offsets < 0) | (offsets > self.size - size)):
            raise ExecutionFault(
                f"accesses {size} bytes of the LDS at {int(offsets.max())}; the workgroup has {self.size} bytes"
            )
        if self.aligned and np.count_nonzero(offsets & (unit - 1)):
            raise ExecutionFault(f"accesses {size} bytes of the LDS at an address that {unit} does not divide")
        return offsets

    def _check_race(self, others: Array, at: Array, wave: int, does: str, did: str) -> None:
        foreign = (others != 0) & (others != wave + 1)
        if foreign.any():
            byte, other = int(at[foreign][0]), int(others[foreign][0])
            who = "several waves" if other == _SEVERAL else f"wave {other - 1}"
            raise ExecutionFault(
                f"wave {wave} {does} byte {byte} of the LDS, which {who} {did} without a barrier between them"
            )


def _are_words(offsets: Array) -> bool:
    return not (offsets & 3).any()


def _words_at(offsets: Array, size: int) -> Array:
    """Returns the numbers of the words at each offset: (n, words)."""
    found: Array = (offsets >> 2)[:, None] + np.arange(size // 4)
    return found
