"""Vector instructions that gfx11 and later have and gfx9 has not: 16-bit ones on halves of registers, comparisons that
write EXEC alone, moves between rows of lanes, and functions of a scalar register.

Written from LLVM's definitions and from what is known of AMD's "RDNA3" and "RDNA4 Instruction Set Architecture", which
were not at hand: **RDNA's semantics are not checked against its documents**, only by compiled programs whose results
are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.scalar import scalar_reader, scalar_writer
from pytest_attnperf.isa.sources import Read, mask_reader, reader, writer
from pytest_attnperf.isa.vector import make_plain
from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS, Operation
from pytest_attnperf.isa.wave import Step, Wave, lanes_of, mask_of

_FOUR = np.uint16(15)
_LOW24 = np.uint64(0xFFFFFF)
_ROW = 16

_LIMITS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "f32": (floats.minimum, floats.maximum), "f16": (floats.minimum, floats.maximum),
    "u32": (np.minimum, np.maximum), "i32": (np.minimum, np.maximum),
}  # fmt: skip

RDNA_OPERATIONS: Mapping[str, Operation] = {
    **{
        f"v_maxmin_{kind}": Operation(kind, (kind,) * 3, lambda a, b, c, low=low, high=high: low(high(a, b), c))
        for kind, (low, high) in _LIMITS.items()
    },
    **{
        f"v_minmax_{kind}": Operation(kind, (kind,) * 3, lambda a, b, c, low=low, high=high: high(low(a, b), c))
        for kind, (low, high) in _LIMITS.items()
    },
    "v_mov_b16": Operation("b16", ("b16",), lambda a: a),
    "v_not_b16": Operation("u16", ("u16",), lambda a: ~a),
    "v_and_b16": Operation("u16", ("u16", "u16"), lambda a, b: a & b),
    "v_or_b16": Operation("u16", ("u16", "u16"), lambda a, b: a | b),
    "v_xor_b16": Operation("u16", ("u16", "u16"), lambda a, b: a ^ b),
    "v_add_u16": Operation("u16", ("u16", "u16"), lambda a, b: a + b),
    "v_sub_u16": Operation("u16", ("u16", "u16"), lambda a, b: a - b),
    "v_ashrrev_i16": Operation("i16", ("u16", "i16"), lambda a, b: b >> (a & _FOUR).astype(np.int16)),
    "v_cvt_u32_u16": Operation("u32", ("u16",), lambda a: a.astype(np.uint32)),
    "v_cvt_i32_i16": Operation("i32", ("i16",), lambda a: a.astype(np.int32)),
    "v_cvt_f16_i16": Operation("f16", ("i16",), lambda a: a.astype(np.float32).astype(np.float16)),
    "v_cvt_f16_u16": Operation("f16", ("u16",), lambda a: a.astype(np.float32).astype(np.float16)),
    "v_xor3_b32": Operation("u32", ("u32", "u32", "u32"), lambda a, b, c: a ^ b ^ c),
    "v_mul_hi_u32_u24": Operation(
        "u32",
        ("u32", "u32"),
        lambda a, b: ((a.astype(np.uint64) & _LOW24) * (b.astype(np.uint64) & _LOW24) >> np.uint64(32)).astype(
            np.uint32
        ),
    ),
}
"""Name without encoding -> operation."""


def make_rdna_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of an instruction that gfx9 has not; None for another one, and on gfx9."""
    name = decoded.name
    if not decoded.rdna:
        return None
    if name in RDNA_OPERATIONS:
        return make_plain(decoded, RDNA_OPERATIONS[name])
    if name.startswith("v_cmpx_"):
        return _make_compare(decoded)
    make = _STEPS.get(name)
    return make(decoded) if make else None


def _make_compare(decoded: DecodedInstruction) -> Step:
    """V_CMPX: EXEC becomes the active lanes in which the comparison holds; nothing else is written."""
    _, _, relation, kind = decoded.name.split("_", 3)
    known = ("f32", "f16", "f64", "i32", "u32", "i16", "u16", "i64", "u64")
    if relation not in COMPARISONS or kind not in known:
        raise decoded.refuse("the opcode")
    decoded.allow()
    first, second = decoded.operands
    compute = COMPARISONS[relation]
    a, b = reader(decoded, first, kind), reader(decoded, second, kind)

    def run(wave: Wave) -> None:
        found = np.broadcast_to(compute(a(wave), b(wave)), wave.lanes.shape)
        wave.set_exec(mask_of(found) & wave.exec_mask)

    return run


def _make_half_select(decoded: DecodedInstruction) -> Step:
    """V_CNDMASK_B16: the second source in the lanes of the mask, the first in the others; only what is chosen counts
    as read."""
    decoded.allow()
    target, first, second, mask = decoded.operands
    kind = "f16" if any(one.negative or one.absolute for one in (first, second)) else "b16"
    chosen, write = mask_reader(decoded, mask), writer(decoded, target, kind)
    a, b = _chosen_half_reader(decoded, first, kind), _chosen_half_reader(decoded, second, kind)

    def run(wave: Wave) -> None:
        lanes = chosen(wave)
        upper, lower = b(wave, wave.exec_mask & lanes), a(wave, wave.exec_mask & ~lanes)
        write(wave, np.where(lanes_of(lanes, wave.size), upper, lower))

    return run


def _chosen_half_reader(decoded: DecodedInstruction, source: Operand, kind: str) -> Callable[[Wave, int], Any]:
    if source.kind != "v" or source.half is None:
        plain = reader(decoded, source, kind)
        return lambda wave, _lanes: plain(wave)
    number, half = source.first, source.half
    dtype = np.float16 if kind == "f16" else np.uint16

    def read(wave: Wave, lanes: int) -> Any:
        wave.require_written(number, lanes)
        value: Any = wave.halves[half][number].view(dtype)
        value = np.abs(value) if source.absolute else value
        return -value if source.negative else value

    return read


def _make_row_permute(decoded: DecodedInstruction) -> Step:
    """V_PERMLANE16_B32 and V_PERMLANEX16_B32: lane l of a row of 16 reads the lane of its row, or of the other row of
    32, that 4 bits of two scalar registers say. Of an inactive lane it reads 0 with BOUND_CTRL (op_sel[1]), its value
    with FI (op_sel[0]); with neither it is not written."""
    decoded.allow("op_sel")
    target, source, low, high = decoded.operands
    fetch, zero = (*decoded.numbers("op_sel", (0, 0)), 0)[:2]
    if target.kind != "v" or source.kind != "v" or target.count + source.count != 2:
        raise decoded.refuse("the form of its operands")
    read_low, read_high = scalar_reader(decoded, low, 32), scalar_reader(decoded, high, 32)
    crossed = _ROW if decoded.name == "v_permlanex16_b32" else 0
    lanes = np.arange(decoded.lanes)
    number, result = source.first, target.first

    def run(wave: Wave) -> None:
        order = read_low(wave) | read_high(wave) << 32
        places = np.array([order >> 4 * lane & 15 for lane in range(_ROW)])
        sources = (lanes - lanes % _ROW ^ crossed) + places[lanes % _ROW]
        valid = np.ones(wave.size, bool) if fetch else wave.lanes[sources]
        writing = wave.lanes & (valid | bool(zero))
        needed = np.zeros(wave.size, bool)
        needed[sources[writing & valid]] = True
        wave.require_written(number, mask_of(needed))
        wave.require_landed(result)
        values: Array = np.where(valid, wave.vectors[number][sources], np.uint32(0))
        wave.write_words(result, values, mask_of(writing))

    return run


def _make_scalar_function(decoded: DecodedInstruction) -> Step:
    """V_S_EXP_F32 and its like: the function of one scalar register, EXEC ignored."""
    decoded.allow()
    operation = OPERATIONS[decoded.name.replace("v_s_", "v_")]
    target, source = decoded.operands
    write, read = scalar_writer(decoded, target, 32), _scalar_float(decoded, source)
    return lambda wave: write(wave, int(np.asarray(operation.compute(read(wave)), np.float32).view(np.uint32)))


def _scalar_float(decoded: DecodedInstruction, source: Operand) -> Read:
    if source.kind == "v":
        raise decoded.refuse(f"the operand {source.text!r} as a scalar source")
    read = reader(decoded, source, "f32")
    return lambda wave: np.asarray(read(wave))


_STEPS: Mapping[str, Callable[[DecodedInstruction], Step]] = {
    "v_cndmask_b16": _make_half_select,
    "v_permlane16_b32": _make_row_permute,
    "v_permlanex16_b32": _make_row_permute,
    **{f"v_s_{name}_f32": _make_scalar_function for name in ("exp", "log", "rcp", "rsq", "sqrt")},
}
