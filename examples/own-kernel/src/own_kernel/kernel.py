"""x / sqrt(mean(x^2) + eps) * weight for every row: a Triton kernel, torch on a CPU, and the plain formula.

Zhang and Sennrich 2019, arXiv:1910.07467.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, unused-ignore"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from own_kernel.launch import EPS, settings


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    """One row per program, held in registers, summed in fp32. Grid: (rows,); tensors contiguous."""
    row = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row + offsets, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / columns + eps)
    tl.store(out_ptr + row + offsets, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """The kernel on x (R, C) and weight (C,); on a CPU only under TRITON_INTERPRET=1. Raises ValueError."""
    if x.dim() != 2 or weight.shape != x.shape[1:]:
        raise ValueError(f"x must be (R, C) and weight (C,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if not (x.is_contiguous() and weight.is_contiguous()):
        raise ValueError(f"x and weight must be contiguous, got strides {x.stride()} and {weight.stride()}")
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, weight, out, x.shape[1], eps, **settings(x.shape[1]))
    return out


def plain_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """The formula in the dtype of x: what the kernel is proven against."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """The kernel on a GPU, torch's own RMSNorm on a CPU."""
    if x.is_cuda:
        return rms_norm_triton(x, weight, eps)
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
