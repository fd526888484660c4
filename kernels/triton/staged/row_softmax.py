"""Third kernel of the staged pipeline: softmax of rows of scores, which may be -inf.

A row that fits the registers of one program is read once. A longer one is walked over in tiles of BLOCK_C keys, keeping
two running values (Milakov and Gimelshein 2018, arXiv:1805.02867) for every lane, and then once more for the weights:

    m_l   (BLOCK_R, BLOCK_C)    largest of a lane's scores so far
    l_l   (BLOCK_R, BLOCK_C)    sum of exp(score - m_l) of a lane's scores so far

The second walk goes backwards, because what was read last is what a cache still holds. Where scores are causal, those
that a row does not see are -inf, so that most of them need not be read: their weight is 0. A row that sees no key has
weights 0 and a log-sum-exp of -inf.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.launch_checks import FLOATS
from kernels.triton.primitives import LN_2, LOG2_E
from kernels.triton.rows.tiles import tile_of
from kernels.triton.staged.checks import require_matrix
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite fp32, the start of running maxima: -inf minus a score of -inf would be NaN."""
READ_KEYS = tl.constexpr(16)
"""Scores are read in groups of this many keys, of which a row sees at least one. Loads stay as wide as without a mask,
because neighbours have the same mask."""


@triton.jit
def _load_scores(row_scores, start, places, in_rows, seen, columns, BLOCK_C: tl.constexpr, CAUSAL: tl.constexpr):
    """A tile of scores from key `start` on, -inf where there is none."""
    offs_c = tl.arange(0, BLOCK_C)[None, :]
    mask = in_rows & (start + offs_c < columns)
    if CAUSAL:
        mask = mask & (start + offs_c // READ_KEYS * READ_KEYS < seen)
    return tl.load(row_scores + start + places, mask=mask, other=float("-inf"))


@triton.jit
def _store_weights(row_weights, start, places, in_rows, columns, x, m, scale, BLOCK_C: tl.constexpr):
    """Write the weights of a tile of scores x."""
    mask = in_rows & (start + tl.arange(0, BLOCK_C)[None, :] < columns)
    p = tl.exp2((x - m[:, None]) * LOG2_E) * scale[:, None]
    tl.store(row_weights + start + places, p.to(row_weights.dtype.element_ty), mask=mask)


@triton.jit
def staged_row_softmax_kernel(
    scores_ptr, weights_ptr, lse_ptr,  # (R, C) fp32, (R, C), (R,) fp32 or None; R = B * H * Sq, C = Skv
    rows, seq_q, columns,
    CAUSAL: tl.constexpr, ONE_PASS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Weights of BLOCK_R rows. Grid: (ceil(R / BLOCK_R),); tensors are contiguous."""
    start_r = tl.program_id(0) * BLOCK_R
    row = start_r + tl.arange(0, BLOCK_R)  # (BLOCK_R,)
    in_rows = (row < rows)[:, None]
    seen = (row % seq_q + 1 + columns - seq_q)[:, None]  # keys that each row sees
    # Where a block starts may pass 2^31 elements; positions inside a block cannot.
    row_scores = scores_ptr + start_r.to(tl.int64) * columns
    row_weights = weights_ptr + start_r.to(tl.int64) * columns
    places = tl.arange(0, BLOCK_R)[:, None] * columns + tl.arange(0, BLOCK_C)[None, :]

    if ONE_PASS:
        x = _load_scores(row_scores, 0, places, in_rows, seen, columns, BLOCK_C, CAUSAL)
        m = tl.maximum(tl.max(x, 1), LOWEST)
        total = tl.sum(tl.exp2((x - m[:, None]) * LOG2_E), 1)
        scale = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
        _store_weights(row_weights, 0, places, in_rows, columns, x, m, scale, BLOCK_C)
    else:
        tiles = tl.cdiv(columns, BLOCK_C)
        walked = tiles
        if CAUSAL:
            walked = tl.cdiv(tl.minimum(tl.maximum(tl.max(seen), 0), columns), BLOCK_C)
        m_l = tl.full([BLOCK_R, BLOCK_C], LOWEST, dtype=tl.float32)
        l_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
        for number in tl.range(0, walked):
            x = _load_scores(row_scores, number * BLOCK_C, places, in_rows, seen, columns, BLOCK_C, CAUSAL)
            # Of exp(x - new) and exp(old - new), one is 1 and the other exp(-|x - old|).
            power = tl.exp2(tl.abs(x - m_l) * -LOG2_E)
            l_l = tl.where(x > m_l, l_l * power + 1.0, l_l + power)
            m_l = tl.maximum(m_l, x)
        m = tl.max(m_l, 1)
        total = tl.sum(l_l * tl.exp2((m_l - m[:, None]) * LOG2_E), 1)
        scale = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
        for number in tl.range(0, tiles):
            start = (tiles - 1 - number) * BLOCK_C
            x = _load_scores(row_scores, start, places, in_rows, seen, columns, BLOCK_C, CAUSAL)
            _store_weights(row_weights, start, places, in_rows, columns, x, m, scale, BLOCK_C)
    if lse_ptr is not None:
        lse = tl.where(total == 0.0, float("-inf"), m + tl.log2(tl.where(total == 0.0, 1.0, total)) * LN_2)
        tl.store(lse_ptr + row, lse, mask=row < rows)


def row_softmax(
    scores: torch.Tensor, *, dtype: torch.dtype, causal: bool, with_lse: bool, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns weights (B, H, Sq, Skv) of scores (B, H, Sq, Skv), fp32 and contiguous, and the log-sum-exp or None.

    dtype       of the weights: fp32, fp16 or bf16
    causal      whether scores of keys j > i + Skv - Sq are -inf; not all of them are read then
    with_lse    whether to return the natural log-sum-exp (B, H, Sq), fp32
    config      BLOCK_R, BLOCK_C (see `rows.tiles.tile_of`), and the compiler's options

    Rows of -inf have weights 0 and a log-sum-exp of -inf. Raises UsageError for other arguments.
    """
    import torch

    batch, heads, seq_q, columns = require_matrix("row_softmax", "scores", scores, ("float32",))
    if (name := str(dtype).removeprefix("torch.")) not in FLOATS:
        raise UsageError(f"row_softmax: dtype must be one of {', '.join(FLOATS)}, got {name}")
    weights = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    lse = torch.empty(scores.shape[:3], dtype=torch.float32, device=scores.device) if with_lse else None
    tile = tile_of(columns, config)
    rows = batch * heads * seq_q
    staged_row_softmax_kernel[(triton.cdiv(rows, tile["BLOCK_R"]),)](
        scores, weights, lse, rows, seq_q, columns, CAUSAL=causal, **tile
    )
    return weights, lse
