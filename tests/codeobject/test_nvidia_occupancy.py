"""Occupancy of NVIDIA kernels against what `cuda_occupancy.h` of CUDA 13.0 says of the same points."""

from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.nvidia_occupancy import nvidia_occupancy_of
from pytest_attnperf.records.code import KernelCode


def kernel(arch: str, threads: int, registers: int, shared_bytes: int = 0, max_threads: int = 0) -> KernelCode:
    """A kernel that asks for this."""
    return KernelCode(
        "k",
        arch,
        registers,
        0,
        registers,
        0,
        None,
        None,
        0,
        0,
        shared_bytes,
        0,
        threads,
        max_threads,
        32,
        None,
        False,
        8,
        "",
    )


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "blocks"),
    [
        ("sm_80", 256, 64, 0, 4),
        ("sm_80", 256, 65, 0, 3),
        ("sm_80", 128, 32, 73728, 2),
        ("sm_80", 128, 32, 166912, 1),
        ("sm_80", 128, 32, 167000, 0),
        ("sm_90", 32, 8, 0, 32),
        ("sm_90", 96, 24, 0, 21),
        ("sm_90", 128, 32, 49152, 4),
        ("sm_90", 128, 32, 73728, 3),
        ("sm_90", 128, 32, 232448, 1),
        ("sm_90", 128, 32, 232449, 0),
        ("sm_90", 128, 168, 0, 3),
        ("sm_90", 192, 64, 0, 5),
        ("sm_90", 256, 96, 16384, 2),
        ("sm_90", 256, 255, 0, 1),
        ("sm_90", 384, 168, 100000, 1),
        ("sm_90", 512, 255, 0, 0),
        ("sm_90", 1024, 64, 0, 1),
        ("sm_90", 1024, 65, 0, 0),
    ],
)
def test_blocks_are_those_of_nvidias_header(
    arch: str, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    """Whole blocks of an SM agree at steps of every resource, and 0 fit where no launch would succeed."""
    found = nvidia_occupancy_of(kernel(arch, threads, registers, shared_bytes))
    assert found is not None
    assert (found.workgroups, found.fits) == (blocks, blocks > 0)
    assert found.whole_waves_per_simd == blocks * -(-threads // 32) / 4


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "waves", "limiters"),
    [
        (256, 96, 0, 5, ("vgprs",)),
        (256, 32, 65536, 6, ("lds",)),
        (32, 32, 0, 8, ("workgroups",)),
        (384, 32, 0, 15, ("slots",)),
        (256, 128, 57344, 4, ("vgprs",)),
        (128, 168, 74752, 3, ("vgprs", "lds")),
        (256, 32, 0, 16, ()),
    ],
)
def test_what_binds_is_named(
    threads: int, registers: int, shared_bytes: int, waves: int, limiters: tuple[str, ...]
) -> None:
    """Registers, shared memory, blocks or warp slots; nothing where the SM is full."""
    found = nvidia_occupancy_of(kernel("sm_90", threads, registers, shared_bytes))
    assert found is not None
    assert (found.waves_per_simd, found.max_waves_per_simd, found.limiters) == (waves, 16, limiters)
    assert found.block == "SM"


def test_the_size_it_was_compiled_for_stands_in() -> None:
    """Where the launch is not known the largest block counts; where neither is, nothing is said."""
    assert nvidia_occupancy_of(kernel("sm_90a", 0, 64, max_threads=256)) == nvidia_occupancy_of(
        kernel("sm_90", 256, 64)
    )
    assert nvidia_occupancy_of(kernel("sm_90", 0, 64)) is None


@pytest.mark.parametrize("arch", ["gfx942", "sm_70", "sm_120"])
def test_other_architectures_are_not_known(arch: str) -> None:
    """No figure is made up for an architecture whose limits are not in the table."""
    assert nvidia_occupancy_of(kernel(arch, 256, 64)) is None
