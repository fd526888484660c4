from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector

RAW = 0x27000


def wave_with_buffer(words: int = 64, size: int = 64) -> Wave:
    """A wave whose s[0:1] is a buffer of 0, 1, 2 ..., described by s[4:7], and whose v0 is 4 times the lane."""
    wave = make_wave(size=size)
    buffer = wave.memory.add("K", 4 * words, np.arange(words, dtype=np.uint32).tobytes())
    wave.write_scalar_pair(0, buffer.base)
    for place, value in enumerate((buffer.base & 0xFFFFFFFF, buffer.base >> 32, 4 * words, RAW)):
        wave.write_scalar(4 + place, value)
    set_vector(wave, 0, np.arange(size, dtype=np.uint32) * 4)
    return wave


def test_global_addresses() -> None:
    """A scalar base with a lane's offset, and 64-bit addresses of lanes, with the instruction's offset."""
    wave = wave_with_buffer(80)
    run(wave, "global_load_dword v2, v0, s[0:1] offset:8", "v_mov_b32_e32 v5, s1", "v_add_u32_e32 v4, s0, v0")
    run(wave, "global_load_dwordx2 v[6:7], v[4:5], off offset:4", "s_waitcnt vmcnt(0)")
    assert [vector(wave, name)[9] for name in ("v2", "v6", "v7")] == [11, 10, 11]
    run(wave, "global_store_short v0, v2, s[0:1]", "global_load_ushort v8, v0, s[0:1]", "s_waitcnt vmcnt(0)")
    assert vector(wave, "v8")[9] == 11
    run(wave, "global_load_dword v2, v0, s[0:1] offset:68")
    with pytest.raises(ExecutionFault, match="beyond the end of K"):
        run(wave, "s_waitcnt vmcnt(0)")


def test_buffers_are_bounded() -> None:
    """Beyond the resource's bytes a buffer load gives 0 and a store does nothing."""
    wave = wave_with_buffer()
    run(wave, "s_mov_b32 s6, 128", "buffer_load_dword v2, v0, s[4:7], 0 offen offset:4", "s_waitcnt vmcnt(0)")
    assert vector(wave, "v2").tolist() == [*range(1, 32), *[0] * 33]
    run(wave, "buffer_store_dword v0, v0, s[4:7], 0 offen", "s_waitcnt vmcnt(0)")
    stored = np.frombuffer(wave.memory.buffers[0].read_bytes(), np.uint32)
    assert stored.tolist() == [4 * word if word < 32 else word for word in range(64)]


def test_resources_that_are_not_raw_are_refused() -> None:
    """A resource with a stride stops the run."""
    wave = wave_with_buffer()
    run(wave, "s_or_b32 s5, s5, 0x40000")
    with pytest.raises(UnknownInstructionError, match="resource with a stride"):
        run(wave, "buffer_load_dword v2, v0, s[4:7], 0 offen")


def test_loads_into_lds() -> None:
    """A buffer load with `lds` writes M0 plus the lane's place, at the wait of vmcnt (gfx950)."""
    wave = wave_with_buffer(256)
    set_vector(wave, 1, np.arange(64, dtype=np.uint32) * 16)
    run(wave, "s_movk_i32 m0, 0x0", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds")
    with pytest.raises(ExecutionFault, match="nothing wrote"):
        wave.lds.load(np.array([0]), 4, 0)
    run(wave, "s_waitcnt vmcnt(0)", "ds_read_b32 v2, v0", "s_waitcnt lgkmcnt(0)")
    assert vector(wave, "v2").tolist() == list(range(64))


@pytest.mark.parametrize("text", ["s_load_dwordx4 s[8:11], s[0:1], 0x4", "s_load_dwordx4 s[8:11], s[0:1], 0x7"])
def test_scalar_loads(text: str) -> None:
    """Words from a scalar address, whose low two bits are ignored."""
    wave = wave_with_buffer()
    run(wave, text, "s_waitcnt lgkmcnt(0)")
    assert [wave.read_scalar(at) for at in range(8, 12)] == [1, 2, 3, 4]


def test_halves_of_registers() -> None:
    """Narrow loads into one half of a register leave the other, and a store takes the upper one (gfx11)."""
    wave = wave_with_buffer(size=32)
    set_vector(wave, 2, [0x5555_5555] * 32)
    run(wave, "global_load_d16_hi_b16 v2, v0, s[0:1]", "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v3, v2")
    run(wave, "v_mov_b32_e32 v4, 0xfe05", "global_store_d16_hi_b16 v0, v2, s[0:1] offset:2")
    run(wave, "global_store_b8 v0, v4, s[0:1] offset:1", "global_load_d16_i8 v4, v0, s[0:1] offset:2")
    run(wave, "s_waitcnt_vscnt null, 0x0", "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v5, v4")
    assert (vector(wave, "v3")[9], vector(wave, "v5")[9]) == (0x0009_5555, 0x0000_0009)
    assert np.frombuffer(wave.memory.buffers[0].read_bytes(), np.uint32)[9] == 0x0009_0509


def test_resources_of_rdna_say_how_they_are_bounded() -> None:
    """The check of raw buffers is number 3 since gfx10; another one is refused."""
    wave = wave_with_buffer(size=32)
    text = "buffer_load_b32 v2, v0, s[4:7], null offen offset:64"
    with pytest.raises(UnknownInstructionError, match="resource with a stride or an index"):
        run(wave, text)
    wave.write_scalar(6, 128)
    wave.write_scalar(7, 0x31016000)
    run(wave, text, "s_waitcnt vmcnt(0)")
    assert vector(wave, "v2").tolist() == [*range(16, 32), *[0] * 16]
