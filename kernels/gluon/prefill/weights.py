"""The weights of a tile of scores on sm_90: softmax over what has been seen so far, folded by each thread alone as long
as it can be."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def eights_of(columns):
    """Returns the layout of 64 rows of scores in a wgmma's registers, seen as (64, columns / 8, 8): a thread has two
    rows, and two of every eight columns."""
    eights = [[0, 1 << bit, 0] for bit in range((columns // 8).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 1], [8, 0, 0], *eights],
        lane_bases=[[0, 0, 2], [0, 0, 4], [1, 0, 0], [2, 0, 0], [4, 0, 0]],
        warp_bases=[[16, 0, 0], [32, 0, 0]],
        block_bases=[],
        shape=[64, columns // 8, 8],
    )


@gluon.jit
def in_eights(tile, eights: gl.constexpr):
    """A tile (64, N) as (64, N / 8, 8), whose second dimension each thread folds by itself, four chains at once."""
    ROWS: gl.constexpr = tile.shape[0]
    N: gl.constexpr = tile.shape[1]
    return gl.convert_layout(tile.reshape([ROWS, N // 8, 8]), eights)


@gluon.jit
def weigh(s, l_8, m_i, seen, start_n, scale_log2, MASKED: gl.constexpr, s_layout: gl.constexpr, eights: gl.constexpr):
    """(p, rescale, l_8, m_i) after the scores s of the keys from start_n on: p are their weights, and rescale scales
    what was summed before them. l_8 (64, 8) are sums of every eighth weight, which are added up at the end only."""
    if MASKED:
        keys = gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, s_layout))
        s = gl.where(keys[None, :] < (seen - start_n)[:, None], s, float("-inf"))
    largest = gl.convert_layout(gl.max(gl.max(in_eights(s, eights), 1), 1), gl.SliceLayout(1, s_layout))
    m_new = gl.maximum(m_i, largest * scale_log2)
    shift = m_new
    if MASKED:
        shift = gl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
    p = gl.exp2(s * scale_log2 - shift[:, None])
    rescale = gl.exp2(m_i - shift)
    of_8 = gl.convert_layout(rescale, gl.SliceLayout(1, gl.SliceLayout(1, eights)))
    return p, rescale, l_8 * of_8[:, None] + gl.sum(in_eights(p, eights), 1), m_new
