"""Steps of FLAT: each lane's address lies in global memory, or in the aperture of LDS or of scratch.

Such an access counts in both counters, and ends in no order with others. Source: AMD, "CDNA3 Instruction Set
Architecture", 10.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from pytest_attnperf.isa.atomics import (
    Atomic,
    operand_registers,
    read_global_atomic,
    returns_value,
    split_operand,
    updates_of,
    words_of,
)
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.global_access import is_coherent
from pytest_attnperf.isa.lds_access import gather_registers, narrow_words, require_registers
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction
from pytest_attnperf.isa.scalar import APERTURES
from pytest_attnperf.isa.scratch import scratch_of
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.wave import CounterName, Step, Wave, active_of

_BYTES = {"ubyte": 1, "byte": 1, "sbyte": 1, "ushort": 2, "short": 2, "sshort": 2, "dword": 4, "dwordx2": 8}
_BYTES |= {"dwordx3": 12, "dwordx4": 16}
_NAME = re.compile(r"flat_(load|store)_(\w+?)(_d16(?:_hi)?)?")
_HALF = {"ubyte": "u8", "sbyte": "i8", "short": "u16"}
_SHARED, _PRIVATE = (APERTURES[name] >> 32 for name in ("src_shared_base", "src_private_base"))
_OFFSET = np.uint64(0xFFFFFFFF)


def make_flat_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a flat access; None for another instruction."""
    if not decoded.name.startswith("flat_"):
        return None
    decoded.allow("offset")
    if atomic := read_global_atomic(decoded):
        return _make_atomic(decoded, atomic)
    found = _NAME.fullmatch(decoded.name)
    if found is None or found[2] not in _BYTES:
        raise decoded.refuse("the opcode")
    return (_make_load if found[1] == "load" else _make_store)(decoded, found[2], found[3])


def _addresses(decoded: DecodedInstruction, place: int) -> Callable[[Wave], Array]:
    address = decoded.operands[place]
    if address.count != 2:
        raise decoded.refuse(f"the address {address.text!r}")
    low, high = bits_reader(decoded, address), bits_reader(decoded, address, 1)
    offset = np.uint64(decoded.number("offset") & (1 << 64) - 1)

    def read(wave: Wave) -> Array:
        active = active_of(wave.exec_mask)
        found: Array = (low(wave)[active].astype(np.uint64) | high(wave)[active].astype(np.uint64) << np.uint64(32)) + (
            offset
        )
        return found

    return read


def _split(addresses: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yields the kind of memory, which addresses lie in it, and the offsets there (of global memory the addresses)."""
    upper = addresses >> np.uint64(32)
    for kind, aperture in (("lds", _SHARED), ("scratch", _PRIVATE)):
        if (chosen := upper == aperture).any():
            yield kind, chosen, (addresses[chosen] & _OFFSET).astype(np.int64)
    if (chosen := (upper != _SHARED) & (upper != _PRIVATE)).any():
        yield "global", chosen, addresses[chosen]


def _by_counter(
    addresses: Array, perform: Callable[[str, Array, Array], None]
) -> dict[CounterName, Callable[[], None]]:
    """Returns what happens where each counter says that the access has ended: its part in LDS, and the rest."""

    def run(*kinds: str) -> None:
        for kind, chosen, places in _split(addresses):
            if kind in kinds:
                perform(kind, chosen, places)

    return {"vm": lambda: run("global", "scratch"), "lds": lambda: run("lds")}


def _make_load(decoded: DecodedInstruction, form: str, half: str | None) -> Step:
    size, registers = _BYTES[form], max(1, _BYTES[form] // 4)
    first, read_addresses = require_registers(decoded, decoded.operands[0], registers), _addresses(decoded, 1)
    if half and form not in _HALF:
        raise decoded.refuse("the opcode")
    sign_bits = 8 * size if form in ("sbyte", "sshort") and not half else 0
    coherent = is_coherent(decoded)

    def run(wave: Wave) -> None:
        mask, active, addresses = wave.exec_mask, active_of(wave.exec_mask), read_addresses(wave)

        words = np.zeros((len(addresses), registers), np.uint32)

        def load(kind: str, chosen: Array, places: Array) -> None:
            if kind == "global":
                words[chosen] = wave.memory.load(places, size, coherent=coherent)
            elif kind == "lds":
                words[chosen] = wave.lds.load(places, size, wave.number)
            else:
                words[chosen] = scratch_of(wave).load(active[chosen], places, size)

        def finish() -> None:
            if half:
                wave.finish_half(first, int(half == "_d16_hi"), narrow_words(words, _HALF[form]), mask)
                return
            shift = np.int32(32 - sign_bits)
            extended = (words.view(np.int32) << shift >> shift).view(np.uint32) if sign_bits else words
            wave.finish_load(first, extended, mask)

        wave.start_load(first, registers, mask)
        wave.issue_flat(_by_counter(addresses, load), finish, ordered=decoded.rdna)

    return run


def _make_store(decoded: DecodedInstruction, form: str, half: str | None) -> Step:
    size, registers = _BYTES[form], max(1, _BYTES[form] // 4)
    first, read_addresses = require_registers(decoded, decoded.operands[1], registers), _addresses(decoded, 0)
    coherent = is_coherent(decoded)

    def run(wave: Wave) -> None:
        active, addresses = active_of(wave.exec_mask), read_addresses(wave)
        words = gather_registers(wave, first, registers)
        if half == "_d16_hi":
            words = words >> np.uint32(16)

        def store(kind: str, chosen: Array, places: Array) -> None:
            if kind == "global":
                wave.memory.store(places, size, words[chosen], coherent=coherent)
            elif kind == "lds":
                wave.lds.store(places, size, words[chosen], wave.number)
            else:
                scratch_of(wave).store(active[chosen], places, size, words[chosen])

        wave.issue_flat(_by_counter(addresses, store), ordered=decoded.rdna)

    return run


def _make_atomic(decoded: DecodedInstruction, atomic: Atomic) -> Step:
    returning = returns_value(decoded)
    place = 1 if returning else 0
    read_addresses, count, registers = _addresses(decoded, place), operand_registers(atomic), atomic.size // 4
    first = require_registers(decoded, decoded.operands[place + 1], count)
    result = require_registers(decoded, decoded.operands[0], registers) if returning else None

    def run(wave: Wave) -> None:
        mask, addresses = wave.exec_mask, read_addresses(wave)
        operands = split_operand(gather_registers(wave, first, count), atomic)

        found = np.zeros((len(addresses), registers), np.uint32)

        def update(kind: str, chosen: Array, places: Array) -> None:
            if kind == "scratch":
                raise ExecutionFault("updates scratch, on which there are no atomics")
            change = updates_of(atomic, [operands[at] for at in np.flatnonzero(chosen)])
            old = (
                wave.memory.update(places, atomic.size, change)
                if kind == "global"
                else wave.lds.update(places, atomic.size, change, wave.number)
            )
            found[chosen] = words_of(old, atomic)

        if result is None:
            wave.issue_flat(_by_counter(addresses, update), ordered=decoded.rdna)
            return
        number = result
        wave.start_load(number, registers, mask)
        wave.issue_flat(
            _by_counter(addresses, update), lambda: wave.finish_load(number, found, mask), ordered=decoded.rdna
        )

    return run
