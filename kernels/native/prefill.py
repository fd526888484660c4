"""The prefill backends made of torch's own operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.limits import HALVES
from kernels.native.prefill_compiled import CompiledPrefill, Flex
from kernels.native.prefill_eager import Eager
from kernels.native.prefill_sdpa import PinnedSdpa

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend

CPU_FLOPS_MAX = 6e8
"""CPU limit that keeps a check and a timing on two cores within seconds: 512 keys of 8 heads of 64."""

CPU_HALF_FLOPS_MAX = 2e8
"""The limit for half-precision matmuls, about ten times slower than fp32 on CPUs without units for them."""

ROW_BYTES = 16
"""What torch's checks want of a row for efficient and cuDNN attention (sdp_utils.cpp: minimum_gemm_alignment,
check_cudnn_tensor_shapes); flash attention's rows are padded to it by `scaled_dot_product_attention` itself."""

BACKENDS: tuple[Backend, ...] = (
    Eager("native.eager", CPU_HALF_FLOPS_MAX),
    Eager("native.eager_fp32", CPU_FLOPS_MAX, upcast=True),
    PinnedSdpa("native.sdpa_flash", CPU_FLOPS_MAX, backend="FLASH_ATTENTION", gpu_dtypes=HALVES, head_dim_max=256),
    PinnedSdpa(
        "native.sdpa_efficient",
        backend="EFFICIENT_ATTENTION",
        kinds=frozenset({"cuda", "rocm"}),
        # f32 is emulated: three TF32 products for one (CUTLASS's OpMultiplyAddFastF32, gemm_kernel_utils.h in torch's
        # mem_eff_attention). Its error is up to 1.3 budgets of f32, but within the budget of tf32.
        gpu_dtypes=HALVES | {"tf32"},
        grouped_heads=False,
        row_bytes=ROW_BYTES,
    ),
    PinnedSdpa(
        "native.sdpa_cudnn",
        backend="CUDNN_ATTENTION",
        kinds=frozenset({"cuda"}),
        gpu_dtypes=HALVES,
        head_dim_max=256,
        row_bytes=ROW_BYTES,
    ),
    PinnedSdpa("native.sdpa_math", CPU_FLOPS_MAX, backend="MATH"),
    Flex("native.flex"),
    CompiledPrefill("native.compiled"),
)
