from __future__ import annotations

from random import Random

import pytest

from pytest_attnperf.isa import packed
from tests.isa.formats import F16, F32, FORMATS, Format, convert, fused
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.operand_sets import LANES, draw, draw_set
from tests.isa.statements import STATEMENTS
from tests.isa.test_vector_table import agree

batches = pytest.mark.parametrize("count", [6, pytest.param(100, marks=pytest.mark.soak)])
"""Forms of each instruction, with 64 operand sets each."""

HALVES = sorted(name for name in packed.PACKED_HALVES if name.replace("v_pk_", "v_") in STATEMENTS)
PAIRS = {"v_pk_add_f32": "v_add_f32", "v_pk_mul_f32": "v_mul_f32", "v_pk_fma_f32": "v_fma_f32"}


def draw_bits(random: Random, sources: int) -> list[int]:
    """0 or 1 for each source."""
    return [random.getrandbits(1) for _ in range(sources)]


def negate(kind: str, bits: int, negative: int) -> int:
    """The bits with their sign changed."""
    return bits ^ (FORMATS[kind].sign if negative else 0)


@batches
@pytest.mark.parametrize("name", HALVES)
def test_pairs_of_halves(name: str, count: int) -> None:
    """op_sel and op_sel_hi choose the halves of both results, neg_lo and neg_hi negate floats; each result is that of
    the plain instruction."""
    random, stated = Random(name), STATEMENTS[name.replace("v_pk_", "v_")]
    sources = len(stated.sources)
    for _ in range(count):
        chosen, signs = [draw_bits(random, sources) for _ in range(2)], [[0] * sources] * 2
        if stated.sources[0] == "f16":
            signs = [draw_bits(random, sources) for _ in range(2)]
        wave, words = make_wave(), draw_set(random, ("u32",) * sources)
        halves = [[draw(random, kind) | draw(random, kind) << 16 for _ in range(LANES)] for kind in stated.sources]
        words = [random.choice(pair) for pair in zip(words, halves, strict=True)]
        for place, values in enumerate(words):
            set_vector(wave, place, values)
        modifiers = " ".join(
            f"{title}:[{','.join(map(str, one))}]"
            for title, one in zip(("op_sel", "op_sel_hi", "neg_lo", "neg_hi"), (*chosen, *signs), strict=True)
            if "neg" not in title or any(one)
        )
        run(wave, f"{name} v9, {', '.join(f'v{place}' for place in range(sources))} {modifiers}")
        for lane, bits in enumerate(vector(wave, "v9").tolist()):
            for side in (0, 1):
                operands = [
                    negate(stated.sources[at], words[at][lane] >> 16 * chosen[side][at] & 0xFFFF, signs[side][at])
                    if signs[side][at]
                    else words[at][lane] >> 16 * chosen[side][at] & 0xFFFF
                    for at in range(sources)
                ]
                found = bits >> 16 * side & 0xFFFF
                assert agree(stated.result, found, stated.compute(*operands)), (name, modifiers, side, lane, operands)


@batches
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_floats(name: str, count: int) -> None:
    """The same of pairs of float32 registers."""
    random, stated = Random(name), STATEMENTS[PAIRS[name]]
    sources = len(stated.sources)
    for _ in range(count):
        chosen = [draw_bits(random, sources) for _ in range(2)]
        signs = [draw_bits(random, sources) for _ in range(2)]
        wave, words = make_wave(), draw_set(random, ("f32",) * (2 * sources))
        for place, values in enumerate(words):
            set_vector(wave, place, values)
        spans = ", ".join(f"v[{2 * at}:{2 * at + 1}]" for at in range(sources))
        lists = [",".join(map(str, one)) for one in (*chosen, *signs)]
        run(wave, f"{name} v[8:9], {spans} op_sel:[{lists[0]}] op_sel_hi:[{lists[1]}] neg_lo:[{lists[2]}] "
                  f"neg_hi:[{lists[3]}]")  # fmt: skip
        for side, result in enumerate(("v8", "v9")):
            for lane, bits in enumerate(vector(wave, result).tolist()):
                operands = [
                    negate("f32", words[2 * at + chosen[side][at]][lane], signs[side][at]) for at in range(sources)
                ]
                assert agree("f32", bits, stated.compute(*operands)), (
                    name,
                    lists,
                    side,
                    [hex(one) for one in operands],
                )


@batches
@pytest.mark.parametrize(("name", "form", "shift"), [
    ("v_fma_mix_f32", F32, 0), ("v_fma_mixlo_f16", F16, 0), ("v_fma_mixhi_f16", F16, 16),
])  # fmt: skip
def test_mixed_sums_of_products(name: str, form: Format, shift: int, count: int) -> None:
    """Sources of float32, or of either half as float16; the result is rounded to float32, and for mixlo and mixhi then
    to float16, beside the other half."""
    random = Random(name)
    for _ in range(count):
        chosen, narrow = draw_bits(random, 3), draw_bits(random, 3)
        wave, words = make_wave(), draw_set(random, ("f32",) * 3)
        for at in range(3):
            if narrow[at]:
                words[at] = [draw(random, "f16") | draw(random, "f16") << 16 for _ in range(LANES)]
            set_vector(wave, at, words[at])
        # op_sel counts only where a source is a half.
        halves = ",".join(str(one & is_narrow) for one, is_narrow in zip(chosen, narrow, strict=True))
        set_vector(wave, 9, [0xABCD1234] * LANES)
        run(wave, f"{name} v9, v0, v1, v2 op_sel:[{halves}] op_sel_hi:[{','.join(map(str, narrow))}]")
        for lane, bits in enumerate(vector(wave, "v9").tolist()):
            operands = [words[at][lane] for at in range(3)]
            wide = [
                convert(F16, F32, operands[at] >> 16 * chosen[at] & 0xFFFF) if narrow[at] else operands[at]
                for at in range(3)
            ]
            exact = None if None in wide else fused(F32, *(one for one in wide if one is not None))
            expected = exact if exact is None or form is F32 else convert(F32, F16, exact)
            if form is F32:
                assert agree("f32", bits, expected), (halves, narrow, lane)
                continue
            assert agree("f16", bits >> shift & 0xFFFF, expected), (name, halves, narrow, [hex(x) for x in operands])
            assert bits >> (16 - shift) & 0xFFFF == 0xABCD1234 >> (16 - shift) & 0xFFFF


def test_constants_in_pairs_of_halves() -> None:
    """Integers are words that are sign-extended; floats are float16 with nothing above, and float32 for integers (LLVM,
    `getInlineEncodingV216`)."""
    wave = make_wave()
    set_vector(wave, 0, [0x00030002] * LANES)
    run(wave, "v_pk_add_u16 v1, v0, 5", "v_pk_add_u16 v2, v0, 5 op_sel_hi:[1,0]", "v_pk_add_u16 v3, v0, -1")
    run(wave, "v_pk_add_f16 v4, v0, 1.0 op_sel_hi:[0,0]", "v_pk_max_u16 v5, v0, 1.0")
    found = [int(vector(wave, f"v{at}")[0]) for at in (1, 2, 3, 4, 5)]
    assert found == [0x00030007, 0x00080007, 0x00020001, 0x3C003C00, 0x3F800002]


def test_all_pairs_of_halves_have_a_statement() -> None:
    """No packed operation is without the statement of its plain one."""
    assert sorted(packed.PACKED_HALVES) == HALVES


@pytest.mark.parametrize("name", ["v_pk_add_u16", "v_pk_sub_u16", "v_pk_add_i16", "v_pk_sub_i16"])
def test_pairs_of_integers_that_are_limited(name: str) -> None:
    """With clamp each half stays at the end of its range; a scalar register and a constant are sources, too."""
    random, signed = Random(name), name.endswith("i16")
    least, most = (-0x8000, 0x7FFF) if signed else (0, 0xFFFF)

    def value(bits: int) -> int:
        return bits - 0x10000 if signed and bits >> 15 else bits

    for constant in (0x8000, 0x7FFF, 0xFFFF0001, 0x1234):
        left, right = ([random.getrandbits(32) for _ in range(LANES)] for _ in range(2))
        wave = make_wave()
        set_vector(wave, 0, left)
        set_vector(wave, 1, right)
        run(wave, f"s_mov_b32 s3, {constant:#x}", f"{name} v2, v0, v1 clamp", f"{name} v3, v0, s3 clamp")
        for register, second in (("v2", right), ("v3", [constant] * LANES)):
            for lane, bits in enumerate(vector(wave, register).tolist()):
                for side in (0, 16):
                    a, b = (value(words[lane] >> side & 0xFFFF) for words in (left, second))
                    exact = a + b if "add" in name else a - b
                    assert value(bits >> side & 0xFFFF) == min(max(exact, least), most), (name, lane, side, a, b)
