"""Configurations of the first HIP step that are tried: it is compared with the others at its own best."""

from __future__ import annotations

from benchmarks.sweeps.sweep import SizeClass, Sweep

CANDIDATES = tuple({"BLOCK_M": block_m} for block_m in (32, 64, 128, 256))

SWEEP = Sweep(
    "naive",
    "hip.naive",
    (
        SizeClass({"rows_max": 16384}, ("prefill-b1-s512-h8-d64-f16-causal",), CANDIDATES),
        SizeClass({}, ("prefill-b1-s4096-h32-d128-f16-causal", "prefill-b4-s2048-h8-d256-f16-causal"), CANDIDATES),
    ),
)
