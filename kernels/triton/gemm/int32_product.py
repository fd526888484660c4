"""The product of two int32 tiles by the matrix instructions for int8, because `tl.dot` takes no int32.

An int32 is four int8 digits: d0 + 2^8 d1 + 2^16 d2 + 2^24 d3 modulo 2^32. Of the 16 products of two numbers' digits,
the six whose digits' numbers sum to more than 3 are multiples of 2^32. The other ten give the product modulo 2^32.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _int8_digits(tile):
    """The four digits of an int32 tile, the least first, each from -128 to 127."""
    d0 = tile.to(tl.int8)
    rest = (tile - d0) >> 8
    d1 = rest.to(tl.int8)
    rest = (rest - d1) >> 8
    d2 = rest.to(tl.int8)
    return d0, d1, d2, ((rest - d2) >> 8).to(tl.int8)


@triton.jit
def int32_product(a_tile, b_tile, acc):
    """acc + a_tile b_tile modulo 2^32, all int32 (BLOCK_M, BLOCK_K), (BLOCK_K, BLOCK_N) and (BLOCK_M, BLOCK_N).

    Sums of digits' products stay below 2^31 up to a BLOCK_K of 2^15. They wrap only where ordinary instructions shift
    and add, because Triton's mma.sync saturates instead (.satfinite, before sm_90). The compiler would let a lone dot
    start from what is added to it, hence the carry of `low`.
    """
    a0, a1, a2, a3 = _int8_digits(a_tile)
    b0, b1, b2, b3 = _int8_digits(b_tile)
    upper = tl.dot(a0, b3, out_dtype=tl.int32)
    upper = tl.dot(a1, b2, upper, out_dtype=tl.int32)
    upper = tl.dot(a2, b1, upper, out_dtype=tl.int32)
    upper = tl.dot(a3, b0, upper, out_dtype=tl.int32) << 8
    middle = tl.dot(a0, b2, out_dtype=tl.int32)
    middle = tl.dot(a1, b1, middle, out_dtype=tl.int32)
    upper = (upper + tl.dot(a2, b0, middle, out_dtype=tl.int32)) << 8
    middle = tl.dot(a0, b1, out_dtype=tl.int32)
    upper += tl.dot(a1, b0, middle, out_dtype=tl.int32)
    low = tl.dot(a0, b0, out_dtype=tl.int32)
    return acc + ((upper + (low >> 8)) << 8) + (low & 255)
