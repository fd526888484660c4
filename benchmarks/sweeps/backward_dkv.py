"""Configurations of the kernel for dK and dV that are tried.

Both accumulators are held in registers: 2 * BLOCK_N * D fp32 over 32 num_warps lanes leave no room for more than 128
keys of D = 128 on eight warps.
"""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def tile(block_m: int, block_n: int, num_warps: int, num_stages: int, *, split: bool) -> Config:
    """One candidate."""
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "SPLIT": split,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


BOTH = (True, False)

D64 = (
    *(tile(64, 128, 8, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(64, 64, 4, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(128, 128, 8, 2, split=split) for split in BOTH),
    *(tile(128, 64, 4, 2, split=split) for split in BOTH),
    *(tile(32, 128, 8, 3, split=split) for split in BOTH),
    *(tile(32, 128, 4, 3, split=split) for split in BOTH),
)
D128 = (
    *(tile(64, 128, 8, stages, split=split) for stages in (1, 2, 3) for split in BOTH),
    *(tile(32, 128, 8, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(64, 64, 4, 2, split=split) for split in BOTH),
    *(tile(32, 64, 4, stages, split=split) for stages in (2, 3) for split in BOTH),
    tile(64, 64, 8, 2, split=False),
    tile(128, 64, 8, 2, split=False),
)
D256 = (
    *(tile(32, 64, 8, stages, split=False) for stages in (1, 2)),
    *(tile(64, 64, 8, stages, split=False) for stages in (1, 2)),
    tile(16, 64, 8, 2, split=False),
    tile(16, 32, 4, 2, split=False),
    tile(32, 32, 4, 2, split=False),
    tile(32, 32, 8, 2, split=False),
)

SWEEP = Sweep(
    "backward_dkv",
    "triton.flash_backward",
    (
        SizeClass(
            {"head_dim_max": 64, "element_bits": 16},
            ("backward-b4-s2048-h32-d64-f16-causal", "backward-b4-s2048-h32-d64-bf16"),
            D64,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16, "causal": True},
            ("backward-b2-s4096-h16-d128-bf16-causal", "backward-b1-s4096-h32-hk8-d128-bf16-causal"),
            D128,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16},
            ("backward-b2-s4096-h16-d128-bf16",),
            tuple(candidate for candidate in D128 if not candidate["SPLIT"]),
        ),
        SizeClass(
            {"head_dim_max": 256, "element_bits": 16},
            ("backward-b2-s2048-h8-d256-f16-causal",),
            D256,
        ),
    ),
)
