"""Adds the parts of tiles that were cut along K, in Gluon: the same order in every run, and nothing waits on a lock."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.gluon.gemm.work import tile_place

SUM_ROWS = gl.constexpr(8)
"""Rows that a program adds."""


@gluon.jit
def sum_parts_kernel(
    parts_ptr, out_ptr,  # (cut tiles' parts, BLOCK_M, BLOCK_N) fp32, (M, N)
    size_m, size_n, whole, parts, tiles_m, tiles_n,
    GROUP_M: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """SUM_ROWS rows of a cut tile: the sum of its parts. Grid: (cut tiles, BLOCK_M / SUM_ROWS)."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [gl.num_warps(), 1], [1, 0])
    cut = tiles_m * tiles_n - whole
    tile_m, tile_n = tile_place(whole + gl.program_id(0), tiles_m, tiles_n, GROUP_M)
    rows = gl.program_id(1) * SUM_ROWS + gl.arange(0, SUM_ROWS, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
    within = rows[:, None] * BLOCK_N + columns[None, :]
    acc = gl.zeros([SUM_ROWS, BLOCK_N], gl.float32, layout=layout)
    for part in range(parts):
        acc += gl.load(parts_ptr + (part * cut + gl.program_id(0)) * (BLOCK_M * BLOCK_N) + within)
    rows = tile_m * BLOCK_M + rows
    columns = tile_n * BLOCK_N + columns
    inside = (rows < size_m)[:, None] & (columns < size_n)[None, :]
    gl.store(
        out_ptr + rows.to(gl.int64)[:, None] * size_n + columns[None, :], acc.to(out_ptr.dtype.element_ty), mask=inside
    )
