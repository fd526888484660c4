"""Properties of an architecture that limit a tuning space: compiler options, registers, shared memory, warps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernels.triton.builds import CDNA
from pytest_attnperf.errors import UsageError

KIB = 1024
SHARED_BYTES = {
    "sm_80": 163 * KIB,
    "sm_86": 99 * KIB,
    "sm_87": 163 * KIB,
    "sm_89": 99 * KIB,
    "sm_90": 227 * KIB,
    "sm_100": 227 * KIB,
    "sm_120": 99 * KIB,
    "gfx950": 160 * KIB,
}
"""Most shared memory (LDS) of a program. CUDA C++ programming guide, technical specifications per compute capability;
LLVM AMDGPU, getAddressableLocalMemorySize."""
LDS_BYTES = 64 * KIB
"""LDS of the other AMD architectures: CDNA1 to CDNA3 and RDNA."""

_ARCH = re.compile(r"sm_[0-9]{2,3}[af]?|gfx[0-9]{1,3}[0-9a-f]")


@dataclass(frozen=True)
class Target:
    """An architecture by name. Raises UsageError for one that is neither AMD's nor NVIDIA's."""

    arch: str

    def __post_init__(self) -> None:
        if not _ARCH.fullmatch(self.arch):
            raise UsageError(
                f"nothing can be tuned for {self.arch!r}: configurations are searched for GPUs only, whose "
                "architecture is spelled 'gfx942' or 'sm_90'"
            )

    @property
    def is_amd(self) -> bool:
        """Whether it is an AMD GPU, whose compiler has the options waves_per_eu and matrix_instr_nonkdim."""
        return self.arch.startswith("gfx")

    @property
    def lanes(self) -> int:
        """Lanes of a warp: 64 on CDNA (gfx9), 32 on RDNA and NVIDIA."""
        return 64 if self.arch.startswith("gfx9") else 32

    @property
    def registers(self) -> int:
        """Most 32-bit registers that a lane can address: 512 on CDNA, VGPRs and AGPRs together, else 256."""
        return 512 if self.arch in CDNA else 256

    @property
    def shared_bytes(self) -> int | None:
        """Most shared memory (LDS) of a program in bytes; None for an architecture that is not listed here."""
        return SHARED_BYTES.get(self.arch, LDS_BYTES if self.is_amd and self.arch != "gfx1250" else None)

    @property
    def warps_max(self) -> int:
        """Most warps of a program, which has at most 1,024 threads."""
        return 1024 // self.lanes

    def possible_warps(self, *counts: int) -> tuple[int, ...]:
        """Returns those of `counts` that are at most `warps_max`."""
        return tuple(count for count in counts if count <= self.warps_max)

    def option_values(self, *, matrix: bool, waves: tuple[int, ...] = (1, 2)) -> dict[str, tuple[int, ...]]:
        """Returns AMD's further compiler options -> values to try; empty on NVIDIA. `waves` are those of waves_per_eu.
        `matrix` adds `matrix_instr_nonkdim` on CDNA, which alone has several shapes; 0 leaves the choice to the
        compiler."""
        if not self.is_amd:
            return {}
        shapes: dict[str, tuple[int, ...]] = {"matrix_instr_nonkdim": (0, 16)} if matrix and self.arch in CDNA else {}
        return {"waves_per_eu": waves, **shapes}
