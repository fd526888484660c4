from __future__ import annotations

from random import Random

import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from tests.isa.one_wave import make_wave, run
from tests.isa.statements import WORD, signed

EDGES = (0, 1, 31, 32, 63, 0x7FFFFFFF, 0x80000000, WORD, 0x20006, 0x100008)

CASES = {
    "s_add_u32": lambda a, b: (a + b, a + b > WORD),
    "s_sub_u32": lambda a, b: (a - b, b > a),
    "s_add_i32": lambda a, b: (a + b, signed(a + b) != signed(a) + signed(b)),
    "s_sub_i32": lambda a, b: (a - b, signed(a - b) != signed(a) - signed(b)),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b // 2**32, None),
    "s_mul_hi_i32": lambda a, b: (signed(a) * signed(b) // 2**32, None),
    "s_min_i32": lambda a, b: (min(signed(a), signed(b)), signed(a) < signed(b)),
    "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_and_b32": lambda a, b: (a & b, a & b),
    "s_andn2_b32": lambda a, b: (a & ~b, a & (WORD - b)),
    "s_orn2_b32": lambda a, b: (a | ~b, a | (WORD - b)),
    "s_xor_b32": lambda a, b: (a ^ b, a ^ b),
    "s_lshl_b32": lambda a, b: (a * 2 ** (b % 32), a * 2 ** (b % 32) % 2**32),
    "s_lshr_b32": lambda a, b: (a // 2 ** (b % 32), a // 2 ** (b % 32)),
    "s_ashr_i32": lambda a, b: (signed(a) // 2 ** (b % 32), signed(a) // 2 ** (b % 32)),
    "s_bfe_u32": lambda a, b: (a // 2 ** (b % 32) % 2 ** min(b >> 16 & 127, 32),) * 2,
    "s_lshl3_add_u32": lambda a, b: (8 * a + b, 8 * a + b > WORD),
}
"""Name -> value and SCC (as a truth), None where SCC stays."""


@pytest.mark.parametrize("name", CASES)
def test_arithmetic(name: str) -> None:
    """Value and SCC agree with Python's integers on edges and drawn operands."""
    random = Random(name)
    pairs = [(a, b) for a in EDGES for b in EDGES]
    pairs += [(random.getrandbits(32), random.getrandbits(32)) for _ in range(200)]
    for a, b in pairs:
        wave = make_wave()
        wave.scc = 1
        wave.write_scalar(0, a)
        wave.write_scalar(1, b)
        run(wave, f"{name} s2, s0, s1")
        value, scc = CASES[name](a, b)
        assert (wave.read_scalar(2), wave.scc) == (value & WORD, 1 if scc is None else int(bool(scc))), (a, b)


def test_64_bits() -> None:
    """Additions with carry, and shifts, masks and selections of pairs."""
    wave = make_wave()
    wave.write_scalar_pair(0, 0xFFFFFFFF_FFFFFFFE)
    wave.write_scalar_pair(2, 3)
    run(wave, "s_add_u32 s4, s0, s2", "s_addc_u32 s5, s1, s3")
    assert (wave.read_scalar_pair(4), wave.scc) == (1, 1)
    run(wave, "s_lshl_b64 s[6:7], s[2:3], 33", "s_cselect_b64 s[8:9], -1, 0")
    assert (wave.read_scalar_pair(6), wave.read_scalar_pair(8)) == (3 << 33, 2**64 - 1)
    run(wave, "s_cmp_lt_i32 s0, 0", "s_cselect_b32 s10, 5, 6", "s_cmpk_lt_u32 s2, 0x3", "s_movk_i32 s11, 0x8000")
    assert (wave.read_scalar(10), wave.scc, wave.read_scalar(11)) == (5, 0, 0xFFFF8000)


def test_saveexec() -> None:
    """The old mask is saved, the new one is taken from the source, SCC says whether a lane is left."""
    wave = make_wave()
    wave.write_scalar_pair(0, 0b0110)
    run(wave, "s_mov_b64 exec, 12", "s_and_saveexec_b64 s[2:3], s[0:1]")
    assert (wave.exec_mask, wave.read_scalar_pair(2), wave.scc) == (0b0100, 12, 1)
    run(wave, "s_andn2_saveexec_b64 s[4:5], s[0:1]")
    assert (wave.exec_mask, wave.read_scalar_pair(4)) == (0b0010, 0b0100)
    run(wave, "s_xor_b64 exec, exec, exec")
    assert (wave.exec_mask, wave.scc) == (0, 0)


def test_masks_that_are_written_in_parts() -> None:
    """A mask whose inactive lanes nothing wrote can be merged and used in active lanes; other uses are faults."""
    wave = make_wave()
    run(wave, "s_mov_b64 exec, 12", "s_andn2_b64 s[0:1], s[0:1], exec")
    assert wave.scc is None
    run(wave, "s_or_b64 s[0:1], s[0:1], 8", "s_mov_b64 s[2:3], s[0:1]", "v_mov_b32_e32 v0, 1")
    run(wave, "v_cndmask_b32_e64 v1, 0, v0, s[2:3]", "s_and_b64 vcc, exec, s[2:3]")
    assert (wave.read_scalar_pair(106), wave.scc) == (8, 1)
    run(wave, "s_and_saveexec_b64 s[4:5], s[2:3]")
    assert wave.exec_mask == 8
    with pytest.raises(ExecutionFault, match="s2: nothing wrote"):
        run(wave, "s_add_u32 s6, s2, 1")
    with pytest.raises(ExecutionFault, match="into exec"):
        run(wave, "s_mov_b64 exec, s[2:3]")
    run(wave, "s_mov_b64 exec, 3")
    with pytest.raises(ExecutionFault, match="s2 as a mask of lanes"):
        run(wave, "v_cndmask_b32_e64 v1, 0, 1, s[2:3]")


def test_single_bits_and_orders_of_bits() -> None:
    """Bits that are set or cleared, reversed pairs, counts of signs, and floats as 64-bit constants."""
    wave = make_wave()
    run(wave, "s_mov_b32 s0, 0xf0", "s_bitset1_b32 s0, 33", "s_bitset0_b32 s0, 4", "s_mov_b64 s[2:3], 0.5")
    assert (wave.read_scalar(0), wave.read_scalar_pair(2)) == (0xE2, 0x3FE0000000000000)
    run(wave, "s_brev_b64 s[4:5], s[2:3]", "s_flbit_i32 s6, s0", "s_flbit_i32 s7, -3", "s_flbit_i32_i64 s8, -1")
    assert wave.read_scalar_pair(4) == 0x7FC
    assert [wave.read_scalar(at) for at in (6, 7, 8)] == [24, 30, WORD]


def test_a_field_of_the_lower_half_needs_no_upper_one() -> None:
    """S_BFE of a pair reads the upper register only where the field reaches into it."""
    wave = make_wave()
    run(wave, "s_mov_b32 s4, 0xffff8001", "s_bfe_i64 s[6:7], s[4:5], 0x100000", "s_bfe_u64 s[8:9], s[4:5], 0x80008")
    assert (wave.read_scalar_pair(6), wave.read_scalar_pair(8)) == (2**64 - 0x7FFF, 0x80)
    with pytest.raises(ExecutionFault, match="reads s5: nothing wrote"):
        run(wave, "s_bfe_i64 s[6:7], s[4:5], 0x110010")
