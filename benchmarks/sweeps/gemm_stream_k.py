"""Candidates of `gemm_stream_k_kernel`. One program per multiprocessor throughout: each fills one."""

from __future__ import annotations

from benchmarks.sweeps.gemm import OUTPUTS_MIN, tile
from benchmarks.sweeps.sweep import SizeClass, Sweep

CANDIDATES = tuple(
    {**tile(block_m, block_n, 64, num_warps, num_stages), "PROGRAMS": 0, "FIX_M": fix_m}
    for block_m, block_n, num_warps, num_stages, fix_m in (
        *((128, 256, 8, 3, 8), (128, 256, 8, 3, 16), (128, 256, 8, 3, 32), (128, 256, 8, 4, 16)),
        *((256, 128, 8, 3, 16), (256, 128, 8, 3, 32), (256, 128, 8, 4, 16)),
        *((128, 128, 4, 3, 16), (128, 128, 4, 4, 16), (128, 128, 8, 3, 16), (128, 128, 8, 4, 16)),
        *((128, 128, 8, 4, 32), (128, 128, 8, 4, 8)),
    )
)

SWEEP = Sweep(
    "gemm_stream_k",
    "triton.gemm_stream_k",
    (
        SizeClass(
            {"element_bits": 16, "outputs_min": OUTPUTS_MIN},
            ("gemm-m896-n4864-k8192-f16", "gemm-m1792-n2432-k8192-bf16-nt"),
            CANDIDATES,
        ),
    ),
)
