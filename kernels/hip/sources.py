"""What a HIP kernel of this folder is compiled from: a file, its function, macros and launch size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class HipKernel:
    """One kernel of a .hip file of this folder, with the macros that make it one configuration.

    file        e.g. '03_flash.hip'
    function    name of the `KERNEL(...)` in it
    threads     of a workgroup
    defines     macros, e.g. {'HEAD_DIM': '128', 'ELEMENT_BF16': '0'}
    lds_bytes   LDS that the launch adds (`DYNAMIC_LDS`)
    specific    whether it uses what NVIDIA compiles for one architecture only: for 'sm_90a' in place of 'sm_90'
    """

    file: str
    function: str
    threads: int
    defines: Mapping[str, str] = field(default_factory=dict)
    lds_bytes: int = 0
    specific: bool = False

    @property
    def path(self) -> Path:
        """Path of the kernel's .hip file."""
        return FOLDER / self.file


def element_define(dtype: str) -> dict[str, str]:
    """Returns {'ELEMENT_BF16': '1'} for 'bf16', else {'ELEMENT_BF16': '0'}: the macro of the 16-bit type."""
    return {"ELEMENT_BF16": str(int(dtype == "bf16"))}
