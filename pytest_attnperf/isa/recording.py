"""What an execution did, instruction by instruction: counts, lanes, bytes, bank conflicts, what waits waited for.

Bank conflicts of LDS are the cycles that an access takes because lanes want different words of one bank. A cycle serves
as many lanes as fill the banks, neighbours but for reads of 16 bytes on CDNA, whose groups are FIRST_PHASE and its
images (github.com/triton-lang/triton/pull/11365). Lanes that read one word share it.

Banks: 32 on CDNA2 and CDNA3, 64 on CDNA4 (their ISA documents, "LDS"); 32 are taken for RDNA, and neighbours as the
groups of its wide accesses, without a document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from pytest_attnperf.codeobject.instructions import Instruction
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.wave import Access, Wave, active_of, perform

SEGMENT_BYTES = 64
"""Of memory that a request to L2 brings at least: CDNA3's L1 asks for 64 of a line's 128 bytes."""


BANKS = {"gfx90a": 32, "gfx942": 32, "gfx950": 64, "gfx1100": 32, "gfx1151": 32, "gfx1201": 32}

_NARROW = (0, 1, 2, 3, 20, 21, 22, 23)
FIRST_PHASE = {
    "gfx90a": _NARROW,
    "gfx942": _NARROW,
    "gfx950": (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27),
}
"""Lanes whose 16-byte reads are served at once; the other phases are those of lanes ^ 4, 8 and 32."""


@lru_cache(maxsize=64)
def list_phases(arch: str, size: int, lanes: int, *, writes: bool) -> tuple[tuple[int, ...], ...]:
    """Returns the lanes that are served at once, by cycle, in accesses of `size` bytes a lane."""
    if size == 16 and not writes and arch in FIRST_PHASE:
        first = FIRST_PHASE[arch]
        return tuple(sorted({tuple(sorted(lane ^ flip for lane in first)) for flip in (0, 4, 8, 12, 32, 36, 40, 44)}))
    together = min(lanes, max(1, 4 * BANKS[arch] // max(size, 4)))
    return tuple(tuple(range(start, min(start + together, lanes))) for start in range(0, lanes, together))


def count_cycles(arch: str, size: int, lanes: int, active: Array, offsets: Array, *, writes: bool) -> tuple[int, int]:
    """Returns (cycles without conflicts, cycles that conflicts add) of one access.

    active     numbers of the lanes that take part, of `lanes`
    offsets    the byte of each
    """
    words = np.full((lanes, max(1, size // 4)), -1, np.int64)
    words[active] = (offsets.astype(np.int64)[:, None] + np.arange(0, max(size, 4), 4)) // 4
    least = extra = 0
    for phase in list_phases(arch, size, lanes, writes=writes):
        wanted = np.unique(words[list(phase)])
        wanted = wanted[wanted >= 0]
        if len(wanted):
            least += 1
            extra += int(np.bincount(wanted % BANKS[arch]).max()) - 1
    return least, extra


@dataclass
class Tally:
    """Counts of one instruction, over all waves.

    executed                  times
    lanes                     active ones, added up
    bytes, segments           moved to or from global memory by its lanes, and pieces of SEGMENT_BYTES that hold them
    lds_bytes                 moved to or from LDS
    lds_cycles, lds_conflict_cycles    of its LDS accesses without conflicts, and what conflicts add
    completed                 of a wait: accesses that it completed
    distance                  of a wait: instructions since the issue of what it completed, the fewest; -1 for none
    """

    executed: int = 0
    lanes: int = 0
    bytes: int = 0
    segments: int = 0
    lds_bytes: int = 0
    lds_cycles: int = 0
    lds_conflict_cycles: int = 0
    completed: int = 0
    distance: int = -1


@dataclass
class WaveTrace:
    """One wave: the numbers of its instructions as they ran, and place -> cycles that bank conflicts add there."""

    workgroup: tuple[int, int, int]
    wave: int
    steps: list[int] = field(default_factory=list)
    conflicts: dict[int, int] = field(default_factory=dict)


@dataclass
class Recorder:
    """Watches the waves of a launch. `traces_most` workgroups keep their traces, the others only count."""

    arch: str
    instructions: Sequence[Instruction]
    traces_most: int = 1
    traces: list[WaveTrace] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tallies = [Tally() for _ in self.instructions]
        self._waits = [one.mnemonic.startswith("s_wait") for one in self.instructions]
        self._traced: dict[tuple[int, int, int], None] = {}

    def watch(self, wave: Wave, workgroup: tuple[int, int, int]) -> None:
        """Begins to record a wave of a workgroup."""
        if len(self._traced) < self.traces_most:
            self._traced[workgroup] = None
        trace = WaveTrace(workgroup, wave.number)
        traced = workgroup in self._traced
        if traced:
            self.traces.append(trace)
        wave.recorder = WaveRecorder(self, wave, trace, traced)


@dataclass
class WaveRecorder:
    """Records one wave. `current` is the access that is being completed."""

    recorder: Recorder
    wave: Wave
    trace: WaveTrace
    traced: bool
    current: Access | None = None
    executed: int = 0

    def run(self, index: int, step: Callable[[Wave], object]) -> object:
        """Executes an instruction, and notes it."""
        recorder, wave, trace = self.recorder, self.wave, self.trace
        tally = recorder.tallies[index]
        tally.executed += 1
        tally.lanes += wave.exec_mask.bit_count()
        place = self.executed
        self.executed += 1
        if self.traced:
            trace.steps.append(index)
        before = list(wave.queue) if recorder._waits[index] else None
        mask, queued = wave.exec_mask, len(wave.queue)
        stops = step(wave)
        if before is not None:
            self._note_wait(tally, before, place)
        elif len(wave.queue) > queued:
            access = wave.queue[-1]
            access.index, access.place, access.mask = index, place, mask
        return stops

    def _note_wait(self, tally: Tally, before: Sequence[Access], place: int) -> None:
        kept = {id(access) for access in self.wave.queue}
        done = [access for access in before if id(access) not in kept]
        tally.completed += len(done)
        if done:
            nearest = place - max(access.place for access in done)
            tally.distance = nearest if tally.distance < 0 else min(tally.distance, nearest)

    def complete(self, access: Access) -> None:
        """Performs an access, and notes its addresses."""
        memory, lds = self.wave.memory, self.wave.lds
        self.current = access
        memory.watch, lds.watch = self.note_global, self.note_lds
        try:
            perform(access)
        finally:
            memory.watch = lds.watch = None

    def note_lds(self, offsets: Array, size: int, *, writes: bool) -> None:
        """Notes an access to LDS of the instruction that is being completed."""
        access = self.current
        if access is None or not len(offsets):
            return
        active = active_of(access.mask)
        if len(active) != len(offsets):
            active = np.arange(len(offsets))
        least, extra = count_cycles(
            self.recorder.arch, size, self.wave.size, active, np.asarray(offsets), writes=writes
        )
        tally = self.recorder.tallies[access.index]
        tally.lds_bytes += size * len(offsets)
        tally.lds_cycles += least
        tally.lds_conflict_cycles += extra
        if extra and self.traced:
            self.trace.conflicts[access.place] = self.trace.conflicts.get(access.place, 0) + extra

    def note_global(self, addresses: Array, size: int) -> None:
        """Notes an access to global memory of the instruction that is being completed."""
        access = self.current
        if access is None or not len(addresses):
            return
        tally = self.recorder.tallies[access.index]
        tally.bytes += size * len(addresses)
        first = addresses.astype(np.int64) // SEGMENT_BYTES
        last = (addresses.astype(np.int64) + size - 1) // SEGMENT_BYTES
        tally.segments += len(np.unique(np.concatenate((first, last))))
