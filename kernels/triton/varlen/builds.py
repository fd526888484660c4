"""Builds of the flash attention kernel over packed sequences, at a head dimension of 128.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.configs import Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.prefill.launch import head_dims
from kernels.triton.varlen.space import SPACE
from pytest_attnperf.kernel_builds import KernelBuild

TYPES = {"f16": "*fp16", "bf16": "*bf16"}
HEAD_DIM = 128


@dataclass(frozen=True)
class VarlenForwardKernel(TritonKernel):
    """`varlen_forward_kernel` in f16 and bf16 for both masks, with log-sum-exp."""

    space: Space = SPACE
    name: str = "triton.varlen_forward"
    backends: tuple[str, ...] = ("triton.flash_varlen",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns four builds for `arch`: f16 and bf16, causal and not."""
        return [self.build_of(arch, dtype, causal) for dtype in TYPES for causal in (True, False)]

    def build_of(
        self, arch: str, dtype: str, causal: bool, head_dim: int = HEAD_DIM, *, windowed: bool = False
    ) -> KernelBuild:
        """Returns the build for `arch` of an element type, mask and head dimension, by the rule that serves them."""
        pointers = {
            **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), TYPES[dtype]),
            "lse_ptr": "*fp32",
            **dict.fromkeys(("cu_q_ptr", "cu_k_ptr"), "*i32"),
        }
        problem = {"head_dim": head_dim, "causal": causal, "element_bits": 16, "plain": not windowed}
        return make_build(
            self.name,
            arch,
            f"d{head_dim}-{dtype}-{'causal' if causal else 'full'}",
            self.space,
            self.space.choose(arch, problem).rule,
            module="varlen.kernel",
            function="varlen_forward_kernel",
            signature={
                **pointers,
                **dict.fromkeys(("heads", "kv_heads", "total_q", *(["window"] if windowed else [])), "i32"),
                "scale_log2": "fp32",
            },
            constants={
                "slopes_ptr": None,
                **({} if windowed else {"window": None}),
                "CAUSAL": causal,
                "WINDOWED": windowed,
                "WITH_LSE": True,
                **head_dims(head_dim, head_dim),
                "PRECISION": "ieee",
                "IN_FP32": False,
            },
            divisible_by_16=tuple(pointers),
            matrix=has_matrix_instructions(arch, 16),
        )


KERNELS = (VarlenForwardKernel(),)
