from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector


def wave_with_words() -> Wave:
    """A wave whose v0 is 4 times the lane, whose LDS holds 100 + lane there, and s[0:1] a buffer of the same."""
    wave = make_wave()
    set_vector(wave, 0, np.arange(64, dtype=np.uint32) * 4)
    set_vector(wave, 1, np.arange(100, 164, dtype=np.uint32))
    run(wave, "ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)")
    buffer = wave.memory.add("K", 256, np.arange(100, 164, dtype=np.uint32).tobytes())
    wave.write_scalar_pair(0, buffer.base)
    return wave


@pytest.mark.parametrize(
    ("load", "wait"),
    [
        ("ds_read_b32 v2, v0", "s_waitcnt lgkmcnt(0)"),
        ("global_load_dword v2, v0, s[0:1]", "s_waitcnt vmcnt(0)"),
    ],
)
def test_a_value_arrives_at_the_wait(load: str, wait: str) -> None:
    """A register whose load is in flight cannot be read or written; after the wait it holds what was loaded."""
    for use in ("v_mov_b32_e32 v3, v2", "v_mov_b32_e32 v2, v0"):
        wave = wave_with_words()
        run(wave, load)
        with pytest.raises(ExecutionFault, match=r"v2.*load is in flight"):
            run(wave, use)
    wave = wave_with_words()
    run(wave, load, wait, "v_mov_b32_e32 v3, v2")
    assert vector(wave, "v3").tolist() == list(range(100, 164))


def test_a_wait_covers_the_oldest_accesses_only() -> None:
    """s_waitcnt vmcnt(1) brings the first of two loads."""
    wave = wave_with_words()
    run(wave, "global_load_dword v2, v0, s[0:1]", "global_load_dword v3, v0, s[0:1]", "s_waitcnt vmcnt(1)")
    run(wave, "v_mov_b32_e32 v4, v2")
    with pytest.raises(ExecutionFault, match="v3"):
        run(wave, "v_mov_b32_e32 v4, v3")


def test_scalar_loads_arrive_at_the_wait() -> None:
    """A scalar register whose load is in flight cannot be read; lgkmcnt(1) is no guarantee while one is in flight."""
    wave = wave_with_words()
    run(wave, "s_load_dwordx2 s[4:5], s[0:1], 0x8")
    with pytest.raises(ExecutionFault, match="s4: its load is in flight"):
        run(wave, "s_mov_b32 s6, s4")
    run(wave, "s_load_dword s7, s[0:1], 0x0")
    with pytest.raises(ExecutionFault, match="any order"):
        run(wave, "s_waitcnt lgkmcnt(1)")
    run(wave, "s_waitcnt lgkmcnt(0)", "s_add_u32 s6, s4, s5")
    assert wave.read_scalar(6) == 102 + 103


def test_lds_writes_are_late_too() -> None:
    """Another wave sees a write only after the writer's wait, even behind a barrier."""
    wave = make_wave()
    set_vector(wave, 0, np.arange(64, dtype=np.uint32) * 4)
    run(wave, "ds_write_b32 v0, v0")
    wave.lds.pass_barrier()
    with pytest.raises(ExecutionFault, match="nothing wrote"):
        wave.lds.load(np.array([0]), 4, 1)
    run(wave, "s_waitcnt lgkmcnt(0)")
    wave.lds.pass_barrier()
    assert wave.lds.load(np.array([4]), 4, 1)[0, 0] == 4


def test_unwritten_registers_cannot_be_read() -> None:
    """Neither vector registers, in the active lanes, nor scalar ones, nor SCC."""
    wave = make_wave()
    with pytest.raises(ExecutionFault, match="lane 0 of v1: nothing wrote"):
        run(wave, "v_not_b32_e32 v0, v1")
    with pytest.raises(ExecutionFault, match="s3: nothing wrote"):
        run(wave, "s_not_b32 s0, s3")
    with pytest.raises(ExecutionFault, match="scc"):
        run(wave, "s_cselect_b32 s0, 1, 2")
    run(wave, "s_mov_b64 exec, 5", "v_mov_b32_e32 v1, 7", "v_mov_b32_e32 v0, v1", "s_mov_b64 exec, -1")
    with pytest.raises(ExecutionFault, match="lane 1 of v0"):
        run(wave, "v_not_b32_e32 v2, v0")


def test_inactive_lanes_keep_their_values() -> None:
    """A write reaches the lanes in EXEC only, of a register and of a mask."""
    wave = make_wave()
    set_vector(wave, 0, np.arange(64, dtype=np.uint32))
    run(wave, "s_mov_b64 exec, 6", "v_mov_b32_e32 v0, 99", "v_cmp_eq_u32_e32 vcc, 99, v0")
    assert vector(wave, "v0").tolist()[:4] == [0, 99, 99, 3]
    assert wave.read_scalar_pair(106) == 6
    assert wave.exec_mask != wave.full
