"""Steps of MFMA: D = A B + C of all lanes, EXEC ignored.

Layout, from AMD's "Matrix Instruction Calculator" and the CDNA3 document: of an M x M x K instruction with `blocks`
products, lane l has row (A) or column (B) l % M of block l // M % blocks, and K / groups consecutive elements of the
inner dimension from l // (M blocks) on, where groups = 64 / (M blocks). Of C and D a lane has column l % M; its
registers are rows in fours, as `_output_places` says. Sums are formed in float32 in numpy's order: hardware's differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.sources import constant_bits
from pytest_attnperf.isa.wave import Step, Wave

_NAME = re.compile(r"v_mfma_f32_(4x4|16x16|32x32)x(\d+)(?:_(\d+)b)?_?(f16|bf16|f32)(_1k)?")

LANES = 64

_BLOCKS = {
    ("4x4", 4, 16): 16, ("16x16", 4, 16): 4, ("16x16", 16, 16): 1, ("16x16", 32, 16): 1, ("32x32", 4, 16): 2,
    ("32x32", 8, 16): 1, ("32x32", 16, 16): 1, ("4x4", 1, 32): 16, ("16x16", 1, 32): 4, ("16x16", 4, 32): 1,
    ("32x32", 1, 32): 2, ("32x32", 2, 32): 1,
}  # fmt: skip
"""(rows and columns, K, bits of an element) -> products of one instruction. The bf16 forms without _1k of gfx908, with
half of the K, are not among them."""


def make_matrix_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a matrix instruction; None for another one."""
    if not decoded.name.startswith(("v_mfma_", "v_smfmac_", "v_wmma_")):
        return None
    found = _NAME.fullmatch(decoded.name)
    decoded.allow()
    key = (found[1], int(found[2]), 32 if found[4] == "f32" else 16) if found else None
    if found is None or key not in _BLOCKS or int(found[3] or _BLOCKS[key]) != _BLOCKS[key]:
        raise decoded.refuse("the matrix instruction")
    element = found[4]
    if element == "bf16" and not found[5] and "_bf16" not in decoded.name:
        raise decoded.refuse("the matrix instruction with half of the inner dimension")
    side, inner, blocks = int(found[1].partition("x")[0]), int(found[2]), _BLOCKS[key]
    return _make_product(decoded, side, inner, blocks, element)


def _make_product(decoded: DecodedInstruction, side: int, inner: int, blocks: int, element: str) -> Step:
    target, left, right, addend = decoded.operands
    per_lane = inner * side * blocks // LANES
    registers = max(1, per_lane * (4 if element == "f32" else 2) // 4)
    results = side * side * blocks // LANES
    read_a = _input_reader(decoded, left, registers, element)
    read_b = _input_reader(decoded, right, registers, element)
    read_c = _addend_reader(decoded, addend, results)
    if target.kind != "v" or target.count != results:
        raise decoded.refuse(f"the destination {target.text!r} of {results} registers")
    block, row, column = _output_places(side, blocks, results)
    groups = LANES // (side * blocks)
    first = target.first

    def arrange(values: Array) -> Array:
        """(64, per_lane) -> (blocks, side, inner)."""
        shaped = values.reshape(groups, blocks, side, per_lane).transpose(1, 2, 0, 3)
        return np.ascontiguousarray(shaped).reshape(blocks, side, inner)

    def run(wave: Wave) -> None:
        a, b = arrange(read_a(wave)), arrange(read_b(wave))
        product = np.matmul(a, b.transpose(0, 2, 1))
        value = product[block, row, column] + read_c(wave)
        for number in range(first, first + results):
            if wave.flying:
                wave.require_landed(number)
            wave.written[number] = wave.full
        wave.f32[first : first + results] = value

    return run


def _output_places(side: int, blocks: int, results: int) -> tuple[Array, Array, Array]:
    """Returns block, row and column of each result: arrays (results, 64)."""
    register, lane = np.meshgrid(np.arange(results), np.arange(LANES), indexing="ij")
    if side == 4:
        return lane // 4, register, lane % 4
    per_block = side * side // LANES
    within = register % per_block
    row = within % 4 + 4 * (lane // side) + (within // 4) * (4 * (LANES // side))
    return register // per_block, row, lane % side


def _input_reader(
    decoded: DecodedInstruction, operand: Operand, registers: int, element: str
) -> Callable[[Wave], Array]:
    """Returns a reader of A or B: float32 (64, elements of a lane)."""
    if operand.kind != "v" or operand.count != registers:
        raise decoded.refuse(f"the operand {operand.text!r} where {registers} vector registers are read")
    first = operand.first

    def read(wave: Wave) -> Array:
        for number in range(first, first + registers):
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        words = np.ascontiguousarray(wave.vectors[first : first + registers].T)
        if element == "f32":
            return words.view(np.float32)
        halves = words.view(np.uint16)
        if element == "f16":
            return halves.view(np.float16).astype(np.float32)
        widened: Array = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return widened

    return read


def _addend_reader(decoded: DecodedInstruction, operand: Operand, results: int) -> Callable[[Wave], Any]:
    if operand.constant:
        value = np.uint32(constant_bits(decoded, operand, "f32")).view(np.float32)
        return lambda _wave: value
    if operand.kind != "v" or operand.count != results:
        raise decoded.refuse(f"the operand {operand.text!r} where {results} vector registers are read")
    first = operand.first

    def read(wave: Wave) -> Array:
        for number in range(first, first + results):
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        found: Array = wave.f32[first : first + results]
        return found

    return read
