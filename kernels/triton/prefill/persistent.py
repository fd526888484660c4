"""Flash attention forward by a fixed number of programs, each of which walks over blocks of rows, and its launcher.

As many programs as fit the device at once are started, PROGRAMS_PER_SM for each multiprocessor; program p does items
p, p + programs, p + 2 programs ... An item is one block of rows of one head or, under a causal mask, two: the block
that sees the most keys of those left with the one that sees the fewest. Every such pair sees as many keys as any other,
so programs that do equally many items finish together. What is computed of a block is `prefill_forward`'s.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.forward import attend_block, head_and_rank, head_and_rank_on_xcd
from kernels.triton.prefill.launch import check_dense, kernel_constants, output_dtype

if TYPE_CHECKING:
    import torch


@triton.jit
def prefill_persistent_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (B, Sq, H, D), (B, Skv, Hk, D), (B, Skv, Hk, Dv), (B, Sq, H, Dv), fp32
    q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,  # 3 x (1,), (H,) fp32, (H, Sq, Skv); or None
    batch_heads, heads, kv_heads, seq_q, seq_kv, window, scale_log2, multiprocessors,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr, PROGRAMS_PER_SM: tl.constexpr,
    XCDS: tl.constexpr = 1, AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of every multiprocessors * PROGRAMS_PER_SM-th item. Grid: (that number, or as many as there are items).

    batch_heads is B * H; the other arguments are `prefill_forward_kernel`'s. An item is on the XCD of its program if
    XCDS divides the number of programs.
    """
    blocks = (seq_q + BLOCK_M - 1) // BLOCK_M
    items_per_head = (blocks + 1) // 2 if CAUSAL else blocks
    for item in tl.range(tl.program_id(0), batch_heads * items_per_head, multiprocessors * PROGRAMS_PER_SM):
        if XCDS > 1:
            batch_head, early = head_and_rank_on_xcd(item, batch_heads, items_per_head, heads // kv_heads, XCDS)
        else:
            batch_head, early = head_and_rank(item, batch_heads, items_per_head, GROUP_HEADS)
        batch = batch_head // heads
        head = batch_head % heads
        # `early` is, of the pair, the block that sees the fewer keys.
        late = blocks - 1 - early if CAUSAL else early
        for turn in tl.range(0, 1 + (late != early).to(tl.int32)):
            block_m = tl.where(turn == 0, late, early)
            attend_block(
                q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,
                batch, head, block_m, heads, kv_heads, seq_q, seq_kv, window, scale_log2,
                CAUSAL, WINDOWED, WITH_LSE, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D,
                BLOCK_DV, TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, AS_READ,
            )  # fmt: skip


def prefill_persistent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    with_lse: bool,
    config: Mapping[str, Any],
    multiprocessors: int,
    window: int = 0,
    int8: str = "",
    descales: tuple[torch.Tensor, ...] = (),
    alibi_slopes: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (out, lse or None) as `prefill_forward` does, with its arguments and errors, and two more arguments:

    multiprocessors    of the device, at least 1
    config             also holds PROGRAMS_PER_SM
    """
    import torch

    from pytest_attnperf.errors import UsageError

    if multiprocessors < 1:
        raise UsageError(f"multiprocessors is {multiprocessors}; it must be at least 1")
    shape = check_dense(q, k, v, causal, window, int8, descales, alibi_slopes, bias)
    out = torch.empty((*q.shape[:3], shape.head_dim_v), dtype=output_dtype(q, out_dtype), device=q.device)
    rows = (shape.batch, shape.heads, shape.seq_q)
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if with_lse else None
    q_scale, k_scale, v_scale = (None, None, None, *descales)[-3:]
    blocks = triton.cdiv(shape.seq_q, config["BLOCK_M"])
    items = shape.batch * shape.heads * (triton.cdiv(blocks, 2) if causal else blocks)
    prefill_persistent_kernel[(min(items, multiprocessors * config["PROGRAMS_PER_SM"]),)](
        q, k, v, out, lse, q_scale, k_scale, v_scale, alibi_slopes, bias,
        shape.batch * shape.heads, shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv, window or None,
        math.log2(math.e) / math.sqrt(shape.head_dim), multiprocessors,
        WITH_LSE=with_lse, **kernel_constants(shape, q, v, causal, window, int8, bias, config), **config,
    )  # fmt: skip
    return out, lse
