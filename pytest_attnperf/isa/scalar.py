"""Scalar arithmetic, comparisons and branches: Python integers, as the ISA documents of CDNA state them.

Source: AMD, "CDNA3 Instruction Set Architecture", chapters on SOP1, SOP2, SOPC, SOPK and SOPP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from pytest_attnperf.isa.operands import DecodedInstruction, Operand, float_bits, wide_float_bits
from pytest_attnperf.isa.wave import Step, Wave

_WORD = 0xFFFFFFFF
APERTURES = {"src_shared_base": 0x1000 << 48, "src_private_base": 0x2000 << 48}
"""Where a flat address finds LDS and scratch: 4 GiB each, as the driver of Linux places them on gfx9."""

_LONG = (1 << 64) - 1

Result: TypeAlias = tuple[int, "int | None"]
"""A value, and SCC; None where the instruction leaves SCC as it is."""


def signed(value: int, bits: int = 32) -> int:
    """Returns the low `bits` of a value as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _overflows(value: int) -> int:
    return int(not -(1 << 31) <= value < 1 << 31)


def _add_signed(a: int, b: int, _scc: int) -> Result:
    return a + b, _overflows(signed(a) + signed(b))


def _subtract_signed(a: int, b: int, _scc: int) -> Result:
    return a - b, _overflows(signed(a) - signed(b))


def _minimum(a: int, b: int, _scc: int) -> Result:
    return (a, 1) if signed(a) < signed(b) else (b, 0)


def _maximum(a: int, b: int, _scc: int) -> Result:
    return (a, 1) if signed(a) > signed(b) else (b, 0)


def _extract(value: int, field: int, *, sign: bool, bits: int) -> Result:
    """Returns the bit field: offset in bits 0 to 4 (5 of 64), width in bits 16 to 22 of `field`."""
    offset, width = field & (bits - 1), field >> 16 & 0x7F
    found = value >> offset & ((1 << width) - 1)
    if sign and width:
        found = signed(signed(value, bits) >> offset, min(width, bits))
    found &= (1 << bits) - 1
    return found, int(found != 0)


def _count_signs(value: int, bits: int) -> int:
    """Returns the number of bits that equal the sign, from the top; -1 if all do."""
    other = value ^ ((1 << bits) - 1) if value >> (bits - 1) else value
    return bits - other.bit_length() if other else -1


def _shift_add(amount: int) -> Callable[[int, int, int], Result]:
    def add(a: int, b: int, _scc: int) -> Result:
        total = (a << amount) + b
        return total, int(total > _WORD)

    return add


def _with_nonzero(compute: Callable[[int, int], int], bits: int) -> Callable[[int, int, int], Result]:
    def run(a: int, b: int, _scc: int) -> Result:
        value = compute(a, b) & ((1 << bits) - 1)
        return value, int(value != 0)

    return run


_LOGIC: Mapping[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}

TWO_SOURCES: dict[str, tuple[int, int, int, Callable[[int, int, int], Result]]] = {
    "s_add_u32": (32, 32, 32, lambda a, b, _: (a + b, int(a + b > _WORD))),
    "s_sub_u32": (32, 32, 32, lambda a, b, _: (a - b, int(b > a))),
    "s_addc_u32": (32, 32, 32, lambda a, b, c: (a + b + c, int(a + b + c > _WORD))),
    "s_subb_u32": (32, 32, 32, lambda a, b, c: (a - b - c, int(b + c > a))),
    "s_add_i32": (32, 32, 32, _add_signed),
    "s_sub_i32": (32, 32, 32, _subtract_signed),
    "s_min_i32": (32, 32, 32, _minimum),
    "s_max_i32": (32, 32, 32, _maximum),
    "s_min_u32": (32, 32, 32, lambda a, b, _: (min(a, b), int(a < b))),
    "s_max_u32": (32, 32, 32, lambda a, b, _: (max(a, b), int(a > b))),
    "s_mul_i32": (32, 32, 32, lambda a, b, _: (a * b, None)),
    "s_mul_hi_u32": (32, 32, 32, lambda a, b, _: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, 32, 32, lambda a, b, _: (signed(a) * signed(b) >> 32, None)),
    "s_cselect_b32": (32, 32, 32, lambda a, b, c: (a if c else b, None)),
    "s_cselect_b64": (64, 64, 64, lambda a, b, c: (a if c else b, None)),
    "s_lshl_b32": (32, 32, 32, _with_nonzero(lambda a, b: a << (b & 31), 32)),
    "s_lshr_b32": (32, 32, 32, _with_nonzero(lambda a, b: a >> (b & 31), 32)),
    "s_ashr_i32": (32, 32, 32, _with_nonzero(lambda a, b: signed(a) >> (b & 31), 32)),
    "s_lshl_b64": (64, 64, 32, _with_nonzero(lambda a, b: a << (b & 63), 64)),
    "s_lshr_b64": (64, 64, 32, _with_nonzero(lambda a, b: a >> (b & 63), 64)),
    "s_ashr_i64": (64, 64, 32, _with_nonzero(lambda a, b: signed(a, 64) >> (b & 63), 64)),
    "s_bfe_u32": (32, 32, 32, lambda a, b, _: _extract(a, b, sign=False, bits=32)),
    "s_bfe_i32": (32, 32, 32, lambda a, b, _: _extract(a, b, sign=True, bits=32)),
    "s_bfe_u64": (64, 64, 32, lambda a, b, _: _extract(a, b, sign=False, bits=64)),
    "s_bfe_i64": (64, 64, 32, lambda a, b, _: _extract(a, b, sign=True, bits=64)),
    "s_bfm_b32": (32, 32, 32, lambda a, b, _: (((1 << (a & 31)) - 1) << (b & 31), None)),
    "s_pack_ll_b32_b16": (32, 32, 32, lambda a, b, _: (a & 0xFFFF | (b & 0xFFFF) << 16, None)),
    "s_pack_lh_b32_b16": (32, 32, 32, lambda a, b, _: (a & 0xFFFF | b & 0xFFFF0000, None)),
    "s_pack_hh_b32_b16": (32, 32, 32, lambda a, b, _: (a >> 16 | b & 0xFFFF0000, None)),
    **{f"s_lshl{n}_add_u32": (32, 32, 32, _shift_add(n)) for n in (1, 2, 3, 4)},
    **{f"s_{name}_b{n}": (n, n, n, _with_nonzero(do, n)) for name, do in _LOGIC.items() for n in (32, 64)},
}
"""Name -> bits of the result, of both sources, and the function of both and SCC."""

_READ_SCC = frozenset({"s_addc_u32", "s_subb_u32", "s_cselect_b32", "s_cselect_b64"})

ONE_SOURCE: dict[str, tuple[int, int, Callable[[int], Result]]] = {
    "s_mov_b32": (32, 32, lambda a: (a, None)),
    "s_mov_b64": (64, 64, lambda a: (a, None)),
    "s_not_b32": (32, 32, lambda a: (~a, int(a != _WORD))),
    "s_not_b64": (64, 64, lambda a: (~a, int(a != _LONG))),
    "s_abs_i32": (32, 32, lambda a: (abs(signed(a)), int(a != 0))),
    "s_brev_b32": (32, 32, lambda a: (int(f"{a:032b}"[::-1], 2), None)),
    "s_brev_b64": (64, 64, lambda a: (int(f"{a:064b}"[::-1], 2), None)),
    "s_sext_i32_i8": (32, 32, lambda a: (signed(a, 8), None)),
    "s_sext_i32_i16": (32, 32, lambda a: (signed(a, 16), None)),
    "s_bcnt1_i32_b32": (32, 32, lambda a: (a.bit_count(), int(a != 0))),
    "s_bcnt1_i32_b64": (32, 64, lambda a: (a.bit_count(), int(a != 0))),
    "s_ff1_i32_b32": (32, 32, lambda a: ((a & -a).bit_length() - 1, None)),
    "s_ff1_i32_b64": (32, 64, lambda a: ((a & -a).bit_length() - 1, None)),
    "s_flbit_i32_b32": (32, 32, lambda a: (32 - a.bit_length() if a else -1, None)),
    "s_flbit_i32_b64": (32, 64, lambda a: (64 - a.bit_length() if a else -1, None)),
    "s_flbit_i32": (32, 32, lambda a: (_count_signs(a, 32), None)),
    "s_flbit_i32_i64": (32, 64, lambda a: (_count_signs(a, 64), None)),
}

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def scalar_reader(decoded: DecodedInstruction, operand: Operand, bits: int) -> Callable[[Wave], int]:
    """Returns a reader of 32 or 64 bits from scalar registers or a constant."""
    number = operand.first
    if operand.kind == "s" and operand.count == bits // 32:
        return (lambda wave: wave.read_scalar(number)) if bits == 32 else (lambda wave: wave.read_scalar_pair(number))
    if operand.text in APERTURES and bits == 64:
        return lambda _wave: APERTURES[operand.text]
    if operand.kind in ("integer", "bits"):
        value = number & ((1 << bits) - 1)
        return lambda _wave: value
    if operand.kind == "float":
        # Of 64 bits as float64 (LLVM, "Syntax of AMDGPU Instruction Operands", floating-point inline constants).
        value = float_bits(operand.number) if bits == 32 else wide_float_bits(operand.number)
        return lambda _wave: value
    raise decoded.refuse(f"the operand {operand.text!r} as a scalar source of {bits} bits")


def scalar_writer(decoded: DecodedInstruction, operand: Operand, bits: int) -> Callable[[Wave, int], None]:
    """Returns a writer of 32 or 64 bits into scalar registers."""
    number = operand.first
    if operand.null:
        return lambda _wave, _value: None
    if operand.kind != "s" or operand.count != bits // 32:
        raise decoded.refuse(f"the operand {operand.text!r} as a scalar destination of {bits} bits")
    if bits == 32:
        return lambda wave, value: wave.write_scalar(number, value)
    return lambda wave, value: wave.write_scalar_pair(number, value & _LONG)


def make_scalar_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a scalar arithmetic instruction or comparison; None for another one."""
    name = decoded.name
    if name.removesuffix(f"_b{decoded.lanes}") in _MASKS:
        decoded.allow()
        return _make_mask_logic(decoded)
    for known, make in ((TWO_SOURCES, _make_two), (ONE_SOURCE, _make_one)):
        if name in known:
            decoded.allow()
            return make(decoded)
    if name.endswith(f"_saveexec_b{decoded.lanes}"):
        return _make_saveexec(decoded)
    if name in ("s_movk_i32", "s_addk_i32", "s_mulk_i32"):
        return _make_immediate(decoded)
    if name.startswith(("s_cmp_", "s_cmpk_", "s_bitcmp")):
        return _make_compare(decoded)
    return None


def _make_two(decoded: DecodedInstruction) -> Step:
    to, left, right, compute = TWO_SOURCES[decoded.name]
    target, first, second = decoded.operands
    write = scalar_writer(decoded, target, to)
    if left == 64 and _lies_in_lower_half(decoded, second) and first.kind == "s" and first.count == 2:
        first, left = replace(first, count=1), 32
    read_a, read_b = scalar_reader(decoded, first, left), scalar_reader(decoded, second, right)
    with_scc = decoded.name in _READ_SCC

    def run(wave: Wave) -> None:
        value, scc = compute(read_a(wave), read_b(wave), wave.read_scc() if with_scc else 0)
        write(wave, value)
        if scc is not None:
            wave.scc = scc

    return run


def _lies_in_lower_half(decoded: DecodedInstruction, field: Operand) -> bool:
    """Returns whether S_BFE takes a field of the lower register only, of whose pair the upper one may be unwritten."""
    if not decoded.name.startswith("s_bfe_") or field.kind not in ("integer", "bits"):
        return False
    return (field.first & 63) + (field.first >> 16 & 0x7F) <= 32


_MASKS = frozenset(f"s_{name}" for name in ("and", "or", "andn2", "orn2", "xor", "mov"))


def _make_mask_logic(decoded: DecodedInstruction) -> Step:
    """Logic of masks of lanes, some of whose bits nothing may have written: a bit of the result is known where the
    known bits decide it."""
    operation, words, full = decoded.name.split("_")[1], decoded.mask_words, (1 << decoded.lanes) - 1
    target, *sources = decoded.operands
    scalar_writer(decoded, target, decoded.lanes)
    if target.null:
        raise decoded.refuse("the destination null")
    reads = [known_bits_reader(decoded, source, decoded.lanes) for source in sources]

    def run(wave: Wave) -> None:
        (a, lost_a), (b, lost_b) = (*(read(wave) for read in reads), (0, 0))[:2]
        if operation == "mov":
            wave.write_known_bits(target.first, a, lost_a, words)
            return
        if operation.endswith("n2"):
            b = ~b & full & ~lost_b
        missing = lost_a | lost_b
        if operation.startswith("and"):
            missing &= (a | lost_a) & (b | lost_b)
        elif operation.startswith("or"):
            missing &= ~(a | b)
        value = _LOGIC[operation.removesuffix("n2")](a, b) & full & ~missing
        wave.write_known_bits(target.first, value, missing, words)
        wave.scc = 1 if value else None if missing else 0

    return run


def known_bits_reader(decoded: DecodedInstruction, source: Operand, bits: int) -> Callable[[Wave], tuple[int, int]]:
    """Returns a reader of 32 or 64 bits and of those that nothing wrote."""
    if source.kind == "s" and source.count == bits // 32:
        return lambda wave: wave.read_known_bits(source.first, bits // 32)
    read = scalar_reader(decoded, source, bits)
    return lambda wave: (read(wave), 0)


def _make_one(decoded: DecodedInstruction) -> Step:
    to, source, compute = ONE_SOURCE[decoded.name]
    write = scalar_writer(decoded, decoded.operands[0], to)
    read = scalar_reader(decoded, decoded.operands[1], source)

    def run(wave: Wave) -> None:
        value, scc = compute(read(wave))
        write(wave, value)
        if scc is not None:
            wave.scc = scc

    return run


def _make_saveexec(decoded: DecodedInstruction) -> Step:
    """D = EXEC; EXEC = S0 op EXEC; SCC = EXEC is not 0. andn2 is S0 & ~EXEC, orn2 S0 | ~EXEC."""
    operation = decoded.name.removeprefix("s_").removesuffix(f"_saveexec_b{decoded.lanes}")
    if operation not in _LOGIC:
        raise decoded.refuse("the opcode")
    compute = _LOGIC[operation]
    write = scalar_writer(decoded, decoded.operands[0], decoded.lanes)
    source = decoded.operands[1]
    read = scalar_reader(decoded, source, decoded.lanes)
    if operation == "and" and source.kind == "s":
        # Only the bits of active lanes count.
        read = lambda wave: wave.read_mask(source.first)  # noqa: E731

    def run(wave: Wave) -> None:
        mask = compute(read(wave), wave.exec_mask) & wave.full
        write(wave, wave.exec_mask)
        wave.set_exec(mask)
        wave.scc = int(mask != 0)

    return run


def _make_immediate(decoded: DecodedInstruction) -> Step:
    """SOPK: the constant is 16 bits, sign-extended."""
    constant = signed(decoded.operands[1].first, 16)
    write = scalar_writer(decoded, decoded.operands[0], 32)
    read = scalar_reader(decoded, decoded.operands[0], 32)

    def run(wave: Wave) -> None:
        if decoded.name == "s_movk_i32":
            write(wave, constant)
        elif decoded.name == "s_mulk_i32":
            write(wave, read(wave) * constant)
        else:
            old = read(wave)
            wave.scc = _overflows(signed(old) + constant)
            write(wave, old + constant)

    return run


def _make_compare(decoded: DecodedInstruction) -> Step:
    name, compact = decoded.name, decoded.name.startswith("s_cmpk_")
    kind = name.rpartition("_")[2]
    if name in ("s_bitcmp0_b32", "s_bitcmp1_b32"):
        wanted = int(name[8])
        value, bit = (scalar_reader(decoded, one, 32) for one in decoded.operands)
        return _setting_scc(lambda wave: (value(wave) >> (bit(wave) & 31) & 1) == wanted)
    compare = _COMPARE.get(name.split("_")[2])
    if compare is None or kind not in ("u32", "i32", "u64"):
        raise decoded.refuse("the opcode")
    left = scalar_reader(decoded, decoded.operands[0], int(kind[1:]))
    right = scalar_reader(decoded, decoded.operands[1], int(kind[1:]))
    if compact:
        constant = decoded.operands[1].first & 0xFFFF
        extended = signed(constant, 16) if kind == "i32" else constant
        right = lambda _wave: extended & _WORD  # noqa: E731
    if kind == "i32":
        return _setting_scc(lambda wave: compare(signed(left(wave)), signed(right(wave))))
    return _setting_scc(lambda wave: compare(left(wave), right(wave)))


def _setting_scc(test: Callable[[Wave], bool]) -> Step:
    def run(wave: Wave) -> None:
        wave.scc = int(test(wave))

    return run
