from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.scratch import Scratch
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector

LANES = list(range(32))


def wave_with_scratch(size: int = 64) -> Wave:
    """A wave of 32 lanes with that many bytes of scratch in each, whose v0 is 4 times the lane."""
    wave = make_wave(size=32)
    wave.scratch = Scratch(size, 32)
    set_vector(wave, 0, [4 * lane for lane in LANES])
    return wave


def test_lanes_have_memory_of_their_own() -> None:
    """What a lane stores it loads, in every width, from an offset, a register of lanes, and a scalar one."""
    wave = wave_with_scratch(256)
    for place in range(1, 5):
        set_vector(wave, place, [100 * place + lane for lane in LANES])
    wave.write_scalar(3, 16)
    run(wave, "scratch_store_b128 off, v[1:4], off offset:16", "scratch_load_b32 v5, off, s3 offset:8")
    run(wave, "scratch_load_b64 v[6:7], off, off offset:16", "scratch_store_b32 v0, v0, s3 offset:64")
    run(wave, "scratch_load_b32 v8, v0, off offset:80", "s_waitcnt vmcnt(0)")
    assert [vector(wave, name)[9] for name in ("v5", "v6", "v7", "v8")] == [309, 109, 209, 36]


def test_narrow_values() -> None:
    """Bytes and halves are extended, or go into one half of a register."""
    wave = wave_with_scratch()
    set_vector(wave, 1, [0x8180_9190 + lane for lane in LANES])
    set_vector(wave, 2, [0x5555_5555] * 32)
    run(wave, "scratch_store_b32 off, v1, off", "scratch_load_i8 v3, off, off offset:1", "scratch_load_u8 v4, off, off")
    run(wave, "scratch_load_i16 v5, off, off offset:2", "scratch_load_d16_hi_b16 v2, off, off offset:2")
    run(wave, "scratch_store_d16_hi_b16 off, v1, off offset:8", "scratch_load_u16 v6, off, off offset:8")
    run(wave, "s_waitcnt vmcnt(0)")
    found = [int(vector(wave, name)[0]) for name in ("v2", "v3", "v4", "v5", "v6")]
    assert found == [0x81805555, 0xFFFFFF91, 0x90, 0xFFFF8180, 0x8180]


def test_a_value_arrives_at_the_wait() -> None:
    """A load of scratch is in flight until vmcnt says that it has ended."""
    wave = wave_with_scratch()
    run(wave, "scratch_store_b32 off, v0, off", "scratch_load_b32 v1, off, off")
    with pytest.raises(ExecutionFault, match="v1: its load is in flight"):
        run(wave, "v_mov_b32_e32 v2, v1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scratch_load_b32 v1, off, off offset:4", "byte 4 of lane 0's scratch, which nothing wrote"),
        ("scratch_load_b32 v1, off, off offset:61", "a lane has 64 bytes"),
        ("scratch_load_b32 v1, off, off offset:2", "an offset that 4 does not divide"),
    ],
)
def test_faults(text: str, message: str) -> None:
    """Unwritten bytes, an access beyond the end, and a misaligned one."""
    wave = wave_with_scratch()
    run(wave, text)
    with pytest.raises(ExecutionFault, match=message):
        run(wave, "s_waitcnt vmcnt(0)")


def test_a_kernel_without_scratch() -> None:
    """An access where the kernel asked for none is a fault."""
    wave = make_wave(size=32)
    set_vector(wave, 0, np.zeros(32, np.uint32))
    run(wave, "scratch_store_b32 off, v0, off")
    with pytest.raises(ExecutionFault, match="of which the kernel has none"):
        run(wave, "s_waitcnt_vscnt null, 0x0")
