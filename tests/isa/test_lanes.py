from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from tests.isa.one_wave import make_wave, run, set_vector, vector

LANES = list(range(64))


def test_between_lanes_and_scalar_registers() -> None:
    """readfirstlane takes the lowest active lane; readlane and writelane one lane, active or not."""
    wave = make_wave()
    set_vector(wave, 0, [lane + 100 for lane in LANES])
    run(wave, "s_mov_b64 exec, 48", "v_readfirstlane_b32 s0, v0", "v_readlane_b32 s1, v0, 63")
    run(wave, "v_writelane_b32 v0, s1, 2", "s_mov_b64 exec, 0", "v_readfirstlane_b32 s2, v0")
    assert [wave.read_scalar(at) for at in (0, 1, 2)] == [104, 163, 100]
    assert vector(wave, "v0")[2] == 163


def test_between_register_files() -> None:
    """Values move between v and a registers."""
    wave = make_wave()
    set_vector(wave, 0, LANES)
    run(wave, "v_accvgpr_write_b32 a3, v0", "v_accvgpr_mov_b32 a4, a3", "v_accvgpr_read_b32 v1, a4")
    assert vector(wave, "a3").tolist() == vector(wave, "v1").tolist() == LANES


def test_permutations_through_lds() -> None:
    """bpermute takes the value of the lane that its address says, swizzle of the lane with bits changed."""
    wave = make_wave()
    set_vector(wave, 0, [lane * 7 for lane in LANES])
    set_vector(wave, 1, [4 * (63 - lane) + 256 for lane in LANES])
    run(wave, "ds_bpermute_b32 v2, v1, v0", "ds_swizzle_b32 v3, v0 offset:0x041f", "s_waitcnt lgkmcnt(0)")
    assert vector(wave, "v2").tolist() == [7 * (63 - lane) for lane in LANES]
    assert vector(wave, "v3").tolist() == [7 * (lane ^ 1) for lane in LANES]
    run(wave, "s_mov_b64 exec, 1", "ds_bpermute_b32 v4, v1, v0", "s_waitcnt lgkmcnt(0)")
    assert vector(wave, "v4")[0] == 0


def test_swapped_rows() -> None:
    """permlane32_swap exchanges the upper half of the first register with the lower half of the second (gfx950)."""
    wave = make_wave()
    set_vector(wave, 0, LANES)
    set_vector(wave, 1, [lane + 100 for lane in LANES])
    run(wave, "v_permlane32_swap_b32_e32 v0, v1")
    assert vector(wave, "v0").tolist() == LANES[:32] + [lane + 100 for lane in LANES[:32]]
    assert vector(wave, "v1").tolist() == LANES[32:] + [lane + 100 for lane in LANES[32:]]


def test_transposed_reads() -> None:
    """ds_read_b64_tr_b16 gives each of 16 lanes a column of a 4 x 16 matrix (gfx950)."""
    wave = make_wave()
    elements = np.arange(256, dtype=np.uint16)
    set_vector(wave, 0, [8 * lane for lane in LANES])
    for place in (0, 1):
        set_vector(wave, 2 + place, elements.view(np.uint32)[place::2].copy())
    run(wave, "ds_write_b64 v0, v[2:3]", "ds_read_b64_tr_b16 v[4:5], v0", "s_waitcnt lgkmcnt(0)")
    found = np.stack([vector(wave, "v4"), vector(wave, "v5")], axis=1).view(np.uint16)
    for lane in LANES:
        group, column = divmod(lane, 16)
        assert found[lane].tolist() == [64 * group + 16 * row + column for row in range(4)]


@pytest.mark.parametrize(("name", "bits", "registers"), [("b64_tr_b8", 8, 2), ("b64_tr_b4", 4, 2), ("b96_tr_b6", 6, 3)])
def test_transposed_reads_of_narrow_elements(name: str, bits: int, registers: int) -> None:
    """Of 8, 6 and 4 bits a lane gets a column of 8, 16 or 16 rows of 16 elements."""
    random, rows = np.random.default_rng(bits), 32 * registers // bits
    wave = make_wave(lds_bytes=64 * 4 * registers)
    words = random.integers(0, 2**32, (64, registers), dtype=np.uint32)
    wave.lds.store(np.arange(64) * 4 * registers, 4 * registers, words, 0)
    set_vector(wave, 0, [4 * registers * lane for lane in LANES])
    run(wave, f"ds_read_{name} v[4:{3 + registers}], v0", "s_waitcnt lgkmcnt(0)", arch="gfx950")
    for group in range(4):
        stream = sum(
            int(word) << 32 * place for place, word in enumerate(words[16 * group : 16 * group + 16].flatten())
        )
        for column in range(16):
            expected = sum((stream >> bits * (16 * row + column) & 2**bits - 1) << bits * row for row in range(rows))
            found = sum(int(vector(wave, f"v{4 + at}")[16 * group + column]) << 32 * at for at in range(registers))
            assert found == expected


def test_transposed_reads_need_all_lanes_and_alignment() -> None:
    """An inactive lane and a misaligned address are faults."""
    wave = make_wave()
    set_vector(wave, 0, [8 * lane + 4 for lane in LANES])
    with pytest.raises(ExecutionFault, match="not aligned to the data"):
        run(wave, "ds_read_b64_tr_b16 v[4:5], v0", arch="gfx950")
    with pytest.raises(ExecutionFault, match="EXEC must be all ones"):
        run(wave, "s_mov_b64 exec, 1", "ds_read_b64_tr_b8 v[4:5], v0", arch="gfx950")


def test_two_addresses_and_narrow_values() -> None:
    """read2 and write2 address in units of their values, st64 in 64 of them; narrow reads extend."""
    wave = make_wave(lds_bytes=65536)
    set_vector(wave, 0, [16 * lane for lane in LANES])
    set_vector(wave, 1, [0xFFFF8000 + lane for lane in LANES])
    set_vector(wave, 2, LANES)
    run(wave, "ds_write2_b32 v0, v1, v2 offset0:1 offset1:3", "ds_read2_b32 v[4:5], v0 offset0:3 offset1:1")
    run(wave, "ds_write2st64_b32 v0, v2, v1 offset0:8 offset1:16", "ds_read_b32 v6, v0 offset:4096")
    run(wave, "ds_read_u16 v7, v0 offset:4", "ds_read_i16 v8, v0 offset:4", "s_waitcnt lgkmcnt(0)")
    assert (vector(wave, "v4").tolist(), vector(wave, "v5")[3]) == (LANES, 0xFFFF8003)
    assert vector(wave, "v6")[5] == 0xFFFF8005
    assert (vector(wave, "v7")[1], vector(wave, "v8")[1]) == (0x8001, 0xFFFF8001)


def test_halves_of_registers() -> None:
    """Narrow reads into one half of a register leave the other, two fill it, and both must have arrived (gfx11)."""
    wave = make_wave(size=32)
    set_vector(wave, 0, [4 * lane for lane in range(32)])
    set_vector(wave, 1, [0x9085_7F80 + lane for lane in range(32)])
    run(wave, "ds_store_b32 v0, v1", "ds_load_u16_d16 v2, v0", "ds_load_i8_d16_hi v2, v0 offset:3")
    run(wave, "ds_load_u8_d16 v3, v0 offset:1", "ds_load_u16_d16_hi v3, v0 offset:2", "s_waitcnt lgkmcnt(1)")
    run(wave, "v_mov_b32_e32 v4, v2")
    with pytest.raises(ExecutionFault, match="v3: its load is in flight"):
        run(wave, "v_mov_b32_e32 v5, v3")
    run(wave, "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v5, v3")
    assert (vector(wave, "v4")[3], vector(wave, "v5")[3]) == (0xFF90_7F83, 0x9085_007F)
    run(wave, "ds_store_b16_d16_hi v0, v1", "ds_load_u16 v6, v0", "s_waitcnt lgkmcnt(0)")
    assert vector(wave, "v6")[3] == 0x9085
