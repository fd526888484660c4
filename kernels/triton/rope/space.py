"""The configuration space of the rotary embedding, for its backend, its builds and its tuning."""

from __future__ import annotations

from kernels.configs import Space

SPACE = Space("rope", {"BLOCK_S": int, "BLOCK_H": int}, ("head_dim", "interleaved", "element_bits"))
