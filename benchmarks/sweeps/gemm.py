"""Candidates of `gemm_kernel`."""

from __future__ import annotations

from benchmarks.sweeps.sweep import Config, SizeClass, Sweep


def tile(
    block_m: int,
    block_n: int,
    block_k: int,
    num_warps: int,
    num_stages: int,
    group_m: int = 8,
    *,
    descriptors: bool = True,
) -> Config:
    """One candidate."""
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "GROUP_M": group_m,
        "DESCRIPTORS": descriptors,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


OUTPUTS_MIN = 2_097_152
"""From here on there are more 128 x 128 tiles than multiprocessors."""

FEW_ROWS = tuple(
    tile(16, block_n, block_k, 4, num_stages, descriptors=descriptors)
    for block_n, block_k, num_stages, descriptors in (
        *((32, 128, 4, False), (32, 256, 3, False), (32, 256, 4, False), (32, 128, 6, False)),
        *((64, 64, 6, False), (64, 128, 3, False), (64, 128, 4, False), (64, 128, 5, False), (64, 256, 3, False)),
        *((128, 64, 4, False), (128, 128, 3, False)),
        *((32, 256, 4, True), (64, 128, 4, True), (64, 128, 6, True), (64, 256, 3, True), (32, 128, 6, True)),
    )
)

LARGE_HALF = (
    *(tile(128, 256, 64, 8, stages, group) for stages in (3, 4) for group in (8, 16)),
    tile(128, 256, 64, 8, 3, 4),
    *(tile(256, 128, 64, 8, stages, group) for stages in (3, 4) for group in (4, 8)),
    *(tile(128, 128, 64, warps, stages) for warps, stages in ((4, 3), (4, 4), (8, 3), (8, 4))),
    tile(128, 128, 128, 8, 3),
    *(tile(128, 256, 64, 8, stages, descriptors=False) for stages in (3, 4)),
    *(tile(128, 128, 64, warps, 4, descriptors=False) for warps in (4, 8)),
)

LARGE_BYTE = (
    *(tile(128, 128, 128, warps, stages) for warps, stages in ((4, 3), (4, 4), (8, 3), (8, 4))),
    *(tile(128, 256, 128, 8, stages) for stages in (3, 4)),
    *(tile(256, 128, 128, 8, stages) for stages in (3, 4)),
    tile(128, 128, 256, 8, 3),
    tile(64, 256, 128, 4, 3),
    tile(64, 256, 128, 8, 3),
    tile(128, 128, 128, 8, 3, descriptors=False),
    tile(128, 256, 128, 8, 3, descriptors=False),
)

SINGLE = tuple(
    tile(block_m, block_n, block_k, num_warps, num_stages, descriptors=False)
    for block_m, block_n, block_k, num_warps, num_stages in (
        *((64, 64, 16, 4, 3), (64, 64, 32, 8, 3), (64, 128, 16, 4, 3), (64, 128, 16, 8, 3)),
        *((128, 64, 16, 8, 3), (128, 64, 32, 8, 2), (128, 128, 16, 8, 3), (128, 128, 16, 8, 4)),
    )
)

INT32 = tuple(
    tile(block_m, block_n, block_k, num_warps, num_stages, descriptors=False)
    for block_m, block_n, block_k, num_warps, num_stages in (
        *((64, 64, 32, 4, 2), (64, 64, 32, 4, 3), (64, 64, 64, 4, 2), (64, 128, 32, 4, 3)),
        *((128, 64, 32, 8, 2), (128, 64, 32, 8, 3), (128, 128, 32, 8, 2), (128, 128, 32, 8, 3)),
    )
)
"""Small tiles: every operand is four tiles of int8, every result is summed in three."""

SWEEP = Sweep(
    "gemm",
    "triton.gemm",
    (
        SizeClass({"m_max": 16, "element_bits": 16}, ("gemm-m16-n8192-k8192-f16",), FEW_ROWS),
        SizeClass(
            {"element_bits": 16, "outputs_min": OUTPUTS_MIN},
            ("gemm-m8192-n8192-k8192-f16", "gemm-m2048-n14336-k4096-bf16-nt"),
            LARGE_HALF,
        ),
        SizeClass(
            {"element_bits": 8, "outputs_min": OUTPUTS_MIN},
            ("gemm-m4096-n4096-k4096-f8e4m3-nt", "gemm-m4096-n4096-k4096-i8-nt"),
            LARGE_BYTE,
        ),
        SizeClass({"dtype": "i32"}, ("gemm-m4096-n4096-k4096-i32-nt",), INT32),
        SizeClass({"element_bits": 32}, ("gemm-m2048-n2048-k2048-f32",), SINGLE),
    ),
)
