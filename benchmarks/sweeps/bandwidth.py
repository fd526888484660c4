"""What is tried for the bandwidth kernels: elements per program, threads, and marks of streams."""

from __future__ import annotations

from benchmarks.sweeps.sweep import SizeClass, Sweep
from pytest_attnperf.workloads.bandwidth import KINDS

TILES = ((1024, 2), (1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 4), (8192, 8), (8192, 16), (16384, 16))
"""(BLOCK, num_warps): 8 to 64 elements per thread."""

SWEEP = Sweep(
    "bandwidth",
    "triton.bandwidth",
    tuple(
        SizeClass(
            {"kind": kind},
            (f"bandwidth-{kind}-mib1024-f32",),
            tuple(
                {"BLOCK": block, "STREAM": stream, "num_warps": warps, "num_stages": 1}
                for block, warps in TILES
                for stream in (False, True)
            ),
        )
        for kind in KINDS
    ),
)
