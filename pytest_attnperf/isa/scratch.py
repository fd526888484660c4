"""Scratch: memory of each lane's own, in which compilers keep spilled registers and arrays.

The `scratch_` instructions address it from 0 on; where it lies is architected on gfx942 and from gfx11 on, so that no
register of the kernel says it. Source: LLVM, "User Guide for AMDGPU Backend", flat scratch.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.lds_access import gather_registers, narrow_words, require_registers
from pytest_attnperf.isa.memory import POISON, Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.wave import CounterName, Step, Wave, active_of

_NAME = re.compile(r"scratch_(load|store)_(ubyte|sbyte|byte|ushort|sshort|short|dword)(?:x([234]))?(_d16(?:_hi)?)?")
_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4}
_NARROW = {"ubyte": "u8", "sbyte": "i8", "short": "u16"}


class Scratch:
    """`size` bytes of each lane, which hold NaN and count as unwritten. A misaligned offset is a fault if `aligned`."""

    def __init__(self, size: int, lanes: int, *, aligned: bool = True) -> None:
        self.size = size
        self.aligned = aligned
        self.data = np.full((lanes, size), POISON, np.uint8)
        self.written = np.zeros((lanes, size), bool)

    def load(self, active: Array, offsets: Array, size: int) -> Array:
        """Returns `size` bytes of the active lanes: uint32 (active lanes, words), a narrow value in the low bits.
        Raises ExecutionFault beyond the end, for a misaligned offset, and for what was never written."""
        lanes, at = self._check(active, offsets, size)
        if not self.written[lanes, at].all():
            lane, byte = np.argwhere(~self.written[lanes, at])[0]
            raise ExecutionFault(f"reads byte {at[lane, byte]} of lane {active[lane]}'s scratch, which nothing wrote")
        found = np.zeros((len(active), max(4, size)), np.uint8)
        found[:, :size] = self.data[lanes, at]
        return found.view(np.uint32)

    def store(self, active: Array, offsets: Array, size: int, words: Array) -> None:
        """Stores the low `size` bytes of uint32 (active lanes, words)."""
        lanes, at = self._check(active, offsets, size)
        self.data[lanes, at] = np.ascontiguousarray(words).view(np.uint8)[:, :size]
        self.written[lanes, at] = True

    def _check(self, active: Array, offsets: Array, size: int) -> tuple[Array, Array]:
        if len(offsets) and (offsets.min() < 0 or offsets.max() + size > self.size):
            raise ExecutionFault(
                f"accesses {size} bytes of scratch at {int(offsets.max())}; a lane has {self.size} bytes"
            )
        unit = min(size, 4)
        if self.aligned and (offsets % unit).any():
            raise ExecutionFault(f"accesses {size} bytes of scratch at an offset that {unit} does not divide")
        return active[:, None], offsets[:, None] + np.arange(size)


def make_scratch_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an access to scratch; None for another instruction."""
    if not decoded.name.startswith("scratch_"):
        return None
    found = _NAME.fullmatch(decoded.name)
    if found is None or (found[4] and found[2] not in (*_NARROW, "byte")):
        raise decoded.refuse("the opcode")
    decoded.allow("offset")
    size = _BYTES[found[2]] * int(found[3] or 1)
    half = None if not found[4] else int(found[4].endswith("_hi"))
    return (_make_load if found[1] == "load" else _make_store)(decoded, size, half, found[2])


def _make_load(decoded: DecodedInstruction, size: int, half: int | None, kind: str) -> Step:
    value, lane, base = decoded.operands
    registers = max(1, size // 4)
    first, locate = require_registers(decoded, value, registers), _make_locate(decoded, lane, base)
    sign_bits = 8 * size if kind in ("sbyte", "sshort") else 0

    def run(wave: Wave) -> None:
        mask, active = wave.exec_mask, active_of(wave.exec_mask)
        offsets = locate(wave, active)

        def complete() -> None:
            words = scratch_of(wave).load(active, offsets, size)
            if half is not None:
                wave.finish_half(first, half, narrow_words(words, _NARROW[kind]), mask)
                return
            if sign_bits:
                shift = np.int32(32 - sign_bits)
                words = (words.view(np.int32) << shift >> shift).view(np.uint32)
            wave.finish_load(first, words, mask)

        wave.start_load(first, registers, mask)
        wave.issue("vm", complete)

    return run


def _make_store(decoded: DecodedInstruction, size: int, half: int | None, _kind: str) -> Step:
    lane, value, base = decoded.operands
    registers = max(1, size // 4)
    first, locate = require_registers(decoded, value, registers), _make_locate(decoded, lane, base)
    counter: CounterName = "store" if decoded.rdna else "vm"

    def run(wave: Wave) -> None:
        active = active_of(wave.exec_mask)
        offsets, words = locate(wave, active), gather_registers(wave, first, registers)
        if half:
            words = words >> np.uint32(16)
        wave.issue(counter, lambda: scratch_of(wave).store(active, offsets, size, words))

    return run


def _make_locate(decoded: DecodedInstruction, lane: Operand, base: Operand) -> Callable[[Wave, Array], Array]:
    """Returns a function of the active lanes to their offsets in scratch: a register of the lane, a scalar one, both or
    neither, plus the instruction's offset."""
    read_lane = None if lane.kind == "off" else bits_reader(decoded, lane)
    read_base = None if base.kind == "off" else scalar_reader(decoded, base, 32)
    fixed = decoded.number("offset")

    def locate(wave: Wave, active: Array) -> Array:
        start = fixed + (read_base(wave) if read_base else 0)
        if read_lane is None:
            return np.full(len(active), start, np.int64)
        offsets: Array = np.broadcast_to(read_lane(wave), wave.size)[active].astype(np.int64) + start
        return offsets

    return locate


def scratch_of(wave: Wave) -> Scratch:
    """Returns the scratch of a wave. Raises ExecutionFault if its kernel has none."""
    if not isinstance(wave.scratch, Scratch):
        raise ExecutionFault("accesses scratch, of which the kernel has none")
    return wave.scratch
