"""Steps of WMMA: D = A B + C of 16 x 16 x 16 elements by all lanes, EXEC ignored.

Layout, from AMD's "Matrix Instruction Calculator" (RDNA3 and RDNA4, waves of 32 and 64 lanes): lane l has row l % 16
of A, column l % 16 of B and column l % 16 of C and D; `_inner_of` and `_rows_of` say which of the other dimension. On
gfx11 every 16 lanes hold all of A and B, and lanes that hold different ones are a fault. Sums are formed in float32 in
numpy's order, denormals kept, and rounded once to a result of 16 bits: hardware's order differs. bf8 and fp8 are OCP's
formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.parts import check_overflow
from pytest_attnperf.isa.small_floats import small_float
from pytest_attnperf.isa.sources import constant_bits
from pytest_attnperf.isa.vector_table import to_bfloat16
from pytest_attnperf.isa.wave import Step, Wave

SIDE = 16

_NAME = re.compile(r"v_wmma_(f32|f16|bf16|i32)_16x16x16_(f16|bf16|iu8|(?:fp8|bf8)_(?:fp8|bf8))")
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "f32": ("f16", "bf16", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8"),
    "f16": ("f16",),
    "bf16": ("bf16",),
    "i32": ("iu8",),
}


def make_wmma_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a WMMA instruction; None for another one."""
    if not decoded.name.startswith("v_wmma_"):
        return None
    found = _NAME.fullmatch(decoded.name)
    if found is None or found[2] not in _RESULTS[found[1]] or ("8_" in found[2] and not _is_gfx12(decoded)):
        raise decoded.refuse("the matrix instruction")
    result, elements = found[1], found[2]
    kinds = [elements] * 2 if "8_" not in elements else elements.split("_")
    if elements == "iu8":
        decoded.allow("neg_lo", "clamp")
        signs = decoded.numbers("neg_lo", (0, 0, 0))
        kinds = [f"{'i' if sign else 'u'}8" for sign in signs[:2]]
        if signs[2]:
            raise decoded.refuse("neg_lo of the addend")
    else:
        decoded.allow(*(("op_sel",) if result in ("f16", "bf16") and not _is_gfx12(decoded) else ()))
    return _make_product(decoded, result, kinds)


def _is_gfx12(decoded: DecodedInstruction) -> bool:
    return decoded.arch.startswith("gfx12")


def _make_product(decoded: DecodedInstruction, result: str, kinds: list[str]) -> Step:
    target, left, right, addend = decoded.operands
    read_a, read_b = (_input_reader(decoded, one, kind) for one, kind in zip((left, right), kinds, strict=True))
    half = decoded.numbers("op_sel", (0, 0, 0))[2]
    if any(decoded.numbers("op_sel", (0, 0, 0))[:2]):
        raise decoded.refuse("op_sel of a factor")
    read_c = _addend_reader(decoded, addend, result, half)
    write = _result_writer(decoded, target, result, half)
    rows, columns = _rows_of(decoded, result), np.arange(decoded.lanes) % SIDE
    limited = "clamp" in decoded.modifiers

    def run(wave: Wave) -> None:
        product = np.matmul(read_a(wave), read_b(wave).T)[rows, columns]
        total = product + read_c(wave)
        write(wave, np.clip(total, -(2**31), 2**31 - 1) if limited else total)

    return run


def _inner_of(decoded: DecodedInstruction, per_lane: int) -> Array:
    """Returns the place in the inner dimension of each element of each lane of A and B: (lanes, per_lane)."""
    lane, element = np.meshgrid(np.arange(decoded.lanes), np.arange(per_lane), indexing="ij")
    if not _is_gfx12(decoded):
        return element
    group, wide = lane // SIDE, decoded.lanes == 64
    # The calculator's formulas: elements of 16 bits in fours, those of 8 bits in eights.
    if per_lane * decoded.lanes != SIDE * SIDE:
        raise decoded.refuse("the size of its factors")
    if _bits_of(decoded) == 16:
        return 4 * group + element if wide else 8 * (element // 4) + 4 * group + element % 4
    return 8 * (group % 2) + 4 * (group // 2) + element if wide else 8 * group + element


def _bits_of(decoded: DecodedInstruction) -> int:
    """Returns the bits of an element of A and B."""
    return 16 if decoded.name.endswith("16") else 8


def _rows_of(decoded: DecodedInstruction, result: str) -> Array:
    """Returns the row of each element of C and D: (values of a lane, lanes)."""
    values = SIDE * SIDE // decoded.lanes
    value, lane = np.meshgrid(np.arange(values), np.arange(decoded.lanes), indexing="ij")
    group = lane // SIDE
    if not _is_gfx12(decoded):
        return value * (decoded.lanes // SIDE) + group
    return 8 * (group % 2) + 4 * (group // 2) + value


def _input_reader(decoded: DecodedInstruction, operand: Operand, kind: str) -> Callable[[Wave], Array]:
    """Returns a reader of A, or of B transposed: (16, 16), float32, or float64 of integers."""
    per_lane = SIDE if not _is_gfx12(decoded) else SIDE * SIDE // decoded.lanes
    registers = per_lane * _bits_of(decoded) // 32
    if operand.kind != "v" or operand.count != registers:
        raise decoded.refuse(f"the operand {operand.text!r} where {registers} vector registers are read")
    first, widen = operand.first, _widening(kind, decoded.arch)
    inner = _inner_of(decoded, per_lane)
    order = np.empty((SIDE, SIDE), np.int64)
    lanes = np.arange(decoded.lanes if _is_gfx12(decoded) else SIDE)
    for lane in lanes:
        order[lane % SIDE, inner[lane]] = lane * per_lane + np.arange(per_lane)
    copies = () if _is_gfx12(decoded) else tuple(range(SIDE, decoded.lanes, SIDE))

    def read(wave: Wave) -> Array:
        for number in range(first, first + registers):
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        words = wave.vectors[first : first + registers]
        for start in copies:
            if not np.array_equal(words[:, :SIDE], words[:, start : start + SIDE]):
                raise ExecutionFault(f"multiplies {operand.text}, of which lanes {start} and on hold another copy")
        if copies:
            words = words[:, :SIDE]
        found: Array = widen(np.ascontiguousarray(words.T)).reshape(-1)[order]
        return found

    return read


def _widening(kind: str, arch: str) -> Callable[[Array], Array]:
    """Returns a function of uint32 (lanes, registers) to the numbers (lanes, elements) that they hold."""
    if kind == "f16":
        return lambda words: words.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return lambda words: (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind in ("fp8", "bf8"):
        return lambda words: small_float(kind, arch).decode(words.view(np.uint8))
    return lambda words: words.view(np.int8 if kind == "i8" else np.uint8).astype(np.float64)


def _registers_of(decoded: DecodedInstruction, operand: Operand, result: str) -> int:
    """Returns the first register of C or D. A result of 16 bits takes one half of a register on gfx11, on gfx12 two
    are in one."""
    count = SIDE * SIDE // decoded.lanes // (2 if result.endswith("16") and _is_gfx12(decoded) else 1)
    if operand.kind != "v" or operand.count != count:
        raise decoded.refuse(f"the operand {operand.text!r} where {count} vector registers stand")
    return operand.first


def _addend_reader(decoded: DecodedInstruction, operand: Operand, result: str, half: int) -> Callable[[Wave], Any]:
    """Returns a reader of C: float32 or int64 (values of a lane, lanes), or one number."""
    if operand.constant:
        kind = {"f32": "f32", "i32": "i32", "f16": "f16", "bf16": "b32"}[result]
        bits = constant_bits(decoded, operand, kind)
        if result == "bf16" and bits:
            raise decoded.refuse(f"the constant {operand.text!r} as an addend of bf16")
        dtype: Any = {"f32": np.float32, "i32": np.int32}.get(result, np.float16)
        value = np.array(bits, f"u{2 if result.endswith('16') else 4}").view(dtype)
        constant = value.astype(np.int64 if result == "i32" else np.float32)[()]
        return lambda _wave: constant
    first = _registers_of(decoded, operand, result)
    numbers = range(first, first + operand.count)

    def read(wave: Wave) -> Any:
        for number in numbers:
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        rows = slice(first, first + len(numbers))
        if result == "f32":
            return wave.f32[rows]
        if result == "i32":
            return wave.i32[rows].astype(np.int64)
        halves = wave.halves[half][rows] if not _is_gfx12(decoded) else _both_halves(wave, rows)
        if result == "f16":
            return halves.view(np.float16).astype(np.float32)
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)

    return read


def _both_halves(wave: Wave, rows: slice) -> Array:
    """Returns the 16-bit values of registers in the order lower, upper: (2 registers, lanes)."""
    return np.stack([wave.halves[0][rows], wave.halves[1][rows]], axis=1).reshape(-1, wave.size)


def _result_writer(
    decoded: DecodedInstruction, target: Operand, result: str, half: int
) -> Callable[[Wave, Array], None]:
    first = _registers_of(decoded, target, result)
    numbers, rows = range(first, first + target.count), slice(first, first + target.count)

    def mark(wave: Wave) -> None:
        for number in numbers:
            if wave.flying:
                wave.require_landed(number)
            wave.written[number] = wave.full

    def write(wave: Wave, total: Array) -> None:
        mark(wave)
        if result == "f32":
            wave.f32[rows] = total
        else:
            wave.i32[rows] = total.astype(np.int64).astype(np.int32)

    def write_halves(wave: Wave, total: Array) -> None:
        if result == "f16":
            check_overflow(decoded, wave, total.astype(np.float16))
        mark(wave)
        narrow = total.astype(np.float16).view(np.uint16) if result == "f16" else to_bfloat16(total).astype(np.uint16)
        if _is_gfx12(decoded):
            wave.halves[0][rows], wave.halves[1][rows] = narrow[::2], narrow[1::2]
        else:
            wave.halves[half][rows] = narrow

    return write_halves if result.endswith("16") else write
