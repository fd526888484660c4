"""What a HIP kernel's launch depends on of an architecture: the wave, and how matrix.h lays tiles out in LDS.

The figures repeat `GPU_WAVE` of gpu_amd.h and gpu_nvidia.h and the constants of gpu.h and matrix.h; the emulator runs
every kernel with the LDS that is computed from them, and stops it at the first byte beyond.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ELEMENT_BYTES = 2
EMULATED_ARCH = "ATTNPERF_HIP_EMULATE"
"""Environment variable: the architecture that is imitated where there is no GPU; gfx942 unless set."""

NVIDIA_OLDEST = 80
"""mma.sync.m16n8k16 and cp.async are there since sm_80."""


@dataclass(frozen=True)
class Face:
    """One architecture as the kernels see it.

    wave                  lanes of a wave
    matrix                whether it has matrix instructions that matrix.h uses
    lds_padding           elements added to each row of a tile in LDS
    values_transposed     whether V is kept as [dim][key]
    buffers               tiles of K and V in LDS while the next are on their way
    """

    wave: int
    matrix: bool
    lds_padding: int
    values_transposed: bool
    buffers: int

    def tiles_bytes(self, head_dim: int, block_m: int, block_n: int) -> tuple[int, int]:
        """LDS in bytes of BLOCK_M rows of Q, and of the tiles of K and V, as steps 6 and 7 lay them out."""
        dim = -(-head_dim // 16) * 16
        row = dim + self.lds_padding
        values = dim * (block_n + self.lds_padding) if self.values_transposed else block_n * row
        return ELEMENT_BYTES * block_m * row, ELEMENT_BYTES * self.buffers * (block_n * row + values)


CDNA = Face(wave=64, matrix=True, lds_padding=4, values_transposed=True, buffers=1)
RDNA = Face(wave=32, matrix=True, lds_padding=8, values_transposed=True, buffers=1)
RDNA_WITHOUT = Face(wave=32, matrix=False, lds_padding=8, values_transposed=True, buffers=1)
GCN = Face(wave=64, matrix=False, lds_padding=8, values_transposed=True, buffers=1)
NVIDIA = Face(wave=32, matrix=True, lds_padding=8, values_transposed=False, buffers=2)


def face_of(arch: str) -> Face:
    """Of 'gfx942', 'gfx1100', 'sm_90' ...: what gpu.h selects for it."""
    if not arch.startswith("gfx"):
        return NVIDIA
    if arch in ("gfx90a", "gfx942", "gfx950"):
        return CDNA
    if arch.startswith(("gfx11", "gfx12")):
        return RDNA
    return GCN if arch.startswith("gfx9") else RDNA_WITHOUT


def emulated_arch() -> str:
    """The architecture that is imitated where there is no GPU."""
    return os.environ.get(EMULATED_ARCH) or "gfx942"


def arch_of(device: torch.device) -> str:
    """'gfx942', 'sm_90'; on a CPU the architecture that the emulator imitates."""
    if device.type == "cpu":
        return emulated_arch()
    from kernels.triton.triton_backend import arch_of as arch_of_gpu

    return arch_of_gpu(device)
