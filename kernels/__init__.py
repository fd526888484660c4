"""Our implementations. Importing this package imports neither torch nor a compiler; `register` lists what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.aiter.prefill import AiterFlash
from kernels.native.backward import BACKENDS as NATIVE_BACKWARD
from kernels.native.prefill import BACKENDS as NATIVE
from kernels.triton.prefill import TritonFlash
from kernels.triton.prefill_builds import PrefillForwardKernel

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry

INTERPRETER_FLOPS_MAX = 6e7
"""Triton's interpreter takes about a second for this much, in tiles of 32 x 32."""


def register(registry: Registry) -> None:
    """Add every backend of this repository."""
    registry.add(
        *NATIVE,
        *NATIVE_BACKWARD,
        TritonFlash("triton.flash", INTERPRETER_FLOPS_MAX, times_on_cpu=False),
        AiterFlash("ck"),
    )


def register_kernels(kernels: KernelRegistry) -> None:
    """Add every kernel of this repository that can be compiled without a GPU."""
    kernels.add(PrefillForwardKernel())
