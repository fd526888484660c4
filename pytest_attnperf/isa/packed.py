"""Steps of VOP3P: two results of one instruction, and fused multiply-adds of mixed types.

op_sel chooses the half (of a pair of float32 registers, or of a register of float16) for the low result, op_sel_hi for
the high one; neg_lo and neg_hi negate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.half_table import HALF_OPERATIONS
from pytest_attnperf.isa.operands import DecodedInstruction, Operand
from pytest_attnperf.isa.parts import check_overflow, write_row
from pytest_attnperf.isa.sources import DTYPES, Read, bits_reader, constant_bits, reader
from pytest_attnperf.isa.vector import compose
from pytest_attnperf.isa.vector_table import OPERATIONS, SATURATING, Operation
from pytest_attnperf.isa.wave import Step, Wave

_PACKED: Mapping[str, Callable[..., Any]] = {
    **{f"v_pk_{name}_f32": OPERATIONS[f"v_{name}_f32"].compute for name in ("add", "mul", "fma")},
    "v_pk_mov_b32": lambda a, b: (a, b),
}

PACKED_HALVES: Mapping[str, Operation] = {
    f"v_pk_{name}": HALF_OPERATIONS[f"v_{name}"]
    for name in (
        *("add_f16", "mul_f16", "max_f16", "min_f16", "fma_f16", "add_u16", "add_i16", "sub_u16", "sub_i16"),
        *("mul_lo_u16", "mad_u16", "mad_i16", "max_u16", "max_i16", "min_u16", "min_i16"),
        *("lshlrev_b16", "lshrrev_b16", "ashrrev_i16"),
    )
}


def make_packed_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a packed or mixed instruction; None for another one."""
    name = decoded.name
    if name in _PACKED:
        decoded.allow("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
        return _make_packed_move(decoded) if name == "v_pk_mov_b32" else _make_packed_floats(decoded, _PACKED[name])
    if name in PACKED_HALVES:
        limited = SATURATING.get(name.replace("v_pk_", "v_")) if "clamp" in decoded.modifiers else None
        decoded.allow("op_sel", "op_sel_hi", "neg_lo", "neg_hi", *(("clamp",) if limited else ()))
        return _make_packed_halves(decoded, limited or PACKED_HALVES[name])
    if name in ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"):
        decoded.allow("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
        return _make_mixed(decoded)
    return None


def _bits_of_half(decoded: DecodedInstruction, operand: Operand, upper: int) -> Read:
    """Returns a reader of one register of a pair, as uint32; of a constant only the low half exists."""
    if operand.constant:
        # Of zero both halves are zero, whether the constant is extended or repeated.
        if upper and (operand.kind, operand.first) != ("integer", 0):
            raise decoded.refuse(f"the upper half of the constant {operand.text!r}")
        return bits_reader(decoded, operand)
    if operand.count != 2:
        raise decoded.refuse(f"the operand {operand.text!r} where two registers are read")
    return bits_reader(decoded, operand, upper)


def _make_packed_floats(decoded: DecodedInstruction, compute: Callable[..., Any]) -> Step:
    target, *sources = decoded.operands
    if target.kind != "v" or target.count != 2:
        raise decoded.refuse(f"the operand {target.text!r} as a destination")
    steps = []
    for halves, signs, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        reads = []
        for place, source in enumerate(sources):
            upper = decoded.numbers(halves, (default,) * len(sources))[place]
            bits = _bits_of_half(decoded, source, upper)
            negated = decoded.numbers(signs, (0,) * len(sources))[place]
            reads.append(_float_reader(bits, np.float32, negated=bool(negated)))
        steps.append(_evaluate(compute, reads))
    low, high = steps
    number = target.first

    def run(wave: Wave) -> None:
        # Both are computed before one is written: a source may be the destination.
        first, second = low(wave), high(wave)
        write_row(wave, number, np.asarray(first, np.float32).view(np.uint32))
        write_row(wave, number + 1, np.asarray(second, np.float32).view(np.uint32))

    return run


def _float_reader(bits: Read, kind: Any, *, negated: bool) -> Read:
    return (lambda wave: -bits(wave).view(kind)) if negated else (lambda wave: bits(wave).view(kind))


def _evaluate(compute: Callable[..., Any], reads: list[Read]) -> Read:
    """Returns a reader of `compute` of two or three sources."""
    if len(reads) == 2:
        first, second = reads
        return lambda wave: compute(first(wave), second(wave))
    first, second, third = reads
    return lambda wave: compute(first(wave), second(wave), third(wave))


def _make_packed_move(decoded: DecodedInstruction) -> Step:
    """V_PK_MOV_B32: the low result from the first source, the high one from the second; op_sel alone chooses halves,
    because LLVM prints op_sel_hi only where it is not all ones."""
    if decoded.numbers("op_sel_hi", (1, 1)) != (1, 1) or "neg_lo" in decoded.modifiers or "neg_hi" in decoded.modifiers:
        raise decoded.refuse("a modifier but op_sel")
    target, first, second = decoded.operands
    low, high = decoded.numbers("op_sel", (0, 0))
    a, b = _bits_of_half(decoded, first, low), _bits_of_half(decoded, second, high)
    number = target.first

    def run(wave: Wave) -> None:
        one, two = np.array(a(wave)), np.array(b(wave))
        write_row(wave, number, one)
        write_row(wave, number + 1, two)

    return run


def _make_packed_halves(decoded: DecodedInstruction, operation: Operation) -> Step:
    target, *sources = decoded.operands
    sides = []
    for halves, signs, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
        chosen = decoded.numbers(halves, (default,) * len(sources))
        negated = decoded.numbers(signs, (0,) * len(sources))
        reads = [
            _half_reader(decoded, one, operation.sources[place], chosen[place], negated=bool(negated[place]))
            for place, one in enumerate(sources)
        ]
        sides.append(_evaluate(operation.compute, reads))
    low, high = sides
    kind = DTYPES[operation.result]

    def run(wave: Wave) -> None:
        both = [np.asarray(side(wave), kind) for side in (low, high)]
        for half in both if kind is np.float16 else ():
            check_overflow(decoded, wave, half)
        first, second = (half.view(np.uint16).astype(np.uint32) for half in both)
        write_row(wave, target.first, first | second << np.uint32(16))

    return run


def _half_reader(decoded: DecodedInstruction, source: Operand, kind: str, half: int, *, negated: bool) -> Read:
    if negated and kind[0] != "f":
        raise decoded.refuse(f"the negation of a value of type {kind}")
    if source.constant:
        # A word: integers sign-extended, floats as float16 with nothing above for an operation of floats, else as
        # float32 (LLVM, `getInlineEncodingV216`).
        word = constant_bits(decoded, source, "f16" if kind[0] == "f" and source.kind == "float" else "b32")
        value = np.uint16(word >> 16 * half & 0xFFFF).view(DTYPES[kind])
        return lambda _wave: -value if negated else value
    read = reader(decoded, source, kind, half=half)
    return (lambda wave: -read(wave)) if negated else read


def _make_mixed(decoded: DecodedInstruction) -> Step:
    """V_FMA_MIX: a source is float16 where op_sel_hi is 1 (op_sel chooses its half), else float32; the sum is rounded
    to float32, and for mixlo and mixhi to float16 into one half of the destination."""
    target, *sources = decoded.operands
    if "neg_lo" in decoded.modifiers or "neg_hi" in decoded.modifiers:
        raise decoded.refuse("neg_lo or neg_hi of a mixed operation")
    narrow, halves = decoded.numbers("op_sel_hi", (0, 0, 0)), decoded.numbers("op_sel", (0, 0, 0))
    reads = [_mixed_reader(decoded, one, narrow[at], halves[at]) for at, one in enumerate(sources)]
    number = target.first
    if decoded.name == "v_fma_mix_f32":
        return compose(
            floats.fma_f32, reads, lambda wave, value: write_row(wave, number, np.asarray(value).view(np.uint32))
        )
    a, b, c = reads
    upper = decoded.name == "v_fma_mixhi_f16"

    def run(wave: Wave) -> None:
        result = np.asarray(floats.fma_f32(a(wave), b(wave), c(wave))).astype(np.float16)
        check_overflow(decoded, wave, result)
        bits = result.view(np.uint16).astype(np.uint32)
        # The other half stays, written or not: mixlo and mixhi fill a register together.
        old = wave.vectors[number]
        kept = old & np.uint32(0xFFFF) | bits << np.uint32(16) if upper else old & np.uint32(0xFFFF0000) | bits
        write_row(wave, number, kept)

    return run


def _mixed_reader(decoded: DecodedInstruction, source: Operand, narrow: int, half: int) -> Read:
    if not narrow:
        return reader(decoded, source, "f32")
    read = reader(decoded, source, "f16", half=half)
    return lambda wave: read(wave).astype(np.float32)
