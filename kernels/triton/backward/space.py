"""The configuration spaces of the backward pass's three kernels."""

from __future__ import annotations

from kernels.configs import Space
from kernels.triton.prefill.space import FURTHER

PROPERTIES = ("head_dim", "causal", "element_bits")
DELTA = Space("backward_delta", {"BLOCK_M": int}, PROPERTIES)
DKV = Space("backward_dkv", {"BLOCK_M": int, "BLOCK_N": int, "SPLIT": bool}, PROPERTIES)
DQ = Space("backward_dq", {"BLOCK_M": int, "BLOCK_N": int, "SPLIT": bool}, PROPERTIES, further=FURTHER)
