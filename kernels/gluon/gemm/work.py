"""What a program of `gluon.gemm` computes next: a tile of the result, or a part of one along K."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    """(row, column) of a numbered tile: columns first within a group of GROUP_M rows of tiles, so that programs that
    run at the same time share rows of a and columns of b, which stay in the L2 cache."""
    in_group = GROUP_M * tiles_n
    first_m = tile // in_group * GROUP_M
    rows = gl.minimum(tiles_m - first_m, GROUP_M)
    return first_m + tile % in_group % rows, tile % in_group // rows


@gluon.jit
def find_work(item, whole, parts, tiles_m, tiles_n, tiles_k, GROUP_M: gl.constexpr, CUT: gl.constexpr):
    """(row, column, first K tile, last one + 1) of an item: one of `whole` tiles, or with CUT a part of a later one."""
    if CUT:
        cut = tiles_m * tiles_n - whole
        part = gl.maximum(item - whole, 0) // cut
        parts = gl.where(item < whole, 1, parts)
        from_k = part * tiles_k // parts
        to_k = (part + 1) * tiles_k // parts
        tile_m, tile_n = tile_place(item - part * cut, tiles_m, tiles_n, GROUP_M)
    else:
        from_k = 0
        to_k = tiles_k
        tile_m, tile_n = tile_place(item, tiles_m, tiles_n, GROUP_M)
    return tile_m, tile_n, from_k, to_k
