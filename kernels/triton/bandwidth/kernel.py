"""Copy, read, write and triad over whole arrays: the kernels and their launcher.

A program moves BLOCK consecutive elements with the widest loads, without a loop, so that many programs have loads in
flight. With STREAM, the data is marked as not needed again: it bypasses the caches on writes if the hardware can, and
is evicted first.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.launch_checks import require_floats, require_same
from pytest_attnperf.errors import UsageError
from pytest_attnperf.workloads.bandwidth import WORDS

if TYPE_CHECKING:
    import torch


@triton.jit
def _load(pointers, mask, STREAM: tl.constexpr):
    """Elements that are read once, 0 where the mask is false."""
    return tl.load(pointers, mask=mask, other=0, eviction_policy="evict_first" if STREAM else "")


@triton.jit
def _store(pointers, values, mask, STREAM: tl.constexpr):
    """Elements that nobody reads soon."""
    tl.store(pointers, values, mask=mask, cache_modifier=".cs" if STREAM else "")


@triton.jit
def bandwidth_copy_kernel(b_ptr, a_ptr, count, BLOCK: tl.constexpr, STREAM: tl.constexpr):
    """a = b for BLOCK of `count` elements. Grid: (ceil(count / BLOCK),)."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    _store(a_ptr + offsets, _load(b_ptr + offsets, mask, STREAM), mask, STREAM)


@triton.jit
def bandwidth_read_kernel(b_ptr, sums_ptr, count, WORDS: tl.constexpr, BLOCK: tl.constexpr, STREAM: tl.constexpr):
    """Sums modulo 2^32 of every WORDS of BLOCK of `count` int32 words. Grid: (ceil(count / BLOCK),)."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK // WORDS)
    stretch = first + tl.arange(0, BLOCK // WORDS)
    offsets = stretch[:, None] * WORDS + tl.arange(0, WORDS)[None, :]  # (BLOCK / WORDS, WORDS)
    words = _load(b_ptr + offsets, offsets < count, STREAM)
    tl.store(sums_ptr + stretch, tl.sum(words, 1), mask=stretch * WORDS < count)


@triton.jit
def bandwidth_write_kernel(p_ptr, a_ptr, count, PATTERN: tl.constexpr, BLOCK: tl.constexpr, STREAM: tl.constexpr):
    """a[i] = p[i modulo PATTERN] for BLOCK of `count` elements, PATTERN being a divisor of BLOCK. Grid: as copy."""
    inside = tl.arange(0, BLOCK)
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + inside
    # Groups of 16 stay consecutive modulo the pattern: loads as wide as the stores.
    repeated = tl.max_contiguous(tl.multiple_of(inside % PATTERN, 16), 16)
    _store(a_ptr + offsets, tl.load(p_ptr + repeated), offsets < count, STREAM)


@triton.jit
def bandwidth_triad_kernel(b_ptr, c_ptr, a_ptr, count, scalar, BLOCK: tl.constexpr, STREAM: tl.constexpr):
    """a = b + scalar * c, in fp32, for BLOCK of `count` elements. Grid: (ceil(count / BLOCK),)."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    b = _load(b_ptr + offsets, mask, STREAM).to(tl.float32)
    c = _load(c_ptr + offsets, mask, STREAM).to(tl.float32)
    _store(a_ptr + offsets, (b + scalar * c).to(a_ptr.dtype.element_ty), mask, STREAM)


def copy(b: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns a copy of b (N,), contiguous, fp32, fp16 or bf16. `config` has BLOCK, STREAM and compiler options.

    Raises UsageError for any other b.
    """
    import torch

    require_floats("copy", "b", b, dims=1)
    a = torch.empty_like(b)
    bandwidth_copy_kernel[_compute_grid(b.numel(), config)](b, a, b.numel(), **config)
    return a


def read_sums(b: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns int32 sums, modulo 2^32, of each group of 256 32-bit words in b (N,); `config` as for `copy`.

    Raises UsageError for a b that `copy` refuses, or whose size is not a multiple of 1,024 bytes.
    """
    import torch

    require_floats("read_sums", "b", b, dims=1)
    if (size := b.numel() * b.element_size()) % (4 * WORDS):
        raise UsageError(f"read_sums: b must be a multiple of {4 * WORDS} bytes long, got {size} bytes")
    words = b.view(torch.int32)
    sums = torch.empty(words.numel() // WORDS, dtype=torch.int32, device=b.device)
    bandwidth_read_kernel[_compute_grid(words.numel(), config)](words, sums, words.numel(), WORDS=WORDS, **config)
    return sums


def write_pattern(p: torch.Tensor, count: int, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns a (count,) with a[i] = p[i modulo P]: p (P,) contiguous, P a power of two from 16 on; `config` as for
    `copy`.

    Raises UsageError for any other p, a P that does not divide BLOCK, and a count below 1.
    """
    import torch

    require_floats("write_pattern", "p", p, dims=1)
    length = p.numel()
    if length < 16 or config["BLOCK"] % length:
        raise UsageError(
            f"write_pattern: p must have a power of two of elements, at least 16 and at most {config['BLOCK']}, got "
            f"{length}"
        )
    if count < 1:
        raise UsageError(f"write_pattern: count must be at least 1, got {count}")
    a = torch.empty(count, dtype=p.dtype, device=p.device)
    bandwidth_write_kernel[_compute_grid(count, config)](p, a, count, PATTERN=length, **config)
    return a


def triad(b: torch.Tensor, c: torch.Tensor, scalar: float, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns b + scalar * c, for b and c (N,), contiguous and of one dtype; `config` as for `copy`.

    Raises UsageError for other tensors.
    """
    import torch

    require_floats("triad", "b", b, dims=1)
    require_same("triad", "c", c, b)
    a = torch.empty_like(b)
    bandwidth_triad_kernel[_compute_grid(b.numel(), config)](b, c, a, b.numel(), scalar, **config)
    return a


def _compute_grid(count: int, config: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(count, config["BLOCK"]),)
