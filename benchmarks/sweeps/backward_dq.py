"""Configurations of the kernel for dQ that are tried."""

from __future__ import annotations

from benchmarks.sweeps.backward_dkv import BOTH, tile
from benchmarks.sweeps.sweep import SizeClass, Sweep

D64 = (
    *(tile(128, 64, 8, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(64, 64, 4, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(128, 128, 8, 2, split=split) for split in BOTH),
    *(tile(128, 64, 4, stages, split=True) for stages in (2, 3)),
    *(tile(64, 128, 4, stages, split=True) for stages in (2, 3)),
)
D128 = (
    *(tile(128, 64, 8, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(64, 64, 4, stages, split=split) for stages in (2, 3) for split in BOTH),
    *(tile(128, 128, 8, stages, split=split) for stages in (1, 2) for split in BOTH),
    *(tile(128, 32, 8, stages, split=True) for stages in (3, 4)),
    *(tile(64, 32, 4, stages, split=True) for stages in (3, 4)),
)
D256 = (
    *(tile(64, 32, 8, stages, split=False) for stages in (1, 2)),
    *(tile(64, 64, 8, stages, split=False) for stages in (1, 2)),
    *(tile(128, 32, 8, stages, split=False) for stages in (1, 2)),
    tile(64, 32, 4, 2, split=False),
    tile(32, 32, 4, 2, split=False),
)

SWEEP = Sweep(
    "backward_dq",
    "triton.flash_backward",
    (
        SizeClass(
            {"head_dim_max": 64, "element_bits": 16},
            ("backward-b4-s2048-h32-d64-f16-causal", "backward-b4-s2048-h32-d64-bf16"),
            D64,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16},
            ("backward-b2-s4096-h16-d128-bf16-causal", "backward-b2-s4096-h16-d128-bf16"),
            D128,
        ),
        SizeClass(
            {"head_dim_max": 256, "element_bits": 16},
            ("backward-b2-s2048-h8-d256-f16-causal",),
            D256,
        ),
    ),
)
