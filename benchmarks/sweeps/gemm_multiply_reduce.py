"""Candidates of `gemm_multiply_reduce_kernel`."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def strip(block_n: int, block_k: int, num_warps: int, num_stages: int) -> Config:
    """One candidate."""
    return {"BLOCK_N": block_n, "BLOCK_K": block_k, "num_warps": num_warps, "num_stages": num_stages}


SWEEP = Sweep(
    "gemm_multiply_reduce",
    "triton.gemm_multiply_reduce",
    (
        SizeClass(
            {"transposed": False},
            ("gemm-m4-n4096-k4096-f16",),
            tuple(
                strip(block_n, block_k, num_warps, num_stages)
                for block_n, block_k in ((16, 64), (16, 128), (16, 256), (32, 32), (32, 64), (32, 128))
                for num_warps, num_stages in ((4, 2), (4, 4), (8, 3))
            ),
        ),
        SizeClass(
            {"transposed": True},
            ("gemm-m4-n4096-k4096-bf16-nt",),
            tuple(
                strip(block_n, block_k, num_warps, num_stages)
                for block_n, block_k in ((4, 512), (8, 256), (16, 128), (16, 256), (32, 64), (32, 128))
                for num_warps, num_stages in ((4, 2), (4, 4), (8, 3))
            ),
        ),
    ),
)
