from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from tests.isa.formats import F32, fused
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.statements import WORD

RANDOM = Random(3)
A, B, C, D = ([RANDOM.getrandbits(32) for _ in range(64)] for _ in range(4))


def test_wide_integers() -> None:
    """64-bit sums, shifts and products with their carries."""
    wave = make_wave()
    for place, values in enumerate((A, B, C, D)):
        set_vector(wave, place, values)
    run(wave, "v_add_co_u32_e32 v4, vcc, v0, v2", "v_addc_co_u32_e32 v5, vcc, v1, v3, vcc")
    run(wave, "v_mad_u64_u32 v[6:7], s[4:5], v0, v1, v[2:3]", "v_lshl_add_u64 v[8:9], v[0:1], 3, v[2:3]")
    run(wave, "v_lshrrev_b64 v[10:11], 9, v[0:1]", "v_lshlrev_b64 v[12:13], v0, v[2:3]")
    got = {at: vector(wave, f"v{at}").astype(object) | vector(wave, f"v{at + 1}").astype(object) << 32 for at in
           (4, 6, 8, 10, 12)}  # fmt: skip
    for lane, (a, b, c, d) in enumerate(zip(A, B, C, D, strict=True)):
        left, right = a | b << 32, c | d << 32
        assert got[4][lane] == (left + right) % 2**64
        assert wave.read_scalar_pair(106) >> lane & 1 == (left + right) >> 64
        assert got[6][lane] == (a * b + right) % 2**64
        assert wave.read_scalar_pair(4) >> lane & 1 == (a * b + right) >> 64
        assert got[8][lane] == (left * 8 + right) % 2**64
        assert got[10][lane] == left >> 9
        assert got[12][lane] == (right << a % 64) % 2**64


def test_sums_of_products_whose_upper_half_nothing_wrote() -> None:
    """Compilers use v_mad_u64_u32 for 32 bits with an unwritten upper half of the addend: the low half is right, the
    upper one stays unwritten, and so does its carry."""
    wave = make_wave()
    for place, values in ((0, A), (1, B), (2, C)):
        set_vector(wave, place, values)
    run(wave, "v_mad_u64_u32 v[4:5], null, v0, v1, v[2:3]", "v_mov_b32_e32 v6, v4")
    assert vector(wave, "v6").tolist() == [(a * b + c) % 2**32 for a, b, c in zip(A, B, C, strict=True)]
    with pytest.raises(ExecutionFault, match="v5: nothing wrote"):
        run(wave, "v_not_b32_e32 v6, v5")
    run(wave, "v_mad_u64_u32 v[4:5], vcc, v0, v1, v[2:3]")
    with pytest.raises(ExecutionFault, match="vcc_lo as a mask of lanes"):
        run(wave, "v_cndmask_b32_e32 v6, v0, v1, vcc")


def test_source_and_output_modifiers() -> None:
    """neg and abs of a source, times 2 and clamp of the result."""
    wave = make_wave()
    set_vector(wave, 0, np.full(64, -0.75, np.float32))
    set_vector(wave, 1, np.full(64, 0.5, np.float32))
    run(wave, "v_add_f32_e64 v2, -v0, |v0|", "v_mul_f32_e64 v3, v0, v1 mul:2", "v_add_f32_e64 v4, v0, v1 clamp")
    run(wave, "v_fma_f32 v5, -|v0|, v1, 1.0", "v_add_f32_e64 v6, |v0|, v1 clamp")
    found = [float(vector(wave, f"v{at}").view(np.float32)[9]) for at in (2, 3, 4, 5, 6)]
    assert found == [1.5, -0.75, 0.0, 0.625, 1.0]


def test_packed_floats() -> None:
    """op_sel and op_sel_hi choose halves, neg_lo and neg_hi negate, and the destination may be a source."""
    wave = make_wave()
    for place, value in enumerate((2.0, 3.0, 5.0, 7.0, 11.0, 13.0)):
        set_vector(wave, place, np.full(64, value, np.float32))
    run(wave, "v_pk_mul_f32 v[6:7], v[0:1], v[2:3]", "v_pk_mul_f32 v[8:9], v[0:1], v[2:3] op_sel:[0,1] op_sel_hi:[0,0]")
    run(wave, "v_pk_fma_f32 v[10:11], v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0,1] neg_lo:[0,0,1] neg_hi:[1,0,0]")
    run(wave, "v_pk_mov_b32 v[12:13], v[0:1], v[2:3] op_sel:[1,0]", "v_pk_add_f32 v[0:1], v[0:1], v[0:1] op_sel:[1,0]")
    found = [float(vector(wave, f"v{at}").view(np.float32)[1]) for at in (6, 7, 8, 9, 10, 11, 12, 13, 0, 1)]
    assert found == [10, 21, 14, 10, -1, -2, 3, 5, 5, 6]


def test_mixed_fma_rounds_to_half() -> None:
    """mixlo and mixhi fill the halves of a register; a source is fp16 where op_sel_hi says so."""
    wave = make_wave()
    set_vector(wave, 0, np.full(64, 1 / 3, np.float32))
    set_vector(wave, 1, np.full(64, 3.0, np.float32))
    set_vector(wave, 2, [0x3C00_4000] * 64)
    run(wave, "v_fma_mixlo_f16 v3, v0, v1, neg(0)", "v_fma_mixhi_f16 v3, v0, v1, v2 op_sel_hi:[0,0,1]")
    assert vector(wave, "v3")[0] == (0x4200 << 16 | 0x3C00)
    run(wave, "v_fma_mix_f32 v4, v2, v1, 0 op_sel:[1,0,0] op_sel_hi:[1,0,0]")
    assert vector(wave, "v4").view(np.float32)[5] == 3.0


def test_sdwa_and_selection() -> None:
    """A part of a register as a source; a selection reads only what it chooses."""
    wave = make_wave()
    set_vector(wave, 0, A)
    set_vector(wave, 1, B)
    run(wave, "v_and_b32_sdwa v2, v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD")
    run(wave, "v_or_b32_sdwa v3, v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_0")
    assert vector(wave, "v2").tolist() == [a >> 16 & b for a, b in zip(A, B, strict=True)]
    assert vector(wave, "v3").tolist() == [a >> 24 | b & 0xFFFF for a, b in zip(A, B, strict=True)]
    run(wave, "s_mov_b64 exec, 5", "v_mov_b32_e32 v4, 9", "s_mov_b64 exec, -1", "s_mov_b64 vcc, 5")
    run(wave, "v_cndmask_b32_e32 v5, v0, v4, vcc")
    assert vector(wave, "v5").tolist()[:4] == [9, A[1], 9, A[3]]
    with pytest.raises(ExecutionFault, match="lane 1 of v4"):
        run(wave, "s_mov_b64 vcc, 7", "v_cndmask_b32_e32 v5, v0, v4, vcc")


def test_conversions_of_pairs_and_table_logic() -> None:
    """Two results of one instruction, and any function of three bits (gfx950)."""
    wave = make_wave()
    for place, values in enumerate((A, B, C)):
        set_vector(wave, place, values)
    run(wave, "v_bitop3_b32 v3, v0, v1, v2 bitop3:0xe4")
    expected = [sum((0xE4 >> (4 * (a >> n & 1) + 2 * (b >> n & 1) + (c >> n & 1)) & 1) << n for n in range(32)) for
                a, b, c in zip(A, B, C, strict=True)]  # fmt: skip
    assert vector(wave, "v3").tolist() == expected
    set_vector(wave, 0, np.full(64, 1.00390625, np.float32))
    set_vector(wave, 1, np.full(64, -2.5, np.float32))
    run(wave, "v_cvt_pk_bf16_f32 v4, v0, v1", "v_cvt_pk_f16_f32 v5, v0, v1", "v_cvt_f32_f16_e32 v6, v5")
    assert (vector(wave, "v4")[0], vector(wave, "v5")[0]) == (0xC0203F80, 0xC1003C04)
    assert vector(wave, "v6").view(np.float32)[0] == 1.00390625


def test_accumulating_fma_and_constants() -> None:
    """v_fmac adds to its destination; v_fmamk multiplies by its literal."""
    wave = make_wave()
    for place, values in enumerate((A, B, C)):
        set_vector(wave, place, values)
    run(wave, "v_fmamk_f32 v3, v0, 0x3e0293ee, v1", "v_fmac_f32_e32 v2, v0, v1")
    for lane in range(64):
        for register, expected in (
            ("v2", fused(F32, A[lane], B[lane], C[lane])),
            ("v3", fused(F32, A[lane], 0x3E0293EE, B[lane])),
        ):
            bits = int(vector(wave, register)[lane]) & WORD
            assert bits == expected or (expected is None and F32.is_nan(bits))


def test_an_addend_of_which_only_the_lower_half_was_written() -> None:
    """v_mad_u64_u32 gives the lower half of the sum; the upper one, and the carry, stay unwritten."""
    for third, low in (("v[2:3]", "v_mov_b32_e32 v2, 7"), ("s[2:3]", "s_mov_b32 s2, 7")):
        wave = make_wave()
        set_vector(wave, 0, A)
        set_vector(wave, 1, B)
        run(wave, low, f"v_mad_u64_u32 v[4:5], s[4:5], v0, v1, {third}")
        assert vector(wave, "v4").tolist() == [(a * b + 7) & WORD for a, b in zip(A, B, strict=True)]
        with pytest.raises(ExecutionFault, match="lane 0 of v5: nothing wrote"):
            run(wave, "v_not_b32_e32 v6, v5")
        with pytest.raises(ExecutionFault, match="s4 as a mask of lanes"):
            run(wave, "v_cndmask_b32_e64 v6, 0, 1, s[4:5]")


def test_sums_of_products_that_are_rounded_twice() -> None:
    """v_mac adds to its destination, v_madmk and v_madak take a literal; they round product and sum (gfx90a)."""
    wave = make_wave()
    for place, value in enumerate((1.0 + 2.0**-23, 1.0 + 2.0**-23, -1.0)):
        set_vector(wave, place, np.full(64, value, np.float32))
    run(wave, "v_madak_f32 v3, v0, v1, 0xbf800000", "v_madmk_f32 v4, v0, 0x3f800001, v2", "v_mac_f32_e32 v2, v0, v1")
    assert [float(vector(wave, name).view(np.float32)[7]) for name in ("v2", "v3", "v4")] == [2.0**-22] * 3


def test_bytes_that_all_lanes_choose_alike() -> None:
    """A selector in a scalar register chooses as one in a vector register does, whatever its bytes are."""
    random = Random(8)
    selectors = [0x07060302, 0x05040100, 0x0C0C0C07, 0x100B0A09, 0x0D08FF80]
    selectors += [int.from_bytes(bytes(random.choices(range(14), k=4)), "little") for _ in range(60)]
    for selector in selectors:
        wave = make_wave()
        set_vector(wave, 0, A)
        set_vector(wave, 1, B)
        run(wave, f"s_mov_b32 s4, {selector:#x}", "v_mov_b32_e32 v2, s4")
        run(wave, "v_perm_b32 v3, v0, v1, s4", "v_perm_b32 v4, v0, v1, v2")
        assert vector(wave, "v3").tolist() == vector(wave, "v4").tolist(), hex(selector)
