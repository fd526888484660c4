"""Checks the tensors of latent attention, and launches whole sequences: a program per block of rows, or a persistent
grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton

from kernels.configs import pad_size
from kernels.triton.mla.kernel import mla_kernel
from kernels.triton.mla.persistent import mla_persistent_kernel
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch


def check_tensors(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv_latent: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    causal: bool,
) -> None:
    """Raises UsageError naming the argument, its value and what is allowed, unless the five tensors fit each other.

    Shapes are those of `mla_prefill`; all contiguous, on one device, of one dtype of fp16, bf16, fp32; at most 2^31 - 1
    rows and, with causal, as many keys as queries at least.
    """
    import torch

    if q_nope.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise UsageError(f"q_nope has dtype {q_nope.dtype}; allowed are float16, bfloat16 and float32")
    if q_nope.dim() != 4 or k_pe.dim() != 3 or wkv_b.dim() != 3:
        raise UsageError(
            f"q_nope, k_pe and wkv_b have {q_nope.dim()}, {k_pe.dim()} and {wkv_b.dim()} dimensions; needed are "
            "(B, S, H, D), (B, T, R) and (H, D + Dv, C)"
        )
    (batch, seq_q, heads, nope), (_, seq_kv, rope) = q_nope.shape, k_pe.shape
    shapes = {
        "q_pe": (q_pe, (batch, seq_q, heads, rope)),
        "kv_latent": (kv_latent, (batch, seq_kv, wkv_b.shape[2])),
        "k_pe": (k_pe, (batch, seq_kv, rope)),
        "wkv_b": (wkv_b, (heads, max(wkv_b.shape[1], nope + 1), wkv_b.shape[2])),
    }
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape:
            raise UsageError(f"{name} has shape {tuple(tensor.shape)}; by the other arguments it must be {shape}")
        if tensor.dtype != q_nope.dtype or tensor.device != q_nope.device:
            raise UsageError(
                f"{name} is {tensor.dtype} on {tensor.device}; q_nope is {q_nope.dtype} on {q_nope.device}, and all "
                "must agree"
            )
    for name, tensor in {"q_nope": q_nope, **{name: tensor for name, (tensor, _) in shapes.items()}}.items():
        if not tensor.is_contiguous() or not tensor.numel():
            raise UsageError(
                f"{name} has shape {tuple(tensor.shape)} and strides {tensor.stride()}; it must be "
                "contiguous and hold an element"
            )
    if causal and seq_kv < seq_q:
        raise UsageError(f"causal needs at least as many keys as queries, got {seq_kv} and {seq_q}: rows see no key")


def mla_prefill(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv_latent: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    causal: bool,
    with_lse: bool,
    config: Mapping[str, Any],
    multiprocessors: int = 1,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends over an MLA cache by one kernel: q_nope (B, S, H, D), q_pe (B, S, H, R), kv_latent (B, T, C), k_pe (B, T,
    R), wkv_b (H, D + Dv, C), contiguous, one of fp16, bf16, fp32.

    `config` holds BLOCK_M, BLOCK_N, BLOCK_D, RELOAD (see `kernel.reloaded`) and the compiler's options (num_warps,
    num_stages, on AMD waves_per_eu). With a GRID_CU_MULTIP above 0 that many programs per multiprocessor (AMD's compute
    unit) are started at most, of the `multiprocessors` that the device has; otherwise one per block of rows.
    Returns out (B, S, H, Dv) in the inputs' dtype and, when asked, the natural log-sum-exp (B, H, S) in fp32. Raises
    UsageError as `check_tensors`, and for fewer than 1 multiprocessor.
    """
    import torch

    check_tensors(q_nope, q_pe, kv_latent, k_pe, wkv_b, causal=causal)
    if multiprocessors < 1:
        raise UsageError(f"multiprocessors is {multiprocessors}; it must be at least 1")
    batch, seq_q, heads, nope = q_nope.shape
    seq_kv, rope = k_pe.shape[1:]
    value, latent = wkv_b.shape[1] - nope, wkv_b.shape[2]
    out = q_nope.new_empty((batch, seq_q, heads, value))
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=out.device) if with_lse else None
    scratch = q_nope.new_empty((batch, seq_q, heads, latent)) if config["RELOAD"] else None
    pointers = (q_nope, q_pe, kv_latent, k_pe, wkv_b, out, lse, scratch)
    numbers = (heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(nope + rope))
    own = {name: value for name, value in config.items() if name != "GRID_CU_MULTIP"}
    how = dict(
        CAUSAL=causal, WITH_LSE=with_lse, EVEN_N=seq_kv % config["BLOCK_N"] == 0,
        D=nope, DV=value, R=rope, C=latent, BLOCK_R=pad_size(rope), BLOCK_C=pad_size(latent), PRECISION="ieee",
        IN_FP32=q_nope.dtype == torch.bfloat16 and is_interpreted(q_nope), **own,
    )  # fmt: skip
    blocks = triton.cdiv(seq_q, config["BLOCK_M"])
    if multiple := config.get("GRID_CU_MULTIP", 0):
        programs = min(batch * heads * blocks, multiprocessors * multiple)
        mla_persistent_kernel[(programs,)](*pointers, batch * heads, *numbers, **how)
    else:
        mla_kernel[(batch * heads, blocks)](*pointers, *numbers, **how)
    return out, lse
