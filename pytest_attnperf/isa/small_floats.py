"""Floats of 8 bits: their values, rounding to them, and the conversion instructions of gfx942 and gfx950.

FP8 has 4 bits of exponent and 3 of mantissa, BF8 5 and 2. gfx942 has the "fnuz" formats (one NaN, 0x80; no infinities;
the bias one larger), gfx950 those of OCP. Sources: AMD, "CDNA4 Instruction Set Architecture", 7.3, tables 30 and 31;
"CDNA3 Instruction Set Architecture", section on BF8 and FP8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.operands import DecodedInstruction
from pytest_attnperf.isa.parts import FP16_OVERFLOW, check_overflow, part_writer, write_row
from pytest_attnperf.isa.sources import bits_reader, reader, writer
from pytest_attnperf.isa.vector_table import to_bfloat16
from pytest_attnperf.isa.wave import Step, Wave

_U32 = np.uint32


class SmallFloat:
    """A format of 8 bits: stored bits of the mantissa, bias of the exponent, whether it is a fnuz one.

    values   float32 (256,): the number that each byte stands for
    """

    def __init__(self, mantissa: int, bias: int, *, fnuz: bool) -> None:
        self.mantissa, self.bias, self.fnuz = mantissa, bias, fnuz
        codes = np.arange(256)
        magnitude = codes & 0x7F
        exponent, fraction = magnitude >> mantissa, codes & ((1 << mantissa) - 1)
        normal = (fraction + (1 << mantissa)) * 2.0 ** (exponent - bias - mantissa)
        values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias - mantissa), normal)
        if not fnuz:
            values[magnitude > (0x7E if mantissa == 3 else 0x7C)] = np.nan
            values[(magnitude == 0x7C) & (mantissa == 2)] = np.inf
        values = np.where(codes >= 128, -values, values)
        if fnuz:
            values[0x80] = np.nan
        self.values: Array = values.astype(np.float32)

    def decode(self, codes: Array) -> Array:
        """Returns the float32 values of bytes."""
        found: Array = self.values[codes]
        return found

    def encode(self, numbers: Any, *, limited: bool = False) -> Array:
        """Returns the bytes nearest to float32 numbers, ties to even. What is too large becomes NaN, or infinity where
        the format has it; the largest number if `limited`."""
        wide = np.asarray(numbers, np.float64)
        finite = self.values[:128][np.isfinite(self.values[:128])].astype(np.float64)
        size = np.abs(wide)
        _, exponent = np.frexp(np.where(np.isfinite(size), size, 1.0))
        step = 2.0 ** (np.maximum(exponent - 1, 1 - self.bias) - self.mantissa)
        rounded = np.rint(size / step) * step
        if limited:
            rounded = np.where(np.isnan(wide), rounded, np.minimum(rounded, finite[-1]))
        codes = np.searchsorted(finite, np.minimum(rounded, finite[-1])).astype(np.uint32)
        infinite = _U32(0x7C if self.mantissa == 2 and not self.fnuz else 0x7F)
        codes = np.where(rounded > finite[-1], infinite, codes)
        codes = np.where(np.isnan(wide), _U32(0x7F), codes) | np.signbit(wide).astype(np.uint32) << _U32(7)
        if self.fnuz:
            # There is no negative zero: its code is the NaN, which is what is too large becomes, too.
            invalid = ~(rounded <= finite[-1])
            codes = np.where(invalid, _U32(0x80), np.where(codes == 0x80, _U32(0), codes))
        found: Array = codes
        return found


@lru_cache
def small_float(name: str, arch: str) -> SmallFloat:
    """Returns the format 'fp8' or 'bf8' of an architecture."""
    fnuz = arch == "gfx942"
    mantissa, bias = (3, 7) if name == "fp8" else (2, 15)
    return SmallFloat(mantissa, bias + fnuz, fnuz=fnuz)


def make_small_float_step(decoded: DecodedInstruction) -> Step | None:
    """Returns the step of a conversion from or to FP8 or BF8; None for another instruction. Stochastic rounding is
    refused: the documents do not state which random bits count."""
    name = decoded.name.removeprefix("v_cvt_").removeprefix("scalef32_")
    make = _STEPS.get(name)
    if not decoded.name.startswith("v_cvt_") or make is None:
        return None
    if decoded.arch == "gfx90a" or ("scalef32" in decoded.name and decoded.arch == "gfx942"):
        raise decoded.refuse("the opcode")
    return make(decoded)


def _read_scale(decoded: DecodedInstruction) -> Callable[[Wave], Any]:
    """Returns a reader of the scale of V_CVT_SCALEF32: the power of two in the exponent of its last source."""
    if "scalef32" not in decoded.name:
        return lambda _wave: np.float32(1)
    read = bits_reader(decoded, decoded.operands[-1])

    def scale(wave: Wave) -> Any:
        exponent = read(wave) >> _U32(23) & _U32(0xFF)
        return np.where(exponent == 0xFF, np.float64(np.nan), 2.0 ** (exponent.astype(np.float64) - 127))

    return scale


def _make_pack(decoded: DecodedInstruction) -> Step:
    """V_CVT_PK_FP8_F32 and BF8: two bytes into the half of the destination that the last bit of op_sel chooses; the
    scaled form divides by its scale first."""
    decoded.allow("op_sel")
    target, first, second = decoded.operands[:3]
    halves = decoded.numbers("op_sel", (0, 0, 0))
    if any(halves[:-1]):
        raise decoded.refuse("the modifier op_sel")
    kind = small_float(decoded.name.split("_")[-2], decoded.arch)
    a, b, scale = reader(decoded, first, "f32"), reader(decoded, second, "f32"), _read_scale(decoded)
    write = part_writer(decoded, replace(target, part=f"WORD_{halves[-1]}", unused="UNUSED_PRESERVE"))

    def run(wave: Wave) -> None:
        factor = scale(wave)
        limited = bool(wave.mode & FP16_OVERFLOW)
        low, high = (kind.encode(read(wave) / factor, limited=limited) for read in (a, b))
        write(wave, np.broadcast_to(low | high << _U32(8), wave.size))

    return run


def _make_unpack(decoded: DecodedInstruction) -> Step:
    """V_CVT_F32_FP8 (one byte) and V_CVT_PK_F32_FP8 (two bytes of a half, into two registers), and BF8; SDWA and op_sel
    choose the byte or half; the scaled form multiplies by its scale."""
    decoded.allow("op_sel")
    scaled, pair = "scalef32" in decoded.name, "_pk_" in decoded.name
    target, source = decoded.operands[:2]
    halves = decoded.numbers("op_sel", (0, 0))
    if not scaled and any(halves):
        raise decoded.refuse("the modifier op_sel")
    shift = _U32(16 * halves[0] if pair else 8 * (2 * halves[1] + halves[0]) if len(halves) > 1 else 0)
    if target.count != 1 + pair or target.kind != "v":
        raise decoded.refuse(f"the destination {target.text!r}")
    kind = small_float(decoded.name.split("_")[-1], decoded.arch)
    read, scale = bits_reader(decoded, source), _read_scale(decoded)
    number = target.first

    def run(wave: Wave) -> None:
        word, factor = read(wave) >> shift, scale(wave)
        for place in range(1 + pair):
            value = (kind.decode(word >> _U32(8 * place) & _U32(0xFF)) * factor).astype(np.float32)
            write_row(wave, number + place, value.view(np.uint32))

    return run


def _make_unpack_to_halves(decoded: DecodedInstruction) -> Step:
    """V_CVT_SCALEF32_PK_F16_FP8, PK_BF16_FP8 and BF8: two bytes of the half that op_sel chooses, times the scale, as
    two values of 16 bits."""
    decoded.allow("op_sel")
    target, source = decoded.operands[:2]
    halves = decoded.numbers("op_sel", (0, 0))
    if any(halves[1:]):
        raise decoded.refuse("the modifier op_sel")
    _, narrow, name = decoded.name.removeprefix("v_cvt_scalef32_").split("_")
    kind, shift = small_float(name, decoded.arch), _U32(16 * halves[0])
    read, scale, write = bits_reader(decoded, source), _read_scale(decoded), writer(decoded, target, "u32")

    def run(wave: Wave) -> None:
        word, factor = read(wave) >> shift, scale(wave)
        both = [(kind.decode(word >> _U32(8 * place) & _U32(0xFF)) * factor).astype(np.float32) for place in range(2)]
        if narrow == "f16":
            for half in both:
                check_overflow(decoded, wave, half.astype(np.float16))
            low, high = (half.astype(np.float16).view(np.uint16).astype(np.uint32) for half in both)
        else:
            low, high = (to_bfloat16(half) for half in both)
        write(wave, low | high << _U32(16))

    return run


_STEPS: dict[str, Callable[[DecodedInstruction], Step]] = {
    **{f"pk_{kind}_f32": _make_pack for kind in ("fp8", "bf8")},
    **{f"{form}f32_{kind}": _make_unpack for form in ("", "pk_") for kind in ("fp8", "bf8")},
    **{f"pk_{half}_{kind}": _make_unpack_to_halves for half in ("f16", "bf16") for kind in ("fp8", "bf8")},
}
"""Name without v_cvt_ and scalef32_ -> maker."""
