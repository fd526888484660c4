"""What is tried for the one-kernel latent attention of whole sequences."""

from __future__ import annotations

import itertools

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def _candidates(tiles: tuple[tuple[int, int, int], ...], *, warps: tuple[int, ...]) -> tuple[Config, ...]:
    """Every (BLOCK_M, BLOCK_N, num_stages) with every number of warps; RELOAD where wgmma multiplies."""
    return tuple(
        {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_D": 32,
            "RELOAD": reload,
            "num_warps": num_warps,
            "num_stages": stages,
        }
        for (block_m, block_n, stages), num_warps in itertools.product(tiles, warps)
        for reload in ((True, False) if block_m >= 64 and block_n == 32 else (block_m >= 64,))
    )


SWEEP = Sweep(
    "mla",
    "triton.mla",
    (
        SizeClass(
            {"latent_dim_max": 256, "element_bits": 16},
            ("mla-b2-s128-h16-d64-r32-c256-f16-causal",),
            _candidates(
                ((64, 64, 2), (64, 64, 3), (64, 32, 2), (32, 64, 2), (32, 32, 3), (16, 64, 3)),
                warps=(4, 8),
            ),
        ),
        SizeClass(
            {"latent_dim_max": 512, "element_bits": 16},
            ("mla-b1-s2048-h16-d128-r64-c512-bf16-causal",),
            (
                *_candidates(
                    ((64, 64, 1), (64, 64, 2), (64, 32, 2), (64, 32, 3), (64, 16, 3), (32, 64, 2), (32, 32, 3)),
                    warps=(8,),
                ),
                *_candidates(((32, 64, 2), (32, 32, 2), (32, 32, 3), (16, 64, 2)), warps=(4,)),
            ),
        ),
    ),
)
