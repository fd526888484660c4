"""What is tried for LayerNorm over rows: the tiles of softmax, with and without a residual."""

from __future__ import annotations

from sweeps.softmax import classes
from sweeps.sweep import Sweep

SWEEP = Sweep("layernorm", "triton.layernorm", classes("layernorm", "-residual", "-residual"))
