"""Our flash attention kernel with extra work inside: real instructions in every program, and the result unchanged.

Before the epilogue each row's running sum is multiplied `extra` times by a number that is 1 at run time only, so that
no compiler may leave it out. A step takes some ten cycles of every program, whatever the shape: fine enough for half a
per cent of a 20 us kernel, where one more tile of keys would be more than ten per cent of a program.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.forward import head_and_rank, store_rows
from kernels.triton.prefill.launch import split_head_dim
from kernels.triton.prefill.tiles import attend

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.workloads.base import Workload

KERNEL_OPTIONS = ("num_warps", "num_stages", "waves_per_eu")


@triton.jit(do_not_specialize=["extra", "one"])
def slowed_prefill_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,
    heads, kv_heads, seq_q, seq_kv, scale_log2, extra, one,
    CAUSAL: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr,
    PRELOAD_V: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr,
):  # fmt: skip
    """As `prefill_forward_kernel` without features and log-sum-exp, with `extra` steps, over the same grid."""
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    batch_head, block_rank = head_and_rank(rank, tl.num_programs(0), tl.num_programs(1), GROUP_HEADS)
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // (heads // kv_heads)
    block_m = tl.num_programs(1) - 1 - block_rank if CAUSAL else block_rank
    start_m = block_m * BLOCK_M
    q_stride = heads * HEAD_DIM
    kv_stride = kv_heads * HEAD_DIM
    to_rows = (batch.to(tl.int64) * seq_q + start_m) * q_stride + head * HEAD_DIM
    to_keys = batch.to(tl.int64) * seq_kv * kv_stride + kv_head * HEAD_DIM
    acc, acc_tail, l_i, m_i = attend(
        q_ptr + to_rows, k_ptr + to_keys, v_ptr + to_keys, None, None, start_m, seq_q, seq_kv, None,
        q_stride, kv_stride, kv_stride, scale_log2, CAUSAL, False, EVEN_N, False, HEAD_DIM, HEAD_DIM, BLOCK_M, BLOCK_N,
        BLOCK_D, TAIL_D, BLOCK_D, TAIL_D, PRELOAD_V, False, False, PRECISION, IN_FP32,
    )  # fmt: skip
    for _ in tl.range(0, extra):
        l_i = l_i * one
    store_rows(
        acc, acc_tail, l_i, m_i, out_ptr + to_rows, None, None, start_m, seq_q, q_stride,
        False, HEAD_DIM, BLOCK_M, BLOCK_D, TAIL_D, False,
    )  # fmt: skip


def slowed_call(workload: Workload, prepared: Prepared, extra: int) -> Callable[..., Any]:
    """What replaces the call of a prepared `triton.flash`: its configuration, with `extra` steps a program."""
    causal = bool(getattr(workload, "causal", False))
    config = launch_config(prepared.config)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, None]:
        return slowed_prefill_forward(q, k, v, causal=causal, config=config, extra=extra), None

    return call


def launch_config(stated: dict[str, str]) -> dict[str, Any]:
    """The block sizes and compiler options among what a preparation says it chose."""
    config: dict[str, Any] = {name: int(stated[name]) for name in ("BLOCK_M", "BLOCK_N", "GROUP_HEADS")}
    config["PRELOAD_V"] = stated["PRELOAD_V"] == "True"
    return config | {name: int(stated[name]) for name in KERNEL_OPTIONS if name in stated}


def slowed_prefill_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, config: dict[str, Any], extra: int
) -> torch.Tensor:
    """Launch: q (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous. Returns out (B, Sq, H, D)."""
    import torch

    batch, seq_q, heads, head_dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    lead, tail = split_head_dim(head_dim)
    out = torch.empty_like(q)
    slowed_prefill_forward_kernel[(batch * heads, triton.cdiv(seq_q, config["BLOCK_M"]))](
        q, k, v, out, heads, kv_heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(head_dim), extra, 1.0,
        CAUSAL=causal, EVEN_N=seq_kv % config["BLOCK_N"] == 0, HEAD_DIM=head_dim,
        BLOCK_D=lead, TAIL_D=tail, PRECISION="ieee",
        IN_FP32=q.dtype == torch.bfloat16 and not q.is_cuda, **config,
    )  # fmt: skip
    return out
