"""Configurations of the fourth HIP step that are tried."""

from __future__ import annotations

from benchmarks.sweeps.sweep import SizeClass, Sweep

CANDIDATES = tuple(
    {"BLOCK_M": block_m, "BLOCK_N": block_n, "THREADS": 8 * block_m} for block_m in (8, 16, 32) for block_n in (32, 64)
)
"""The kernel asks for 8 threads per row."""

SWEEP = Sweep(
    "vectorised",
    "hip.vectorised",
    (
        SizeClass({"rows_max": 16384, "head_dim_max": 64}, ("prefill-b1-s512-h8-d64-f16-causal",), CANDIDATES),
        SizeClass({"head_dim_max": 128}, ("prefill-b1-s4096-h32-d128-f16-causal",), CANDIDATES),
        SizeClass({}, ("prefill-b4-s2048-h8-d256-f16-causal",), CANDIDATES),
    ),
)
