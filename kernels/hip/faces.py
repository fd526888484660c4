"""Properties of an architecture that a HIP kernel's launch depends on: the wave, and the LDS layout of matrix.h.

The numbers repeat `GPU_WAVE` of gpu_amd.h and gpu_nvidia.h and the constants of gpu.h and matrix.h. The emulator runs
every kernel with the LDS size computed from them, and reports the first access beyond it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_attnperf.measure.executing import executing_arch

if TYPE_CHECKING:
    import torch

ELEMENT_BYTES = 2
EMULATED_ARCH = "ATTNPERF_HIP_EMULATE"
"""Environment variable: the architecture to imitate without a GPU; gfx942 unless set."""

NVIDIA_OLDEST = 80
"""The oldest NVIDIA architecture: sm_80 introduced mma.sync.m16n8k16 and cp.async."""


@dataclass(frozen=True)
class Face:
    """The properties of one architecture that kernels depend on.

    wave                  lanes of a wave
    matrix                whether it has matrix instructions that matrix.h uses
    operand_columns       columns of an operand of a matrix instruction: head dimensions are filled up to a multiple
    lds_padding           elements added to each row of a tile in LDS
    values_transposed     whether V is kept as [dim][key]
    buffers               tiles of K and V in LDS, so that the next can load meanwhile
    queries_direct        whether queries that stay in registers come there without LDS
    """

    wave: int
    matrix: bool
    operand_columns: int
    lds_padding: int
    values_transposed: bool
    buffers: int
    queries_direct: bool = False

    def tiles_bytes(self, head_dim: int, block_m: int, block_n: int) -> tuple[int, int]:
        """Returns (LDS bytes of BLOCK_M rows of Q, LDS bytes of all buffered tiles of K and V), in the layout of the
        kernels of steps 6 and 7."""
        row = -(-head_dim // self.operand_columns) * self.operand_columns + self.lds_padding
        dims = -(-head_dim // 16) * 16
        values = dims * (block_n + self.lds_padding) if self.values_transposed else block_n * row
        return ELEMENT_BYTES * block_m * row, ELEMENT_BYTES * self.buffers * (block_n * row + values)


CDNA = Face(
    wave=64, matrix=True, operand_columns=32, lds_padding=0, values_transposed=True, buffers=1, queries_direct=True
)
CDNA4 = replace(CDNA, values_transposed=False)
RDNA = Face(wave=32, matrix=True, operand_columns=16, lds_padding=8, values_transposed=True, buffers=1)
RDNA_WITHOUT = Face(wave=32, matrix=False, operand_columns=16, lds_padding=8, values_transposed=True, buffers=1)
GCN = Face(wave=64, matrix=False, operand_columns=16, lds_padding=8, values_transposed=True, buffers=1)
NVIDIA = Face(wave=32, matrix=True, operand_columns=16, lds_padding=8, values_transposed=False, buffers=2)


def face_of(arch: str) -> Face:
    """Returns the properties that gpu.h selects for an architecture such as 'gfx942', 'gfx1100', 'sm_90'."""
    if not arch.startswith("gfx"):
        return NVIDIA
    if arch in ("gfx90a", "gfx942", "gfx950"):
        return CDNA4 if arch == "gfx950" else CDNA
    if arch.startswith(("gfx11", "gfx12")):
        return RDNA
    return GCN if arch.startswith("gfx9") else RDNA_WITHOUT


def emulated_arch() -> str:
    """Returns the architecture that the emulator imitates: ATTNPERF_HIP_EMULATE, else 'gfx942'."""
    return os.environ.get(EMULATED_ARCH) or "gfx942"


def arch_of(device: torch.device) -> str:
    """Returns a GPU's architecture, e.g. 'gfx942' or 'sm_90'; for a CPU the one whose machine code is executed, else
    the one that the emulator imitates."""
    if device.type == "cpu":
        return executing_arch() or emulated_arch()
    from kernels.triton.triton_backend import arch_of as arch_of_gpu

    return arch_of_gpu(device)
