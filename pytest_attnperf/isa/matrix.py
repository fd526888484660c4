"""Steps of MFMA: D = A B + C of all lanes, EXEC ignored.

Layout, from AMD's "CDNA4 Instruction Set Architecture", 7.1.4, and "Matrix Instruction Calculator": of an M x M x K
instruction with `blocks` products, lane l has row (A) or column (B) l % M of block l // M % blocks, and K / groups
consecutive elements of the inner dimension from l // (M blocks) on, where groups = 64 / (M blocks). Of C and D a lane
has column l % M; `_output_places` says which rows. Sums of floats are formed in float32 (float64 of float64) in numpy's
order: hardware's differs, and no document states it.

gfx90a flushes denormals that a float16 or bfloat16 product reads or gives (PyTorch, "Numerical accuracy", on MI200; the
ISA documents do not say it), others keep them. F8F6F4 of gfx950 is executed on 8-bit formats. XF32, whose rounding of
the inputs no document states, sparse products (SMFMAC) and the scaled ones of gfx950 are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.parts import check_overflow
from pytest_attnperf.isa.small_floats import small_float
from pytest_attnperf.isa.sources import constant_bits
from pytest_attnperf.isa.wave import Step, Wave

_NAME = re.compile(
    r"v_mfma_(f32|i32|f64)_(4x4|16x16|32x32)x(\d+)(?:_(\d+)b)?(_?)(f16|bf16|f32|f64|i8|f8f6f4|(?:fp8|bf8)_(?:fp8|bf8))"
    r"(_1k)?"
)

LANES = 64

_HALVES = {
    ("4x4", 4): 16, ("16x16", 4): 4, ("32x32", 4): 2, ("16x16", 16): 1, ("32x32", 8): 1, ("16x16", 32): 1,
    ("32x32", 16): 1,
}  # fmt: skip
_BLOCKS: Mapping[str, Mapping[tuple[str, int], int]] = {
    "f16": _HALVES,
    "bf16": _HALVES,
    "old bf16": {("4x4", 2): 16, ("16x16", 2): 4, ("32x32", 2): 2, ("16x16", 8): 1, ("32x32", 4): 1},
    "f32": {("4x4", 1): 16, ("16x16", 1): 4, ("32x32", 1): 2, ("16x16", 4): 1, ("32x32", 2): 1},
    "f64": {("4x4", 4): 4, ("16x16", 4): 1},
    "i8": {
        ("4x4", 4): 16, ("16x16", 4): 4, ("32x32", 4): 2, ("16x16", 16): 1, ("32x32", 8): 1, ("16x16", 32): 1,
        ("32x32", 16): 1, ("16x16", 64): 1, ("32x32", 32): 1,
    },
    "f8": {("16x16", 32): 1, ("32x32", 16): 1},
    "f8f6f4": {("16x16", 128): 1, ("32x32", 64): 1},
}  # fmt: skip
"""Type of the elements -> (rows and columns, K) -> products of one instruction. 'old bf16' are the forms of gfx908,
whose mnemonics end in 'bf16' without '_1k' or '_bf16'."""

_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "i8": 8, "fp8": 8, "bf8": 8}


@dataclass(frozen=True)
class Shape:
    """Rows and columns, the inner dimension, products, and the types of A, of B and of C and D.

    stretches   of the inner dimension in a lane: 2 of F8F6F4, the second half a half of the dimension on
    """

    side: int
    inner: int
    blocks: int
    left: str
    right: str
    result: str
    stretches: int = 1

    @property
    def broadcasts(self) -> bool:
        """Whether CBSZ, ABID and BLGP choose lanes."""
        return self.left not in ("f64", "fp8", "bf8")

    @property
    def per_lane(self) -> int:
        """Elements of A, or of B, in a lane."""
        return self.inner * self.side * self.blocks // LANES

    @property
    def results(self) -> int:
        """Elements of D in a lane."""
        return self.side * self.side * self.blocks // LANES


def read_shape(decoded: DecodedInstruction) -> Shape:
    """Returns what a V_MFMA instruction multiplies. Raises UnknownInstructionError for another matrix instruction."""
    found = _NAME.fullmatch(decoded.name)
    if found is None:
        raise decoded.refuse("the matrix instruction")
    result, shape, inner, blocks, separator, element, one_k = found.groups()
    group = "f8" if "8_" in element else element
    if element == "bf16" and not separator and not one_k:
        group = "old bf16"
    known = _BLOCKS[group].get((shape, int(inner)))
    if known is None or int(blocks or known) != known or result != {"i8": "i32", "f64": "f64"}.get(group, "f32"):
        raise decoded.refuse("the matrix instruction")
    left, _, right = element.partition("_")
    if group == "f8f6f4":
        left, right = (_chosen_format(decoded, name) for name in ("cbsz", "blgp"))
    stretches = 2 if group == "f8f6f4" else 1
    return Shape(int(shape.partition("x")[0]), int(inner), known, left, right or left, result, stretches)


def _chosen_format(decoded: DecodedInstruction, modifier: str) -> str:
    """Returns the format of A (CBSZ) or B (BLGP) of an F8F6F4 product. Those of 6 and 4 bits are refused."""
    number = decoded.number(modifier)
    if number > 1:
        raise decoded.refuse(f"the format {modifier}:{number}")
    return ("fp8", "bf8")[number]


def make_matrix_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a matrix instruction; None for another one."""
    if not decoded.name.startswith(("v_mfma_", "v_smfmac_", "v_wmma_")):
        return None
    shape = read_shape(decoded)
    if shape.stretches > 1:
        decoded.allow("cbsz", "blgp")
    else:
        decoded.allow(*(("cbsz", "abid", "blgp") if shape.broadcasts else ()))
    return _make_product(decoded, shape)


def _make_product(decoded: DecodedInstruction, shape: Shape) -> Step:
    target, left, right, addend = decoded.operands
    words = 2 if shape.result == "f64" else 1
    flush = decoded.arch == "gfx90a" and _BITS[shape.left] == 16
    lanes_a, lanes_b = (_broadcast_a(decoded, shape), _permute_b(decoded)) if shape.broadcasts else (None, None)
    read_a = _input_reader(decoded, left, shape, shape.left, lanes_a)
    read_b = _input_reader(decoded, right, shape, shape.right, lanes_b)
    read_c = _addend_reader(decoded, addend, shape)
    if target.kind != "v" or target.count != words * shape.results:
        raise decoded.refuse(f"the destination {target.text!r} of {words * shape.results} registers")
    block, row, column = _output_places(shape)
    first, count = target.first, target.count

    def run(wave: Wave) -> None:
        product = np.matmul(read_a(wave), read_b(wave).transpose(0, 2, 1))
        found = product[block, row, column]
        if flush:
            value = floats.flush(found + floats.flush(read_c(wave)))
        elif shape.result == "i32":
            value = (found.astype(np.int64) + read_c(wave)).astype(np.int32)
        else:
            value = found + read_c(wave)
        if shape.result != "i32":
            check_overflow(decoded, wave, value)
        _write(wave, first, count, value)

    return run


def _write(wave: Wave, first: int, count: int, value: Array) -> None:
    """Writes (results, 64) values of 32 or 64 bits."""
    for number in range(first, first + count):
        if wave.flying:
            wave.require_landed(number)
        wave.written[number] = wave.full
    if value.dtype.itemsize == 8:
        value = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2).transpose(0, 2, 1)
        wave.vectors[first : first + count] = value.reshape(count, LANES)
    else:
        wave.vectors[first : first + count] = value.view(np.uint32)


def _output_places(shape: Shape) -> tuple[Array, Array, Array]:
    """Returns block, row and column of each result: arrays (results, 64). Rows stand in groups of 4 in a lane (1 of
    float64); as many groups and blocks as there are lanes for stand beside one another."""
    side, height = shape.side, 1 if shape.result == "f64" else 4
    blocks_beside = max(1, LANES * height // (side * side))
    rows_beside = LANES // blocks_beside // side
    groups = side // (height * rows_beside)
    places = np.zeros((3, shape.results, LANES), np.int64)
    block, row, column = np.meshgrid(np.arange(shape.blocks), np.arange(side), np.arange(side), indexing="ij")
    item = row % height + height * (row // (height * rows_beside) + groups * (block // blocks_beside))
    lane = column + side * (row // height % rows_beside + rows_beside * (block % blocks_beside))
    for place, values in enumerate((block, row, column)):
        places[place, item, lane] = values
    return places[0], places[1], places[2]


def _broadcast_a(decoded: DecodedInstruction, shape: Shape) -> Array | None:
    """Returns the lane that each lane of A reads, from CBSZ and ABID: one of 2^CBSZ groups serves all. None for its
    own."""
    size, chosen = decoded.number("cbsz"), decoded.number("abid")
    if size == 0 and chosen == 0:
        return None
    if 1 << size > shape.blocks or chosen >= 1 << size:
        raise decoded.refuse(f"cbsz:{size} abid:{chosen} of {shape.blocks} products, which is not defined,")
    group = LANES >> size
    lanes: Array = np.arange(LANES) % group + group * chosen
    return lanes


def _permute_b(decoded: DecodedInstruction) -> Array | None:
    """Returns the lane that each lane of B reads, from BLGP. None for its own."""
    lanes = np.arange(LANES)
    permutations = {
        0: None, 1: lanes % 32, 2: lanes % 32 + 32, 3: (lanes + 16) % 64,
        **{4 + quarter: lanes % 16 + 16 * quarter for quarter in range(4)},
    }  # fmt: skip
    return permutations[decoded.number("blgp")]


def _input_reader(
    decoded: DecodedInstruction, operand: Operand, shape: Shape, element: str, lanes: Array | None
) -> Callable[[Wave], Array]:
    """Returns a reader of A or B: (blocks, side, inner) numbers, float32 or float64 of which sums are formed."""
    bits, per_lane = _BITS[element], shape.per_lane
    registers = bits * per_lane // 32
    if operand.kind != "v" or operand.count != registers:
        raise decoded.refuse(f"the operand {operand.text!r} where {registers} vector registers are read")
    first = operand.first
    groups = LANES // (shape.side * shape.blocks)
    widen = _widening(decoded, element)

    def read(wave: Wave) -> Array:
        for number in range(first, first + registers):
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        words = np.ascontiguousarray(wave.vectors[first : first + registers].T)
        values = widen(words if lanes is None else words[lanes])
        shaped = values.reshape(groups, shape.blocks, shape.side, shape.stretches, -1).transpose(1, 2, 3, 0, 4)
        return np.ascontiguousarray(shaped).reshape(shape.blocks, shape.side, shape.inner)

    return read


def _widening(decoded: DecodedInstruction, element: str) -> Callable[[Array], Array]:
    """Returns the function from uint32 (64, registers) to numbers (64, elements)."""
    flush = decoded.arch == "gfx90a"
    if element in ("f32", "f64"):
        return lambda words: words.view(np.float32 if element == "f32" else np.float64)
    if element == "i8":
        # Sums of products of int8 are exact in float64.
        return lambda words: words.view(np.int8).astype(np.float64)
    if element in ("fp8", "bf8"):
        kind = small_float(element, decoded.arch)
        return lambda words: kind.decode(words.view(np.uint8))
    if element == "bf16":
        return (lambda words: floats.flush(_widen_brain(words))) if flush else _widen_brain
    if flush:
        return lambda words: floats.flush_half(words.view(np.float16)).astype(np.float32)
    return lambda words: words.view(np.float16).astype(np.float32)


def _widen_brain(words: Array) -> Array:
    found: Array = (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found


def _addend_reader(decoded: DecodedInstruction, operand: Operand, shape: Shape) -> Callable[[Wave], Any]:
    kind: Any = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[shape.result]
    if operand.constant:
        bits = constant_bits(decoded, operand, shape.result)
        value = np.array(bits, np.uint64 if shape.result == "f64" else np.uint32).view(kind)[()]
        return lambda _wave: value
    words = 2 if shape.result == "f64" else 1
    if operand.kind != "v" or operand.count != words * shape.results:
        raise decoded.refuse(f"the operand {operand.text!r} where {words * shape.results} vector registers are read")
    first, count = operand.first, operand.count

    def read(wave: Wave) -> Array:
        for number in range(first, first + count):
            if wave.written[number] != wave.full:
                wave.require_written(number, wave.full)
        rows = wave.vectors[first : first + count]
        if words == 1:
            found: Array = rows.view(kind)
            return found
        pairs = rows.reshape(shape.results, 2, LANES).transpose(0, 2, 1)
        wide: Array = np.ascontiguousarray(pairs).view(np.float64).reshape(shape.results, LANES)
        return wide

    return read
