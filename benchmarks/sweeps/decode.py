"""What is tried for flash decoding: bytes in flight (keys per tile, stages) against programs per multiprocessor."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def _config(block_n: int, programs: int, warps: int, stages: int, keys_min: int = 256) -> Config:
    return {
        "BLOCK_N": block_n,
        "PROGRAMS": programs,
        "SPLIT_KEYS_MIN": keys_min,
        "num_warps": warps,
        "num_stages": stages,
    }


HALVES = (
    _config(64, 528, 4, 3),
    _config(64, 1056, 4, 3),
    _config(64, 2112, 4, 3),
    _config(64, 4224, 4, 3),
    _config(64, 2112, 4, 2),
    _config(64, 1056, 4, 4),
    _config(64, 2112, 2, 3),
    _config(64, 528, 2, 4),
    _config(64, 528, 4, 4),
    _config(32, 2112, 2, 4),
    _config(32, 2112, 4, 4),
    _config(128, 1056, 4, 2),
    _config(128, 1056, 8, 3),
    _config(64, 1056, 4, 3, keys_min=512),
)
BYTES = (
    _config(64, 1056, 4, 3),
    _config(64, 2112, 4, 4),
    _config(64, 2112, 4, 2),
    _config(64, 2112, 2, 3),
    _config(128, 528, 4, 3),
    _config(128, 1056, 4, 2),
    _config(128, 1056, 4, 3),
    _config(128, 2112, 4, 3),
    _config(128, 1056, 8, 3),
    _config(128, 2112, 8, 2),
    _config(128, 1056, 4, 4),
    _config(256, 1056, 8, 2),
)
ROWS = (
    _config(64, 528, 4, 2),
    _config(64, 528, 4, 3),
    _config(64, 1056, 4, 2),
    _config(64, 1056, 4, 3),
    _config(64, 1056, 4, 4),
    _config(64, 1056, 8, 3),
    _config(128, 528, 4, 2),
    _config(128, 1056, 4, 2),
    _config(128, 1056, 8, 2),
    _config(128, 1056, 8, 3),
    _config(32, 1056, 4, 3),
    _config(32, 1056, 4, 4),
)

SWEEP = Sweep(
    kernel="decode",
    backend="triton.flash_decode",
    classes=(
        SizeClass(
            when={"head_dim_max": 128, "rows_max": 16, "cache_bits": 16, "paged": False},
            workloads=("decode-b64-kv4096-h32-hk8-d128-f16", "decode-b1-kv65536-h32-hk8-d128-bf16"),
            candidates=HALVES,
        ),
        SizeClass(
            when={"head_dim_max": 128, "rows_max": 16, "cache_bits": 16, "paged": True},
            workloads=(
                "decode-b64-kv4096-h32-hk8-d128-page16-bf16-ragged",
                "decode-b1-kv131072-h32-hk8-d128-page64-bf16",
            ),
            candidates=HALVES,
        ),
        SizeClass(
            when={"head_dim_max": 128, "rows_max": 16, "cache_bits": 8},
            workloads=(
                "decode-b16-q4-kv8192-h32-hk8-d128-page16-cap30-bf16-kvf8e4m3-sinks-ragged",
                "decode-b64-kv4096-h32-hk8-d128-page16-f16-kvi8-ragged",
            ),
            candidates=BYTES,
        ),
        SizeClass(
            when={"head_dim_max": 128, "rows_max": 64, "element_bits": 16},
            workloads=("decode-b16-q8-kv4096-h64-hk8-d128-page64-bf16-ragged",),
            candidates=ROWS,
        ),
    ),
)
