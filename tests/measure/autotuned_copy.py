"""An autotuned kernel for the GPU tests beside it. Triton reads a kernel's source, so it has a file of its own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 1024) for warps in (2, 8)]


@triton.autotune(configs=CONFIGS, key=["count"])
@triton.jit
def copy_kernel(source_ptr, target_ptr, count, BLOCK: tl.constexpr):
    """Copy `count` elements, BLOCK by each program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(target_ptr + offsets, tl.load(source_ptr + offsets, mask=inside), mask=inside)


def copied(source: torch.Tensor) -> torch.Tensor:
    """A copy of a contiguous tensor on a GPU."""
    target = torch.empty_like(source)
    copy_kernel[lambda meta: (triton.cdiv(source.numel(), meta["BLOCK"]),)](source, target, source.numel())
    return target
