"""First kernel of the staged pipeline: scaled scores of every query and key, kept in global memory.

One program owns a tile of one head's scores and walks along the head dimension in steps of BLOCK_K:

    acc   (BLOCK_M, BLOCK_N)    sum over the dimensions seen so far of q[:, d] k[:, d], fp32

Programs that follow each other sweep over the keys of one block of rows, so that both are read from a cache: what takes
time is that 4 bytes per pair are written. Rows and keys past the end are
read as the last ones, and not stored.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.primitives import dot
from kernels.triton.staged.checks import head_step, require_attention
from kernels.triton.triton_backend import is_interpreted

if TYPE_CHECKING:
    import torch


@triton.jit
def staged_qk_scores_kernel(
    q_ptr, k_ptr, scores_ptr,  # (B, Sq, H, D), (B, Skv, Hk, D), (B, H, Sq, Skv) fp32
    q_batch, q_token, q_head, k_batch, k_token, k_head,  # strides; those of dimensions are 1
    heads, group, seq_q, seq_kv, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    IN_FP32: tl.constexpr,
):  # fmt: skip
    """scores = q k^T * scale. Grid: (B * H * tiles of a head,); scores are contiguous."""
    tiles_n = tl.cdiv(seq_kv, BLOCK_N)
    tiles = tl.cdiv(seq_q, BLOCK_M) * tiles_n
    batch_head = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    batch = (batch_head // heads).to(tl.int64)
    head = batch_head % heads
    start_m = tile // tiles_n * BLOCK_M
    start_n = tile % tiles_n * BLOCK_N

    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    rows = tl.minimum(offs_m, seq_q - 1 - start_m)
    keys = tl.minimum(offs_n, seq_kv - 1 - start_n)
    # Where a tile starts may pass 2^31 elements; positions inside a tile cannot.
    q = q_ptr + batch * q_batch + start_m.to(tl.int64) * q_token + head * q_head
    k = k_ptr + batch * k_batch + start_n.to(tl.int64) * k_token + head // group * k_head
    q_tile = q + (rows[:, None] * q_token + offs_k[None, :])
    k_tile = k + (keys[:, None] * k_token + offs_k[None, :])
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start_k in tl.range(0, HEAD_DIM, BLOCK_K):
        if HEAD_DIM % BLOCK_K == 0:
            a = tl.load(q_tile + start_k)
            b = tl.load(k_tile + start_k)
        else:
            in_head = (start_k + offs_k < HEAD_DIM)[None, :]
            a = tl.load(q_tile + start_k, mask=in_head, other=0.0)
            b = tl.load(k_tile + start_k, mask=in_head, other=0.0)
        acc = dot(a, b.T, acc, "ieee", IN_FP32)

    inside = (start_m + offs_m < seq_q)[:, None] & (start_n + offs_n < seq_kv)[None, :]
    first = (batch_head.to(tl.int64) * seq_q + start_m) * seq_kv + start_n
    tl.store(scores_ptr + first + (offs_m[:, None] * seq_kv + offs_n[None, :]), acc * scale, mask=inside)


def qk_scores(q: torch.Tensor, k: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Returns q k^T / sqrt(D) of q (B, Sq, H, D) and k (B, Skv, Hk, D), in fp32: (B, H, Sq, Skv), without a mask.

    q and k are both fp16, bf16 or fp32, H a multiple of Hk, D at most 256; elements of a head lie beside each other,
    the other strides are free. `config` holds BLOCK_M, BLOCK_N, BLOCK_K, and the compiler's options. Raises UsageError
    naming the argument, its value and what is allowed.
    """
    import torch

    batch, seq_q, heads, head_dim = require_attention("qk_scores", q, k)
    seq_kv = k.shape[1]
    scores = torch.empty((batch, heads, seq_q, seq_kv), dtype=torch.float32, device=q.device)
    tiles = triton.cdiv(seq_q, config["BLOCK_M"]) * triton.cdiv(seq_kv, config["BLOCK_N"])
    staged_qk_scores_kernel[(batch * heads * tiles,)](
        q, k, scores, *q.stride()[:3], *k.stride()[:3], heads, heads // k.shape[2], seq_q, seq_kv,
        1.0 / math.sqrt(head_dim), HEAD_DIM=head_dim, IN_FP32=q.dtype == torch.bfloat16 and is_interpreted(q),
        **{**config, "BLOCK_K": head_step(head_dim, config["BLOCK_K"])},
    )  # fmt: skip
    return scores
