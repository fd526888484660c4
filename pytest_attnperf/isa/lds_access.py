"""Steps of LDS instructions. They are queued at their issue and performed in order where a wait completes them: a write
is late, too, as long as no s_waitcnt covers it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.swizzle import choose_lanes
from pytest_attnperf.isa.wave import Step, Wave, active_of

_BYTES = {"u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_PLAIN = re.compile(r"ds_(read|write)_(u8|i8|b8|u16|i16|b16|b32|b64|b96|b128)")
_HALF = re.compile(r"ds_(?:read_(u8|i8|u16)|write_(b8|b16))_d16(_hi)?")
_TRANSPOSED = re.compile(r"ds_read_b64_tr_b(16|8|4)|ds_read_b96_tr_b(6)")
_TWO = re.compile(r"ds_(read|write)2(st64)?_(b32|b64)")


def make_lds_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an LDS instruction; None for another one."""
    name = decoded.name
    if not name.startswith("ds_"):
        return None
    if name == "ds_bpermute_b32":
        return _make_permute(decoded)
    if name == "ds_swizzle_b32":
        return _make_swizzle(decoded)
    if found := _TRANSPOSED.fullmatch(name):
        return _make_transposed_read(decoded, int(found[1] or found[2]))
    if found := _PLAIN.fullmatch(name):
        decoded.allow("offset")
        size = _BYTES[found[2]]
        if found[1] == "read":
            sign = 8 * size if found[2][0] == "i" else 0
            return _make_read(decoded, size, (decoded.number("offset"),), sign)
        return _make_write(decoded, size, (decoded.number("offset"),))
    if found := _HALF.fullmatch(name):
        decoded.allow("offset")
        return _make_half_read(decoded, found[1], found[3]) if found[1] else _make_half_write(decoded, found[2])
    if found := _TWO.fullmatch(name):
        decoded.allow("offset0", "offset1")
        size = _BYTES[found[3]]
        unit = size * (64 if found[2] else 1)
        offsets = (decoded.number("offset0") * unit, decoded.number("offset1") * unit)
        return (_make_read if found[1] == "read" else _make_write)(decoded, size, offsets)
    raise decoded.refuse("the opcode")


def require_registers(decoded: DecodedInstruction, operand: Operand, count: int) -> int:
    """Returns the first of `count` vector registers."""
    if operand.kind != "v" or operand.count != count:
        raise decoded.refuse(f"the operand {operand.text!r} where {count} vector registers stand")
    return operand.first


def _make_read(decoded: DecodedInstruction, size: int, offsets: tuple[int, ...], sign_bits: int = 0) -> Step:
    target, address = decoded.operands
    registers = max(1, size // 4)
    first = require_registers(decoded, target, registers * len(offsets))
    read_address = bits_reader(decoded, address)

    def run(wave: Wave) -> None:
        mask = wave.exec_mask
        base = read_address(wave)[active_of(mask)].astype(np.int64)

        def complete() -> None:
            found = [wave.lds.load(base + offset, size, wave.number) for offset in offsets]
            words = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
            if sign_bits:
                shift = np.int32(32 - sign_bits)
                words = (words.view(np.int32) << shift >> shift).view(np.uint32)
            wave.finish_load(first, words, mask)

        wave.start_load(first, registers * len(offsets), mask)
        wave.issue("lds", complete)

    return run


def _make_half_read(decoded: DecodedInstruction, kind: str, upper: str | None) -> Step:
    """DS_READ_U16_D16 and its like: into one half of a register, a byte extended to 16 bits."""
    target, address = decoded.operands
    number, size, half = require_registers(decoded, target, 1), _BYTES[kind], 1 if upper else 0
    read_address, offset = bits_reader(decoded, address), decoded.number("offset")

    def run(wave: Wave) -> None:
        mask = wave.exec_mask
        base = read_address(wave)[active_of(mask)].astype(np.int64) + offset

        def complete() -> None:
            wave.finish_half(number, half, narrow_words(wave.lds.load(base, size, wave.number), kind), mask)

        wave.start_load(number, 1, mask)
        wave.issue("lds", complete)

    return run


def narrow_words(words: Array, kind: str) -> Array:
    """Returns uint32 (lanes, 1) of values of type `kind` as uint16 (lanes,), a signed byte extended."""
    values = words[:, 0].astype(np.uint16)
    return values.astype(np.int8).astype(np.int16).view(np.uint16) if kind == "i8" else values


def _make_half_write(decoded: DecodedInstruction, kind: str) -> Step:
    """DS_WRITE_B16_D16_HI and DS_WRITE_B8_D16_HI: from the upper half of a register."""
    return _make_write(decoded, _BYTES[kind], (decoded.number("offset"),), shift=16)


def _make_write(decoded: DecodedInstruction, size: int, offsets: tuple[int, ...], shift: int = 0) -> Step:
    address, *values = decoded.operands
    registers = max(1, size // 4)
    if len(values) != len(offsets):
        raise decoded.refuse(f"the form with {len(values)} values")
    firsts = [require_registers(decoded, value, registers) for value in values]
    read_address = bits_reader(decoded, address)

    def run(wave: Wave) -> None:
        active = active_of(wave.exec_mask)
        base = read_address(wave)[active].astype(np.int64)
        stored = [gather_registers(wave, first, registers) for first in firsts]
        if shift:
            stored = [words >> np.uint32(shift) for words in stored]

        def complete() -> None:
            for offset, words in zip(offsets, stored, strict=True):
                wave.lds.store(base + offset, size, words, wave.number)

        wave.issue("lds", complete)

    return run


def gather_registers(wave: Wave, first: int, count: int) -> Array:
    """Returns the active lanes of registers that are stored: uint32 (lanes, registers)."""
    for number in range(first, first + count):
        if wave.exec_mask & ~wave.written[number]:
            wave.require_written(number, wave.exec_mask)
    return np.ascontiguousarray(wave.vectors[first : first + count, active_of(wave.exec_mask)].T)


def _make_permute(decoded: DecodedInstruction) -> Step:
    """DS_BPERMUTE_B32: lane l gets the value of lane (address / 4) % lanes; 0 of an inactive one. From gfx11 on it
    permutes 32 lanes at a time, and a wave of 64 is refused."""
    decoded.allow("offset")
    if decoded.rdna and decoded.lanes != 32:
        raise decoded.refuse("a permutation of 64 lanes")
    target, address, value = decoded.operands
    first, source = require_registers(decoded, target, 1), require_registers(decoded, value, 1)
    read_address, offset = bits_reader(decoded, address), np.uint32(decoded.number("offset"))

    def choose(wave: Wave) -> Array:
        lanes: Array = ((read_address(wave) + offset) >> np.uint32(2)) % np.uint32(wave.size)
        return lanes

    return _make_exchange(first, source, choose)


def _make_swizzle(decoded: DecodedInstruction) -> Step:
    """DS_SWIZZLE_B32: every lane gets the value of the one that the pattern in the offset says."""
    decoded.allow("offset")
    target, value = decoded.operands
    first, source = require_registers(decoded, target, 1), require_registers(decoded, value, 1)
    chosen = choose_lanes(decoded.number("offset"), decoded.lanes)
    if chosen is None:
        raise decoded.refuse("the mode of this offset")
    return _make_exchange(first, source, lambda _wave: chosen)


def _make_exchange(first: int, source: int, choose: Callable[[Wave], Array]) -> Step:
    def run(wave: Wave) -> None:
        mask, active = wave.exec_mask, active_of(wave.exec_mask)
        if mask & ~wave.written[source]:
            wave.require_written(source, mask)
        found = np.where(wave.lanes, wave.vectors[source], np.uint32(0))[
            np.broadcast_to(choose(wave), wave.size)[active]
        ]
        wave.start_load(first, 1, mask)
        wave.issue("lds", lambda: wave.finish_load(first, found[:, None], mask))

    return run


def _make_transposed_read(decoded: DecodedInstruction, element_bits: int) -> Step:
    """DS_READ_B64_TR_B16, B8 and B4 and DS_READ_B96_TR_B6 of gfx950: each 16 lanes read a matrix of 16 columns, row by
    row, a lane 64 or 96 bits of it; lane l of them gets column l. EXEC must be all ones and the address aligned to
    the data; of 96 bits a multiple of 4 is asked for (AMD, "CDNA4 Instruction Set Architecture", 11.4)."""
    decoded.allow("offset")
    target, address = decoded.operands
    size = 12 if element_bits == 6 else 8
    first, offset = require_registers(decoded, target, size // 4), decoded.number("offset")
    read_address, rows = bits_reader(decoded, address), 8 * size // element_bits

    def run(wave: Wave) -> None:
        if wave.exec_mask != wave.full:
            raise ExecutionFault("reads transposed with inactive lanes; EXEC must be all ones")
        base = np.broadcast_to(read_address(wave), wave.size).astype(np.int64) + offset
        if (base % (4 if size == 12 else 8)).any():
            raise ExecutionFault(f"reads transposed at {int(base.max())}, which is not aligned to the data")

        def complete() -> None:
            bits = np.unpackbits(wave.lds.load(base, size, wave.number).view(np.uint8), bitorder="little")
            columns = bits.reshape(-1, rows, 16, element_bits).transpose(0, 2, 1, 3)
            words = np.packbits(columns.reshape(wave.size, -1), axis=1, bitorder="little").view(np.uint32)
            wave.finish_load(first, words, wave.full)

        wave.start_load(first, size // 4, wave.full)
        wave.issue("lds", complete)

    return run
