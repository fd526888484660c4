from __future__ import annotations

import struct
from fractions import Fraction
from random import Random

import pytest

from tests.isa.formats import F32, FORMATS, Format
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.operand_sets import draw_set
from tests.isa.statements import STATEMENTS
from tests.isa.test_vector_table import agree

CONSTANTS = {
    "f16": ("0.5", "-1.0", "4.0", "0.15915494", "-16", "64", "0x3c01"),
    "f32": ("-0.5", "2.0", "-4.0", "0.15915494", "-1", "17", "0x3f800001"),
    "f64": ("1.0", "-2.0", "0.5", "0.15915494309189532", "-16", "64", "0x3ff00000"),
    "u32": ("1.0", "-4.0", "-16", "64", "0x12345678"),
    "i64": ("1.0", "-2.0", "-16", "64"),
}
"""Type of a source -> inline constants and literals as LLVM writes them."""

WITH_CONSTANT = {"f16": "v_add_f16", "f32": "v_add_f32", "f64": "v_add_f64", "u32": "v_xor_b32", "i64": "v_ashrrev_i64"}


def constant_bits(kind: str, text: str) -> int:
    """The bits that the encoding gives a source of that type: floats in the source's format, of integers as float32 or
    float64, integers sign-extended, a literal of float64 as its upper half."""
    width = int(kind[1:])
    if text.startswith("0x"):
        return int(text, 16) << 32 if kind == "f64" else int(text, 16)
    if "." not in text:
        return int(text) % 2**width
    if text.startswith("0.159"):
        return {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}[width]
    return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[width], float(text)), "little")


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CONSTANTS.items() for text in texts])
def test_constants_of_each_type(kind: str, text: str) -> None:
    """An inline constant or literal as a source of each type has the bits of its encoding."""
    name, random = WITH_CONSTANT[kind], Random(text)
    stated = STATEMENTS[name]
    # The amount of a shift stands first, and is a register here.
    place = 1 if kind == "i64" else 0
    other = stated.sources[1 - place]
    wave, (values,) = make_wave(), draw_set(random, (other,))
    set_vector(wave, 2, [one & 0xFFFFFFFF for one in values])
    set_vector(wave, 3, [one >> 32 for one in values])
    wide, register = kind.endswith("64"), "v[2:3]" if other.endswith("64") else "v2"
    sources = f"{text}, {register}" if place == 0 else f"{register}, {text}"
    run(wave, f"{name}_e64 {'v[8:9]' if wide else 'v8'}, {sources}")
    low, high = vector(wave, "v8").tolist(), vector(wave, "v9").tolist() if wide else [0] * 64
    for lane, value in enumerate(values):
        bits = low[lane] | high[lane] << 32
        operands = [constant_bits(kind, text), value] if place == 0 else [value, constant_bits(kind, text)]
        assert agree(stated.result, bits, stated.compute(*operands)), (name, text, hex(value), hex(bits))


def adjusted(form: Format, bits: int | None, factor: Fraction, *, clamp: bool) -> int | None:
    """A result times a power of two, then limited to 0 and 1; NaN is 0 with clamp."""
    if bits is None:
        return 0 if clamp else None
    if not form.is_infinite(bits):
        bits = form.encode(form.value(bits) * factor, negative_zero=form.is_negative(bits))
    if not clamp:
        return bits
    if form.is_negative(bits):
        return 0
    return min(bits, form.encode(Fraction(1)))


@pytest.mark.parametrize("count", [4, pytest.param(80, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["v_add_f32", "v_mul_f32", "v_fma_f32", "v_max_f32", "v_add_f16", "v_add_f64"])
@pytest.mark.parametrize("modifiers", ["", "mul:2", "mul:4", "div:2", "clamp", "mul:4 clamp"])
def test_source_and_output_modifiers(name: str, modifiers: str, count: int) -> None:
    """abs and neg change the sign of a source; mul, div and clamp the rounded result. Results below the normal numbers
    are not compared with mul and div, which hardware has for flushed denormals only."""
    random, stated = Random(name + modifiers), STATEMENTS[name]
    form, kinds = FORMATS[stated.result], stated.sources
    factor = {"mul:2": Fraction(2), "mul:4": Fraction(4), "div:2": Fraction(1, 2)}.get(
        modifiers.split(" ")[0], Fraction(1)
    )
    wide = stated.result.endswith("64")
    for _ in range(count):
        wave, drawn = make_wave(), draw_set(random, kinds)
        texts, changes = [], []
        for at, values in enumerate(drawn):
            set_vector(wave, 2 * at, [one & 0xFFFFFFFF for one in values])
            set_vector(wave, 2 * at + 1, [one >> 32 for one in values])
            absolute, negative = random.getrandbits(1), random.getrandbits(1)
            text = f"v[{2 * at}:{2 * at + 1}]" if wide else f"v{2 * at}"
            text = f"|{text}|" if absolute else text
            texts.append(f"-{text}" if negative else text)
            changes.append((absolute, negative))
        encoding = "_e64" if len(kinds) < 3 and not wide else ""
        run(wave, f"{name}{encoding} {'v[8:9]' if wide else 'v8'}, {', '.join(texts)} {modifiers}".rstrip())
        low, high = vector(wave, "v8").tolist(), vector(wave, "v9").tolist() if wide else [0] * 64
        for lane in range(64):
            operands = []
            for values, (absolute, negative) in zip(drawn, changes, strict=True):
                one = values[lane] & (form.sign - 1) if absolute else values[lane]
                operands.append(one ^ (form.sign if negative else 0))
            plain = stated.compute(*operands)
            if plain is not None and factor != 1 and abs(plain & (form.sign - 1)) < 8 << form.mantissa:
                continue
            expected = adjusted(form, plain, factor, clamp="clamp" in modifiers)
            bits = low[lane] | high[lane] << 32
            assert agree(stated.result, bits, expected), (name, texts, modifiers, [hex(x) for x in operands], hex(bits))


def test_one_is_one() -> None:
    """The format's own check: the bits of 1."""
    assert F32.encode(Fraction(1)) == 0x3F800000
