"""What is tried for rotary embeddings: tokens and heads of a tile."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep

SMALL_HEADS = (
    (1, 8, 2),
    (1, 8, 4),
    (1, 16, 2),
    (1, 16, 4),
    (1, 32, 4),
    (1, 32, 8),
    (2, 8, 4),
    (2, 16, 4),
    (4, 8, 4),
    (4, 8, 8),
)
"""(BLOCK_S, BLOCK_H, num_warps) of heads of up to 128."""
LARGE_HEADS = ((1, 4, 2), (1, 4, 4), (1, 8, 4), (1, 8, 8), (1, 16, 4), (1, 16, 8), (2, 4, 4), (2, 8, 8))


def tried(tiles: tuple[tuple[int, int, int], ...]) -> tuple[Config, ...]:
    """As configurations; there is hardly a loop, so one stage."""
    return tuple(
        {"BLOCK_S": block_s, "BLOCK_H": block_h, "num_warps": warps, "num_stages": 1}
        for block_s, block_h, warps in tiles
    )


SWEEP = Sweep(
    "rope",
    "triton.rope",
    (
        SizeClass(
            {"head_dim_max": 128, "interleaved": False},
            ("rope-b4-s4096-h32-hk8-d128-bf16", "rope-b8-s4096-h12-d80-f16"),
            tried(SMALL_HEADS),
        ),
        SizeClass(
            {"head_dim_max": 128, "interleaved": True},
            ("rope-b4-s4096-h32-hk8-d128-f16-interleaved",),
            tried(SMALL_HEADS),
        ),
        SizeClass({"head_dim_max": 512, "interleaved": False}, ("rope-b8-s2048-h16-d256-bf16",), tried(LARGE_HEADS)),
        SizeClass(
            {"head_dim_max": 512, "interleaved": True}, ("rope-b8-s2048-h16-d256-f16-interleaved",), tried(LARGE_HEADS)
        ),
    ),
)
