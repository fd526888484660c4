"""Rotary position embedding of queries and keys: the kernel and its launcher.

One launch rotates both. A program owns BLOCK_S tokens and walks over their heads, BLOCK_H at a time, so that the
cosines and sines of a token are loaded once.
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

if TYPE_CHECKING:
    import torch


@triton.jit
def _rotate_heads(
    x_ptr, out_ptr,  # (tokens, heads, 2 * HALF)
    token, in_tokens, cos, sin,  # (BLOCK_S, 1, 1), (BLOCK_S, 1, 1), 2 x (BLOCK_S, 1, BLOCK_D)
    heads,
    INTERLEAVED: tl.constexpr, HALF: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Rotate all heads of BLOCK_S tokens."""
    for start_h in tl.range(0, heads, BLOCK_H):
        head = start_h + tl.arange(0, BLOCK_H)[None, :, None]
        row = (token * heads + head) * (2 * HALF)  # (BLOCK_S, BLOCK_H, 1) int64
        in_rows = in_tokens & (head < heads)
        if INTERLEAVED:
            # Whole heads are read and written, for pairs lie side by side: every other element would be slow.
            offs_d = tl.arange(0, 2 * BLOCK_D)[None, None, :]
            mask = in_rows & (offs_d < 2 * HALF)
            x = tl.load(x_ptr + row + offs_d, mask=mask, other=0.0).to(tl.float32)
            a, b = tl.split(tl.reshape(x, [BLOCK_S, BLOCK_H, BLOCK_D, 2]))
            pairs = tl.join(a * cos - b * sin, b * cos + a * sin)
            out = tl.reshape(pairs, [BLOCK_S, BLOCK_H, 2 * BLOCK_D])
            tl.store(out_ptr + row + offs_d, out.to(out_ptr.dtype.element_ty), mask=mask)
        else:
            offs_d = tl.arange(0, BLOCK_D)[None, None, :]
            mask = in_rows & (offs_d < HALF)
            a = tl.load(x_ptr + row + offs_d, mask=mask, other=0.0).to(tl.float32)
            b = tl.load(x_ptr + row + HALF + offs_d, mask=mask, other=0.0).to(tl.float32)
            tl.store(out_ptr + row + offs_d, (a * cos - b * sin).to(out_ptr.dtype.element_ty), mask=mask)
            tl.store(out_ptr + row + HALF + offs_d, (b * cos + a * sin).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, q_out_ptr, k_out_ptr,  # (T, H, D), (T, Hk, D), 2 x (S, D / 2) fp32, as q, as k
    tokens, seq, heads, kv_heads,
    INTERLEAVED: tl.constexpr, HALF: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Rotate q and k of BLOCK_S of the T = B * S tokens. Grid: (ceil(T / BLOCK_S),); all tensors contiguous."""
    token = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)[:, None, None]
    in_tokens = token < tokens
    pair = tl.arange(0, BLOCK_D)[None, None, :]
    entry = (token % seq) * HALF + pair  # (BLOCK_S, 1, BLOCK_D)
    in_table = in_tokens & (pair < HALF)
    cos = tl.load(cos_ptr + entry, mask=in_table, other=0.0)
    sin = tl.load(sin_ptr + entry, mask=in_table, other=0.0)
    _rotate_heads(
        q_ptr, q_out_ptr, token, in_tokens, cos, sin, heads, INTERLEAVED, HALF, BLOCK_S, BLOCK_H, BLOCK_D
    )  # fmt: skip
    _rotate_heads(
        k_ptr, k_out_ptr, token, in_tokens, cos, sin, kv_heads, INTERLEAVED, HALF, BLOCK_S, BLOCK_H, BLOCK_D
    )  # fmt: skip


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    interleaved: bool,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotates q (B, S, H, D) and k (B, S, Hk, D) by cos and sin (S, D / 2) fp32, all contiguous.

    interleaved   pairs are elements 2 i and 2 i + 1 of a head instead of i and i + D / 2
    config        BLOCK_S, BLOCK_H and the compiler's options

    Returns both in q's dtype, one of fp32, fp16 and bf16. Raises UsageError for other tensors.
    """
    import torch

    require_floats("rope", "q", q, dims=4)
    require_floats("rope", "k", k, dims=4)
    batch, seq, heads, head_dim = q.shape
    if head_dim % 2:
        raise UsageError(f"rope: q must have an even head dimension, got {head_dim}")
    require_same("rope", "k", k, q, shape=(batch, seq, k.shape[2], head_dim))
    for name, table in (("cos", cos), ("sin", sin)):
        require_same("rope", name, table, q, shape=(seq, head_dim // 2), dtype=torch.float32)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    rope_kernel[(triton.cdiv(batch * seq, config["BLOCK_S"]),)](
        q, k, cos, sin, q_out, k_out, batch * seq, seq, heads, k.shape[2],
        INTERLEAVED=interleaved, HALF=head_dim // 2, BLOCK_D=triton.next_power_of_2(head_dim // 2), **config,
    )  # fmt: skip
    return q_out, k_out
