"""What is tried of the dense flash attention kernel, for a GPU with 227 KiB of shared memory and wgmma."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep

ALL = 4096
"""More heads than problems have, but few that have no use for locality."""


def tiles(*sizes: tuple[int, int, int, int], groups: tuple[int, ...] = (4, 8, 16, 32, ALL)) -> tuple[Config, ...]:
    """Candidates of (BLOCK_M, BLOCK_N, num_warps, num_stages), each with every number of heads at a time."""
    return tuple(
        {
            "BLOCK_M": m,
            "BLOCK_N": n,
            "PRELOAD_V": False,
            "GROUP_HEADS": heads,
            "num_warps": warps,
            "num_stages": stages,
        }
        for m, n, warps, stages in sizes
        for heads in groups
    )


SMALL = tiles((64, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 3))
"""For head dimensions to 128: what was within 1 % of the fastest of 14 tiles, all heads at a time."""

NARROW = tiles((64, 64, 4, 2), (64, 64, 4, 4), (64, 128, 4, 3), (128, 64, 8, 3), groups=(8, 32, ALL))
"""For head dimensions to 64."""

LARGE = tiles((128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2), groups=(2, 8, 16, ALL))
"""For head dimensions to 256: Q alone fills 64 KiB of 128 rows."""

EIGHT = tiles((64, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3), groups=(8, 32, ALL))
"""For 8 bits, whose tiles take half the shared memory."""

SWEEP = Sweep(
    "prefill_forward",
    "triton.flash",
    (
        SizeClass(
            {"head_dim_max": 64, "element_bits": 16},
            ("prefill-b4-s1024-h8-d64-f16-causal",),
            NARROW,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16, "rows_min": 524288},
            ("prefill-b4-s4096-h32-d128-f16-causal",),
            SMALL,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 16},
            ("prefill-b1-s1024-h32-hk8-d128-bf16-causal", "prefill-b1-s4096-h32-hk8-d128-bf16-causal"),
            SMALL,
        ),
        SizeClass(
            {"head_dim_max": 256, "element_bits": 16},
            ("prefill-b4-s1024-h8-d256-f16-causal", "prefill-b4-s4096-h8-d256-f16-causal"),
            LARGE,
        ),
        SizeClass(
            {"head_dim_max": 128, "element_bits": 8},
            ("prefill-b4-s2048-h32-hk8-d128-f8e4m3-causal", "prefill-b4-s2048-h32-hk8-d128-i8-causal"),
            EIGHT,
        ),
    ),
)
