"""What is tried for mixed batches: steps without prompts and steps with some, 16-bit and 8-bit keys."""

from __future__ import annotations

from benchmarks.sweeps.sweep import SizeClass, Sweep

LLAMA = "h32-hk8-d128-page16-bf16"


def decode(block_n: int, num_warps: int, num_stages: int) -> dict[str, int | bool]:
    """Tiles of 16 rows, the fewest of a matrix product: a token has as few as it has query heads per K/V head."""
    tiles = {"BLOCK_M": 16, "BLOCK_N": block_n, "SMALL_M": 16, "SMALL_N": block_n}
    return {**tiles, "num_warps": num_warps, "num_stages": num_stages}


def mixed(block_m: int, block_n: int, small_n: int, num_warps: int, num_stages: int) -> dict[str, int | bool]:
    """Tiles of a prompt's rows, at least 64 for wgmma and for up to 64 heads per K/V head, and of a token's."""
    tiles = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SMALL_M": 16, "SMALL_N": small_n}
    return {**tiles, "num_warps": num_warps, "num_stages": num_stages}


DECODE = tuple(
    decode(block_n, num_warps, num_stages)
    for block_n, num_warps, num_stages in (
        *((32, 2, 3), (32, 2, 4), (32, 4, 4)),
        *((64, 2, 3), (64, 4, 2), (64, 4, 3), (64, 4, 4)),
        *((128, 4, 2), (128, 4, 3), (128, 4, 4), (128, 8, 2), (128, 8, 3)),
    )
)

MIXED = tuple(
    mixed(*sizes)
    for sizes in (
        *((64, 32, 64, 4, 3), (64, 64, 64, 4, 2), (64, 64, 64, 4, 3), (64, 64, 64, 4, 4)),
        *((64, 64, 128, 4, 2), (64, 64, 128, 4, 3), (64, 128, 64, 4, 2), (64, 128, 128, 4, 2), (64, 128, 64, 4, 3)),
        *((128, 32, 64, 8, 3), (128, 64, 64, 8, 2), (128, 64, 64, 8, 3), (128, 64, 128, 8, 2), (128, 64, 128, 8, 3)),
        *((128, 128, 64, 8, 2), (128, 128, 128, 8, 2), (128, 64, 64, 4, 2)),
    )
)

MIXED_8_BIT = tuple(
    mixed(*sizes)
    for sizes in (
        *((64, 32, 64, 4, 3), (64, 64, 64, 4, 2), (64, 64, 64, 4, 3), (64, 64, 128, 4, 3), (64, 128, 128, 4, 2)),
        *((128, 32, 64, 8, 3), (128, 64, 64, 8, 2), (128, 64, 64, 8, 3), (128, 64, 128, 8, 3), (128, 128, 128, 8, 2)),
    )
)

SWEEP = Sweep(
    kernel="mixed",
    backend="triton.unified",
    classes=(
        SizeClass(
            when={"head_dim_max": 128, "longest_query_max": 4, "group_max": 16, "cache_bits": 16},
            workloads=(f"mixed-64q1s4k-{LLAMA}",),
            candidates=DECODE,
        ),
        SizeClass(
            when={"head_dim_max": 128, "longest_query_max": 4, "group_max": 16},
            workloads=(f"mixed-64q1s4k-{LLAMA}-kvf8e4m3",),
            candidates=DECODE,
        ),
        SizeClass(
            when={"head_dim_max": 128, "cache_bits": 16},
            workloads=(f"mixed-2q2k_8q1s1k-{LLAMA}", f"mixed-4q512s4k_16q1s8k-{LLAMA}"),
            candidates=MIXED,
        ),
        SizeClass(
            when={"head_dim_max": 128},
            workloads=(f"mixed-2q2k_8q1s4k-{LLAMA}-kvf8e4m3", f"mixed-2q2k_8q1s4k-{LLAMA}-kvi8"),
            candidates=MIXED_8_BIT,
        ),
    ),
)
