from __future__ import annotations

import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from tests.isa.one_wave import make_wave, run, set_vector, vector


def test_moves_copy_whether_a_register_was_written() -> None:
    """A pair of which one half was written can be moved; a use of the other half is a fault."""
    wave = make_wave()
    set_vector(wave, 0, list(range(64)))
    run(wave, "v_mov_b64_e32 v[2:3], v[0:1]", "v_accvgpr_write_b32 a0, v3", "v_accvgpr_read_b32 v4, a0")
    assert vector(wave, "v2").tolist() == list(range(64))
    for register in ("v3", "v4"):
        with pytest.raises(ExecutionFault, match=f"lane 0 of {register}: nothing wrote it there"):
            run(wave, f"v_add_u32_e32 v5, v0, {register}")
    run(wave, "s_mov_b32 s0, 5", "s_mov_b32 s2, s1", "s_mov_b32 s3, s0")
    assert wave.read_scalar(3) == 5
    with pytest.raises(ExecutionFault, match="s2: nothing wrote"):
        run(wave, "s_add_u32 s4, s2, 1")


def test_a_move_of_inactive_lanes() -> None:
    """Only active lanes change, in value and in what was written; an overwritten value is known again."""
    wave = make_wave()
    set_vector(wave, 0, [7] * 64)
    set_vector(wave, 2, [9] * 64)
    run(wave, "s_mov_b64 exec, 5", "v_mov_b32_e32 v0, v1", "s_mov_b64 exec, 2", "v_not_b32_e32 v3, v0")
    with pytest.raises(ExecutionFault, match="lane 2 of v0"):
        run(wave, "s_mov_b64 exec, 6", "v_not_b32_e32 v3, v0")
    run(wave, "s_mov_b64 exec, -1", "v_mov_b32_e32 v0, v2", "v_not_b32_e32 v3, v0")
    assert vector(wave, "v0").tolist() == [9] * 64


def test_a_pair_that_overlaps_its_source() -> None:
    """Both halves are read before one is written."""
    wave = make_wave()
    for number in (0, 1):
        set_vector(wave, number, [number + 5] * 64)
    run(wave, "v_mov_b64_e32 v[1:2], v[0:1]")
    assert (vector(wave, "v1")[0], vector(wave, "v2")[0]) == (5, 6)


def test_a_load_in_flight_is_not_moved() -> None:
    """Neither the source of a move nor its destination may be a register whose load is in flight."""
    wave = make_wave()
    set_vector(wave, 0, [4 * lane for lane in range(64)])
    set_vector(wave, 1, [1] * 64)
    run(wave, "ds_write_b32 v0, v1", "ds_read_b32 v2, v0")
    with pytest.raises(ExecutionFault, match="its load is in flight"):
        run(wave, "v_mov_b32_e32 v3, v2")
    with pytest.raises(ExecutionFault, match="writes v2, whose load is in flight"):
        run(wave, "v_mov_b32_e32 v2, v1")


def test_halves_of_exec_are_always_known() -> None:
    """Both halves of EXEC can be moved like other registers."""
    wave = make_wave()
    run(wave, "s_mov_b64 exec, 0x12345", "s_mov_b32 exec_hi, 7", "s_mov_b32 s0, exec_hi", "s_mov_b32 s1, exec_lo")
    assert (wave.read_scalar(0), wave.read_scalar(1), wave.exec_mask) == (7, 0x12345, 7 << 32 | 0x12345)
    with pytest.raises(ExecutionFault, match="into exec"):
        run(wave, "s_mov_b32 exec_hi, s5")


def test_lanes_keep_scalar_registers() -> None:
    """Scalar registers go into lanes and come back, those that nothing wrote as such."""
    wave = make_wave()
    run(wave, "s_mov_b32 s0, 9", "v_writelane_b32 v0, s0, 3", "v_writelane_b32 v0, s1, 4")
    run(wave, "v_readlane_b32 s2, v0, 3", "v_readlane_b32 s3, v0, 4")
    assert wave.read_scalar(2) == 9
    with pytest.raises(ExecutionFault, match="s3: nothing wrote"):
        run(wave, "s_add_u32 s4, s3, 1")


def test_lanes_keep_masks_that_are_written_in_parts() -> None:
    """Of a mask that some lanes wrote, the known bits stay known on the way through a lane."""
    wave = make_wave()
    run(wave, "s_mov_b64 exec, 12", "s_andn2_b64 s[0:1], s[0:1], exec", "s_or_b64 s[0:1], s[0:1], 4")
    run(wave, "v_writelane_b32 v0, s0, 3", "v_writelane_b32 v0, s1, 4")
    run(wave, "v_readlane_b32 s2, v0, 3", "v_readlane_b32 s3, v0, 4", "s_and_saveexec_b64 s[4:5], s[2:3]")
    assert wave.exec_mask == 4
    with pytest.raises(ExecutionFault, match="s2: nothing wrote"):
        run(wave, "s_add_u32 s6, s2, 1")


def test_indexed_moves() -> None:
    """Between s_set_gpr_idx_on and off, M0 raises the source's or the destination's number of a move (gfx9)."""
    wave = make_wave()
    for number in range(4):
        set_vector(wave, number, [number + 5] * 64)
    run(wave, "s_mov_b32 s0, 0x102", "s_set_gpr_idx_on s0, gpr_idx(SRC0)", "v_mov_b32_e32 v8, v1", "s_set_gpr_idx_off")
    run(wave, "s_set_gpr_idx_on s0, gpr_idx(DST)", "v_mov_b32_e32 v8, v1", "v_mov_b32_e32 v9, 3", "s_set_gpr_idx_off")
    run(wave, "v_mov_b32_e32 v12, v0")
    assert [vector(wave, name)[0] for name in ("v8", "v10", "v11", "v12")] == [8, 6, 3, 5]


def test_moves_by_m0() -> None:
    """v_movrels takes its source, v_movreld its destination M0 registers further (gfx11)."""
    wave = make_wave(size=32)
    for number in range(4):
        set_vector(wave, number, [number + 5] * 32)
    run(wave, "s_mov_b32 m0, 2", "v_movrels_b32_e32 v8, v1", "v_movreld_b32_e32 v8, v1", "v_movreld_b32_e32 v9, 7")
    assert [vector(wave, name)[0] for name in ("v8", "v10", "v11")] == [8, 6, 7]
    with pytest.raises(ExecutionFault, match="v257, beyond the last register"):
        run(wave, "s_mov_b32 m0, 0x100", "v_movrels_b32_e32 v8, v1")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_move_from_a_scalar_register_that_nothing_wrote(arch: str) -> None:
    """The lanes that it writes hold nothing afterwards: a use of them is the fault, and the others stay."""
    wave = make_wave(size=32 if arch == "gfx1100" else 64)
    run(wave, "v_mov_b32_e32 v1, 7", arch=arch)
    run(wave, "v_mov_b32_e32 v1, s75", arch=arch)
    with pytest.raises(ExecutionFault, match="lane 0 of v1: nothing wrote"):
        run(wave, "v_not_b32_e32 v2, v1", arch=arch)
