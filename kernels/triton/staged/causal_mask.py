"""Second kernel of the staged pipeline: sets the scores of keys that a row does not see to -inf, in place.

A program owns BLOCK_M rows of one head and writes their hidden scores, BLOCK_N keys at a time; nothing is read, and
what a row sees is not touched. Row i sees key j iff j <= i + Skv - Sq. The tiles that the edge of the mask runs through
are written element by element; those behind it are hidden from all rows of the program, and written in whole vectors.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.staged.checks import require_matrix

if TYPE_CHECKING:
    import torch


@triton.jit
def staged_causal_mask_kernel(
    scores_ptr,  # (B * H, Sq, Skv) fp32
    seq_q, seq_kv,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Hide what BLOCK_M rows of one head do not see. Grid: (B * H * ceil(Sq / BLOCK_M),)."""
    blocks = tl.cdiv(seq_q, BLOCK_M)
    start_m = tl.program_id(0) % blocks * BLOCK_M
    first_row = (tl.program_id(0) // blocks).to(tl.int64) * seq_q + start_m
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    in_sequence = (start_m + offs_m < seq_q)[:, None]
    places = scores_ptr + first_row * seq_kv + (offs_m[:, None] * seq_kv + offs_n[None, :])
    hidden = tl.full([BLOCK_M, BLOCK_N], float("-inf"), dtype=tl.float32)

    # The first key that each row does not see; 0 or less where it sees none.
    unseen = (start_m + offs_m + 1 + seq_kv - seq_q)[:, None]
    edge = tl.maximum(start_m + 1 + seq_kv - seq_q, 0) // BLOCK_N * BLOCK_N
    behind = tl.cdiv(tl.maximum(start_m + BLOCK_M + seq_kv - seq_q, 0), BLOCK_N) * BLOCK_N
    for start_n in tl.range(edge, tl.minimum(behind, seq_kv), BLOCK_N):
        keys = (start_n + offs_n)[None, :]
        tl.store(places + start_n, hidden, mask=in_sequence & (keys >= unseen) & (keys < seq_kv))
    # Of a block that rows past the end belong to, the edge runs through the last tile, and none is behind it.
    for start_n in tl.range(behind, seq_kv, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        tl.store(places + start_n, hidden, mask=(start_n + offs_n < seq_kv)[None, :])


def causal_mask(scores: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Sets scores (B, H, Sq, Skv), fp32 and contiguous, of keys that a row does not see to -inf in place; returns them.

    `config` holds BLOCK_M, BLOCK_N, and the compiler's options. Raises UsageError for other scores.
    """
    seq_q, seq_kv = require_matrix("causal_mask", "scores", scores, ("float32",))[2:]
    grid = (scores.shape[0] * scores.shape[1] * triton.cdiv(seq_q, config["BLOCK_M"]),)
    staged_causal_mask_kernel[grid](scores, seq_q, seq_kv, **config)
    return scores
