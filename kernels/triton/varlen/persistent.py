"""Flash attention forward over packed sequences by a fixed number of programs, and its launcher.

As many programs as fit the device at once are started, PROGRAMS_PER_SM for each multiprocessor; program p does items
p, p + programs, p + 2 programs ... of all sequences in their order. An item is one block of rows of one head or, under
a causal mask, two, as in `prefill.persistent`. How many items a sequence has follows from its length, so each program
walks over the sequences and counts: no item is empty, however different the lengths are, and nothing about them is
known on the host but the longest. What is computed of a block is `varlen_forward`'s.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.forward import head_and_rank
from kernels.triton.prefill.launch import output_dtype
from kernels.triton.varlen.kernel import attend_packed_block
from kernels.triton.varlen.launch import check_varlen, varlen_constants

if TYPE_CHECKING:
    import torch


@triton.jit
def varlen_persistent_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (Tq, H, D), (Tk, Hk, D), (Tk, Hk, Dv), (Tq, H, Dv), (H, Tq) fp32
    q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,  # 3 x (1,), (H,) fp32, (H, max Sq, max Skv); or None
    cu_q_ptr, cu_k_ptr,  # 2 x (B + 1,) int32
    sequences, heads, kv_heads, total_q, value_keys, bias_rows, bias_keys, window, scale_log2, multiprocessors,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr, PROGRAMS_PER_SM: tl.constexpr,
):  # fmt: skip
    """Attention of every multiprocessors * PROGRAMS_PER_SM-th item. Grid: (that number, or the most items possible).

    sequences is B; the other arguments are `varlen_forward_kernel`'s.
    """
    item = tl.program_id(0)  # the next of this program, counted from the first of the sequence
    for sequence in tl.range(0, sequences):
        first_q = tl.load(cu_q_ptr + sequence)
        first_k = tl.load(cu_k_ptr + sequence)
        seq_q = tl.load(cu_q_ptr + sequence + 1) - first_q
        seq_kv = tl.load(cu_k_ptr + sequence + 1) - first_k
        blocks = (seq_q + BLOCK_M - 1) // BLOCK_M
        items_per_head = (blocks + 1) // 2 if CAUSAL else blocks
        items = heads * items_per_head
        while item < items:
            head, early = head_and_rank(item, heads, items_per_head, GROUP_HEADS)
            # `early` is, of the pair, the block that sees the fewer keys.
            late = blocks - 1 - early if CAUSAL else early
            for turn in tl.range(0, 1 + (late != early).to(tl.int32)):
                block_m = tl.where(turn == 0, late, early)
                attend_packed_block(
                    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,
                    first_q, first_k, seq_q, seq_kv, sequence, head, block_m,
                    heads, kv_heads, total_q, value_keys, bias_rows, bias_keys, window, scale_log2,
                    CAUSAL, WINDOWED, WITH_LSE, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D,
                    BLOCK_DV, TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32,
                )  # fmt: skip
            item += multiprocessors * PROGRAMS_PER_SM
        item -= items


def varlen_persistent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    max_q: int,
    max_kv: int,
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
    """Returns (out, lse or None) as `varlen_forward` does, with its arguments and errors, and two more arguments:

    multiprocessors    of the device, at least 1
    config             also holds PROGRAMS_PER_SM
    """
    import torch

    from pytest_attnperf.errors import UsageError

    if multiprocessors < 1:
        raise UsageError(f"multiprocessors is {multiprocessors}; it must be at least 1")
    offsets = (cu_seqlens_q, cu_seqlens_k)
    sizes = check_varlen(q, k, v, offsets, (max_q, max_kv), causal, window, int8, descales, alibi_slopes, bias)
    rows = (sizes.total_q, sizes.heads)
    out = torch.empty((*rows, sizes.head_dim_v), dtype=output_dtype(q, out_dtype), device=q.device)
    lse = torch.empty(rows[::-1], dtype=torch.float32, device=q.device) if with_lse else None
    q_scale, k_scale, v_scale = (None, None, None, *descales)[-3:]
    blocks = triton.cdiv(max_q, config["BLOCK_M"])
    items = sizes.sequences * sizes.heads * (triton.cdiv(blocks, 2) if causal else blocks)
    varlen_persistent_kernel[(min(items, multiprocessors * config["PROGRAMS_PER_SM"]),)](
        q, k, v, out, lse, q_scale, k_scale, v_scale, alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
        sizes.sequences, sizes.heads, sizes.kv_heads, sizes.total_q, sizes.value_keys, *sizes.bias_sizes,
        window or None, math.log2(math.e) / math.sqrt(sizes.head_dim), multiprocessors,
        WITH_LSE=with_lse, **varlen_constants(sizes, q, v, causal, window, int8, bias), **config,
    )  # fmt: skip
    return out, lse
