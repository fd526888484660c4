"""Computes how many warps of an NVIDIA kernel fit an SM, in the terms of `codeobject.occupancy`.

A wave is a warp, a SIMD one of the four sub-partitions of an SM (which NVIDIA's profilers call SMSP), a block the SM.

Limits from the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and of shared memory from
its sections on compute capabilities 8.x and 9.0: CUDA reserves 1 KiB of each block's. Granules, sub-partitions and the
test of a whole block's registers from `cuda_occupancy.h` of CUDA 13.0, with which 3,672 points agree; the carve-out of
shared memory is taken to be the largest, as the driver chooses it for a kernel that needs it. Named barriers of a
block, which limit Hopper where a kernel uses many, are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import KIB, SHARED_PER_BLOCK_KIB
from pytest_attnperf.codeobject.occupancy import divide_up, round_up
from pytest_attnperf.records.code import KernelCode, Occupancy

REGISTERS = 64 * 1024
"""32-bit registers of an SM, and the most of one block."""

REGISTER_GRANULE = 256
"""The registers of a warp are rounded up to its multiple."""

SHARED_GRANULE_BYTES = 128
SHARED_RESERVED_BYTES = 1 * KIB
SUB_PARTITIONS = 4
WARP = 32
MAX_THREADS = 1024


@dataclass(frozen=True)
class SmLimits:
    """Limits of one SM: warps, blocks, and shared memory in KiB."""

    warps: int
    blocks: int
    shared_kib: int


SMS: dict[str, SmLimits] = {"sm_80": SmLimits(64, 32, 164), "sm_90": SmLimits(64, 32, 228)}


def nvidia_occupancy_of(code: KernelCode) -> Occupancy | None:
    """Returns the occupancy of a compiled kernel as launched.

    None if the limits of its architecture or the size of its block are not known.
    """
    return nvidia_occupancy_with(code.arch, code.workgroup, code.vgprs, code.lds_bytes)


def nvidia_occupancy_with(arch: str, threads: int, thread_registers: int, shared_bytes: int) -> Occupancy | None:
    """Returns the occupancy of a block of `threads` threads that uses these registers per thread and shared memory.

    None if the limits of `arch` are not known, or `threads` is 0.
    """
    arch = arch.removesuffix("a")
    sm = SMS.get(arch)
    if sm is None or not threads:
        return None
    warps, most = divide_up(threads, WARP), sm.warps // SUB_PARTITIONS
    registers = round_up(max(thread_registers, 1) * WARP, REGISTER_GRANULE)
    taken_bytes = round_up(shared_bytes + SHARED_RESERVED_BYTES, SHARED_GRANULE_BYTES)
    by_registers = REGISTERS // SUB_PARTITIONS // registers
    by_slots, by_shared = sm.warps // warps, sm.shared_kib * KIB // taken_bytes
    # A launch fails if a block's registers, with equal numbers of warps per sub-partition, are too many.
    fits = (
        threads <= MAX_THREADS
        and shared_bytes <= SHARED_PER_BLOCK_KIB[arch] * KIB
        and registers * round_up(warps, SUB_PARTITIONS) <= REGISTERS
    )
    allowed = {
        "vgprs": min(most, by_registers),
        "lds": min(most, divide_up(by_shared * warps, SUB_PARTITIONS)),
        "workgroups": min(most, divide_up(sm.blocks * warps, SUB_PARTITIONS)),
        "slots": min(most, divide_up(by_slots * warps, SUB_PARTITIONS)),
    }
    lowest = min(allowed.values())
    blocks = min(by_registers * SUB_PARTITIONS // warps, by_shared, by_slots, sm.blocks) if fits else 0
    return Occupancy(
        waves_per_simd=lowest if fits else 0,
        whole_waves_per_simd=blocks * warps / SUB_PARTITIONS,
        max_waves_per_simd=most,
        workgroups=blocks,
        waves_per_workgroup=warps,
        limits=allowed,
        limiters=tuple(name for name, count in allowed.items() if count == lowest < most),
        fits=fits,
        block="SM",
    )
