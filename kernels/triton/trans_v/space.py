"""The configuration space of the kernel over transposed values."""

from __future__ import annotations

from kernels.configs import Space

SPACE = Space("trans_v", {"BLOCK_M": int, "BLOCK_N": int, "PRELOAD_V": bool}, ("head_dim", "causal"))
