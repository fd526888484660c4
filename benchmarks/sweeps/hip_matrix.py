"""Configurations of the fifth HIP step that are tried."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def tile(waves: int, block_n: int) -> Config:
    """One candidate."""
    return {"WAVES": waves, "BLOCK_N": block_n}


CANDIDATES = tuple(tile(waves, block_n) for waves in (2, 4, 8) for block_n in (16, 32, 64))

SWEEP = Sweep(
    "matrix",
    "hip.matrix",
    (
        SizeClass({"rows_max": 16384, "head_dim_max": 64}, ("prefill-b1-s512-h8-d64-f16-causal",), CANDIDATES),
        SizeClass({"head_dim_max": 64}, ("prefill-b4-s4096-h16-d64-f16-causal",), CANDIDATES),
        SizeClass({"head_dim_max": 128}, ("prefill-b4-s4096-h32-d128-f16-causal",), CANDIDATES),
        SizeClass({}, ("prefill-b4-s2048-h8-d256-f16-causal",), CANDIDATES),
    ),
)
