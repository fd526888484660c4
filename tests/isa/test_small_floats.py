from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch

from pytest_attnperf.isa.faults import UnknownInstructionError
from pytest_attnperf.isa.small_floats import small_float
from tests.isa.one_wave import make_wave, run, set_vector, vector

FORMATS = [
    ("fp8", "gfx942", torch.float8_e4m3fnuz),
    ("bf8", "gfx942", torch.float8_e5m2fnuz),
    ("fp8", "gfx950", torch.float8_e4m3fn),
    ("bf8", "gfx950", torch.float8_e5m2),
]
LARGEST = {("fp8", "gfx942"): 240.0, ("bf8", "gfx942"): 57344.0, ("fp8", "gfx950"): 448.0, ("bf8", "gfx950"): 57344.0}


def draw(random: Random, count: int) -> np.ndarray:
    """Floats of all sizes, ties between neighbours, and the ends of the ranges."""
    numbers = [random.choice((-1, 1)) * random.uniform(1, 2) * 2.0 ** random.randint(-20, 17) for _ in range(count)]
    ties = [(2 * random.randint(0, 31) + 1) * 2.0 ** random.randint(-14, 4) for _ in range(count)]
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 447.9, 464.0, 464.1, 247.9, 248.0, 61440.0, 61439.9, 2.0**-11]
    return np.array([*numbers, *ties, *special], np.float32)


@pytest.mark.parametrize(("name", "arch", "kind"), FORMATS)
def test_formats_agree_with_torch(name: str, arch: str, kind: torch.dtype) -> None:
    """Every byte has torch's value, and a number within the range is rounded as torch rounds it."""
    chosen = small_float(name, arch)
    codes = torch.arange(256, dtype=torch.uint8).view(kind).float().numpy()
    assert np.array_equal(chosen.values, codes, equal_nan=True)
    numbers = draw(Random(name), 3000)
    numbers = numbers[np.abs(numbers) <= LARGEST[name, arch]]
    expected = torch.from_numpy(numbers).to(kind).view(torch.uint8).numpy()
    assert (chosen.encode(numbers) == expected).all()


@pytest.mark.parametrize(("name", "arch", "kind"), FORMATS)
def test_rounding_is_to_the_nearest_value(name: str, arch: str, kind: torch.dtype) -> None:
    """Of the values of a format none is nearer, and of two as near the even one is taken; what is too large is NaN, or
    infinity in OCP's BF8, and limited where FP16_OVFL is set."""
    chosen, largest = small_float(name, arch), Fraction(LARGEST[name, arch])
    finite = sorted({Fraction(float(one)) for one in chosen.values if math.isfinite(one)})
    step = finite[-1] - finite[-2]
    tie_is_too_large = (name, arch) != ("fp8", "gfx950")
    for number in draw(Random(arch), 30):
        value = float(chosen.decode(chosen.encode(number)))
        limited = float(chosen.decode(chosen.encode(number, limited=True)))
        if math.isnan(number):
            assert math.isnan(value)
            assert math.isnan(limited)
        elif (
            math.isinf(number)
            or (excess := abs(Fraction(float(number))) - largest - step / 2) > 0
            or (excess == 0 and tie_is_too_large)
        ):
            assert math.isinf(value) if (name, arch) == ("bf8", "gfx950") else math.isnan(value)
            assert limited == math.copysign(float(largest), number)
        else:
            exact = Fraction(float(number))
            assert value == limited
            assert abs(Fraction(value) - exact) == min(abs(one - exact) for one in finite)


def test_conversions_of_pairs() -> None:
    """Two numbers into a half of a register and back; the other half stays; SDWA chooses bytes and halves."""
    wave = make_wave()
    for number, value in enumerate((1.5, -3.0, 0.3, 1000.0)):
        set_vector(wave, number, np.full(64, value, np.float32))
    run(wave, "v_mov_b32_e32 v4, 0x12345678", "v_cvt_pk_fp8_f32 v4, v0, v1 op_sel:[0,0,1]")
    assert vector(wave, "v4")[3] == 0xCC445678
    run(wave, "v_cvt_pk_fp8_f32 v4, v2, v3")
    assert vector(wave, "v4")[3] == 0xCC448032
    run(wave, "v_cvt_pk_f32_fp8_sdwa v[6:7], v4 src0_sel:WORD_1", "v_cvt_f32_fp8_sdwa v8, v4 src0_sel:BYTE_3")
    run(wave, "v_cvt_pk_f32_fp8_e32 v[10:11], v4", "v_cvt_f32_fp8_e32 v12, v4")
    found = [float(vector(wave, f"v{at}").view(np.float32)[5]) for at in (6, 7, 8, 10, 12)]
    assert found == [1.5, -3.0, -3.0, 0.3125, 0.3125]
    assert math.isnan(vector(wave, "v11").view(np.float32)[5])


def test_numbers_that_are_too_large_are_limited_where_the_mode_says_so() -> None:
    """s_setreg of FP16_OVFL: what is too large becomes the largest number instead of NaN."""
    wave = make_wave()
    set_vector(wave, 0, np.full(64, 1000.0, np.float32))
    run(wave, "v_mov_b32_e32 v4, 0", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", "v_cvt_pk_fp8_f32 v4, v0, v0")
    assert vector(wave, "v4")[0] == 0x7F7F


def test_scaled_conversions() -> None:
    """gfx950 divides by the power of two of its last source before it rounds, and multiplies behind the widening."""
    wave = make_wave()
    for number, value in enumerate((12.0, -0.5, 4.0)):
        set_vector(wave, number, np.full(64, value, np.float32))
    run(wave, "v_mov_b32_e32 v4, 0", "v_cvt_scalef32_pk_fp8_f32 v4, v0, v1, v2 op_sel:[0,0,0,1]", arch="gfx950")
    assert vector(wave, "v4")[0] == 0xA0440000
    run(wave, "v_cvt_scalef32_pk_f32_fp8 v[6:7], v4, v2 op_sel:[1,0,0]", arch="gfx950")
    assert [float(vector(wave, name).view(np.float32)[1]) for name in ("v6", "v7")] == [12.0, -0.5]
    run(wave, "v_cvt_scalef32_pk_bf16_fp8 v8, v4, v2 op_sel:[1,0,0]", arch="gfx950")
    run(wave, "v_cvt_scalef32_pk_f16_fp8 v9, v4, 1.0 op_sel:[1,0,0]", arch="gfx950")
    assert [int(vector(wave, name)[1]) for name in ("v8", "v9")] == [0xBF00_4140, 0xB000_4200]
    with pytest.raises(UnknownInstructionError, match="the opcode"):
        run(wave, "v_cvt_scalef32_pk_fp8_f32 v4, v0, v1, v2")
