"""Races through global memory: which wave touched which byte, and what orders waves.

Two waves are ordered by a barrier of their workgroup, and by an atomic or a coherent load (one with a scope or a cache
bit, as compilers write acquiring loads) that meets what the other one stored: it then knows all that the other one did
before. Each wave has a clock that counts these events (vector clocks: Mattern 1989, "Virtual time and global states of
distributed systems"). What is not ordered races, unless both store the same value or one of them is atomic.

Reads are noted only of buffers that the launch has written: an earlier read of what another wave overwrites later is
found where the waves run in the other order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_SEVERAL = -(2**31)


class Marks:
    """Who touched each byte of a buffer last: numbers of stretches of waves, 0 for nobody. A negative writer is an
    atomic."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.writers: Array = np.zeros(size, np.int32)
        self.readers: Array = np.zeros(size, np.int32)


@dataclass(frozen=True)
class _Event:
    """A stretch of a wave's execution: the wave, the count of its clock, and what it knew of the others."""

    wave: int
    count: int
    known: dict[int, int]


class Races:
    """The order of waves. `current` is the number of the one that runs; number 0 is who starts the launch."""

    def __init__(self) -> None:
        self.current = 0
        self._names: dict[int, str] = {0: "the launch"}
        self._clocks: dict[int, dict[int, int]] = {0: {0: 1}}
        self._events: list[_Event] = [_Event(0, 0, {})]
        self._open: dict[int, int] = {}

    def add_wave(self, name: str) -> int:
        """Returns the number of a new wave."""
        number = len(self._names)
        self._names[number] = name
        self._clocks[number] = {number: 1}
        return number

    def join(self, waves: Iterable[int]) -> None:
        """Orders waves as a barrier does: each knows what all of them did."""
        numbers = list(waves)
        merged: dict[int, int] = {}
        for number in numbers:
            for other, count in self._clocks[number].items():
                merged[other] = max(merged.get(other, 0), count)
        for number in numbers:
            self._clocks[number] = dict(merged)
            self._advance(number)

    def read(self, marks: Marks, at: Array, *, coherent: bool) -> None:
        """Notes that the running wave reads the bytes `at` (n, size). Raises ExecutionFault for a race."""
        for event in self._others(marks.writers[at]):
            if coherent:
                self._acquire(event)
            elif event > 0 and not self._is_known(event):
                self._raise("reads", "wrote", marks, at, marks.writers, event)
        if not coherent:
            mine, before = self._event(), marks.readers[at]
            marks.readers[at] = np.where((before == 0) | (before == mine), mine, _SEVERAL)

    def write(self, marks: Marks, at: Array, changed: Array, *, coherent: bool) -> None:
        """Notes that the running wave stores to the bytes `at`, of which `changed` ones get another value."""
        for noted, did in ((marks.writers, "wrote"), (marks.readers, "read")):
            for event in self._others(noted[at][changed]):
                if event > 0 and not coherent and not self._is_known(event):
                    self._raise("writes another value into", did, marks, at[changed], noted, event)
        before = marks.writers[at]
        marks.writers[at] = np.where(changed | (before == 0), self._event(), before)
        marks.readers[at] = np.where(changed, 0, marks.readers[at])

    def update(self, marks: Marks, at: Array) -> None:
        """Notes an atomic of the running wave on the bytes `at`: it is ordered behind what others stored there, and
        orders who meets it later."""
        for event in self._others(marks.writers[at]):
            self._acquire(event)
        marks.writers[at] = -self._event()
        self._advance(self.current)

    def _event(self) -> int:
        """Returns the number of what the running wave does now."""
        if self.current not in self._open:
            known = self._clocks[self.current]
            self._events.append(_Event(self.current, known[self.current], known))
            self._open[self.current] = len(self._events) - 1
        return self._open[self.current]

    def _advance(self, number: int) -> None:
        clock = self._clocks[number]
        self._clocks[number] = {**clock, number: clock[number] + 1}
        self._open.pop(number, None)

    def _others(self, events: Array) -> list[int]:
        """Returns the distinct events that are not of the running wave's stretch; negative ones are atomics."""
        mine = self._open.get(self.current, 0)
        if not events.size or ((events == 0) | (events == mine)).all():
            return []
        return [int(one) for one in np.unique(events) if one and one != _SEVERAL and abs(int(one)) != mine]

    def _is_known(self, event: int) -> bool:
        one = self._events[abs(event)]
        return self._clocks[self.current].get(one.wave, 0) >= one.count

    def _acquire(self, event: int) -> None:
        if self._is_known(event):
            return
        one, clock = self._events[abs(event)], dict(self._clocks[self.current])
        for other, count in {**one.known, one.wave: one.count}.items():
            clock[other] = max(clock.get(other, 0), count)
        self._clocks[self.current] = clock
        self._advance(self.current)

    def _raise(self, does: str, did: str, marks: Marks, at: Array, noted: Array, event: int) -> None:
        byte = int(at[noted[at] == event][0])
        raise ExecutionFault(
            f"{does} byte {byte} of {marks.name}, which {self._names[self._events[event].wave]} {did}: no barrier, "
            "atomic or acquiring load orders them"
        )
