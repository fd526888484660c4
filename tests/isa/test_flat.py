from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.launch import Execution, Output, execute
from pytest_attnperf.isa.scratch import Scratch
from pytest_attnperf.isa.wave import Wave
from pytest_attnperf.kernel_builds import HipSource, KernelBuild
from tests.isa.one_wave import make_wave, run, set_vector, vector

REASONS = hip_reasons("gfx942")

SOURCE = """
#define GLOBAL extern "C" __attribute__((global))
#define ADD(p, v) __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
GLOBAL void either(int* out, int* in, int from_lds) {
    __attribute__((shared)) int tile[128];
    const int t = __builtin_amdgcn_workitem_id_x();
    tile[t] = 100 + t;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    int* p = from_lds ? &tile[127 - t] : &in[t];
    out[t] = *p;
}
GLOBAL void count(int* counts, int* order) {
    __attribute__((shared)) int local[4];
    const int t = __builtin_amdgcn_workitem_id_x(), g = __builtin_amdgcn_workgroup_id_x();
    if (t < 4) local[t] = 0;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __hip_atomic_fetch_add(&local[t & 3], t, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    __builtin_amdgcn_s_barrier();
    if (t < 4) ADD(&counts[t], local[t]);
    if (t == 0) order[g] = ADD(&counts[4], 1);
}
GLOBAL void chain(int* flags, int* data) {
    const int t = __builtin_amdgcn_workitem_id_x(), g = __builtin_amdgcn_workgroup_id_x();
    const int last = __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x() - 1;
    if (g < last)
        while (__hip_atomic_load(&flags[g + 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0)
            __builtin_amdgcn_s_sleep(1);
    data[g * 64 + t] = g == last ? t : data[(g + 1) * 64 + t] + 1;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    if (t == 0) __hip_atomic_store(&flags[g], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
"""


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], bytes]:
    """The kernels of SOURCE for two architectures."""
    folder = tmp_path_factory.mktemp("flat")
    path = folder / "flat.hip"
    path.write_text(SOURCE)
    return {
        (name, arch): object_bytes(
            build_object(KernelBuild(f"hip.{name}", "one", arch, HipSource(path, name, threads=128)), folder / "cache")
        )
        for name in ("either", "count", "chain")
        for arch in ("gfx90a", "gfx942")
    }


@pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
class TestCompiled:
    """Kernels with generic pointers, atomics and flags, compiled."""

    def run(self, objects: dict[tuple[str, str], bytes], name: str, arch: str, blocks: int, *arguments) -> Execution:
        """Runs one of the kernels."""
        threads = 64 if name == "chain" else 128
        return execute(objects[name, arch], name, (blocks, 1, 1), (threads, 1, 1), arguments)

    @pytest.mark.parametrize("from_lds", [0, 1])
    def test_generic_pointers(self, objects: dict[tuple[str, str], bytes], arch: str, from_lds: int) -> None:
        """A flat load finds LDS or global memory by its address."""
        given = np.arange(128, dtype=np.int32) * 3
        executed = self.run(objects, "either", arch, 1, Output(given), given, from_lds)
        expected = 227 - np.arange(128) if from_lds else given
        assert (executed.arrays[0] == expected).all()

    def test_atomics(self, objects: dict[tuple[str, str], bytes], arch: str) -> None:
        """Sums through LDS and global memory, and the order in which workgroups came."""
        executed = self.run(objects, "count", arch, 5, np.zeros(5, np.int32), Output(np.zeros(5, np.int32)))
        sums = [5 * sum(range(rest, 128, 4)) for rest in range(4)]
        assert executed.arrays[0] is not None
        assert executed.arrays[1] is not None
        assert executed.arrays[0].tolist() == [*sums, 5]
        assert sorted(executed.arrays[1].tolist()) == list(range(5))

    def test_workgroups_that_wait_for_later_ones(self, objects: dict[tuple[str, str], bytes], arch: str) -> None:
        """Each workgroup waits for the flag of the next one: they run at a time, as persistent kernels need it."""
        executed = self.run(objects, "chain", arch, 6, np.zeros(6, np.int32), Output(np.zeros((6, 64), np.int32)))
        assert executed.arrays[1] is not None
        assert (executed.arrays[1] == np.arange(5, -1, -1)[:, None] + np.arange(64)).all()


def mixed_wave() -> Wave:
    """A wave whose lanes' addresses in v[0:1] lie in LDS, in scratch and in a buffer in turn, 4 bytes apart."""
    wave = make_wave()
    wave.scratch = Scratch(16, 64)
    buffer = wave.memory.add("K", 256, np.arange(64, dtype=np.uint32).tobytes())
    bases = [0x1000 << 48, 0x2000 << 48, buffer.base]
    places = [4 * lane if lane % 3 != 1 else 8 for lane in range(64)]
    addresses = [bases[lane % 3] + place for lane, place in enumerate(places)]
    set_vector(wave, 0, [one % 2**32 for one in addresses])
    set_vector(wave, 1, [one >> 32 for one in addresses])
    set_vector(wave, 2, list(range(100, 164)))
    return wave


def test_lanes_reach_three_memories() -> None:
    """One flat store and one flat load of lanes in LDS, scratch and global memory."""
    wave = mixed_wave()
    run(wave, "flat_store_dword v[0:1], v2", "s_waitcnt vmcnt(0) lgkmcnt(0)")
    run(wave, "flat_load_dword v3, v[0:1]", "flat_load_ushort v4, v[0:1]", "s_waitcnt vmcnt(0) lgkmcnt(0)")
    assert vector(wave, "v3").tolist() == vector(wave, "v4").tolist() == list(range(100, 164))
    stored = np.frombuffer(wave.memory.buffers[0].read_bytes(), np.uint32)
    assert stored.tolist() == [100 + at if at % 3 == 2 else at for at in range(64)]


def test_a_flat_access_needs_both_waits() -> None:
    """Its result is there when both counters are 0, and a wait for some of the accesses guarantees nothing."""
    for wait in ("s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"):
        wave = mixed_wave()
        run(wave, "flat_store_dword v[0:1], v2", "s_waitcnt vmcnt(0) lgkmcnt(0)", "flat_load_dword v3, v[0:1]", wait)
        with pytest.raises(ExecutionFault, match=r"v3.*load is in flight"):
            run(wave, "v_mov_b32_e32 v4, v3")
    wave = mixed_wave()
    run(wave, "flat_store_dword v[0:1], v2", "flat_store_dword v[0:1], v2")
    with pytest.raises(ExecutionFault, match="a flat one may end first"):
        run(wave, "s_waitcnt vmcnt(1)")


def test_faults_of_each_memory_are_found() -> None:
    """An address near no buffer, beyond the LDS, and an atomic on scratch."""
    wave = mixed_wave()
    run(wave, "s_mov_b64 exec, 4", "v_mov_b32_e32 v1, 0x77777", "flat_load_dword v3, v[0:1]")
    with pytest.raises(ExecutionFault, match="near no buffer"):
        run(wave, "s_waitcnt vmcnt(0) lgkmcnt(0)")
    wave = mixed_wave()
    run(wave, "s_mov_b64 exec, 1", "v_mov_b32_e32 v0, 0x400", "flat_load_dword v3, v[0:1]")
    with pytest.raises(ExecutionFault, match="the workgroup has 1024 bytes"):
        run(wave, "s_waitcnt vmcnt(0) lgkmcnt(0)")
    wave = mixed_wave()
    run(wave, "s_mov_b64 exec, 2", "flat_atomic_add v[0:1], v2")
    with pytest.raises(ExecutionFault, match="no atomics"):
        run(wave, "s_waitcnt vmcnt(0) lgkmcnt(0)")
