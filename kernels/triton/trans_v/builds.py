"""Builds of the kernel over transposed values: every shipped rule, with and without log-sum-exp.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.trans_v.space import SPACE
from pytest_attnperf.kernel_builds import KernelBuild

POINTERS = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
LENGTHS = ("seq_q", "seq_kv")
ELEMENTS = {"f16": "*fp16", "bf16": "*bf16"}
VARIANTS = (("f16", True, False), ("f16", False, False), ("bf16", True, True))
"""(element type, causal, with log-sum-exp), of lengths that tiles and 16 divide, as in the comparison of layouts."""


@dataclass(frozen=True)
class TransVKernel(TritonKernel):
    """`trans_v_kernel` at the head dimension of each rule."""

    space: Space = SPACE
    name: str = "triton.trans_v"
    backends: tuple[str, ...] = ("triton.flash_trans_v",)

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` per variant in VARIANTS that the rule takes."""
        head_dim = int(rule.when["head_dim"])
        for dtype, causal, with_lse in VARIANTS:
            if rule.when.get("causal", causal) != causal:
                continue
            yield make_build(
                self.name,
                arch,
                f"d{head_dim}-{dtype}-{'causal' if causal else 'full'}{'-lse' if with_lse else ''}",
                self.space,
                rule,
                module="trans_v.kernel",
                function="trans_v_kernel",
                signature={
                    **dict.fromkeys(POINTERS, ELEMENTS[dtype]),
                    **({"lse_ptr": "*fp32"} if with_lse else {}),
                    **dict.fromkeys(("heads", "kv_heads", *LENGTHS), "i32"),
                    "scale_log2": "fp32",
                },
                constants={
                    **({} if with_lse else {"lse_ptr": None}),
                    "CAUSAL": causal,
                    "WITH_LSE": with_lse,
                    "EVEN_N": True,
                    "HEAD_DIM": head_dim,
                    "IN_FP32": False,
                },
                divisible_by_16=(*POINTERS, *(("lse_ptr",) if with_lse else ()), *LENGTHS),
                matrix=has_matrix_instructions(arch, 16),
            )


KERNELS = (TransVKernel(),)
