"""Configurations of the last HIP step that are tried."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def tile(waves: int, row_tiles: int, block_n: int, q_in_registers: int = 0) -> Config:
    """One candidate."""
    return {"WAVES": waves, "ROW_TILES": row_tiles, "BLOCK_N": block_n, "Q_IN_REGISTERS": q_in_registers}


NARROW = tuple(tile(waves, 1, block_n, q) for waves in (1, 2, 4) for block_n in (32, 64) for q in (0, 1))
WIDE = (
    *(tile(waves, 2, block_n, q) for waves in (4, 8) for block_n in (32, 64) for q in (0, 1)),
    *(tile(waves, 1, block_n, q) for waves in (4, 8) for block_n in (32, 64) for q in (0, 1)),
    tile(4, 2, 128),
    tile(8, 1, 128),
)
TALL = (
    *(tile(waves, 1, block_n, q) for waves in (4, 8) for block_n in (16, 32, 64) for q in (0, 1)),
    tile(4, 2, 16),
    tile(4, 2, 32),
)

SWEEP = Sweep(
    "best",
    "hip.best",
    (
        SizeClass(
            {"rows_max": 16384, "head_dim_max": 64},
            ("prefill-b1-s512-h8-d64-f16-causal", "prefill-b2-s1000-h8-d64-bf16"),
            NARROW,
        ),
        SizeClass({"rows_max": 16384, "head_dim_max": 128}, ("prefill-b1-s512-kv2048-h16-hk4-d96-f16-causal",), NARROW),
        SizeClass({"head_dim_max": 64}, ("prefill-b4-s4096-h16-d64-f16-causal",), WIDE),
        SizeClass(
            {"head_dim_max": 128},
            ("prefill-b4-s4096-h32-d128-f16-causal", "prefill-b1-s2049-h32-hk8-d128-bf16-causal-lse"),
            WIDE,
        ),
        SizeClass({}, ("prefill-b4-s2048-h8-d256-f16-causal",), TALL),
    ),
)
