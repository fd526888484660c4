"""Arithmetic that several kernels share, under a name."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math

import triton
import triton.language as tl

LN_2 = tl.constexpr(math.log(2.0))
LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr, IN_FP32: tl.constexpr):
    """acc + a b. Triton's interpreter multiplies the bit patterns of bf16, so there bf16 is widened first (exact)."""
    if IN_FP32:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)
