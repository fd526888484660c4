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

from kernels.triton.prefill_forward import _attend, padded_head_dim

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
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRELOAD_V: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """As `prefill_forward_kernel` without a log-sum-exp, with `extra` steps; grid (B * H, ceil(Sq / BLOCK_M))."""
    batch = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    kv_head = head // (heads // kv_heads)
    block_m = tl.num_programs(1) - 1 - tl.program_id(1) if CAUSAL else tl.program_id(1)
    start_m = block_m * BLOCK_M
    causal_offset = seq_kv - seq_q

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    q_row_stride = heads * HEAD_DIM
    kv_row_stride = kv_heads * HEAD_DIM
    to_rows = (batch.to(tl.int64) * seq_q + start_m) * q_row_stride + head * HEAD_DIM
    q_tile = tl.arange(0, BLOCK_M)[:, None] * q_row_stride + offs_d[None, :]
    q_mask = (offs_m < seq_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
    to_keys = batch.to(tl.int64) * seq_kv * kv_row_stride + kv_head * HEAD_DIM

    q = tl.load(q_ptr + to_rows + q_tile, mask=q_mask, other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    if CAUSAL:
        seen_by_all = tl.minimum(start_m + causal_offset + 1, seq_kv)
        seen_by_any = tl.minimum(start_m + causal_offset + BLOCK_M, seq_kv)
    else:
        seen_by_all = seq_kv
        seen_by_any = seq_kv
    full_stop = seen_by_all // BLOCK_N * BLOCK_N
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_ptr + to_keys, v_ptr + to_keys, offs_m, offs_n, offs_d,
        0, full_stop, seq_kv, causal_offset, kv_row_stride, scale_log2,
        False, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRELOAD_V, PRECISION, IN_FP32,
    )  # fmt: skip
    if CAUSAL or not EVEN_N:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptr + to_keys, v_ptr + to_keys, offs_m, offs_n, offs_d,
            full_stop, seen_by_any, seq_kv, causal_offset, kv_row_stride, scale_log2,
            True, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRELOAD_V, PRECISION, IN_FP32,
        )  # fmt: skip

    for _ in tl.range(0, extra):
        l_i = l_i * one
    acc = acc / l_i[:, None]
    tl.store(out_ptr + to_rows + q_tile, acc.to(out_ptr.dtype.element_ty), mask=q_mask)


def slowed_call(workload: Workload, prepared: Prepared, extra: int) -> Callable[..., Any]:
    """What replaces the call of a prepared `triton.flash`: its configuration, with `extra` steps a program."""
    causal = bool(getattr(workload, "causal", False))
    config = launch_config(prepared.config)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, None]:
        return slowed_prefill_forward(q, k, v, causal=causal, config=config, extra=extra), None

    return call


def launch_config(stated: dict[str, str]) -> dict[str, Any]:
    """The block sizes and compiler options among what a preparation says it chose."""
    config: dict[str, Any] = {name: int(stated[name]) for name in ("BLOCK_M", "BLOCK_N")}
    config["PRELOAD_V"] = stated["PRELOAD_V"] == "True"
    return config | {name: int(stated[name]) for name in KERNEL_OPTIONS if name in stated}


def slowed_prefill_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, config: dict[str, Any], extra: int
) -> torch.Tensor:
    """Launch: q (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous. Returns out (B, Sq, H, D)."""
    import torch

    batch, seq_q, heads, head_dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    out = torch.empty_like(q)
    slowed_prefill_forward_kernel[(batch * heads, triton.cdiv(seq_q, config["BLOCK_M"]))](
        q, k, v, out, heads, kv_heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(head_dim), extra, 1.0,
        CAUSAL=causal, EVEN_N=seq_kv % config["BLOCK_N"] == 0, HEAD_DIM=head_dim,
        BLOCK_D=padded_head_dim(head_dim), PRECISION="ieee",
        IN_FP32=q.dtype == torch.bfloat16 and not q.is_cuda, **config,
    )  # fmt: skip
    return out
