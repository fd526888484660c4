"""Builds of the kernel over transposed values: every shipped rule, with and without log-sum-exp.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.trans_v.space import SPACE, tile_head_dim
from pytest_attnperf.kernel_builds import KernelBuild, KeyTile
from pytest_attnperf.workloads.prefill import Prefill

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
            config = f"d{head_dim}-{dtype}-{'causal' if causal else 'full'}{'-lse' if with_lse else ''}"
            yield self._make_build(arch, config, rule, (dtype, causal, with_lse), head_dim, LENGTHS)

    def build_of(self, arch: str, workload: Prefill, rule: ConfigRule) -> KernelBuild:
        """Returns the build for a workload under a rule, as it is launched."""
        sizes = {
            "heads": workload.heads,
            "kv_heads": workload.kv_heads,
            "seq_q": workload.seq_q,
            "seq_kv": workload.seq_kv,
        }
        divisible = tuple(name for name, size in sizes.items() if size % 16 == 0)
        even = workload.seq_kv % int(rule.config["BLOCK_N"]) == 0
        variant = (workload.dtype, workload.causal, workload.lse)
        config = workload.id.removeprefix("prefill-")
        return self._make_build(arch, config, rule, variant, workload.head_dim, divisible, even=even)

    def _make_build(
        self,
        arch: str,
        config: str,
        rule: ConfigRule,
        variant: tuple[str, bool, bool],
        head_dim: int,
        divisible: tuple[str, ...],
        *,
        even: bool = True,
    ) -> KernelBuild:
        dtype, causal, with_lse = variant
        keys = max(2 * int(rule.config["BLOCK_N"]), 64) if even else 83
        proof = Prefill(1, 48, 4, head_dim, seq_kv=keys, kv_heads=2, dtype=dtype, causal=causal, lse=with_lse)
        return make_build(
            self.name,
            arch,
            config,
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
                "EVEN_N": even,
                "HEAD_DIM": head_dim,
                "BLOCK_D": tile_head_dim(head_dim),
                "IN_FP32": False,
            },
            divisible_by_16=(*POINTERS, *(("lse_ptr",) if with_lse else ()), *divisible),
            matrix=has_matrix_instructions(arch, 16),
            tile=KeyTile(4 * head_dim, 4 * head_dim),
            proofs=[(self.backends[0], proof)],
        )


KERNELS = (TransVKernel(),)
