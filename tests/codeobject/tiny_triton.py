"""Triton kernels that compile in a moment, and some that do not compile, for `run_triton_builds.py`."""

from __future__ import annotations

import triton
import triton.language as tl
from tiny_triton_scaling import scaled

SHIFT = tl.constexpr(3)


@triton.jit
def scale(y_ptr, x_ptr, factor, n, BLOCK: tl.constexpr, SHIFTED: tl.constexpr = False):
    """y = factor x + x, through LDS where it is reduced."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    if SHIFTED:
        x += SHIFT
    tl.store(y_ptr + offsets, scaled(x, factor) + tl.sum(x), mask=offsets < n)


@triton.jit
def _adds_lengths(x, BLOCK: tl.constexpr):
    y = tl.arange(0, BLOCK * 2)
    return x + y


@triton.jit
def mismatched(y_ptr, BLOCK: tl.constexpr):
    """Adds vectors of two lengths, in a function that it calls."""
    x = tl.arange(0, BLOCK)
    tl.store(y_ptr + x, _adds_lengths(x, BLOCK))


@triton.jit
def unknown_name(y_ptr, BLOCK: tl.constexpr):
    """Uses a name that nobody defined."""
    tl.store(y_ptr + tl.arange(0, BLOCK), missing_value)  # noqa: F821


@triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def tuned(y_ptr, n, BLOCK: tl.constexpr):
    """A kernel behind an autotuner."""
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, offsets, mask=offsets < n)


def plain(y_ptr):
    """No kernel."""
