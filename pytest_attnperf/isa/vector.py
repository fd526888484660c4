"""Steps of vector arithmetic: plain operations, SDWA, comparisons, selections, carries, divisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_attnperf.isa import divisions, double_table, floats
from pytest_attnperf.isa.double_table import DOUBLE_OPERATIONS
from pytest_attnperf.isa.half_table import HALF_OPERATIONS, UPPER_HALF_KEPT, fma_f16
from pytest_attnperf.isa.operands import VCC, DecodedInstruction, Operand
from pytest_attnperf.isa.parts import check_overflow
from pytest_attnperf.isa.sources import DTYPES, Read, Write, bits_reader, mask_reader, mask_writer, reader, writer
from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS, SATURATING, Operation
from pytest_attnperf.isa.wave import Step, Wave, lanes_of, mask_of

_U64 = np.uint64


def make_vector_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a vector arithmetic instruction; None for another one."""
    name = decoded.name
    if name in _SPECIAL:
        return _SPECIAL[name](decoded)
    if name.startswith(("v_cmp_", "v_cmpx_")):
        return _make_compare(decoded)
    operation = _find_operation(decoded)
    return None if operation is None else make_plain(decoded, operation)


def _find_operation(decoded: DecodedInstruction) -> Operation | None:
    """Returns the plain operation of the instruction, with its integers limited where it has the modifier clamp."""
    if "clamp" in decoded.modifiers and decoded.name in SATURATING:
        return SATURATING[decoded.name]
    for table in (OPERATIONS, HALF_OPERATIONS, DOUBLE_OPERATIONS):
        if decoded.name in table:
            return table[decoded.name]
    return None


_ALIGNING = frozenset({"v_alignbit_b32", "v_alignbyte_b32"})


def make_plain(decoded: DecodedInstruction, operation: Operation) -> Step:
    """Returns the step of an operation of whole or half registers."""
    target, *sources = decoded.operands
    if len(sources) != len(operation.sources):
        raise decoded.refuse(f"the form with {len(sources)} sources")
    halves = decoded.numbers("op_sel", (0,) * (len(sources) + 1))
    kinds = (*operation.sources, operation.result)
    if len(halves) != len(kinds) or any(
        half and not kind.endswith("16") for half, kind in zip(halves, kinds, strict=True)
    ):
        raise decoded.refuse("the modifier op_sel")
    reads = [
        # The amount of V_ALIGNBIT and V_ALIGNBYTE is a half from gfx11 on, of which the low bits count.
        reader(decoded, source, "u16" if source.half is not None and decoded.name in _ALIGNING else kind, half=half)
        for source, kind, half in zip(sources, operation.sources, halves, strict=False)
    ]
    limited = operation.result[0] == "f" or decoded.name in SATURATING
    decoded.allow("op_sel", *(("clamp",) if limited else ()), *(("mul", "div") if operation.result[0] == "f" else ()))
    if halves[-1] or (decoded.name in UPPER_HALF_KEPT and not decoded.rdna):
        target = replace(target, part=f"WORD_{halves[-1]}", unused="UNUSED_PRESERVE")
    write = writer(decoded, target, operation.result)
    if operation.result[0] == "f":
        write = adjusting_writer(decoded, write, DTYPES[operation.result])
    if decoded.name == "v_cvt_pk_f16_f32":
        write = _checking_writer(decoded, write)
    return compose(operation.compute, reads, write)


def _checking_writer(decoded: DecodedInstruction, write: Write) -> Write:
    """Returns a writer of two halves that refuses what FP16_OVFL would limit."""

    def check(wave: Wave, value: Any) -> None:
        check_overflow(decoded, wave, np.asarray(value, np.uint32).view(np.float16))
        write(wave, value)

    return check


def compose(compute: Callable[..., Any], reads: Sequence[Read], write: Write) -> Step:
    """Returns the step that writes `compute` of one to three sources."""
    if len(reads) == 1:
        (only,) = reads
        return lambda wave: write(wave, compute(only(wave)))
    if len(reads) == 2:
        first, second = reads
        return lambda wave: write(wave, compute(first(wave), second(wave)))
    first, second, third = reads
    return lambda wave: write(wave, compute(first(wave), second(wave), third(wave)))


def adjusting_writer(decoded: DecodedInstruction, write: Write, kind: Any = np.float32) -> Write:
    """Returns the writer with the output modifiers of a result of type `kind`: times 2 or 4, half, clamp to 0 and
    1."""
    scale = decoded.number("mul", 1) / decoded.number("div", 1)
    clamp = "clamp" in decoded.modifiers
    if scale == 1 and not clamp:
        return write

    def adjust(wave: Wave, value: Any) -> None:
        value = value * kind(scale)
        if clamp:
            # With DX10_CLAMP, which compilers set, NaN becomes 0, and -0 is below +0.
            value = np.where(np.isnan(value), kind(0), np.clip(value, kind(0), kind(1))) + kind(0)
        write(wave, value)

    return adjust


# Masks of lanes.


def _make_compare(decoded: DecodedInstruction) -> Step:
    """V_CMP writes a mask of lanes; V_CMPX of gfx9 writes it into EXEC, too."""
    _, prefix, relation, kind = decoded.name.split("_", 3)
    known = ("f32", "f16", "f64", "i32", "u32", "i16", "u16", "i64", "u64")
    if (relation not in COMPARISONS and relation != "class") or kind not in known:
        raise decoded.refuse("the opcode")
    decoded.allow()
    target, first, second = decoded.operands
    compute = floats.is_of_class if relation == "class" else COMPARISONS[relation]
    write = mask_writer(decoded, target)
    a = reader(decoded, first, kind)
    b = reader(decoded, second, "u32" if relation == "class" else kind)
    if prefix == "cmp":
        return lambda wave: write(wave, compute(a(wave), b(wave)))

    def run(wave: Wave) -> None:
        found = np.broadcast_to(compute(a(wave), b(wave)), wave.size)
        write(wave, found)
        wave.set_exec(mask_of(found) & wave.exec_mask)

    return run


def _make_select(decoded: DecodedInstruction) -> Step:
    """V_CNDMASK_B32: the second source in the lanes of the mask, the first in the others; only what is chosen counts
    as read. A source modifier acts on the sign bit."""
    decoded.allow()
    target, first, second, mask = decoded.operands
    kind = "f32" if any(one.negative or one.absolute for one in (first, second)) else "b32"
    chosen, write = mask_reader(decoded, mask), writer(decoded, target, kind)
    a, b = _chosen_reader(decoded, first, kind), _chosen_reader(decoded, second, kind)

    def run(wave: Wave) -> None:
        mask = chosen(wave)
        write(
            wave, np.where(lanes_of(mask, wave.size), b(wave, wave.exec_mask & mask), a(wave, wave.exec_mask & ~mask))
        )

    return run


def _chosen_reader(decoded: DecodedInstruction, source: Operand, kind: str) -> Callable[[Wave, int], Any]:
    if source.kind != "v" or source.part:
        plain = reader(decoded, source, kind)
        return lambda wave, _lanes: plain(wave)
    number = source.first
    dtype = np.float32 if kind == "f32" else np.uint32

    def read(wave: Wave, lanes: int) -> Any:
        wave.require_written(number, lanes)
        value: Any = wave.vectors[number].view(dtype)
        value = np.abs(value) if source.absolute else value
        return -value if source.negative else value

    return read


def _make_carry(decoded: DecodedInstruction) -> Step:
    """V_ADD_CO, V_ADDC_CO, V_SUB_CO, V_SUBREV_CO and V_SUBB_CO: 33 bits, the top one into a mask."""
    decoded.allow()
    operation = decoded.name.split("_")[1]
    target, carry_out, first, second, *carry_in = decoded.operands
    write, write_carry = writer(decoded, target, "u32"), mask_writer(decoded, carry_out)
    a, b = reader(decoded, first, "u32"), reader(decoded, second, "u32")
    carry = mask_reader(decoded, carry_in[0]) if carry_in else (lambda _wave: 0)
    reverse = operation in ("subrev", "subbrev")
    subtract = operation.startswith("sub")

    def run(wave: Wave) -> None:
        left, right = (b(wave), a(wave)) if reverse else (a(wave), b(wave))
        extra = lanes_of(carry(wave), wave.size).astype(_U64)
        wide = left.astype(_U64) - right - extra if subtract else left.astype(_U64) + right + extra
        write_carry(wave, wide >> _U64(32) != 0)
        write(wave, wide.astype(np.uint32))

    return run


def _make_wide_product(decoded: DecodedInstruction) -> Step:
    """V_MAD_U64_U32 and V_MAD_I64_I32: a 32 x 32 bit product plus 64 bits. The mask of carries is the 65th bit.

    Compilers use them for 32 bits, with an upper half of the addend that nothing wrote: that of the result then is
    unwritten, too, and so is the carry.
    """
    decoded.allow()
    signed = decoded.name == "v_mad_i64_i32"
    kind, wide = ("i32", np.int64) if signed else ("u32", np.uint64)
    target, carry, first, second, third = decoded.operands
    write, write_carry = writer(decoded, target, "u64"), mask_writer(decoded, carry)
    a, b, c = reader(decoded, first, kind), reader(decoded, second, kind), reader(decoded, third, "u64")
    upper = third.first + 1
    lower = c if third.constant else bits_reader(decoded, third)

    def run(wave: Wave) -> None:
        missing = wave.find_missing(third.kind, upper)
        product = (a(wave).astype(wide) * b(wave).astype(wide)).view(_U64)
        addend = c(wave) if not missing else lower(wave).astype(_U64)
        if missing and third.kind == "v":
            addend = addend | wave.vectors[upper].astype(_U64) << _U64(32)
        total = product + addend
        carried = total < product
        if signed:
            # Both operands are sign-extended to 65 bits.
            carried = carried ^ (product >> _U64(63) != 0) ^ (addend >> _U64(63) != 0)
        write_carry(wave, carried)
        write(wave, total)
        if missing:
            wave.written[target.first + 1] &= ~missing
            if carry.null:
                return
            known, _ = wave.read_known_bits(carry.first, decoded.mask_words)
            wave.write_known_bits(carry.first, known, missing, decoded.mask_words)

    return run


def _make_division_scale(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    kind = decoded.name[-3:]
    form = divisions.FLOATS if kind == "f32" else divisions.DOUBLES
    target, mask, *sources = decoded.operands
    write, write_mask = writer(decoded, target, kind), mask_writer(decoded, mask)
    a, b, c = (reader(decoded, source, kind) for source in sources)

    def run(wave: Wave) -> None:
        value, scaled = divisions.scale(form, a(wave), b(wave), c(wave))
        write(wave, value)
        write_mask(wave, scaled)

    return run


def _make_division_fma(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    kind = decoded.name[-3:]
    form = divisions.FLOATS if kind == "f32" else divisions.DOUBLES
    add_product = _FMA[kind]
    target, *sources = decoded.operands
    write = writer(decoded, target, kind)
    scaled = mask_reader(decoded, Operand("s", VCC, decoded.mask_words, text="vcc"))
    a, b, c = (reader(decoded, source, kind) for source in sources)

    def run(wave: Wave) -> None:
        addend = c(wave)
        total = add_product(a(wave), b(wave), addend)
        write(wave, divisions.scale_back(form, total, addend, lanes_of(scaled(wave), wave.size)))

    return run


_FMA: dict[str, Callable[..., Any]] = {"f16": fma_f16, "f32": floats.fma_f32, "f64": double_table.fma_f64}


def _sum_of_product(decoded: DecodedInstruction) -> Callable[..., Any]:
    """Returns the fused operation of the instruction's type, or that of V_MAD, which rounds twice."""
    return floats.multiply_add if decoded.name.startswith("v_ma") else _FMA[decoded.name[-3:]]


def _make_accumulate(decoded: DecodedInstruction) -> Step:
    """V_FMAC, V_MAC: the destination is the addend."""
    decoded.allow("clamp", "mul", "div")
    kind = decoded.name[-3:]
    target, first, second = decoded.operands
    # SDWA writes a part of the destination; as the addend it is read whole.
    addend = replace(target, part="", unused="")
    reads = [reader(decoded, one, kind) for one in (first, second, addend)]
    return compose(
        _sum_of_product(decoded), reads, adjusting_writer(decoded, writer(decoded, target, kind), DTYPES[kind])
    )


def _make_constant_fma(decoded: DecodedInstruction) -> Step:
    """V_FMAMK, V_MADMK (a * K + b) and V_FMAAK, V_MADAK (a * b + K): three sources in the order of the text."""
    decoded.allow()
    kind = decoded.name[-3:]
    target, *sources = decoded.operands
    return compose(
        _sum_of_product(decoded), [reader(decoded, one, kind) for one in sources], writer(decoded, target, kind)
    )


def _make_table_logic(decoded: DecodedInstruction) -> Step:
    """V_BITOP3_B32 and B16 of gfx950: bit abc of the table, a being 0xf0, b 0xcc and c 0xaa."""
    decoded.allow("bitop3")
    kind = f"u{decoded.name[-2:]}"
    table = decoded.number("bitop3")
    target, *sources = decoded.operands
    reads = [reader(decoded, one, kind) for one in sources]

    def compute(a: Any, b: Any, c: Any) -> Any:
        result = np.zeros_like(a & b & c)
        for place in range(8):
            if table >> place & 1:
                result = result | (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
        return result

    return compose(compute, reads, writer(decoded, target, kind))


_SPECIAL: dict[str, Callable[[DecodedInstruction], Step]] = {
    "v_cndmask_b32": _make_select,
    **{f"v_{name}_co_u32": _make_carry for name in ("add", "addc", "sub", "subb", "subrev", "subbrev")},
    "v_mad_u64_u32": _make_wide_product,
    "v_mad_i64_i32": _make_wide_product,
    **{f"v_div_scale_{kind}": _make_division_scale for kind in ("f32", "f64")},
    **{f"v_div_fmas_{kind}": _make_division_fma for kind in ("f32", "f64")},
    **{f"v_fmac_{kind}": _make_accumulate for kind in _FMA},
    "v_mac_f32": _make_accumulate,
    **{f"v_{name}_f32": _make_constant_fma for name in ("madmk", "madak")},
    **{f"v_{name}_{kind}": _make_constant_fma for name in ("fmamk", "fmaak") for kind in ("f16", "f32")},
    "v_bitop3_b32": _make_table_logic,
    "v_bitop3_b16": _make_table_logic,
}
