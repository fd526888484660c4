"""The configuration space of the bandwidth kernels."""

from __future__ import annotations

from kernels.configs import Space

SPACE = Space("bandwidth", {"BLOCK": int, "STREAM": bool}, ("kind", "element_bits"))
