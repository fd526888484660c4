"""Multiplies random int32 matrices of all 32 bits in an interpreting process (see `run_interpreted`): a case is a
launcher, sizes and a layout, `gemm 33 65 97 nt`."""

from __future__ import annotations

import torch

from kernels.triton.gemm.kernel import gemm
from kernels.triton.gemm.multiply_reduce import gemm_multiply_reduce

TILE = {"BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 1, "num_stages": 1}


def found(case: str) -> dict[str, torch.Tensor]:
    """The operands, b as (K, N), and their product."""
    launcher, *sizes, layout = case.split()
    m, n, k = map(int, sizes)
    generator = torch.Generator().manual_seed(1)
    a, b = (
        torch.randint(-(2**31), 2**31, shape, generator=generator, dtype=torch.int64).to(torch.int32)
        for shape in ((m, k), (k, n) if layout == "nn" else (n, k))
    )
    a[0, : min(k, 4)] = torch.tensor([-(2**31), 2**31 - 1, -128, 127], dtype=torch.int32)[: min(k, 4)]
    if launcher == "gemm":
        config = {**TILE, "BLOCK_M": 32, "GROUP_M": 2, "DESCRIPTORS": False}
        out = gemm(a, b, transposed=layout == "nt", config=config)
    else:
        out = gemm_multiply_reduce(a, b, transposed=layout == "nt", config=TILE)
    return {"a": a, "b": b if layout == "nn" else b.t(), "out": out}
