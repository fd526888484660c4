"""Parts of vector registers: the bytes and halves that SDWA, op_sel and the d16 loads choose.

Source: AMD, "CDNA3 Instruction Set Architecture", section on SDWA: a part as a source is extended with zeros or its
sign; as a destination it leaves the other bits zero, as the sign (above) and zero (below), or as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.wave import Wave

_PARTS = {
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    **{f"BYTE_{byte}": (8 * byte, 8) for byte in range(4)},
    "": (0, 32),
}
"""Name -> lowest bit and bits."""


def write_row(wave: Wave, number: int, value: Any) -> None:
    """Writes 32 bits into the active lanes of a vector register."""
    if wave.flying and wave.flying.get(number):
        wave.require_landed(number)
    if wave.exec_mask == wave.full:
        wave.vectors[number] = value
        wave.written[number] = wave.full
    else:
        np.copyto(wave.vectors[number], value, where=wave.lanes, casting="unsafe")
        wave.written[number] |= wave.exec_mask


FP16_OVERFLOW = 1 << 23
"""FP16_OVFL of MODE: results that are too large become the largest number instead of infinity."""


def check_overflow(decoded: DecodedInstruction, wave: Wave, value: Any) -> None:
    """Raises UnknownInstructionError for an infinite result under FP16_OVFL: whether a source was infinite, which
    decides whether it is limited, is not tracked."""
    if wave.mode & FP16_OVERFLOW and np.isinf(value).any():
        raise decoded.refuse("an infinite result with FP16_OVFL")


def part_reader(decoded: DecodedInstruction, operand: Operand) -> Callable[[Wave], Array]:
    """Returns a reader of the chosen part of a vector or scalar register, extended to 32 bits."""
    shift, bits = _find_part(decoded, operand)
    number, extended = operand.first, operand.extended
    above = 32 - bits
    if operand.kind not in ("v", "s") or operand.count != 1:
        raise decoded.refuse(f"the part {operand.part!r} of {operand.text!r}")

    def extend(word: Any) -> Array:
        # The part is moved to the top, and down again with its sign or with zeros.
        top = np.asarray(word << np.uint32(above - shift), np.uint32)
        if extended:
            signed: Array = (top.view(np.int32) >> np.int32(above)).view(np.uint32)
            return signed
        found: Array = top >> np.uint32(above)
        return found

    if operand.kind == "s":
        return lambda wave: extend(np.uint32(wave.read_scalar(number)))

    def read(wave: Wave) -> Array:
        if wave.exec_mask & ~wave.written[number]:
            wave.require_written(number, wave.exec_mask)
        return extend(wave.vectors[number])

    return read


def part_writer(decoded: DecodedInstruction, operand: Operand) -> Callable[[Wave, Any], None]:
    """Returns a writer of unsigned integers into the chosen part of a vector register."""
    shift, bits = _find_part(decoded, operand)
    number, low, unused = operand.first, np.uint32(shift), operand.unused
    mask = np.uint32((1 << bits) - 1)
    kept = np.uint32(0xFFFFFFFF) ^ (mask << low)
    above = np.int32(32 - bits)
    if unused not in ("", "UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
        raise decoded.refuse(f"the modifier dst_unused:{unused}")

    def write(wave: Wave, value: Any) -> None:
        word = np.asarray(value).astype(np.uint32) & mask
        if unused == "UNUSED_SEXT":
            word = ((word << np.uint32(above)).view(np.int32) >> above).view(np.uint32)
        word = word << low
        if unused == "UNUSED_PRESERVE":
            # The other bits stay, written or not: two instructions fill a register together.
            word = word | wave.vectors[number] & kept
        write_row(wave, number, word)

    return write


def _find_part(decoded: DecodedInstruction, operand: Operand) -> tuple[int, int]:
    if operand.part not in _PARTS:
        raise decoded.refuse(f"the part {operand.part!r} of a register")
    return _PARTS[operand.part]
