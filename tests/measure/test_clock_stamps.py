from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.measure import clock_stamps as module
from pytest_attnperf.measure.clock_stamps import (
    AMD_SLOTS,
    HIP,
    KERNEL,
    NVIDIA_SLOTS,
    PTX,
    RING_STAMPS,
    ClockStamps,
    Stamp,
    mean_clocks_mhz,
    open_clock_stamps,
    self_test_fault,
)

NS = 1000.0
"""Ticks per microsecond of a constant clock that counts nanoseconds."""

SPIN: tuple[Stamp, Stamp] = ([(0, 1)], [(2_000_000, 1_000_001)])
"""2 million cycles in 1 ms: 2000 MHz."""

CLANGS = ("clang-22", "clang-21", "clang-20", "clang")
CLOCKS = {
    "gfx90a": ("s_memtime", "s_memrealtime"),
    "gfx942": ("s_memtime", "s_memrealtime"),
    "gfx950": ("s_memtime", "s_memrealtime"),
    "gfx1100": ("HW_REG_SHADER_CYCLES, 0, 20", "MSG_RTN_GET_REALTIME"),
    "gfx1201": ("HW_REG_SHADER_CYCLES_HI", "MSG_RTN_GET_REALTIME"),
}
"""What must stand in the assembly: the cycle counter and the constant clock of the architecture."""


def test_the_clock_is_cycles_over_time() -> None:
    """3.6 million cycles in 2 ms are 1800 MHz, and three stamps give two clocks."""
    stamps: list[Stamp] = [[(7, 1000)], [(3_600_007, 2_001_000)], [(5_100_007, 3_001_000)]]
    assert mean_clocks_mhz(stamps, NS) == [1800.0, 1500.0]


def test_a_constant_clock_of_100_mhz() -> None:
    """On AMD 100 ticks are a microsecond: 2.1 million cycles in 100,000 ticks are 2100 MHz."""
    assert mean_clocks_mhz([[(0, 5)], [(2_100_000, 100_005)]], 100.0) == [2100.0]


def test_cycles_are_compared_within_a_multiprocessor() -> None:
    """Counters that began at other times give the same clock, and one that is off does not move the median."""
    first: Stamp = [(10**15, 1000), (5, 1000), (0, 1000)]
    second: Stamp = [(10**15 + 1_500_000, 1_001_000), (1_500_005, 1_001_000), (9_000_000, 1_001_000)]
    assert mean_clocks_mhz([first, second], NS) == [1500.0]


def test_a_multiprocessor_missing_from_either_stamp_is_left_out() -> None:
    """Slots that one of two stamps did not reach give nothing; the others still do."""
    first: Stamp = [(0, 0), (100, 1000), (100, 1000)]
    second: Stamp = [(9_000_000, 1_001_000), (0, 0), (2_000_100, 1_001_000)]
    assert mean_clocks_mhz([first, second], NS) == [2000.0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([(100, 1000)], [(2_000_100, 1000)]),
        ([(1_048_000, 1000)], [(500, 1_001_000)]),
        ([(100, 1_001_000)], [(2_000_100, 1000)]),
        ([(100, 1000), (0, 0)], [(0, 0), (100, 1000)]),
        ([], []),
    ],
    ids=["constant clock stood still", "cycles wrapped", "time went back", "no slot in both", "no slot"],
)
def test_what_gives_no_clock(first: Stamp, second: Stamp) -> None:
    """A counter that did not move forward, or no multiprocessor in both stamps, is no clock rather than a wrong one."""
    assert mean_clocks_mhz([first, second], NS) == [None]


@pytest.mark.parametrize("stamps", [[], [[(1, 1)]]])
def test_fewer_than_two_stamps_give_nothing(stamps: list[Stamp]) -> None:
    """A clock stands between two stamps."""
    assert mean_clocks_mhz(stamps, NS) == []


def test_a_plausible_spin_passes() -> None:
    """2000 MHz over a millisecond that the events around it saw, too, is believed."""
    assert self_test_fault(SPIN, NS, elapsed_us=1010.0) == ""


@pytest.mark.parametrize(
    ("stamps", "elapsed_us", "fault"),
    [
        (([(1, 1)], [(0, 0)]), 1000.0, "no multiprocessor was reached by both stamps around a spin"),
        (SPIN, 4000.0, "the constant clock made 250 ticks per microsecond of a spin, expected 1000"),
        (([(0, 1)], [(100_000, 1_000_001)]), 1000.0, "the clock during a spin was 100.0 MHz, plausible is 110"),
        (([(0, 1)], [(6_000_000, 1_000_001)]), 1000.0, "the clock during a spin was 6000.0 MHz, plausible"),
        (([(9, 1)], [(9, 1_000_001)]), 1000.0, "the clock during a spin was none, plausible is 110 to 5000 MHz"),
    ],
)
def test_an_implausible_spin_is_refused(stamps: tuple[Stamp, Stamp], elapsed_us: float, fault: str) -> None:
    """A constant clock at another rate, a cycle counter that is none, and no value are refused with what was seen."""
    assert self_test_fault(stamps, NS, elapsed_us).startswith(fault)


class FakeKernel:
    """Writes 1500 MHz in milliseconds into two of four slots of a ring on the CPU."""

    def __init__(self, stamps: int) -> None:
        self.ring = torch.zeros(stamps, 4, 2, dtype=torch.int64)
        self.launched: list[int] = []
        self.now_ms = 1

    def __call__(self, number: int) -> None:
        """One stamp, a millisecond after the one before."""
        self.launched.append(number)
        self.now_ms += 1
        for slot in (1, 3):
            self.ring[number, slot, 0] = 1_500_000 * self.now_ms + slot
            self.ring[number, slot, 1] = 1_000_000 * self.now_ms


def test_n_stamps_give_n_minus_one_clocks_and_are_forgotten() -> None:
    """Reading clears the ring: slots of an earlier batch never pair with those of a later one."""
    kernel = FakeKernel(stamps=8)
    stamps = ClockStamps(kernel, kernel.ring, NS)
    for _ in range(4):
        stamps.take()
    assert stamps.read_clocks_mhz() == [1500.0, 1500.0, 1500.0]
    assert stamps.read_clocks_mhz() == []
    assert not kernel.ring.any()
    stamps.take()
    stamps.take()
    assert stamps.read_clocks_mhz() == [1500.0]
    assert kernel.launched == [0, 1, 2, 3, 0, 1]


def test_a_full_ring_launches_nothing_more_and_gives_nothing() -> None:
    """Beyond the ring's length no kernel is queued, and clocks of some blocks only are not given out as all."""
    kernel = FakeKernel(stamps=3)
    stamps = ClockStamps(kernel, kernel.ring, NS)
    for _ in range(5):
        stamps.take()
    assert kernel.launched == [0, 1, 2]
    assert stamps.read_clocks_mhz() == []
    assert not kernel.ring.any()


def test_one_clock_that_cannot_be_told_leaves_none() -> None:
    """Where one of the clocks is unknown the list is empty, never shorter."""
    kernel = FakeKernel(stamps=8)
    stamps = ClockStamps(kernel, kernel.ring, NS)
    for _ in range(3):
        stamps.take()
    kernel.ring[1] = 0
    assert stamps.read_clocks_mhz() == []


def test_discarded_stamps_are_not_read() -> None:
    """After discard() the next stamps begin anew."""
    kernel = FakeKernel(stamps=4)
    stamps = ClockStamps(kernel, kernel.ring, NS)
    stamps.take()
    stamps.discard()
    assert not kernel.ring.any()
    stamps.take()
    stamps.take()
    assert stamps.read_clocks_mhz() == [1500.0]


@pytest.fixture
def fresh_cache() -> Iterator[None]:
    """`clock_stamps` as in a new process."""
    open_clock_stamps.cache_clear()
    yield
    open_clock_stamps.cache_clear()


@pytest.mark.usefixtures("fresh_cache")
def test_a_cpu_has_no_stamps() -> None:
    """On a CPU there are none, and the reason says so."""
    assert open_clock_stamps("cpu") == (None, "a CPU runs no kernel that could read its clock")


@pytest.mark.usefixtures("fresh_cache")
def test_a_failure_to_make_them_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails on the way becomes a reason in one line, asked for once per process."""
    calls = []

    def broken() -> ClockStamps:
        calls.append(1)
        raise OSError("CUDA_HOME environment variable is not set.\nPlease set it")

    monkeypatch.setattr(module, "_make_stamps", broken)
    for _ in range(2):
        assert open_clock_stamps("cuda") == (
            None,
            "no kernel can take clock stamps here: OSError: CUDA_HOME environment variable is not set.",
        )
    assert calls == [1]


@pytest.mark.usefixtures("fresh_cache")
def test_a_failed_self_test_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps that fail their self-test are not handed out, and the values seen are said."""
    kernel = FakeKernel(stamps=4)
    monkeypatch.setattr(module, "_make_stamps", lambda: ClockStamps(kernel, kernel.ring, NS))
    monkeypatch.setattr(module, "_try_stamps", lambda stamps: "the clock during a spin was 6000.0 MHz")
    stamps, reason = open_clock_stamps("cuda")
    assert stamps is None
    assert reason == "clock stamps are wrong here: the clock during a spin was 6000.0 MHz"


def _gcn(monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    properties: Any = SimpleNamespace(gcnArchName=arch)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def test_gfx11_gets_no_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle counter of 20 bits is refused before anything is compiled."""
    _gcn(monkeypatch, "gfx1100")
    with pytest.raises(RuntimeError, match="cycle counter of gfx1100 holds 20 bits, which wrap within a millisecond"):
        module._amd_kernel()


@pytest.mark.parametrize(
    ("owner", "name", "load"),
    [
        (torch.cuda, "_compile_kernel", module._amd_kernel),
        (torch.cuda._utils, "_cuda_load_module", module._nvidia_kernel),
    ],
)
def test_an_older_torch_is_named(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, load: Any) -> None:
    """A torch without the private function that loads kernels is named with the version that has it."""
    _gcn(monkeypatch, "gfx942:sramecc+:xnack-")
    monkeypatch.delattr(owner, name, raising=False)
    with pytest.raises(RuntimeError, match=r"^torch \d.* cannot \w+ a kernel; 2\.9 and later can$"):
        load()


@pytest.mark.gpu
def test_the_clock_of_this_gpu() -> None:
    """Stamps around spins give a plausible clock, the same twice; spin cycles over their time agree within 5 %."""
    stamps, reason = open_clock_stamps("cuda")
    assert stamps is not None, reason
    cuda: Any = torch.cuda
    cuda._sleep(100_000_000)
    for _ in range(3):
        stamps.take()
        cuda._sleep(10_000_000)
    stamps.take()
    cuda.synchronize()
    clocks = stamps.read_clocks_mhz()
    assert len(clocks) == 3
    assert all(200 < clock < 4000 for clock in clocks)
    assert max(clocks) / min(clocks) < 1.05
    assert stamps.read_clocks_mhz() == []


@pytest.mark.gpu
def test_taking_a_stamp_is_cheap() -> None:
    """A stamp allocates nothing on the device, and the host queues a full ring of them in less than 25 ms."""
    import time

    stamps, reason = open_clock_stamps("cuda")
    assert stamps is not None, reason
    stamps.take()
    torch.cuda.synchronize()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    begin = time.perf_counter()
    for _ in range(RING_STAMPS - 1):
        stamps.take()
    queued_s = time.perf_counter() - begin
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    torch.cuda.synchronize()
    assert len(stamps.read_clocks_mhz()) == RING_STAMPS - 1
    assert queued_s < 0.025


def clang_for_amd() -> str:
    """A clang on the path that knows gfx950 (clang 20 and later); '' where there is none."""
    for name in CLANGS:
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        found = re.search(r"clang version (\d+)", said)
        if found and int(found[1]) >= 20:
            return path
    return ""


@pytest.mark.parametrize("arch", sorted(CLOCKS))
def test_the_hip_source_compiles(arch: str) -> None:
    """Without a header, the source becomes code that reads both clocks and stores them at once, without scratch."""
    clang = clang_for_amd()
    if not clang:
        pytest.skip("needs clang 20 or later on the path to compile for AMD")
    flags = ["-nogpuinc", "-nogpulib", "--offload-device-only", "--no-gpu-bundle-output", "-O3", "-Wall", "-Werror"]
    done = subprocess.run(
        [clang, "-x", "hip", f"--offload-arch={arch}", *flags, "-S", "-o", "-", "-"],
        input=HIP,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"{KERNEL}:" in done.stdout
    for clock in CLOCKS[arch]:
        assert clock in done.stdout
    assert len(re.findall(r"global_store_(?:dwordx4|b128)", done.stdout)) == 1
    assert ".private_segment_fixed_size: 0" in done.stdout


def ptx_assemblers() -> list[Path]:
    """The assemblers that come with triton."""
    triton = pytest.importorskip("triton")
    return sorted((Path(triton.__file__).parent / "backends/nvidia/bin").glob("ptxas*"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_ptx_assembles(arch: str, tmp_path: Path) -> None:
    """Every assembler at hand that knows the architecture takes the PTX, without spills."""
    source = tmp_path / "stamp.ptx"
    source.write_text(PTX)
    taken = 0
    for ptxas in ptx_assemblers():
        command = [str(ptxas), f"-arch={arch}", "-v", str(source), "-o", str(tmp_path / "stamp.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        if "is not defined for option 'gpu-name'" in said:
            continue
        assert done.returncode == 0, said
        assert "0 bytes spill stores" in said
        taken += 1
    if not taken:
        pytest.skip(f"needs a ptxas that knows {arch}; triton brings none")


def test_both_sources_bound_their_slots() -> None:
    """A multiprocessor beyond the slots writes nothing, and each stamp has as many slots as are bounded by."""
    assert f"setp.ge.u32 %beyond, %slot, {NVIDIA_SLOTS};" in PTX
    assert f"mad.lo.u32 %index, %number, {NVIDIA_SLOTS}, %slot;" in PTX
    assert f"slot >= {AMD_SLOTS}u" in HIP
    assert f"number * {AMD_SLOTS}u + slot" in HIP
