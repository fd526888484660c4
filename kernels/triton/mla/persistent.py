"""Multi-head latent attention by a fixed number of programs, each of which walks over blocks of rows.

ROCm/triton's python/perf-kernels/MLA.py starts GRID_CU_MULTIP programs per compute unit; of P programs, program p does
items p, p + P, p + 2 P ... An item is one block of rows of one head. Under a causal mask the blocks of the last rows,
which see the most keys, are the first items. What is computed of a block is `mla_kernel`'s.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.mla.kernel import attend_block


@triton.jit
def mla_persistent_kernel(
    q_nope_ptr, q_pe_ptr, kv_ptr, k_pe_ptr, wkv_b_ptr, out_ptr, lse_ptr, scratch_ptr,  # as `mla_kernel`
    batch_heads, heads, seq_q, seq_kv, scale_log2,
    CAUSAL: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, RELOAD: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Latent attention of every P-th item. Grid: (P,), at most one program per item.

    batch_heads is B * H; the other arguments are `mla_kernel`'s.
    """
    for item in tl.range(tl.program_id(0), batch_heads * tl.cdiv(seq_q, BLOCK_M), tl.num_programs(0)):
        attend_block(
            q_nope_ptr, q_pe_ptr, kv_ptr, k_pe_ptr, wkv_b_ptr, out_ptr, lse_ptr, scratch_ptr,
            item, batch_heads, heads, seq_q, seq_kv, scale_log2, CAUSAL, WITH_LSE, EVEN_N, D, DV, R, C,
            BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_C, RELOAD, PRECISION, IN_FP32,
        )  # fmt: skip
