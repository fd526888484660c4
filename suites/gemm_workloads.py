"""The matrix multiplications that are gated, and where each set comes from.

Lines as `--attnperf-workload` takes them: a is m x k, b is k x n (stored n x k with 'nt'). 132 is
the number of multiprocessors of an H100 and an H200 (NVIDIA H100 whitepaper, SXM5).
"""

from __future__ import annotations

from pytest_attnperf.workloads.gemm import Gemm

GEMM_TINY = [Gemm.parse_line("m=63,n=65,k=129,f16")]
"""One short of a tile, one past one, two past one; small enough for a CPU and for Triton's interpreter."""

GEMM_SQUARE = [
    Gemm.parse_line(line)
    for line in (
        "m=8192,n=8192,k=8192,f16",
        "m=4096,n=4096,k=4096,f8e4m3,nt",
        "m=4096,n=4096,k=4096,i8,nt",
        "m=2048,n=2048,k=2048,f32",
    )
]
"""The sizes that vendors and Triton's matrix multiplication tutorial plot; 8 bits with b as their tensor cores read
it."""

GEMM_SKINNY = [Gemm.parse_line("m=16,n=8192,k=8192,f16")]
"""16 tokens through a square projection, whose time is that of reading b once from memory."""

GEMM_LLAMA = [Gemm.parse_line("m=2048,n=14336,k=4096,bf16,nt")]
"""Llama 3 8B's up projection (model dimension 4096, feed-forward 14336: arXiv:2407.21783, table 3) of 2048 tokens."""

GEMM = [*GEMM_TINY, *GEMM_SQUARE, *GEMM_SKINNY, *GEMM_LLAMA]
"""Workloads on which the vendor's library and our kernel are compared."""

GEMM_FURTHER = [
    Gemm.parse_line(line)
    for line in (
        "m=8192,n=8192,k=8192,bf16",
        "m=4096,n=4096,k=4096,f16",
        "m=2048,n=4096,k=14336,bf16,nt",
        "m=1000,n=1111,k=777,f16",
    )
]
"""Our kernel alone: two more squares, Llama 3 8B's down projection, and sizes that no tile and no vector divides."""

GEMM_WAVE_QUANTISED = [
    Gemm.parse_line(line)
    for line in (
        "m=896,n=4864,k=8192,f16",
        "m=1792,n=2432,k=8192,bf16,nt",
    )
]
"""Just more tiles than waves of 132 programs hold, with a long K: what stream-K is meant for (arXiv:2301.03598).

896 x 4864    133 tiles of 128 x 256 (1 wave + 1 tile), 266 of 128 x 128 (2 waves + 2)
1792 x 2432   140 tiles of 128 x 256 (1 wave + 8), 266 of 128 x 128 (2 waves + 2)
"""

GEMM_TYPES = [
    Gemm.parse_line(f"m=4096,n=4096,k=4096,{dtype},nt")
    for dtype in ("f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3fnuz,out=f16", "f8e5m2fnuz,out=f16", "i32")
]
"""Further types of ROCm/triton's 03-matrix-multiplication-all-types.py, whose fp8 is an MI300X's (fnuz) and whose fp8
results are f16. f8e5m2 is OCP's, of NVIDIA, an MI350X and RDNA4. A GPU that does not multiply a format skips it."""

GEMM_TYPES_TINY = [Gemm.parse_line(f"m=63,n=65,k=129,{dtype}") for dtype in ("f8e5m2,out=f16", "f8e4m3fnuz", "i32")]
"""Three of them as small as GEMM_TINY, for a CPU and for Triton's interpreter."""

GEMM_FEW_ROWS = [Gemm.parse_line(f"m=4,n=4096,k=4096,{dtype}") for dtype in ("f16", "i32")]
"""Fewer rows than a matrix instruction takes: a decode step of 4 sequences through Llama 3 8B's output projection, and
the same in int32."""
