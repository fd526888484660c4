"""Measures the mean compute clock between two moments of a stream with stamps that a small kernel takes on the GPU.

A tool that queries the driver sees a clock that is about 100 ms old. A stamp is a kernel of one thread per block. Every
streaming multiprocessor (compute unit) that gets a block writes its cycle counter and the constant clock into its own
slot. Cycle counters of two of them are not comparable, so the difference is taken for each one. The clock is the median
over those that both stamps saw.

The constant clock is coarse: NVIDIA's %globaltimer advances every 32 ns or every 1 us, depending on the card, and AMD's
counts 10 ns. So with stamps 1 ms apart the clock is accurate to about 0.1 %.

The AMD source never ran; a test compiles it for gfx90a, gfx942, gfx950, gfx1100 and gfx1201. gfx11 and gfx12 have other
instructions for both clocks. gfx11's cycle counter has 20 bits, which wrap within a millisecond, so it gets no stamps.

Kernel arguments for both vendors: the ring, 64-bit integers of (stamps, slots, 2), and the stamp's number as a 32-bit
integer. The one thread of each block writes (cycles, constant clock) to the slot of its multiprocessor, in one 16-byte
store, so that two blocks on one multiprocessor cannot mix their values. A place beyond the slots writes nothing.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Stamp = Sequence[tuple[int, int]]
"""(cycles, ticks of the constant clock) of every slot; (0, 0) if no block ran there."""

RING_STAMPS = 256
"""Most stamps between two readings, more than any batch of blocks takes. The ring is 1 MiB on NVIDIA, 8 MiB on AMD."""

BLOCKS_PER_UNIT = 2
"""Blocks per multiprocessor or compute unit, enough to reach nearly all of them."""

NVIDIA_TICKS_PER_US = 1000.0
AMD_TICKS_PER_US = 100.0
"""%globaltimer counts nanoseconds (PTX ISA). AMD's rate depends on the card, 100 MHz on most (LLVM libc's
gpu/time_utils.h); the self-test rejects other rates.
"""

PLAUSIBLE_MHZ = (110.0, 5000.0)
"""The lower limit is above AMD's constant 100 MHz, which shows if the cycle counter really is a constant clock."""

TICK_TOLERANCE = 0.1
"""Largest relative difference between the constant clock and the events around it; a wrong rate differs by a factor."""

SPIN_CYCLES = 4_000_000
"""Length of the self-test's spin: about 2 ms at a GPU's clock, 40 ms if torch's spin counts at 100 MHz."""

KERNEL = "attnperf_clock_stamp"

NVIDIA_SLOTS = 256
"""One per streaming multiprocessor; the largest known GPU has fewer than 200."""

AMD_SLOTS = 2048
"""8 accelerator complex dies (XCC) of 256 places each (CDNA), or 1024 places (RDNA)."""

PTX = f"""
.version 6.3
.target sm_70
.address_size 64

.visible .entry {KERNEL}(.param .u64 ring, .param .u32 number)
{{
    .reg .pred %beyond;
    .reg .b32 %slot, %number, %index;
    .reg .b64 %ring, %offset, %address, %cycles, %nanoseconds;

    mov.u32 %slot, %smid;
    setp.ge.u32 %beyond, %slot, {NVIDIA_SLOTS};
    @%beyond bra DONE;
    ld.param.u64 %ring, [ring];
    ld.param.u32 %number, [number];
    cvta.to.global.u64 %ring, %ring;
    mad.lo.u32 %index, %number, {NVIDIA_SLOTS}, %slot;
    mul.wide.u32 %offset, %index, 16;
    add.u64 %address, %ring, %offset;
    mov.u64 %cycles, %clock64;
    mov.u64 %nanoseconds, %globaltimer;
    st.global.v2.u64 [%address], {{%cycles, %nanoseconds}};
DONE:
    ret;
}}
"""

HIP = f"""
/* No header and no HIP name: the same text goes through hipRTC and through a bare clang.
   s_getreg takes id | offset << 6 | (size - 1) << 11. */
typedef unsigned long long Pair __attribute__((ext_vector_type(2)));

static __attribute__((device)) unsigned place()
{{
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
    /* HW_ID1: SIMD 9:8, WGP 13:10, SA 16, SE 20:18 */
    unsigned id = __builtin_amdgcn_s_getreg(23 | (31 << 11));
    return ((id >> 8) & 63) | (((id >> 16) & 1) << 6) | (((id >> 18) & 7) << 7);
#else
    /* HW_ID: CU 11:8, SH 12, SE 14:13, and 15:13 where there is one die; XCC_ID 3:0 */
#if defined(__gfx942__) || defined(__gfx950__)
    unsigned id = __builtin_amdgcn_s_getreg(4 | (8 << 6) | (6 << 11));
    return id | (__builtin_amdgcn_s_getreg(20 | (3 << 11)) << 8);
#else
    return __builtin_amdgcn_s_getreg(4 | (8 << 6) | (7 << 11));
#endif
#endif
}}

static __attribute__((device)) unsigned long long constant_clock()
{{
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_s_sendmsg_rtnl(0x83); /* MSG_RTN_GET_REALTIME */
#else
    return __builtin_amdgcn_s_memrealtime();
#endif
}}

extern "C" __attribute__((global)) void {KERNEL}(unsigned long long* ring, int number)
{{
    unsigned slot = place();
    if (slot >= {AMD_SLOTS}u)
        return;
    Pair stamp;
    stamp.x = __builtin_readcyclecounter(); /* s_memtime; SHADER_CYCLES on gfx11 and gfx12 */
    stamp.y = constant_clock();
    ((Pair*)ring)[(unsigned long long)number * {AMD_SLOTS}u + slot] = stamp;
}}
"""


def mean_clocks_mhz(stamps: Sequence[Stamp], ticks_per_us: float) -> list[float | None]:
    """Returns the mean GPU clock in MHz between each two stamps (counters that a kernel read), or None if unknown.

    A multiprocessor gives a clock if both stamps reached it and both its counters increased. A counter that wrapped, or
    a constant clock that stood still, gives none.
    """
    return [_clock_mhz(first, second, ticks_per_us) for first, second in itertools.pairwise(stamps)]


def self_test_fault(stamps: Sequence[Stamp], ticks_per_us: float, elapsed_us: float) -> str:
    """Returns why two stamps around a spinning kernel are invalid, or ''; `elapsed_us` is its time by events."""
    ticks = [end[1] - start[1] for start, end in _seen_twice(*stamps)]
    if not ticks:
        return "no multiprocessor was reached by both stamps around a spin"
    rate = statistics.median(ticks) / elapsed_us
    if abs(rate / ticks_per_us - 1) > TICK_TOLERANCE:
        return f"the constant clock made {rate:.4g} ticks per microsecond of a spin, expected {ticks_per_us:g}"
    [clock] = mean_clocks_mhz(stamps, ticks_per_us)
    low, high = PLAUSIBLE_MHZ
    if clock is None or not low <= clock <= high:
        seen = "none" if clock is None else f"{clock:.1f} MHz"
        return f"the clock during a spin was {seen}, plausible is {low:g} to {high:g} MHz"
    return ""


def _clock_mhz(first: Stamp, second: Stamp, ticks_per_us: float) -> float | None:
    clocks = [
        (end[0] - start[0]) * ticks_per_us / (end[1] - start[1])
        for start, end in _seen_twice(first, second)
        if end[0] > start[0] and end[1] > start[1]
    ]
    return statistics.median(clocks) if clocks else None


def _seen_twice(first: Stamp, second: Stamp) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [pair for pair in zip(first, second, strict=True) if all(ticks for _, ticks in pair)]


class ClockStamps:
    """Takes stamps and reads them. Both must use one stream: each reading clears the slots there.

    launch         queues the kernel that writes the stamp of this number
    ring           int64 of (stamps, slots, 2) on the device, zero where nothing was written
    ticks_per_us   of the constant clock
    """

    def __init__(self, launch: Callable[[int], None], ring: torch.Tensor, ticks_per_us: float) -> None:
        self._launch = launch
        self._ring = ring
        self.ticks_per_us = ticks_per_us
        self._taken = 0

    def take(self) -> None:
        """Queues a kernel that stores clock counters (a stamp), without a wait; does nothing if the ring is full."""
        if self._taken < len(self._ring):
            self._launch(self._taken)
        self._taken += 1

    def read_clocks_mhz(self) -> list[float]:
        """Returns the mean clocks in MHz between consecutive stamps, one fewer than stamps, and forgets the stamps.

        Call it only after a synchronisation. The list is empty if more stamps were taken than the ring holds, or if any
        clock is unknown, because a shorter list would be assigned to the wrong blocks.
        """
        complete = self._taken <= len(self._ring)
        clocks = mean_clocks_mhz(self.read_stamps(), self.ticks_per_us)
        known = [clock for clock in clocks if clock is not None]
        return known if complete and len(known) == len(clocks) else []

    def read_stamps(self) -> list[Stamp]:
        """Returns the stamps in the order taken, without multiprocessors that none of them ran on, and forgets them."""
        taken = min(self._taken, len(self._ring))
        written = self._ring[:taken].cpu()
        reached = (written[..., 1] != 0).any(dim=0)
        stamps: list[Stamp] = [[(cycles, ticks) for cycles, ticks in stamp] for stamp in written[:, reached].tolist()]
        self.discard()
        return stamps

    def discard(self) -> None:
        """Forgets the stamps taken so far without reading them."""
        if self._taken:
            self._ring[: self._taken].zero_()
        self._taken = 0


@functools.cache
def open_clock_stamps(torch_device: str) -> tuple[ClockStamps | None, str]:
    """Returns (clock stamps of this process's 'cuda' device, ''), or (None, why not); makes and tests them once.

    This takes a few milliseconds on NVIDIA, and the compilation of a small kernel on AMD.
    """
    if torch_device == "cpu":
        return None, "a CPU runs no kernel that could read its clock"
    try:
        stamps = _make_stamps()
        fault = _try_stamps(stamps)
    except Exception as error:  # torch's private loader, a compiler and a driver: the clock only explains, never fails
        return None, f"no kernel can take clock stamps here: {type(error).__name__}: {_first_line(error)}"
    return (None, f"clock stamps are wrong here: {fault}") if fault else (stamps, "")


@dataclass(frozen=True)
class _Kernel:
    """A loaded stamp kernel, called with grid, block and arguments, and the layout of its ring."""

    function: Callable[..., None]
    slots: int
    ticks_per_us: float


def _make_stamps() -> ClockStamps:
    import torch

    kernel = _nvidia_kernel() if torch.version.hip is None else _amd_kernel()
    units = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    ring = torch.zeros(RING_STAMPS, kernel.slots, 2, dtype=torch.int64, device="cuda")
    grid = (BLOCKS_PER_UNIT * units, 1, 1)

    def launch(number: int) -> None:
        kernel.function(grid=grid, block=(1, 1, 1), args=[ring, number])

    return ClockStamps(launch, ring, kernel.ticks_per_us)


def _nvidia_kernel() -> _Kernel:
    """Loads the kernel from PTX, which the driver compiles.

    `torch.cuda._compile_kernel` compiles CUDA source, but needs an installed CUDA toolkit (OSError without CUDA_HOME in
    torch 2.13), which a torch from PyPI does not include, and about a second per process.
    """
    import torch.cuda._utils

    load = getattr(torch.cuda._utils, "_cuda_load_module", None)
    if load is None:
        raise RuntimeError(f"torch {torch.__version__} cannot load a kernel; 2.9 and later can")
    return _Kernel(load(PTX, [KERNEL])[KERNEL], NVIDIA_SLOTS, NVIDIA_TICKS_PER_US)


def _amd_kernel() -> _Kernel:
    import torch

    arch = str(torch.cuda.get_device_properties(torch.cuda.current_device()).gcnArchName).split(":")[0]
    if arch.startswith("gfx11"):
        raise RuntimeError(
            f"the cycle counter of {arch} holds 20 bits, which wrap within a millisecond; cases are timed without it"
        )
    compiled: Any = getattr(torch.cuda, "_compile_kernel", None)
    if compiled is None:
        raise RuntimeError(f"torch {torch.__version__} cannot compile a kernel; 2.9 and later can")
    return _Kernel(compiled(HIP, KERNEL), AMD_SLOTS, AMD_TICKS_PER_US)


def _try_stamps(stamps: ClockStamps) -> str:
    """Tests the clock stamps: two around a spinning kernel that events time, too. Returns what is wrong with them, or
    ''. All is queued behind another spin, so that no gap between launches counts."""
    import torch

    cuda: Any = torch.cuda  # events and `_sleep` carry types in some torch versions only
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    stamps.take()  # loads the kernel
    stamps.discard()
    cuda._sleep(SPIN_CYCLES)
    start.record()
    stamps.take()
    cuda._sleep(SPIN_CYCLES)
    stamps.take()
    end.record()
    cuda.synchronize()
    return self_test_fault(stamps.read_stamps(), stamps.ticks_per_us, float(start.elapsed_time(end)) * 1000)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no text"])[0]
