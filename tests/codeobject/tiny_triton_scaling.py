"""A function of another file that `tiny_triton.py` calls."""

from __future__ import annotations

import triton


@triton.jit
def scaled(x, factor):
    """X, scaled and added: one fused operation where fusion is on."""
    return x * factor + x
