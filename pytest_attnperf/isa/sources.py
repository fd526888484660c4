"""Functions that read and write an instruction's operands, made once when a program is loaded.

A `Read` returns a numpy array of all lanes, or a numpy scalar for what all lanes share, of the type that it was made
for. Types: 'u32', 'i32', 'f32', 'u16', 'i16', 'f16', 'u64', 'i64', 'f64', and 'b32' and 'b64' for bits without
modifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand, float_bits
from pytest_attnperf.isa.parts import check_overflow, part_reader, part_writer, write_row
from pytest_attnperf.isa.wave import Wave, mask_of

Read: TypeAlias = Callable[[Wave], Any]
Write: TypeAlias = Callable[[Wave, Any], None]

DTYPES: dict[str, Any] = {
    "b16": np.uint16, "b32": np.uint32, "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "b64": np.uint64, "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip

_SHIFT = np.uint64(32)
_HALF = np.uint32(16)
_HALF_MASK = np.uint32(0xFFFF)


def is_wide(kind: str) -> bool:
    """Returns whether a type takes two registers."""
    return kind.endswith("64")


def constant_bits(decoded: DecodedInstruction, operand: Operand, kind: str) -> int:
    """Returns the bits of a literal or inline constant as a source of type `kind`."""
    width = int(kind[1:])
    if operand.kind == "bits":
        # A 32-bit literal of a 64-bit float is its upper half.
        return operand.first << 32 if kind == "f64" else operand.first & ((1 << width) - 1)
    if operand.kind == "integer":
        return operand.first & ((1 << width) - 1)
    if kind in ("f64", "b64", "i64", "u64"):
        return int(np.float64(operand.number).view(np.uint64))
    return int(np.float16(operand.number).view(np.uint16)) if width == 16 else float_bits(operand.number)


def bits_reader(decoded: DecodedInstruction, operand: Operand, offset: int = 0) -> Read:
    """Returns a reader of the 32 bits of the operand's register number `offset`, or of the part of it that SDWA
    chooses."""
    if operand.part or operand.extended:
        return part_reader(decoded, operand)
    number = operand.first + offset
    if operand.kind == "v":

        def read_vector(wave: Wave) -> Array:
            if wave.exec_mask & ~wave.written[number]:
                wave.require_written(number, wave.exec_mask)
            row: Array = wave.vectors[number]
            return row

        return read_vector
    if operand.kind == "s":
        return lambda wave: np.uint32(wave.read_scalar(number))
    if operand.constant:
        value = np.uint32(constant_bits(decoded, operand, "b32"))
        return lambda _wave: value
    raise decoded.refuse(f"the operand {operand.text!r} as a source")


def reader(decoded: DecodedInstruction, operand: Operand, kind: str, *, half: int = 0) -> Read:
    """Returns a reader of the operand as `kind`, its neg and abs applied. A 16-bit value comes from the half that the
    operand names, else from the upper one where `half` is 1."""
    read = _plain_reader(decoded, operand, kind, half)
    if not (operand.negative or operand.absolute):
        return read
    if kind[0] != "f":
        raise decoded.refuse(f"the source modifier of {operand.text!r} on a value of type {kind}")
    if operand.absolute and operand.negative:
        return lambda wave: -np.abs(read(wave))
    return (lambda wave: np.abs(read(wave))) if operand.absolute else (lambda wave: -read(wave))


def _plain_reader(decoded: DecodedInstruction, operand: Operand, kind: str, half: int) -> Read:
    dtype = DTYPES[kind]
    if operand.constant:
        value = np.array(constant_bits(decoded, operand, kind), f"u{int(kind[1:]) // 8}").view(dtype)[()]
        return lambda _wave: value
    if is_wide(kind):
        if operand.count != 2 or decoded.encoding == "sdwa":
            raise decoded.refuse(f"the operand {operand.text!r} where two registers are read")
        low, high = bits_reader(decoded, operand), bits_reader(decoded, operand, 1)
        return lambda wave: (low(wave).astype(np.uint64) | high(wave).astype(np.uint64) << _SHIFT).view(dtype)
    if operand.count != 1:
        raise decoded.refuse(f"the operand {operand.text!r} where one register is read")
    if operand.half is not None:
        return _half_reader(decoded, operand, kind)
    bits = bits_reader(decoded, operand)
    if kind.endswith("16"):
        shift = _HALF if half else np.uint32(0)
        return lambda wave: (bits(wave) >> shift & _HALF_MASK).astype(np.uint16).view(dtype)
    return bits if dtype is np.uint32 else (lambda wave: bits(wave).view(dtype))


def _half_reader(decoded: DecodedInstruction, operand: Operand, kind: str) -> Read:
    if not kind.endswith("16") or operand.kind != "v":
        raise decoded.refuse(f"the operand {operand.text!r} as a value of type {kind}")
    number, half, dtype = operand.first, operand.half or 0, DTYPES[kind]

    def read(wave: Wave) -> Array:
        if wave.exec_mask & ~wave.written[number]:
            wave.require_written(number, wave.exec_mask)
        row: Array = wave.halves[half][number]
        return row.view(dtype)

    return read


def mask_reader(decoded: DecodedInstruction, operand: Operand) -> Read:
    """Returns a reader of a mask of lanes, an integer, from one or two scalar registers or a constant."""
    if operand.kind == "integer":
        value = operand.first & ((1 << decoded.lanes) - 1)
        return lambda _wave: value
    if operand.kind != "s" or operand.count != decoded.mask_words:
        raise decoded.refuse(f"the operand {operand.text!r} as a mask of lanes")
    number = operand.first
    return lambda wave: wave.read_mask(number)


def writer(decoded: DecodedInstruction, operand: Operand, kind: str) -> Write:
    """Returns a writer of values of type `kind` into the active lanes of a vector register. 16-bit values go into the
    half that the operand names and leave the other as it is; on gfx9, which names none, they clear the upper one."""
    if operand.kind != "v" or operand.count != (2 if is_wide(kind) else 1):
        raise decoded.refuse(f"the operand {operand.text!r} as a destination")
    number = operand.first
    if operand.half is not None:
        return _half_writer(decoded, operand, kind)
    if kind == "f16":
        return _float16_writer(decoded, operand)
    if operand.part:
        write_part = part_writer(decoded, operand)
        narrow = f"u{int(kind[1:]) // 8}"
        return lambda wave, value: write_part(wave, np.asarray(value, DTYPES[kind]).view(narrow))
    if is_wide(kind):

        def write_wide(wave: Wave, value: Any) -> None:
            bits = np.asarray(value, DTYPES[kind]).view(np.uint64)
            write_row(wave, number, bits.astype(np.uint32))
            write_row(wave, number + 1, (bits >> _SHIFT).astype(np.uint32))

        return write_wide
    if kind.endswith("16"):
        if decoded.rdna:
            raise decoded.refuse(f"the operand {operand.text!r} as a destination of 16 bits")
        return lambda wave, value: write_row(wave, number, np.asarray(value, DTYPES[kind]).view(np.uint16))
    dtype = DTYPES[kind]
    if dtype is np.uint32:
        return lambda wave, value: write_row(wave, number, value)
    return lambda wave, value: write_row(wave, number, np.asarray(value, dtype).view(np.uint32))


def _float16_writer(decoded: DecodedInstruction, operand: Operand) -> Write:
    number = operand.first
    write = part_writer(decoded, operand) if operand.part else lambda wave, bits: write_row(wave, number, bits)

    def write_half(wave: Wave, value: Any) -> None:
        half = np.asarray(value, np.float16)
        check_overflow(decoded, wave, half)
        write(wave, half.view(np.uint16))

    return write_half


def _half_writer(decoded: DecodedInstruction, operand: Operand, kind: str) -> Write:
    """Returns a writer of one half. Its register counts as written, the other half too: two instructions fill it."""
    if not kind.endswith("16"):
        raise decoded.refuse(f"the operand {operand.text!r} as a destination of type {kind}")
    number, half, dtype = operand.first, operand.half or 0, DTYPES[kind]
    floating = kind == "f16"

    def write(wave: Wave, value: Any) -> None:
        if wave.flying and wave.flying.get(number):
            wave.require_landed(number)
        halves = np.asarray(value, dtype)
        if floating:
            check_overflow(decoded, wave, halves)
        bits = halves.view(np.uint16)
        if wave.exec_mask == wave.full:
            wave.halves[half][number] = bits
            wave.written[number] = wave.full
        else:
            np.copyto(wave.halves[half][number], bits, where=wave.lanes)
            wave.written[number] |= wave.exec_mask

    return write


def mask_writer(decoded: DecodedInstruction, operand: Operand) -> Write:
    """Returns a writer of a boolean per lane (or one for all) as a mask of lanes; inactive lanes get 0."""
    if operand.null:
        return lambda _wave, _value: None
    if operand.kind != "s" or operand.count != decoded.mask_words:
        raise decoded.refuse(f"the operand {operand.text!r} as a mask of lanes")
    number, narrow = operand.first, decoded.mask_words == 1

    def write(wave: Wave, value: Any) -> None:
        lanes = value if np.shape(value) else np.broadcast_to(value, wave.lanes.shape)
        mask = mask_of(lanes) & wave.exec_mask
        (wave.write_scalar if narrow else wave.write_scalar_pair)(number, mask)

    return write
