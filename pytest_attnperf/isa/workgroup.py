"""Runs one workgroup: its waves one after another from barrier to barrier, in an order that is drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault, IsaError
from pytest_attnperf.isa.kernel_start import USER_REGISTERS, KernelStart, Size3
from pytest_attnperf.isa.lds import Lds
from pytest_attnperf.isa.memory import Buffer, GlobalMemory
from pytest_attnperf.isa.operands import TTMP
from pytest_attnperf.isa.program import Program
from pytest_attnperf.isa.scratch import PRIVATE_BASE, Scratch, private_resource, wave_offset
from pytest_attnperf.isa.wave import Wave

_SLICE = 10_000
"""Instructions after which a wave that has come to no barrier lets others run."""


@dataclass
class Workgroup:
    """The LDS and the waves of a workgroup, and the numbers of those that have come to a barrier.

    What counts as a barrier is the machine's: S_BARRIER counts waves, not places. Waves may wait at different S_BARRIER
    instructions, and one that has ended counts no longer; neither is a fault, as CDNA's document has it (SOPP,
    S_BARRIER). What a divergent barrier breaks is found where it shows: as a race, unwritten memory, or no end.
    """

    lds: Lds
    waves: list[Wave]
    waiting: set[int] = field(default_factory=set)

    @property
    def executed(self) -> int:
        """Instructions of all waves."""
        return sum(wave.executed for wave in self.waves)


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with its arguments in memory, and the sizes of a workgroup."""

    start: KernelStart
    program: Program
    memory: GlobalMemory
    kernarg: Buffer
    dispatch: Buffer
    block: Size3
    lanes: int
    lds_bytes: int
    instructions_most: int
    arch: str = "gfx942"

    def start_workgroup(self, identity: Size3) -> Workgroup:
        """Returns a workgroup whose waves stand before their first instruction."""
        lds = Lds(self.lds_bytes, aligned=self.memory.aligned)
        threads = self.block[0] * self.block[1] * self.block[2]
        count = -(-threads // self.lanes)
        return Workgroup(lds, [self._start_wave(number, threads, identity, lds) for number in range(count)])

    def advance(self, workgroup: Workgroup, order: random.Random) -> bool:
        """Runs a workgroup to its end, or until a wave sleeps or has run long without a barrier: it may wait for one
        elsewhere. Returns whether it has ended."""
        while running := [wave for wave in workgroup.waves if not wave.ended]:
            ready = [wave for wave in running if wave.number not in workgroup.waiting]
            order.shuffle(ready)
            for wave in ready:
                if self._run_to_stop(wave) and not wave.ended:
                    workgroup.waiting.add(wave.number)
            if any(not wave.ended and wave.number not in workgroup.waiting for wave in running):
                return False
            self._pass_barrier(workgroup)
        return True

    def _pass_barrier(self, workgroup: Workgroup) -> None:
        """Lets the waves go on, each knowing what all of them did.

        On gfx9 the waves of a workgroup share a cache that takes their accesses in order, so that no wait must stand
        between a store to global memory and the barrier (LLVM, "User Guide for AMDGPU Backend", memory model of GFX942
        where the mode is not tgsplit). From gfx10 on a workgroup has two such caches.
        """
        if self.arch.startswith("gfx9"):
            for wave in workgroup.waves:
                self.memory.races.current = wave.actor
                try:
                    wave.perform_stores()
                except IsaError as error:
                    error.locate(self.program.instructions[error.issued_at or 0], wave.place)
                    raise
        workgroup.waiting.clear()
        workgroup.lds.pass_barrier()
        self.memory.races.join(wave.actor for wave in workgroup.waves)

    def _run_to_stop(self, wave: Wave) -> bool:
        """Runs a wave to its next barrier or its end, or for a while. Returns whether it has come to one. Raises
        IsaError with the instruction that failed."""
        steps, limit = self.program.steps, self.instructions_most
        executed, index = wave.executed, wave.index
        pause = min(executed + _SLICE, limit)
        self.memory.races.current = wave.actor
        try:
            while True:
                index = wave.index
                wave.index = index + 1
                executed += 1
                if steps[index](wave):
                    break
                if executed > pause:
                    if executed > limit:
                        raise ExecutionFault(f"the wave has executed {limit} instructions and has not ended")
                    return False
        except IsaError as error:
            place = index if error.issued_at is None else error.issued_at
            error.locate(self.program.instructions[place], wave.place)
            raise
        except IndexError:
            if index < len(steps):
                raise
            raise ExecutionFault(f"{wave.place} runs beyond the kernel's last instruction") from None
        finally:
            wave.executed = executed
        yielded, wave.yielded = wave.yielded, False
        return not yielded

    def _start_wave(self, number: int, threads: int, identity: Size3, lds: Lds) -> Wave:
        place = f"workgroup {identity}, wave {number}"
        wave = Wave(number, place, self.memory, lds, self.program.indices, size=self.lanes)
        if self.start.private_bytes:
            wave.scratch = Scratch(self.start.private_bytes, self.lanes, aligned=self.memory.aligned)
        wave.actor = self.memory.races.add_wave(place)
        wave.jump(self.start.entry)
        lanes = np.arange(number * self.lanes, (number + 1) * self.lanes)
        wave.set_exec(wave.full >> max(0, int(lanes[-1]) + 1 - threads))
        x, y = lanes % self.block[0], lanes // self.block[0] % self.block[1]
        z = lanes // (self.block[0] * self.block[1])
        wave.write_words(0, (x | y << 10 | z << 20).astype(np.uint32), wave.full)
        self._set_scalars(wave, identity)
        return wave

    def _set_scalars(self, wave: Wave, identity: Size3) -> None:
        place = 0
        values = {
            "dispatch packet": self.dispatch.base,
            "kernel arguments": self.kernarg.base,
            "dispatch id": 0,
            "flat scratch": PRIVATE_BASE,
        }
        for name, registers in USER_REGISTERS:
            if name in self.start.asked:
                # Queues stay unwritten: a kernel that uses them reads what nothing wrote.
                if name == "private segment buffer":
                    for at, word in enumerate(private_resource()):
                        wave.write_scalar(place + at, word)
                if name in values:
                    wave.write_scalar_pair(place, values[name])
                place += registers
        first, words = self.start.preload
        content = self.kernarg.data.view(np.uint32)
        for at in range(first, first + words):
            wave.write_scalar(place, int(content[at]))
            place += 1
        if self.arch.startswith("gfx12"):
            _set_trap_registers(wave, identity)
            return
        place = self.start.user_sgprs
        for enabled, value in zip(self.start.workgroup_ids, identity, strict=True):
            if enabled:
                wave.write_scalar(place, value)
                place += 1
        information, offset = self.start.wave_registers
        if self.arch == "gfx90a" and offset:
            # What the register of sizes holds is not stated: a kernel that reads it reads what nothing wrote.
            wave.write_scalar(place + information, wave_offset(wave.number))


def _set_trap_registers(wave: Wave, identity: Size3) -> None:
    """Sets what gfx12 starts a wave with: the workgroup's number in ttmp9 (x) and ttmp7 (y and z, 16 bits each), and
    the wave's in bits 25 to 29 of ttmp8, whose other bits, which no kernel needs, are ones here.

    Source: LLVM, "User Guide for AMDGPU Backend", initial kernel execution state; `AMDGPULegalizerInfo`,
    `legalizeWaveID`.
    """
    x, y, z = identity
    wave.write_scalar(TTMP + 9, x)
    wave.write_scalar(TTMP + 7, y | z << 16)
    wave.write_scalar(TTMP + 8, ~(0x1F << 25) | wave.number << 25)
