from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.rdna import RDNA_OPERATIONS
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.operand_sets import draw as draw_operand
from tests.isa.semantics import WORD, as_float, signed, to_half_bits
from tests.isa.statements import STATEMENTS
from tests.isa.test_vector_table import agree

LOW = 2**16 - 1
LANES = list(range(32))

HALVES: dict[str, tuple[int, Callable[..., int]]] = {
    "v_mov_b16": (1, lambda a: a),
    "v_not_b16": (1, lambda a: ~a),
    "v_and_b16": (2, lambda a, b: a & b),
    "v_or_b16": (2, lambda a, b: a | b),
    "v_xor_b16": (2, lambda a, b: a ^ b),
    "v_add_nc_u16": (2, lambda a, b: a + b),
    "v_sub_nc_u16": (2, lambda a, b: a - b),
    "v_mul_lo_u16": (2, lambda a, b: a * b),
    "v_lshlrev_b16": (2, lambda a, b: b << a % 16),
    "v_lshrrev_b16": (2, lambda a, b: b >> a % 16),
    "v_ashrrev_i16": (2, lambda a, b: signed(b, 16) >> a % 16),
    "v_cvt_f16_i16": (1, lambda a: to_half_bits(signed(a, 16))),
    "v_cvt_f16_u16": (1, to_half_bits),
}
"""Name -> number of sources of 16 bits, and the function of their bits; results count modulo 2^16."""

WORDS: dict[str, tuple[int, Callable[..., int]]] = {
    "v_xor3_b32": (3, lambda a, b, c: a ^ b ^ c),
    "v_mul_hi_u32_u24": (2, lambda a, b: (a % 2**24) * (b % 2**24) // 2**32),
}

batches = pytest.mark.parametrize("count", [8, pytest.param(160, marks=pytest.mark.soak)])
"""Batches of 32 drawn operand sets: 256 each, and more than 5,000 in the soak."""


@batches
@pytest.mark.parametrize("name", HALVES)
def test_halves(name: str, count: int) -> None:
    """Every 16-bit instruction, with either half of its registers, agrees with Python's integers and leaves the other
    half of its destination."""
    random = Random(name)
    sources, compute = HALVES[name]
    for _ in range(count):
        wave = make_wave(size=32)
        drawn = [[random.choice((0, 1, 15, LOW, 0x8000, random.getrandbits(16))) for _ in LANES] for _ in range(4)]
        halves = [random.choice("lh") for _ in range(sources + 1)]
        for place in range(sources):
            shift = 16 * (halves[place] == "h")
            set_vector(wave, place, [value << shift | 0x5A5A << 16 - shift for value in drawn[place]])
        set_vector(wave, 9, drawn[3])
        named = ", ".join(f"v{place}.{halves[place]}" for place in range(sources))
        chosen = ",".join(str(int(half == "h")) for half in halves)
        run(wave, f"{name} v9.{halves[-1]}, {named} op_sel:[{chosen}]")
        for lane, bits in enumerate(vector(wave, "v9").tolist()):
            expected = compute(*(values[lane] for values in drawn[:sources])) & LOW
            result, other = (bits >> 16, bits & LOW) if halves[-1] == "h" else (bits & LOW, bits >> 16)
            assert result == expected, (name, [hex(values[lane]) for values in drawn])
            assert other == (drawn[3][lane] if halves[-1] == "h" else 0)


@batches
@pytest.mark.parametrize("name", WORDS)
def test_words(name: str, count: int) -> None:
    """Every 32-bit instruction that gfx9 has not agrees with Python's integers."""
    random = Random(name)
    sources, compute = WORDS[name]
    for _ in range(count):
        wave = make_wave(size=32)
        drawn = [[random.choice((0, WORD, random.getrandbits(32))) for _ in LANES] for _ in range(sources)]
        for place, values in enumerate(drawn):
            set_vector(wave, place, values)
        run(wave, f"{name} v9, " + ", ".join(f"v{place}" for place in range(sources)))
        expected = [compute(*each) & WORD for each in zip(*drawn, strict=True)]
        assert vector(wave, "v9").tolist() == expected


def test_extending_conversions() -> None:
    """A half becomes 32 bits, with zeros or its sign."""
    wave = make_wave(size=32)
    set_vector(wave, 0, [(lane << 16 | 0x8001) for lane in LANES])
    run(wave, "v_cvt_u32_u16_e32 v1, v0.l", "v_cvt_i32_i16_e32 v2, v0.l", "v_cvt_u32_u16_e64 v3, v0.h op_sel:[1,0]")
    assert [vector(wave, name)[7] for name in ("v1", "v2", "v3")] == [0x8001, 0xFFFF8001, 7]


def test_all_operations_are_tested() -> None:
    """No operation of the table is left out above."""
    here = {name.replace("_nc_", "_") for name in (*HALVES, *WORDS)} | {"v_cvt_u32_u16", "v_cvt_i32_i16"}
    here |= {f"v_{name}_{kind}" for name in ("maxmin", "minmax") for kind in ("f32", "f16", "u32", "i32")}
    assert RDNA_OPERATIONS.keys() <= here


def test_op_sel_must_agree_with_the_halves() -> None:
    """LLVM says the halves twice; what does not agree is refused, and so is a half of a 32-bit operand."""
    wave = make_wave(size=32)
    set_vector(wave, 0, [0] * 32)
    for text, named in (
        ("v_add_nc_u16 v1.l, v0.h, v0.l op_sel:[0,1,0]", "op_sel with the halves"),
        ("v_add_nc_u32_e32 v1, v0.h, v0", "v0.h"),
        ("v_mov_b32_e32 v1.l, v0", "v1.l"),
    ):
        with pytest.raises(UnknownInstructionError, match=named):
            run(wave, text)


@pytest.mark.parametrize("kind", ["f32", "i32", "u32", "u16"])
def test_comparisons_that_write_exec(kind: str) -> None:
    """V_CMPX leaves the active lanes in which the comparison holds, and writes nothing else."""
    random = Random(kind)
    wave = make_wave(size=32)
    drawn = [[random.choice((0, 0x3F800000, 0x7FC00000, random.getrandbits(32))) for _ in LANES] for _ in range(2)]
    for place, values in enumerate(drawn):
        set_vector(wave, place, values)
    active = random.getrandbits(32)
    wave.set_exec(active)
    suffix = ".l" if kind == "u16" else ""
    run(wave, f"v_cmpx_lt_{kind}_e32 v0{suffix}, v1{suffix}")
    convert = {"f32": as_float, "i32": signed, "u32": int, "u16": lambda bits: bits & LOW}[kind]
    held = [convert(a) < convert(b) for a, b in zip(*drawn, strict=True)]
    assert wave.exec_mask == sum(1 << lane for lane in LANES if held[lane] and active >> lane & 1)
    assert wave.scalars[106] is None


def test_selected_halves() -> None:
    """A selection takes the halves that the mask chooses, and reads only what it chooses; neg acts on the sign."""
    wave = make_wave(size=32)
    set_vector(wave, 0, [0x1111_2222] * 32)
    set_vector(wave, 2, [0xABCD_0000] * 32)
    run(wave, "s_mov_b32 exec_lo, 5", "v_mov_b32_e32 v1, 0x33334444", "s_mov_b32 exec_lo, -1", "s_mov_b32 vcc_lo, 5")
    run(wave, "v_cndmask_b16 v2.l, v0.h, v1.l, vcc_lo", "v_cndmask_b16 v3.l, 0x7fff, -v0.l, vcc_lo")
    assert vector(wave, "v2").tolist()[:4] == [0xABCD4444, 0xABCD1111, 0xABCD4444, 0xABCD1111]
    assert [value & LOW for value in vector(wave, "v3").tolist()[:2]] == [0xA222, 0x7FFF]
    with pytest.raises(ExecutionFault, match="lane 1 of v1"):
        run(wave, "s_mov_b32 vcc_lo, 7", "v_cndmask_b16 v2.l, v0.h, v1.l, vcc_lo")


@pytest.mark.parametrize("crossed", [0, 16])
@pytest.mark.parametrize("mode", ["", " op_sel:[1,0]", " op_sel:[0,1]"])
def test_permutations_of_rows(crossed: int, mode: str) -> None:
    """permlane16 reads the lane of its row that 4 bits say, permlanex16 that of the other row; inactive ones are
    fetched, read as 0, or leave the lane as it was."""
    random = Random(mode)
    order = [random.randrange(16) for _ in range(16)]
    active = random.getrandbits(32)
    values, old = ([random.getrandbits(32) for _ in LANES] for _ in range(2))
    wave = make_wave(size=32)
    set_vector(wave, 0, values)
    set_vector(wave, 1, old)
    for place in (0, 1):
        wave.write_scalar(place, sum(order[8 * place + at] << 4 * at for at in range(8)))
    wave.set_exec(active)
    run(wave, f"v_permlane{'x' if crossed else ''}16_b32 v1, v0, s0, s1{mode}")
    for lane, found in enumerate(vector(wave, "v1").tolist()):
        source = (lane // 16 * 16 ^ crossed) + order[lane % 16]
        readable = bool(active >> source & 1) or "[1" in mode
        expected = values[source] if readable else 0 if "1]" in mode else old[lane]
        assert found == (expected if active >> lane & 1 else old[lane])


def test_functions_of_scalar_registers() -> None:
    """v_s_exp, log, rcp, rsq and sqrt compute one float, with no lane active."""
    wave = make_wave(size=32)
    wave.set_exec(0)
    wave.write_scalar(0, int(np.float32(2.25).view(np.uint32)))
    for name, expected in (("exp", 2**2.25), ("log", math.log2(2.25)), ("rcp", 1 / 2.25), ("rsq", 1 / 1.5)):
        run(wave, f"v_s_{name}_f32 s1, s0", arch="gfx1201")
        assert as_float(wave.read_scalar(1)) == pytest.approx(expected, rel=2**-23)
    run(wave, "v_s_sqrt_f32 s1, s0", arch="gfx1201")
    assert as_float(wave.read_scalar(1)) == 1.5


@pytest.mark.parametrize("kind", ["f32", "f16", "u32", "i32"])
def test_limits_of_both_sides(kind: str) -> None:
    """V_MAXMIN is the smaller of a third number and the larger of two, V_MINMAX the larger of it and the smaller."""
    random = Random(kind)
    drawn = [[draw_operand(random, kind) for _ in range(32)] for _ in range(3)]
    wave = make_wave(size=32)
    for place, values in enumerate(drawn):
        set_vector(wave, place, values)
    half = ".l" if kind == "f16" else ""
    sources = ", ".join(f"v{place}{half}" for place in range(3))
    set_vector(wave, 8, [0] * 32)
    set_vector(wave, 9, [0] * 32)
    run(wave, f"v_maxmin_{kind} v8{half}, {sources}", f"v_minmax_{kind} v9{half}, {sources}")
    low, high = (STATEMENTS[f"v_{name}_{kind}"].compute for name in ("min", "max"))
    quiet = {"f32": 0x7FC00000, "f16": 0x7E00}.get(kind, 0)
    for register, first, second in (("v8", high, low), ("v9", low, high)):
        for lane, bits in enumerate(vector(wave, register).tolist()):
            a, b, c = (values[lane] for values in drawn)
            inner = first(a, b)
            assert agree(kind, bits, second(quiet if inner is None else inner, c)), (hex(a), hex(b), hex(c), hex(bits))
