"""What is tried for RMSNorm over rows: the tiles of softmax, with and without a residual."""

from __future__ import annotations

from benchmarks.sweeps.softmax import classes
from benchmarks.sweeps.sweep import Sweep

SWEEP = Sweep("rmsnorm", "triton.rmsnorm", classes("rmsnorm", "-residual", "-residual"))
