from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_attnperf.codeobject.building import build_object
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons
from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.launch import Output, execute
from pytest_attnperf.isa.memory import Array, Buffer, GlobalMemory
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

REASONS = hip_reasons("gfx942")


class Waves:
    """Waves of a launch that touch the words of one buffer."""

    def __init__(self) -> None:
        self.memory = GlobalMemory()
        self.buffer: Buffer = self.memory.add("partials", 64, bytes(64))
        self.numbers = [self.memory.races.add_wave(f"workgroup ({at}, 0, 0), wave 0") for at in range(3)]

    def address(self, word: int) -> Array:
        """The address of a word."""
        return np.array([self.buffer.base + 4 * word], np.uint64)

    def store(self, wave: int, word: int, value: int, *, coherent: bool = False) -> None:
        """A store by a wave."""
        self.memory.races.current = self.numbers[wave]
        self.memory.store(self.address(word), 4, np.array([[value]], np.uint32), coherent=coherent)

    def load(self, wave: int, word: int, *, coherent: bool = False) -> int:
        """A load by a wave."""
        self.memory.races.current = self.numbers[wave]
        return int(self.memory.load(self.address(word), 4, coherent=coherent)[0, 0])

    def add(self, wave: int, word: int) -> int:
        """An atomic by a wave."""
        self.memory.races.current = self.numbers[wave]
        return self.memory.update(self.address(word), 4, lambda _place, old: old + 1)[0]


def test_a_read_of_what_another_wave_wrote() -> None:
    """Without anything between them it is a race, which names both; behind a barrier it is none."""
    waves = Waves()
    waves.store(0, 3, 7)
    with pytest.raises(ExecutionFault, match=r"reads byte 12 of partials, which workgroup \(0, 0, 0\), wave 0 wrote"):
        waves.load(1, 3)
    waves.memory.races.join(waves.numbers[:2])
    assert waves.load(1, 3) == 7
    with pytest.raises(ExecutionFault, match="no barrier, atomic or acquiring load orders them"):
        waves.load(2, 3)


def test_two_values_of_two_waves() -> None:
    """Another value into the same byte is a race, the same value none, and other bytes of the word are none."""
    waves = Waves()
    waves.store(0, 3, 0x01020304)
    waves.store(1, 3, 0x01020304)
    with pytest.raises(ExecutionFault, match="writes another value into byte 13 of partials"):
        waves.store(2, 3, 0x01020504)
    narrow = np.array([[9]], np.uint32)
    waves.memory.races.current = waves.numbers[1]
    waves.memory.store(waves.address(5), 2, narrow)
    waves.memory.races.current = waves.numbers[2]
    waves.memory.store(waves.address(5) + np.uint64(2), 2, narrow)


def test_a_write_over_what_another_wave_has_read() -> None:
    """A read and a later write of another value race, in a buffer that the launch has written."""
    waves = Waves()
    waves.store(0, 0, 1)
    waves.load(1, 3)
    waves.store(2, 3, 0)
    with pytest.raises(ExecutionFault, match=r"which workgroup \(1, 0, 0\), wave 0 read"):
        waves.store(2, 3, 5)


def test_flags_order_waves() -> None:
    """Who sees a flag by a coherent load or an atomic may read what was written before it, also through a third wave;
    what is written after the flag's atomic stays a race."""
    for see in (lambda waves, wave: waves.load(wave, 0, coherent=True), lambda waves, wave: waves.add(wave, 0)):
        waves = Waves()
        waves.store(0, 3, 7)
        waves.add(0, 0)
        waves.store(0, 4, 8)
        see(waves, 1)
        assert waves.load(1, 3) == 7
        with pytest.raises(ExecutionFault, match="byte 16"):
            waves.load(1, 4)
        waves.store(1, 9, 1, coherent=True)
        waves.load(2, 9, coherent=True)
        assert waves.load(2, 3) == 7


def test_atomics_and_plain_reads_of_counts() -> None:
    """Atomics of several waves do not race, and a plain load of what atomics wrote is none."""
    waves = Waves()
    assert [waves.add(wave, 2) for wave in (0, 1, 2, 0)] == [0, 1, 2, 3]
    assert waves.load(1, 2) == 4


SOURCE = """
#define GLOBAL extern "C" __attribute__((global))
#define FENCE(order, scope) __builtin_amdgcn_fence(order, scope)
GLOBAL void pass(int* out, int* space, int synchronised) {
    const int t = __builtin_amdgcn_workitem_id_x();
    space[t] = 3 * t;
    if (synchronised) {
        FENCE(__ATOMIC_RELEASE, "workgroup");
        __builtin_amdgcn_s_barrier();
        FENCE(__ATOMIC_ACQUIRE, "workgroup");
    } else {
        FENCE(__ATOMIC_SEQ_CST, "workgroup");
    }
    out[t] = space[127 - t];
}
GLOBAL void last(int* out, int* space, int* ticket, int counted) {
    __attribute__((shared)) int mine;
    const int t = __builtin_amdgcn_workitem_id_x(), g = __builtin_amdgcn_workgroup_id_x();
    space[g * 64 + t] = g + t;
    FENCE(__ATOMIC_RELEASE, "agent");
    int order = g;
    if (counted) order = __hip_atomic_fetch_add(ticket, t == 0, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    order = __builtin_amdgcn_readfirstlane(order);
    FENCE(__ATOMIC_ACQUIRE, "agent");
    if (order == 2) {
        int total = 0;
        for (int at = 0; at < 3; at++) total += space[at * 64 + t];
        out[t] = total;
    }
}
"""


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The kernels of SOURCE for gfx942."""
    folder = tmp_path_factory.mktemp("races")
    path = folder / "races.hip"
    path.write_text(SOURCE)
    return {
        name: object_bytes(
            build_object(KernelBuild(f"hip.{name}", "one", "gfx942", HipSource(path, name, threads=128)), folder / "c")
        )
        for name in ("pass", "last")
    }


@pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))
def test_a_missing_barrier_is_found(objects: dict[str, bytes]) -> None:
    """Waves of a workgroup that hand values over through global memory: without the barrier the fault names the load,
    or store, its line, both waves; with it the result is right."""
    like = np.zeros(128, np.int32)

    def launch(synchronised: int) -> Array:
        arguments = [Output(like, "out"), like - 1, synchronised]
        found = execute(objects["pass"], "pass", (1, 1, 1), (128, 1, 1), arguments).arrays[0]
        assert found is not None
        return found

    assert (launch(1) == 3 * np.arange(127, -1, -1)).all()
    with pytest.raises(ExecutionFault, match=r"races.hip:\d+ .*wave 1\): .* of argument 2, which .*wave \d"):
        launch(0)


@pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))
def test_the_last_workgroup_reads_what_the_others_wrote(objects: dict[str, bytes]) -> None:
    """A ticket taken by an atomic orders workgroups, as split kernels do it; by the workgroup's number they race."""
    arguments: Callable[[int], list[Array | Output | int]] = lambda counted: [  # noqa: E731
        Output(np.zeros(64, np.int32), "out"), Output(np.zeros(192, np.int32), "space"), np.zeros(1, np.int32), counted,
    ]  # fmt: skip
    found = execute(objects["last"], "last", (3, 1, 1), (64, 1, 1), arguments(1)).arrays[0]
    assert found is not None
    assert (found == 3 * np.arange(64) + 3).all()
    with pytest.raises(ExecutionFault, match=r"of argument 2 \(space\), which workgroup \(0, 0, 0\), wave 0 wrote"):
        execute(objects["last"], "last", (3, 1, 1), (64, 1, 1), arguments(0))
