"""What is tried for softmax over rows: elements per program, threads that hold them, programs, and loads ahead."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep

Tile = tuple[int, int, int, int, int]
"""BLOCK_R, BLOCK_C, num_warps, PROGRAMS, STAGES."""

SHORT: tuple[Tile, ...] = ((1, 2048, 2, 0, 1), (1, 2048, 4, 0, 1), (2, 2048, 4, 0, 1), (1, 2048, 8, 0, 1))
"""Of rows up to 2,048 columns; shorter rows get as many elements. One program per row: many fit a multiprocessor."""
MIDDLE: tuple[Tile, ...] = ((1, 8192, 4, 0, 1), (1, 8192, 8, 0, 1), (1, 8192, 16, 0, 1), (2, 8192, 16, 0, 1))
LARGE: tuple[Tile, ...] = (
    *((1, 16384, 16, 0, 1), (1, 32768, 32, 0, 1), (1, 8192, 16, 0, 3)),
    *((1, 32768, 32, 1, 3), (1, 32768, 16, 1, 3), (1, 32768, 8, 1, 3)),
    *((1, 16384, 16, 2, 2), (1, 16384, 32, 1, 1), (1, 8192, 32, 1, 1), (1, 8192, 16, 1, 3)),
)
"""One row fills a multiprocessor: only a loop that loads the next one ahead loads while it is reduced."""
LONG: tuple[Tile, ...] = (
    *((1, 16384, 32, 0, 1), (1, 8192, 32, 0, 1), (1, 8192, 16, 0, 3), (1, 4096, 8, 0, 3)),
    *((1, 16384, 32, 1, 1), (1, 8192, 32, 1, 1), (1, 8192, 32, 1, 3), (1, 8192, 16, 1, 3)),
    *((1, 4096, 16, 1, 4), (1, 4096, 16, 2, 3), (1, 4096, 8, 2, 3), (2, 4096, 16, 1, 3)),
)
"""Tiles that no stage loads ahead stay in the first-level cache where one program has a multiprocessor to itself."""


def tried(tiles: tuple[Tile, ...]) -> tuple[Config, ...]:
    """As configurations; the compiler's own stages are for loops that name none."""
    names = ("BLOCK_R", "BLOCK_C", "num_warps", "PROGRAMS", "STAGES")
    return tuple({**dict(zip(names, tile, strict=True)), "num_stages": 1} for tile in tiles)


def classes(family: str, middle: str = "", large: str = "") -> tuple[SizeClass, ...]:
    """Six classes of tensors of 256 MiB; `middle` and `large` are the flags of those workloads, e.g. '-residual'."""
    return (
        SizeClass(
            {"columns_max": 2048},
            (f"{family}-r524288-c256-bf16", f"{family}-r131072-c1024-bf16{middle}"),
            tried(SHORT),
        ),
        SizeClass(
            {"columns_max": 8192},
            (f"{family}-r32768-c4096-bf16{middle}", f"{family}-r16384-c8192-f16"),
            tried(MIDDLE),
        ),
        SizeClass({"columns_max": 16384}, (f"{family}-r8192-c16384-bf16",), tried(LARGE[:1] + LARGE[6:])),
        SizeClass({"columns_max": 32768}, (f"{family}-r4096-c32768-f16",), tried(LARGE)),
        SizeClass({"columns_max": 65536}, (f"{family}-r2048-c65536-bf16",), tried(LONG)),
        SizeClass({}, (f"{family}-r512-c262144-bf16{large}",), tried(LONG[:4])),
    )


SWEEP = Sweep("softmax", "triton.softmax", classes("softmax"))
