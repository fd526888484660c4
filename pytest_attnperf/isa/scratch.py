"""Scratch: memory of each lane's own, in which compilers keep spilled registers and arrays.

The `scratch_` instructions address it from 0 on; where it lies is architected on gfx942 and from gfx11 on, so that no
register of the kernel says it. On gfx90a buffer accesses reach it through a resource that the kernel starts with, and
to whose base it adds its wave's offset. Source: LLVM, "User Guide for AMDGPU Backend", flat scratch and private segment
buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.lds_access import gather_registers, narrow_words, require_registers
from pytest_attnperf.isa.memory import POISON, Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.wave import CounterName, Step, Wave, active_of, lanes_of, mask_of

_NAME = re.compile(r"scratch_(load|store)_(ubyte|sbyte|byte|ushort|sshort|short|dword)(?:x([234]))?(_d16(?:_hi)?)?")
_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4}
_NARROW = {"ubyte": "u8", "sbyte": "i8", "short": "u16"}


PRIVATE_BASE = 0x7E00 << 32
"""Where the private segment buffer of gfx90a begins: no other buffer lies there."""

_SWIZZLED, _PRIVATE_WORD = 1 << 31, 0x00E00000
"""The bits of the second and fourth word of its resource that say that each lane has its own bytes."""

_LANES = 64


def private_resource() -> tuple[int, int, int, int]:
    """Returns the resource that a kernel of gfx90a starts with."""
    return PRIVATE_BASE & 0xFFFFFFFF, PRIVATE_BASE >> 32 | _SWIZZLED, 0xFFFFFFFF, _PRIVATE_WORD


def wave_offset(number: int) -> int:
    """Returns what the wave of this number in its workgroup adds to the base of the resource."""
    return (number + 1) << 20


class Scratch:
    """`size` bytes of each lane, which hold NaN and count as unwritten. A misaligned offset is a fault if `aligned`.

    Compilers keep registers in it that only some lanes or paths have written: a whole word that nothing wrote comes
    back as an unwritten register. A narrow value is read by what the source says, and must have been written.
    """

    def __init__(self, size: int, lanes: int, *, aligned: bool = True) -> None:
        self.size = size
        self.aligned = aligned
        self.data = np.full((lanes, size), POISON, np.uint8)
        self.written = np.zeros((lanes, size), bool)

    def find_unwritten(self, active: Array, offsets: Array, size: int) -> Array:
        """Returns which words of the active lanes nothing wrote: booleans (active lanes, words)."""
        lanes, at = self._check(active, offsets, size)
        written: Array = self.written[lanes, at].reshape(len(active), -1, min(size, 4))
        words: Array = np.logical_not(written.any(axis=2))
        return words

    def load(self, active: Array, offsets: Array, size: int) -> Array:
        """Returns `size` bytes of the active lanes: uint32 (active lanes, words), a narrow value in the low bits.
        Raises ExecutionFault beyond the end, for a misaligned offset, and for what was never written of a narrow value
        or of a part of a word."""
        lanes, at = self._check(active, offsets, size)
        known = self.written[lanes, at]
        if size >= 4:
            known = known | np.repeat(self.find_unwritten(active, offsets, size), 4, axis=1)
        if not known.all():
            lane, byte = np.argwhere(~known)[0]
            raise ExecutionFault(f"reads byte {at[lane, byte]} of lane {active[lane]}'s scratch, which nothing wrote")
        found = np.zeros((len(active), max(4, size)), np.uint8)
        found[:, :size] = self.data[lanes, at]
        return found.view(np.uint32)

    def store(self, active: Array, offsets: Array, size: int, words: Array, known: Array | None = None) -> None:
        """Stores the low `size` bytes of uint32 (active lanes, words); `known` says which words were written."""
        lanes, at = self._check(active, offsets, size)
        self.data[lanes, at] = np.ascontiguousarray(words).view(np.uint8)[:, :size]
        self.written[lanes, at] = True if known is None else np.repeat(known, 4, axis=1)[:, :size]

    def _check(self, active: Array, offsets: Array, size: int) -> tuple[Array, Array]:
        if len(offsets) and (offsets.min() < 0 or offsets.max() + size > self.size):
            raise ExecutionFault(
                f"accesses {size} bytes of scratch at {int(offsets.max())}; a lane has {self.size} bytes"
            )
        unit = min(size, 4)
        if self.aligned and (offsets % unit).any():
            raise ExecutionFault(f"accesses {size} bytes of scratch at an offset that {unit} does not divide")
        return active[:, None], offsets[:, None] + np.arange(size)


def make_scratch_step(decoded: DecodedInstruction, more: Callable[[Wave], int] | None = None) -> Step | None:
    """Returns the step of an access to scratch; None for another instruction. `more` gives bytes to add to offsets."""
    if not decoded.name.startswith("scratch_"):
        return None
    found = _NAME.fullmatch(decoded.name)
    if found is None or (found[4] and found[2] not in (*_NARROW, "byte")):
        raise decoded.refuse("the opcode")
    decoded.allow("offset")
    size = _BYTES[found[2]] * int(found[3] or 1)
    half = None if not found[4] else int(found[4].endswith("_hi"))
    return (_make_load if found[1] == "load" else _make_store)(decoded, size, half, found[2], more)


def make_private_buffer_step(decoded: DecodedInstruction, plain: Step) -> Step:
    """Returns the step of a buffer load or store of gfx90a that is one of scratch where its resource is the private
    one, else `plain`. Raises ExecutionFault where the base lacks the wave's offset."""
    value, lane, resource, scalar_offset = decoded.operands
    none = Operand("off", text="off")
    # The scalar offset counts bytes of all lanes together.
    read_offset = scalar_reader(decoded, scalar_offset, 32)
    operands = (value, lane, none) if "_load_" in decoded.name else (lane, value, none)
    modifiers = {name: one for name, one in decoded.modifiers.items() if name != "offen"}
    renamed = replace(decoded, name=decoded.name.replace("buffer_", "scratch_"), operands=operands, modifiers=modifiers)
    access = make_scratch_step(renamed, lambda wave: read_offset(wave) // _LANES)
    number = resource.first

    def run(wave: Wave) -> object:
        if wave.scratch is None or wave.scalars[number + 3] != _PRIVATE_WORD:
            return plain(wave)
        base = wave.read_scalar(number) | (wave.read_scalar(number + 1) & 0xFFFF) << 32
        expected = PRIVATE_BASE + wave_offset(wave.number)
        if base != expected:
            raise ExecutionFault(f"accesses scratch at {base:#x}; that of the wave begins at {expected:#x}")
        return access(wave) if access else None

    return run


def _make_load(
    decoded: DecodedInstruction, size: int, half: int | None, kind: str, more: Callable[[Wave], int] | None
) -> Step:
    value, lane, base = decoded.operands
    registers = max(1, size // 4)
    first, locate = require_registers(decoded, value, registers), _make_locate(decoded, lane, base, more)
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
            if size >= 4:
                missing = scratch_of(wave).find_unwritten(active, offsets, size)
                for place in np.flatnonzero(missing.any(axis=0)).tolist():
                    lost = np.zeros(wave.size, bool)
                    lost[active[missing[:, place]]] = True
                    wave.written[first + place] &= ~mask_of(lost)

        wave.start_load(first, registers, mask)
        wave.issue("vm", complete)

    return run


def _make_store(
    decoded: DecodedInstruction, size: int, half: int | None, _kind: str, more: Callable[[Wave], int] | None
) -> Step:
    lane, value, base = decoded.operands
    registers = max(1, size // 4)
    first, locate = require_registers(decoded, value, registers), _make_locate(decoded, lane, base, more)
    counter: CounterName = "store" if decoded.rdna else "vm"

    def run(wave: Wave) -> None:
        active = active_of(wave.exec_mask)
        offsets, known = locate(wave, active), None
        if size >= 4 and not any(wave.flying.get(number) for number in range(first, first + registers)):
            words = np.ascontiguousarray(wave.vectors[first : first + registers, active].T)
            written = [lanes_of(mask, wave.size)[active] for mask in wave.written[first : first + registers]]
            known = np.stack(written, axis=1)
        else:
            words = gather_registers(wave, first, registers)
        if half:
            words = words >> np.uint32(16)
        wave.issue(counter, lambda: scratch_of(wave).store(active, offsets, size, words, known))

    return run


def _make_locate(
    decoded: DecodedInstruction, lane: Operand, base: Operand, more: Callable[[Wave], int] | None
) -> Callable[[Wave, Array], Array]:
    """Returns a function of the active lanes to their offsets in scratch: a register of the lane, a scalar one, both or
    neither, plus the instruction's offset and `more`."""
    read_lane = None if lane.kind == "off" else bits_reader(decoded, lane)
    read_base = None if base.kind == "off" else scalar_reader(decoded, base, 32)
    fixed = decoded.number("offset")

    def locate(wave: Wave, active: Array) -> Array:
        start = fixed + (read_base(wave) if read_base else 0) + (more(wave) if more else 0)
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
