from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.launch import Output, execute
from pytest_attnperf.isa.scratch import Scratch, private_resource, wave_offset
from pytest_attnperf.isa.wave import Wave
from pytest_attnperf.kernel_builds import HipSource, KernelBuild
from tests.isa.one_wave import make_wave, run, set_vector, vector

LANES = list(range(32))
REASONS = hip_reasons("gfx942")


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
        ("scratch_load_u16 v1, off, off offset:4", "byte 4 of lane 0's scratch, which nothing wrote"),
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


def test_words_that_nothing_wrote_can_be_spilled() -> None:
    """A register that only some lanes wrote comes back as it was; a slot that was never stored is an unwritten one."""
    wave = make_wave()
    wave.scratch = Scratch(16, 64)
    run(wave, "s_mov_b64 exec, 6", "v_mov_b32_e32 v0, 7", "s_mov_b64 exec, -1")
    run(wave, "scratch_store_dword off, v0, off", "scratch_load_dwordx2 v[2:3], off, off", "s_waitcnt vmcnt(0)")
    run(wave, "s_mov_b64 exec, 6", "v_not_b32_e32 v4, v2")
    for text, lane in (("v_not_b32_e32 v4, v2", 0), ("v_not_b32_e32 v4, v3", 0)):
        with pytest.raises(ExecutionFault, match=f"lane {lane} of v"):
            run(wave, "s_mov_b64 exec, -1", text)


def wave_of_gfx90a(number: int = 1) -> Wave:
    """A wave of gfx90a with 64 bytes of scratch in each of 64 lanes and the private segment buffer in s[0:3], to which
    the kernel has added the wave's offset."""
    wave = make_wave(number=number)
    wave.scratch = Scratch(64, 64)
    for place, word in enumerate(private_resource()):
        wave.write_scalar(place, word)
    wave.write_scalar(9, wave_offset(number))
    set_vector(wave, 0, list(range(64)))
    return wave


def test_the_private_segment_buffer_of_gfx90a() -> None:
    """Buffer accesses through the resource that the kernel starts with reach each lane's own bytes; a scalar offset
    counts the bytes of all lanes."""
    wave = wave_of_gfx90a()
    run(wave, "s_add_u32 s0, s0, s9", "s_addc_u32 s1, s1, 0", "s_movk_i32 s8, 0x200", "v_mov_b32_e32 v3, 4")
    run(wave, "buffer_store_dword v0, off, s[0:3], 0 offset:12", "buffer_load_dword v1, off, s[0:3], s8 offset:4",
        "buffer_load_dword v2, v3, s[0:3], 0 offen offset:8", "s_waitcnt vmcnt(0)", arch="gfx90a")  # fmt: skip
    assert vector(wave, "v1").tolist() == vector(wave, "v2").tolist() == list(range(64))


def test_scratch_of_another_wave_is_a_fault() -> None:
    """A kernel that does not add its wave's offset to the base reaches what is not its own."""
    wave = wave_of_gfx90a()
    with pytest.raises(ExecutionFault, match="that of the wave begins at 0x7e0000200000"):
        run(wave, "buffer_load_dword v1, off, s[0:3], 0", arch="gfx90a")


SPILLING = """
extern "C" __attribute__((global)) void spill(int* out, const int* in, int n) {
    volatile int a[40];
    const int t = __builtin_amdgcn_workitem_id_x();
    for (int i = 0; i < 40; i++) a[(i * 7 + n) % 40] = in[i] + t;
    out[t] = a[n % 40] * 100 + a[(n * 7) % 40];
}
"""


@pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_compiled_kernels_with_arrays(arch: str, tmp_path: Path) -> None:
    """An array that the compiler keeps in scratch, with two waves: each architecture finds it its own way."""
    path = tmp_path / "spill.hip"
    path.write_text(SPILLING)
    build = KernelBuild("hip.spill", "one", arch, HipSource(path, "spill", threads=128))
    content = object_bytes(build_object(build, tmp_path / "cache"))
    given = np.arange(40, dtype=np.int32) * 5
    found = execute(content, "spill", (1, 1, 1), (128, 1, 1), [Output(np.zeros(128, np.int32)), given, 3]).arrays[0]
    expected = {(i * 7 + 3) % 40: int(given[i]) for i in range(40)}
    assert found is not None
    assert found.tolist() == [(expected[3] + t) * 100 + expected[21] + t for t in range(128)]
