"""Steps of vector arithmetic: plain operations, SDWA, comparisons, selections, carries, divisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytest_attnperf.isa import floats
from pytest_attnperf.isa.operands import VCC, DecodedInstruction, Operand
from pytest_attnperf.isa.sources import Read, Write, bits_reader, mask_reader, mask_writer, reader, writer
from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS, Operation
from pytest_attnperf.isa.wave import Step, Wave, lanes_of

_U64 = np.uint64


def make_vector_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a vector arithmetic instruction; None for another one."""
    name = decoded.name
    if decoded.encoding == "sdwa":
        return _make_sdwa(decoded)
    if name in _SPECIAL:
        return _SPECIAL[name](decoded)
    if name.startswith("v_cmp_"):
        return _make_compare(decoded)
    if name in OPERATIONS:
        return _make_plain(decoded, OPERATIONS[name])
    return None


def _make_plain(decoded: DecodedInstruction, operation: Operation) -> Step:
    target, *sources = decoded.operands
    if len(sources) != len(operation.sources):
        raise decoded.refuse(f"the form with {len(sources)} sources")
    halves = decoded.numbers("op_sel", ())
    if halves and not (operation.sources == ("f16", "f16") and len(halves) == 3 and not halves[2]):
        raise decoded.refuse("the modifier op_sel")
    reads = [
        reader(decoded, source, kind, half=halves[place] if halves else 0)
        for place, (source, kind) in enumerate(zip(sources, operation.sources, strict=True))
    ]
    decoded.allow("op_sel", *(("clamp", "mul", "div") if operation.result == "f32" else ()))
    write = adjusting_writer(decoded, writer(decoded, target, operation.result))
    return compose(operation.compute, reads, write)


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


def adjusting_writer(decoded: DecodedInstruction, write: Write) -> Write:
    """Returns the writer with the output modifiers of a float32 result: times 2 or 4, half, clamp to 0 and 1."""
    scale = decoded.number("mul", 1) / decoded.number("div", 1)
    clamp = "clamp" in decoded.modifiers
    if scale == 1 and not clamp:
        return write

    def adjust(wave: Wave, value: Any) -> None:
        value = value * np.float32(scale)
        if clamp:
            # With DX10_CLAMP, which compilers set, NaN becomes 0.
            value = np.where(np.isnan(value), np.float32(0), np.clip(value, np.float32(0), np.float32(1)))
        write(wave, value)

    return adjust


# SDWA: parts of registers as sources.

_PARTS = {
    "DWORD": (0, 0xFFFFFFFF),
    "WORD_0": (0, 0xFFFF),
    "WORD_1": (16, 0xFFFF),
    **{f"BYTE_{byte}": (8 * byte, 0xFF) for byte in range(4)},
}


def _make_sdwa(decoded: DecodedInstruction) -> Step:
    operation = OPERATIONS.get(decoded.name)
    if operation is None or any(kind.endswith("64") for kind in (operation.result, *operation.sources)):
        raise decoded.refuse("the opcode with SDWA")
    decoded.allow("dst_sel", "dst_unused", "src0_sel", "src1_sel")
    if decoded.modifiers.get("dst_sel", "DWORD") != "DWORD" or decoded.modifiers.get("dst_unused") not in (
        None,
        "UNUSED_PAD",
    ):
        raise decoded.refuse("the destination of SDWA but a whole register")
    target, *sources = decoded.operands
    reads = []
    for place, (source, kind) in enumerate(zip(sources, operation.sources, strict=True)):
        if source.negative or source.absolute:
            raise decoded.refuse("a source modifier with SDWA")
        reads.append(_part_reader(decoded, source, str(decoded.modifiers.get(f"src{place}_sel", "DWORD")), kind))
    return compose(operation.compute, reads, writer(decoded, target, operation.result))


def _part_reader(decoded: DecodedInstruction, source: Operand, part: str, kind: str) -> Read:
    if part not in _PARTS:
        raise decoded.refuse(f"the part {part!r} of a register")
    shift, mask = (np.uint32(number) for number in _PARTS[part])
    read = bits_reader(decoded, source)
    if kind.endswith("16"):
        narrow = {"f16": np.float16, "u16": np.uint16, "i16": np.int16}[kind]
        return lambda wave: (read(wave) >> shift & mask & np.uint32(0xFFFF)).astype(np.uint16).view(narrow)
    wide = {"f32": np.float32, "i32": np.int32}.get(kind, np.uint32)
    return lambda wave: (read(wave) >> shift & mask).view(wide)


# Masks of lanes.


def _make_compare(decoded: DecodedInstruction) -> Step:
    _, _, relation, kind = decoded.name.split("_", 3)
    known = ("f32", "f16", "f64", "i32", "u32", "i16", "u16", "i64", "u64")
    if relation not in COMPARISONS or kind not in known:
        raise decoded.refuse("the opcode")
    decoded.allow()
    target, first, second = decoded.operands
    compute = COMPARISONS[relation]
    write = mask_writer(decoded, target)
    a, b = reader(decoded, first, kind), reader(decoded, second, kind)
    return lambda wave: write(wave, compute(a(wave), b(wave)))


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
    if source.kind != "v":
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
    upper = third.first + 1 if third.kind == "v" else 0
    lower = c if third.constant else bits_reader(decoded, third)

    def run(wave: Wave) -> None:
        missing = wave.exec_mask & ~wave.written[upper] if third.kind == "v" and not wave.flying.get(upper) else 0
        product = (a(wave).astype(wide) * b(wave).astype(wide)).view(_U64)
        addend = lower(wave).astype(_U64) | wave.vectors[upper].astype(_U64) << _U64(32) if missing else c(wave)
        total = product + addend
        carried = total < product
        if signed:
            # Both operands are sign-extended to 65 bits.
            carried = carried ^ (product >> _U64(63) != 0) ^ (addend >> _U64(63) != 0)
        write_carry(wave, carried)
        write(wave, total)
        if missing:
            wave.written[target.first + 1] &= ~missing
            known, _ = wave.read_known_bits(carry.first, decoded.mask_words)
            wave.write_known_bits(carry.first, known, missing, decoded.mask_words)

    return run


def _make_division_scale(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    target, mask, *sources = decoded.operands
    write, write_mask = writer(decoded, target, "f32"), mask_writer(decoded, mask)
    a, b, c = (reader(decoded, source, "f32") for source in sources)

    def run(wave: Wave) -> None:
        value, scaled = floats.division_scale(a(wave), b(wave), c(wave))
        write(wave, value)
        write_mask(wave, scaled)

    return run


def _make_division_fma(decoded: DecodedInstruction) -> Step:
    decoded.allow()
    target, *sources = decoded.operands
    write, scaled = (
        writer(decoded, target, "f32"),
        mask_reader(decoded, Operand("s", VCC, decoded.mask_words, text="vcc")),
    )
    a, b, c = (reader(decoded, source, "f32") for source in sources)
    return lambda wave: write(wave, floats.division_fma(a(wave), b(wave), c(wave), lanes_of(scaled(wave), wave.size)))


def _make_accumulate(decoded: DecodedInstruction) -> Step:
    """V_FMAC_F32: the destination is the addend."""
    decoded.allow("clamp", "mul", "div")
    target, first, second = decoded.operands
    reads = [reader(decoded, one, "f32") for one in (first, second, target)]
    return compose(floats.fma_f32, reads, adjusting_writer(decoded, writer(decoded, target, "f32")))


def _make_constant_fma(decoded: DecodedInstruction) -> Step:
    """V_FMAMK_F32 (a * K + b) and V_FMAAK_F32 (a * b + K): the three sources in the order of the text."""
    decoded.allow()
    target, *sources = decoded.operands
    return compose(floats.fma_f32, [reader(decoded, one, "f32") for one in sources], writer(decoded, target, "f32"))


def _make_table_logic(decoded: DecodedInstruction) -> Step:
    """V_BITOP3_B32 of gfx950: bit abc of the table, a being 0xf0, b 0xcc and c 0xaa."""
    decoded.allow("bitop3")
    table = decoded.number("bitop3")
    target, *sources = decoded.operands
    reads = [reader(decoded, one, "b32") for one in sources]

    def compute(a: Any, b: Any, c: Any) -> Any:
        result = np.zeros_like(a & b & c)
        for place in range(8):
            if table >> place & 1:
                result = result | (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
        return result

    return compose(compute, reads, writer(decoded, target, "u32"))


_SPECIAL: dict[str, Callable[[DecodedInstruction], Step]] = {
    "v_cndmask_b32": _make_select,
    **{f"v_{name}_co_u32": _make_carry for name in ("add", "addc", "sub", "subb", "subrev", "subbrev")},
    "v_mad_u64_u32": _make_wide_product,
    "v_mad_i64_i32": _make_wide_product,
    "v_div_scale_f32": _make_division_scale,
    "v_div_fmas_f32": _make_division_fma,
    "v_fmac_f32": _make_accumulate,
    "v_fmamk_f32": _make_constant_fma,
    "v_fmaak_f32": _make_constant_fma,
    "v_bitop3_b32": _make_table_logic,
}
