"""Steps of scalar, global, flat and buffer accesses. They are queued at their issue and performed where a wait
completes them, in order among accesses of a wave."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.isa.atomics import Atomic, make_atomic_access, read_global_atomic, returns_value
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.lds_access import gather_registers, narrow_words, require_registers
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import M0, DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader
from pytest_attnperf.isa.scratch import make_private_buffer_step
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.wave import CounterName, Step, Wave, active_of

_BYTES = {"ubyte": 1, "byte": 1, "sbyte": 1, "ushort": 2, "short": 2, "sshort": 2, "dword": 4, "dwordx2": 8}
_BYTES |= {"dwordx3": 12, "dwordx4": 16}
_NAME = re.compile(r"(global|buffer)_(load|store)_(\w+)")
_HALF = {"ubyte_d16": "u8", "sbyte_d16": "i8", "short_d16": "u16"}
"""Loads into one half of a register, the upper one with _hi, and what they load."""

_SCALAR = re.compile(r"s_(buffer_)?load_dword(?:x(2|3|4|8|16))?")
_TO_LDS = re.compile(r"global_load_lds_(dword(?:x[34])?)")

_TYPED_STRIDE = 0x3FFF

Place: TypeAlias = "tuple[Array, Array]"
"""Addresses, uint64, of the active lanes, and which of them lie within the resource."""


def make_global_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an access to global memory; None for another instruction."""
    if found := _SCALAR.fullmatch(decoded.name):
        return _make_scalar_load(decoded, int(found[2] or 1), from_buffer=bool(found[1]))
    if not decoded.name.startswith("flat_") and (atomic := read_global_atomic(decoded)):
        return _make_atomic(decoded, atomic)
    if found := _TO_LDS.fullmatch(decoded.name):
        decoded.allow("offset")
        address, base = decoded.operands
        return _make_direct_load(decoded, _BYTES[found[1]], _locate_global(decoded, address, base))
    found = _NAME.fullmatch(decoded.name)
    if found is None:
        return None
    plain = found[3].removesuffix("_d16_hi").removesuffix("_d16")
    if plain not in _BYTES or (plain != found[3] and _BYTES[plain] > 2):
        raise decoded.refuse("the opcode")
    size = _BYTES[plain]
    if found[1] == "global":
        decoded.allow("offset")
        return _make_global(decoded, size, found[2])
    decoded.allow("offset", "offen", "lds")
    return _make_buffer(decoded, size, found[2])


def _make_scalar_load(decoded: DecodedInstruction, words: int, *, from_buffer: bool) -> Step:
    """S_LOAD and S_BUFFER_LOAD: the low two bits of the address are ignored; beyond a raw buffer's bytes is 0."""
    decoded.allow("offset")
    target, base, offset = decoded.operands
    if base.kind != "s" or base.count != (4 if from_buffer else 2):
        raise decoded.refuse(f"the address {base.text!r}")
    start = replace(base, count=2)
    read_base, read_offset = scalar_reader(decoded, start, 64), scalar_reader(decoded, offset, 32)
    first = target.first
    if target.kind != "s" or target.count != words:
        raise decoded.refuse(f"the destination {target.text!r}")
    extra = decoded.number("offset")

    def run(wave: Wave) -> None:
        start, limit = read_base(wave), words
        place = read_offset(wave) + extra & ~3
        if from_buffer:
            if start >> 48 & _TYPED_STRIDE:
                raise decoded.refuse(f"a resource with a stride: {start >> 32:#x}")
            start &= (1 << 48) - 1
            limit = max(0, min(words, (wave.read_scalar(base.first + 2) - place) // 4))
        address = np.array([start + place & ~3], np.uint64)
        numbers = range(first, first + words)

        def complete() -> None:
            found = wave.memory.load(address, 4 * limit)[0].tolist() if limit else []
            for number, value in zip(numbers, [*found, *[0] * (words - limit)], strict=True):
                wave.flying_scalars.discard(number)
                wave.write_scalar(number, value)

        for number in numbers:
            if number in wave.flying_scalars:
                raise ExecutionFault(f"loads into s{number}, whose earlier load is in flight")
            wave.scalars[number] = None
            wave.flying_scalars.add(number)
        wave.issue("scalar", complete)

    return run


def _make_global(decoded: DecodedInstruction, size: int, direction: str) -> Step:
    if direction == "load":
        value, address, base = decoded.operands
    else:
        address, value, base = decoded.operands
    return _make_access(decoded, value, size, direction, _locate_global(decoded, address, base))


def _locate_global(decoded: DecodedInstruction, address: Operand, base: Operand) -> Callable[[Wave], Place]:
    """GLOBAL: the address is 64 bits of a lane plus the offset, or a scalar base plus 32 unsigned bits of a lane."""
    offset = np.uint64(decoded.number("offset") & (1 << 64) - 1)
    if base.kind == "off":
        if address.count != 2:
            raise decoded.refuse(f"the address {address.text!r}")
        low, high = bits_reader(decoded, address), bits_reader(decoded, address, 1)

        def locate(wave: Wave) -> Place:
            active = active_of(wave.exec_mask)
            lanes = low(wave)[active].astype(np.uint64) | high(wave)[active].astype(np.uint64) << np.uint64(32)
            return lanes + offset, np.ones(len(active), bool)
    else:
        read_lane, read_base = bits_reader(decoded, address), scalar_reader(decoded, base, 64)

        def locate(wave: Wave) -> Place:
            active = active_of(wave.exec_mask)
            lanes = read_lane(wave)[active].astype(np.uint64) + np.uint64(read_base(wave))
            return lanes + offset, np.ones(len(active), bool)

    return locate


def _make_atomic(decoded: DecodedInstruction, atomic: Atomic) -> Step:
    """Returns the step of a global or buffer atomic. A buffer's value is its destination, too."""
    operands, target = list(decoded.operands), None
    if decoded.name.startswith("buffer_"):
        decoded.allow("offset", "offen")
        value, *rest = operands
        if returns_value(decoded):
            target = replace(value, count=atomic.size // 4)
        return make_atomic_access(decoded, atomic, value, target, _locate_buffer(decoded, rest, atomic.size))
    decoded.allow("offset")
    if returns_value(decoded):
        target = operands.pop(0)
    address, value, base = operands
    return make_atomic_access(decoded, atomic, value, target, _locate_global(decoded, address, base))


def _make_buffer(decoded: DecodedInstruction, size: int, direction: str) -> Step:
    """BUFFER: base and number of bytes from a resource of four scalar registers; outside of it a load gives 0 and a
    store does nothing. Raw buffers only: a stride, swizzling or an index is refused."""
    operands = list(decoded.operands)
    if "lds" in decoded.modifiers:
        return _make_direct_load(decoded, size, _locate_buffer(decoded, operands, size))
    value = operands.pop(0)
    plain = _make_access(decoded, value, size, direction, _locate_buffer(decoded, operands, size))
    return make_private_buffer_step(decoded, plain) if decoded.arch == "gfx90a" else plain


def _locate_buffer(decoded: DecodedInstruction, operands: list[Operand], size: int) -> Callable[[Wave], Place]:
    offset_in_lane = "offen" in decoded.modifiers
    lane, resource, scalar_offset = operands
    if resource.kind != "s" or resource.count != 4:
        raise decoded.refuse(f"the resource {resource.text!r}")
    read_lane = bits_reader(decoded, lane) if offset_in_lane else None
    if read_lane is None and lane.kind != "off":
        raise decoded.refuse(f"the index {lane.text!r}")
    read_scalar = scalar_reader(decoded, scalar_offset, 32)
    fixed = np.uint64(decoded.number("offset"))
    number = resource.first
    # Bit 23 adds the lane's number. Bits 28 and 29 choose the check of bounds since gfx10: 3 is that of raw buffers.
    special, ordinary = (0x30800000, 0x30000000) if decoded.rdna else (0x00800000, 0)

    def locate(wave: Wave) -> Place:
        words = [wave.read_scalar(number + at) for at in range(4)]
        if words[1] >> 16 & _TYPED_STRIDE or words[3] & special != ordinary:
            raise decoded.refuse(f"a resource with a stride or an index: words {words[1]:#x} and {words[3]:#x}")
        active = active_of(wave.exec_mask)
        offsets = np.full(len(active), fixed, np.uint64)
        if read_lane is not None:
            offsets = read_lane(wave)[active].astype(np.uint64) + fixed
        scalar = read_scalar(wave)
        inside = offsets + np.uint64(size + scalar) <= np.uint64(words[2])
        base = (words[0] | (words[1] & 0xFFFF) << 32) + scalar
        return offsets + np.uint64(base), inside

    return locate


def _make_access(
    decoded: DecodedInstruction, value: Operand, size: int, direction: str, locate: Callable[[Wave], Place]
) -> Step:
    registers, coherent = max(1, size // 4), is_coherent(decoded)
    first = require_registers(decoded, value, registers)
    sign_bits = 8 * size if decoded.name.endswith(("_load_sbyte", "_load_sshort")) else 0

    half = int(decoded.name.endswith("_d16_hi")) if "_d16" in decoded.name else None
    narrow = _HALF.get(decoded.name.partition("_load_")[2].removesuffix("_hi"), "")
    stores: CounterName = "store" if decoded.rdna else "vm"

    def load(wave: Wave) -> None:
        mask = wave.exec_mask
        addresses, inside = locate(wave)

        def complete() -> None:
            words = _load_inside(wave, addresses, inside, size, coherent=coherent)
            if half is not None:
                wave.finish_half(first, half, narrow_words(words, narrow), mask)
                return
            if sign_bits:
                shift = np.int32(32 - sign_bits)
                words = (words.view(np.int32) << shift >> shift).view(np.uint32)
            wave.finish_load(first, words, mask)

        wave.start_load(first, registers, mask)
        wave.issue("vm", complete)

    def store(wave: Wave) -> None:
        addresses, inside = locate(wave)
        words = gather_registers(wave, first, registers)
        if half:
            words = words >> np.uint32(16)
        complete = partial(wave.memory.store, addresses[inside], size, words[inside], coherent=coherent)
        wave.issue(stores, complete, store=True)

    return load if direction == "load" else store


def is_coherent(decoded: DecodedInstruction) -> bool:
    """Returns whether an access has a scope beyond its wave, as compilers give it to acquire and release."""
    return any(name in decoded.modifiers for name in ("glc", "sc0", "sc1", "scope"))


def _load_inside(wave: Wave, addresses: Array, inside: Any, size: int, *, coherent: bool) -> Array:
    if inside.all():
        return wave.memory.load(addresses, size, coherent=coherent)
    words = np.zeros((len(addresses), max(1, size // 4)), np.uint32)
    words[inside] = wave.memory.load(addresses[inside], size, coherent=coherent)
    return words


def _make_direct_load(decoded: DecodedInstruction, size: int, locate: Callable[[Wave], Place]) -> Step:
    """A load straight into LDS: lane l's bytes go to M0 + offset + size * l, in order of the lanes, active or not."""
    fixed, coherent = decoded.number("offset"), is_coherent(decoded)
    if size not in (4, 12, 16):
        raise decoded.refuse("a load of this size into LDS")

    def run(wave: Wave) -> None:
        active = active_of(wave.exec_mask)
        addresses, inside = locate(wave)
        targets = wave.read_scalar(M0) + fixed + size * active.astype(np.int64)

        def complete() -> None:
            wave.lds.store(targets, size, _load_inside(wave, addresses, inside, size, coherent=coherent), wave.number)

        wave.issue("vm", complete)

    return run
