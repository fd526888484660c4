"""What is tried for the split latent attention of few queries."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def _candidates(tiles: tuple[tuple[int, int, int, int], ...], programs: tuple[int, ...]) -> tuple[Config, ...]:
    """Every (BLOCK_M, BLOCK_N, num_warps, num_stages) with every number of programs."""
    return tuple(
        {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_T": 32,
            "BLOCK_K": 128,
            "BLOCK_V": 64,
            "PROGRAMS": count,
            "num_warps": num_warps,
            "num_stages": stages,
        }
        for block_m, block_n, num_warps, stages in tiles
        for count in programs
    )


SWEEP = Sweep(
    "mla_decode",
    "triton.mla",
    (
        SizeClass(
            {"latent_dim_max": 512, "element_bits": 16, "rows_max": 16},
            ("mla-b32-s1-kv4096-h16-d128-r64-c512-bf16",),
            _candidates(
                ((16, 64, 4, 2), (16, 64, 8, 2), (16, 32, 4, 3), (16, 32, 4, 4), (16, 64, 8, 3), (16, 128, 8, 1)),
                (132, 264, 528),
            ),
        ),
        SizeClass(
            {"latent_dim_max": 512, "element_bits": 16},
            ("mla-b32-s1-kv4096-h128-d128-r64-c512-bf16",),
            _candidates(
                (
                    (64, 64, 8, 2),
                    (64, 64, 8, 1),
                    (64, 32, 8, 2),
                    (64, 32, 8, 3),
                    (64, 16, 8, 4),
                    (32, 64, 8, 2),
                    (32, 64, 4, 2),
                    (32, 32, 4, 3),
                ),
                (132, 264),
            ),
        ),
    ),
)
