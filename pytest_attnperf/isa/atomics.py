"""What atomic instructions compute, and their steps on global memory, through buffers and on LDS.

Lanes are served in order, one after another; hardware's order is not stated. Names of gfx9 and of gfx11 and later.
Sources: AMD, "CDNA3 Instruction Set Architecture", FLAT, MUBUF and DS; 10.3.1 of "CDNA4": float32 atomics on memory
flush denormals, those of float64 and 16 bits do not; atomics must be aligned to their size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.lds_access import gather_registers, require_registers
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.sources import bits_reader
from pytest_attnperf.isa.vector_table import to_bfloat16
from pytest_attnperf.isa.wave import Step, Wave, active_of

Update: TypeAlias = "Callable[[int, int], int]"
"""The bits in memory and of the operand -> the bits that memory holds then."""

_FORMS = re.compile(r"(?:_(u32|i32|b32|u64|i64|b64|f32|f64|f16|bf16))?(_x2)?")
_GLOBAL = re.compile(r"(?:global|flat|buffer)_atomic_(\w+)")
_LDS = re.compile(r"ds_(\w+?)(_rtn)?_(u32|i32|b32|u64|i64|b64|f32|f64|f16|bf16)")


@dataclass(frozen=True)
class Atomic:
    """An atomic operation: bytes of a value, what it computes, and whether a second operand is compared."""

    size: int
    compute: Update
    compares: bool = False


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


def _increment(old: int, limit: int) -> int:
    return 0 if old >= limit else old + 1


def _decrement(old: int, limit: int) -> int:
    return limit if old == 0 or old > limit else old - 1


def _integers(width: int) -> Mapping[str, Update]:
    mask = (1 << width) - 1
    return {
        "add": lambda a, b: a + b & mask,
        "sub": lambda a, b: a - b & mask,
        "rsub": lambda a, b: b - a & mask,
        "umin": min,
        "umax": max,
        "smin": lambda a, b: min(a, b, key=lambda bits: _signed(bits, width)),
        "smax": lambda a, b: max(a, b, key=lambda bits: _signed(bits, width)),
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "inc": _increment,
        "dec": _decrement,
        "swap": lambda _a, b: b,
    }


def _on_floats(compute: Callable[[Any, Any], Any], dtype: Any, *, flush: bool = False) -> Update:
    unsigned: Any = {4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]

    def update(old: int, operand: int) -> int:
        a, b = np.array([old], unsigned).view(dtype), np.array([operand], unsigned).view(dtype)
        found = compute(floats.flush(a), floats.flush(b)) if flush else compute(a, b)
        return int(np.asarray(floats.flush(found) if flush else found, dtype).view(unsigned)[0])

    return update


def _on_pairs(kind: str) -> Update:
    """Returns the sum of two 16-bit floats in each half."""

    def widen(bits: int) -> Array:
        halves = np.array([bits & 0xFFFF, bits >> 16], np.uint16)
        found: Array = (
            halves.view(np.float16).astype(np.float32)
            if kind == "f16"
            else (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
        )
        return found

    def update(old: int, operand: int) -> int:
        total = widen(old) + widen(operand)
        narrow = total.astype(np.float16).view(np.uint16) if kind == "f16" else to_bfloat16(total)
        return int(narrow[0]) | int(narrow[1]) << 16

    return update


_FLOATS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "min": floats.minimum,
    "max": floats.maximum,
    "fmin": floats.minimum,
    "fmax": floats.maximum,
}


def find_atomic(decoded: DecodedInstruction, operation: str, form: str, *, flush: bool) -> Atomic:
    """Returns the operation of a name like 'smax' or 'max' and a type ('' is 32 bits). Raises UnknownInstructionError
    for another one."""
    if operation == "pk_add" and form in ("f16", "bf16"):
        return Atomic(4, _on_pairs(form))
    width = int(form[1:]) if form[1:].isdigit() else 32
    if form[:1] == "f" and operation in _FLOATS and width >= 32:
        dtype = np.float32 if width == 32 else np.float64
        return Atomic(width // 8, _on_floats(_FLOATS[operation], dtype, flush=flush and width == 32))
    signs = {"i": "s", "u": "u"}
    plain = signs.get(form[:1], "") + operation if operation in ("min", "max") else operation
    if operation in ("cmpswap", "cmpst", "cmpstore"):
        return Atomic(width // 8, lambda _old, new: new, compares=True)
    plain = {"wrxchg": "swap", "storexchg": "swap"}.get(plain, plain)
    table = _integers(width)
    if (form[:1] in ("f", "") and operation in ("min", "max")) or plain not in table or width < 32:
        raise decoded.refuse("the opcode")
    return Atomic(width // 8, table[plain])


def read_global_atomic(decoded: DecodedInstruction) -> Atomic | None:
    """Returns the operation of a global, flat or buffer atomic; None for another instruction."""
    found = _GLOBAL.fullmatch(decoded.name)
    if found is None:
        return None
    name, wide = found[1].removesuffix("_x2"), found[1].endswith("_x2")
    operation, _, form = name.rpartition("_") if name[-2:].isdigit() else (name, "", "")
    if wide:
        return find_atomic(decoded, name, "b64", flush=True)
    return find_atomic(decoded, operation.removesuffix("_num"), form, flush=True)


def returns_value(decoded: DecodedInstruction) -> bool:
    """Returns whether a global, flat or buffer atomic gives back what memory held."""
    return "TH_ATOMIC_RETURN" in str(decoded.modifiers.get("th", "")) or any(
        name in decoded.modifiers for name in (("glc",) if decoded.arch == "gfx90a" or decoded.rdna else ("sc0",))
    )


def split_operand(words: Array, atomic: Atomic, *, compare_first: bool = False) -> list[tuple[int, int]]:
    """Returns (new, compared) of each row of uint32 (n, registers); compared is 0 where nothing is."""
    values = np.ascontiguousarray(words).view(np.uint32 if atomic.size == 4 else np.uint64).tolist()
    if not atomic.compares:
        return [(row[0], 0) for row in values]
    return [(row[1], row[0]) if compare_first else (row[0], row[1]) for row in values]


def updates_of(atomic: Atomic, operands: list[tuple[int, int]]) -> Callable[[int, int], int]:
    """Returns the function of a lane's place and the bits in memory to the new bits."""

    def update(place: int, old: int) -> int:
        new, compared = operands[place]
        if atomic.compares:
            return new if old == compared else old
        return atomic.compute(old, new)

    return update


def operand_registers(atomic: Atomic) -> int:
    """Returns how many registers hold a lane's operand."""
    return atomic.size // 4 * (1 + atomic.compares)


def words_of(values: list[int], atomic: Atomic) -> Array:
    """Returns old values as uint32 (n, registers)."""
    kind: Any = np.uint32 if atomic.size == 4 else np.uint64
    return np.array(values, kind).view(np.uint32).reshape(len(values), atomic.size // 4)


def make_lds_atomic_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an atomic on LDS; None for another instruction. The compared value comes first in DS_CMPST of
    gfx9, second in DS_CMPSTORE of gfx11."""
    found = _LDS.fullmatch(decoded.name)
    if found is None or found[1].startswith(("read", "write", "swizzle", "permute", "bpermute")):
        return None
    decoded.allow("offset")
    atomic = find_atomic(decoded, found[1].removesuffix("_num"), found[3], flush=False)
    operands = list(decoded.operands)
    target = operands.pop(0) if found[2] else None
    address, *values = operands
    if len(values) != 1 + atomic.compares:
        raise decoded.refuse(f"the form with {len(values)} values")
    registers = atomic.size // 4
    firsts = [require_registers(decoded, value, registers) for value in values]
    first = require_registers(decoded, target, registers) if target else None
    read_address, offset = bits_reader(decoded, address), decoded.number("offset")
    compare_first = found[1] == "cmpst"

    def run(wave: Wave) -> None:
        mask, active = wave.exec_mask, active_of(wave.exec_mask)
        places = np.broadcast_to(read_address(wave), wave.size)[active].astype(np.int64) + offset
        words = np.concatenate([gather_registers(wave, one, registers) for one in firsts], axis=1)
        update = updates_of(atomic, split_operand(words, atomic, compare_first=compare_first))

        def complete() -> None:
            old = wave.lds.update(places, atomic.size, update, wave.number)
            if first is not None:
                wave.finish_load(first, words_of(old, atomic), mask)

        if first is not None:
            wave.start_load(first, registers, mask)
        wave.issue("lds", complete)

    return run


def make_atomic_access(
    decoded: DecodedInstruction,
    atomic: Atomic,
    value: Operand,
    target: Operand | None,
    locate: Callable[[Wave], tuple[Array, Array]],
) -> Step:
    """Returns the step of an atomic on global memory at the addresses that `locate` gives; outside of a buffer it does
    nothing and returns 0."""
    first = require_registers(decoded, value, operand_registers(atomic))
    registers = atomic.size // 4
    result = require_registers(decoded, target, registers) if target else None
    count = operand_registers(atomic)

    def run(wave: Wave) -> None:
        mask = wave.exec_mask
        addresses, inside = locate(wave)
        words = gather_registers(wave, first, count)[inside]
        update = updates_of(atomic, split_operand(words, atomic))

        def complete() -> None:
            old = wave.memory.update(addresses[inside], atomic.size, update)
            if result is not None:
                found = np.zeros((len(addresses), registers), np.uint32)
                found[inside] = words_of(old, atomic)
                wave.finish_load(result, found, mask)

        if result is not None:
            wave.start_load(result, registers, mask)
        wave.issue("vm" if result is not None or not decoded.rdna else "store", complete)

    return run
