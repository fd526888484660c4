"""Last kernel of the staged pipeline: the weighted sum of values, with weights from global memory.

One program owns BLOCK_M rows and BLOCK_N dimensions of one head of the result and walks over BLOCK_K keys at a time:

    acc   (BLOCK_M, BLOCK_N)    sum over the keys seen so far of weights[:, j] v[j, :], fp32

Where weights are causal, those of keys that a row does not see are 0, and the walk ends at the last key that any row of
the program sees. Rows past the end are read as the last one, and not stored; keys and dimensions past it are read as 0.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.primitives import dot
from kernels.triton.staged.checks import head_step, require_values
from kernels.triton.triton_backend import is_interpreted

if TYPE_CHECKING:
    import torch


@triton.jit
def staged_weighted_values_kernel(
    weights_ptr, v_ptr, out_ptr,  # (B, H, Sq, Skv), (B, Skv, Hk, Dv), (B, Sq, H, Dv)
    v_batch, v_token, v_head,  # strides; that of dimensions is 1
    heads, group, seq_q, seq_kv,
    CAUSAL: tl.constexpr, EVEN_K: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """A tile of out. Grid: (B * H * tiles of a head,); weights and out are contiguous."""
    tiles_n: tl.constexpr = (HEAD_DIM + BLOCK_N - 1) // BLOCK_N
    blocks = tl.cdiv(seq_q, BLOCK_M)
    batch_head = tl.program_id(0) // (blocks * tiles_n)
    tile = tl.program_id(0) % (blocks * tiles_n)
    batch = (batch_head // heads).to(tl.int64)
    head = batch_head % heads
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    start_m = (blocks - 1 - tile // tiles_n if CAUSAL else tile // tiles_n) * BLOCK_M
    start_n = tile % tiles_n * BLOCK_N

    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    rows = tl.minimum(offs_m, seq_q - 1 - start_m)
    in_head = (start_n + offs_n < HEAD_DIM)[None, :]
    # Where a tile starts may pass 2^31 elements; positions inside a tile cannot.
    first_row = batch_head.to(tl.int64) * seq_q + start_m
    a_tile = weights_ptr + first_row * seq_kv + (rows[:, None] * seq_kv + offs_k[None, :])
    b_tile = v_ptr + batch * v_batch + head // group * v_head + start_n + (offs_k[:, None] * v_token + offs_n[None, :])
    stop = seq_kv
    if CAUSAL:
        stop = tl.minimum(start_m + BLOCK_M + seq_kv - seq_q, seq_kv)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start_k in tl.range(0, stop, BLOCK_K):
        in_keys = start_k + offs_k < seq_kv
        a = tl.load(a_tile) if EVEN_K else tl.load(a_tile, mask=in_keys[None, :], other=0.0)
        if EVEN_K and HEAD_DIM % BLOCK_N == 0:
            b = tl.load(b_tile)
        elif EVEN_K:
            b = tl.load(b_tile, mask=in_head, other=0.0)
        else:
            b = tl.load(b_tile, mask=in_keys[:, None] & in_head, other=0.0)
        acc = dot(a, b, acc, "ieee", IN_FP32)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * v_token

    first = ((batch * seq_q + start_m) * heads + head) * HEAD_DIM + start_n
    tl.store(
        out_ptr + first + (offs_m[:, None] * (heads * HEAD_DIM) + offs_n[None, :]),
        acc.to(out_ptr.dtype.element_ty),
        mask=(start_m + offs_m < seq_q)[:, None] & in_head,
    )


def weighted_values(weights: torch.Tensor, v: torch.Tensor, *, causal: bool, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns weights (B, H, Sq, Skv), contiguous, times v (B, Skv, Hk, D): (B, Sq, H, D) in their dtype.

    v           of the weights' dtype, fp16, bf16 or fp32, H a multiple of Hk, D at most 256; elements of a head lie
                beside each other, the other strides are free
    causal      whether weights of keys j > i + Skv - Sq are 0, so that they may be skipped
    config      BLOCK_M, BLOCK_N, BLOCK_K, and the compiler's options

    Raises UsageError naming the argument, its value and what is allowed.
    """
    import torch

    batch, heads, seq_q, seq_kv = require_values("weighted_values", weights, v)
    head_dim = v.shape[3]
    out = torch.empty((batch, seq_q, heads, head_dim), dtype=v.dtype, device=v.device)
    block_n = head_step(head_dim, config["BLOCK_N"])
    tiles = triton.cdiv(seq_q, config["BLOCK_M"]) * triton.cdiv(head_dim, block_n)
    staged_weighted_values_kernel[(batch * heads * tiles,)](
        weights, v, out, *v.stride()[:3], heads, heads // v.shape[2], seq_q, seq_kv,
        CAUSAL=causal, EVEN_K=seq_kv % config["BLOCK_K"] == 0, HEAD_DIM=head_dim,
        IN_FP32=v.dtype == torch.bfloat16 and is_interpreted(v), **{**config, "BLOCK_N": block_n},
    )  # fmt: skip
    return out
