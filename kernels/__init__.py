"""Our implementations. Importing this package imports neither torch nor a compiler; `register` lists what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.aiter.backends import BACKENDS as AITER
from kernels.hip.decode import BACKENDS as HIP_DECODE
from kernels.hip.decode_builds import KERNELS as HIP_DECODE_KERNELS
from kernels.hip.prefill import BACKENDS as HIP_PREFILL
from kernels.hip.prefill_builds import KERNELS as HIP_PREFILL_KERNELS
from kernels.hip.rope import BACKENDS as HIP_ROPE
from kernels.hip.rope_builds import KERNELS as HIP_ROPE_KERNELS
from kernels.hip.staged import BACKENDS as HIP_STAGED
from kernels.hip.staged_builds import KERNELS as HIP_STAGED_KERNELS
from kernels.layer.layers import layers_over
from kernels.native.backward import BACKENDS as NATIVE_BACKWARD
from kernels.native.backward_flash import BACKENDS as NATIVE_FLASH_BACKWARD
from kernels.native.bandwidth import BACKENDS as NATIVE_BANDWIDTH
from kernels.native.decode import BACKENDS as NATIVE_DECODE
from kernels.native.gemm import BACKENDS as NATIVE_GEMM
from kernels.native.mixed import BACKENDS as NATIVE_MIXED
from kernels.native.mla import BACKENDS as NATIVE_MLA
from kernels.native.prefill import BACKENDS as NATIVE_PREFILL
from kernels.native.rope import BACKENDS as NATIVE_ROPE
from kernels.native.rows import BACKENDS as NATIVE_ROWS
from kernels.native.staged import BACKENDS as NATIVE_STAGED
from kernels.native.varlen import BACKENDS as NATIVE_VARLEN
from kernels.native.varlen_backward import BACKENDS as NATIVE_VARLEN_BACKWARD
from kernels.triton.backward_backend import BACKENDS as TRITON_BACKWARD
from kernels.triton.backward_builds import KERNELS as BACKWARD_KERNELS
from kernels.triton.bandwidth_backend import BACKENDS as TRITON_BANDWIDTH
from kernels.triton.bandwidth_builds import KERNELS as BANDWIDTH_KERNELS
from kernels.triton.decode_backend import BACKENDS as TRITON_DECODE
from kernels.triton.decode_builds import DecodeKernel, DecodeReduceKernel
from kernels.triton.gemm_backend import BACKENDS as TRITON_GEMM
from kernels.triton.gemm_builds import KERNELS as GEMM_KERNELS
from kernels.triton.mixed_backend import BACKENDS as TRITON_MIXED
from kernels.triton.mixed_builds import MixedKernel
from kernels.triton.mla_backend import BACKENDS as TRITON_MLA
from kernels.triton.mla_builds import KERNELS as MLA_KERNELS
from kernels.triton.prefill import BACKENDS as TRITON_PREFILL
from kernels.triton.prefill_builds import PrefillForwardKernel, PrefillPersistentKernel
from kernels.triton.rope_backend import BACKENDS as TRITON_ROPE
from kernels.triton.rope_builds import KERNELS as ROPE_KERNELS
from kernels.triton.rows_backend import BACKENDS as TRITON_ROWS
from kernels.triton.rows_builds import KERNELS as ROWS_KERNELS
from kernels.triton.staged import BACKENDS as TRITON_STAGED
from kernels.triton.staged_builds import KERNELS as TRITON_STAGED_KERNELS
from kernels.triton.trans_v_backend import BACKENDS as TRITON_TRANS_V
from kernels.triton.trans_v_builds import KERNELS as TRANS_V_KERNELS
from kernels.triton.varlen import BACKENDS as TRITON_VARLEN
from kernels.triton.varlen_builds import VarlenForwardKernel

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry


def register(registry: Registry) -> None:
    """Add every backend of this repository."""
    registry.add(*NATIVE_PREFILL)
    registry.add(*NATIVE_BACKWARD)
    registry.add(*NATIVE_VARLEN)
    registry.add(*TRITON_PREFILL, *TRITON_VARLEN)
    registry.add(*NATIVE_DECODE)
    registry.add(*TRITON_DECODE)
    registry.add(*AITER)
    registry.add(*NATIVE_GEMM, *TRITON_GEMM)
    registry.add(*NATIVE_ROWS, *NATIVE_ROPE, *NATIVE_BANDWIDTH)
    registry.add(*TRITON_ROWS, *TRITON_ROPE, *TRITON_BANDWIDTH)
    registry.add(*NATIVE_MIXED, *TRITON_MIXED)
    registry.add(*NATIVE_MLA, *TRITON_MLA)
    registry.add(*NATIVE_FLASH_BACKWARD, *NATIVE_VARLEN_BACKWARD, *TRITON_BACKWARD, *TRITON_TRANS_V)
    registry.add(*HIP_PREFILL, *HIP_STAGED, *HIP_DECODE, *HIP_ROPE)
    registry.add(*NATIVE_STAGED, *TRITON_STAGED)
    registry.add(*layers_over(registry))


def register_kernels(kernels: KernelRegistry) -> None:
    """Add every kernel of this repository that can be compiled without a GPU."""
    kernels.add(PrefillForwardKernel(), PrefillPersistentKernel(), VarlenForwardKernel())
    kernels.add(*GEMM_KERNELS)
    kernels.add(*ROWS_KERNELS, *ROPE_KERNELS, *BANDWIDTH_KERNELS)
    kernels.add(MixedKernel())
    kernels.add(*MLA_KERNELS)
    kernels.add(DecodeKernel(), DecodeReduceKernel())
    kernels.add(*BACKWARD_KERNELS, *TRANS_V_KERNELS)
    kernels.add(*HIP_PREFILL_KERNELS, *HIP_STAGED_KERNELS, *HIP_DECODE_KERNELS, *HIP_ROPE_KERNELS)
    kernels.add(*TRITON_STAGED_KERNELS)
