"""Configurations of the kernel over transposed values that are tried."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def tile(block_m: int, block_n: int, num_warps: int, num_stages: int, *, preload_v: bool = False) -> Config:
    """One candidate."""
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "PRELOAD_V": preload_v,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


CANDIDATES = (
    *(tile(64, 64, 4, stages) for stages in (2, 3)),
    *(tile(64, 128, 4, stages) for stages in (2, 3)),
    *(tile(128, 64, 8, stages) for stages in (2, 3)),
    *(tile(128, 128, 8, stages) for stages in (2, 3)),
    *(tile(128, 64, 4, stages) for stages in (2, 3)),
    *(tile(64, 64, 4, stages, preload_v=True) for stages in (2, 3)),
    *(tile(128, 64, 8, stages, preload_v=True) for stages in (2, 3)),
)

SWEEP = Sweep(
    "trans_v",
    "triton.flash_trans_v",
    (
        SizeClass(
            {"head_dim": 64},
            ("prefill-b4-s4096-h16-d64-f16-causal", "prefill-b4-s4096-h16-d64-f16"),
            CANDIDATES,
        ),
        SizeClass(
            {"head_dim": 128},
            ("prefill-b4-s2048-h48-d128-f16-causal", "prefill-b4-s2048-h48-d128-f16"),
            CANDIDATES,
        ),
    ),
)
