"""Builds of the rotary embedding: every shipped rule, in the variants of its launcher.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space
from kernels.triton.builds import ELEMENTS, TritonKernel, make_build
from kernels.triton.rope.space import SPACE
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.rope import Rope

POINTERS = ("q_ptr", "k_ptr", "q_out_ptr", "k_out_ptr")
TABLES = ("cos_ptr", "sin_ptr")
SIZES = ("tokens", "seq", "heads", "kv_heads")


@dataclass(frozen=True)
class RopeKernel(TritonKernel):
    """`rope_kernel` at the largest head dimension of each rule, a power of two, for both kinds of pairs."""

    space: Space = SPACE
    name: str = "triton.rope"
    backends: tuple[str, ...] = ("triton.rope",)

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` per dtype and kind of pairs that the rule takes."""
        head_dim = int(rule.when["head_dim_max"])
        for dtype in ("bf16", "f32"):
            element, bits = ELEMENTS[dtype]
            for interleaved in (False, True):
                asked = {"element_bits": bits, "interleaved": interleaved}
                if any(rule.when.get(name, value) != value for name, value in asked.items()):
                    continue
                proof = Rope(2, 16, 16, head_dim, kv_heads=2, dtype=dtype, interleaved=interleaved)
                yield make_build(
                    self.name,
                    arch,
                    f"d{head_dim}-{dtype}-{'interleaved' if interleaved else 'halves'}",
                    self.space,
                    rule,
                    module="rope.kernel",
                    function="rope_kernel",
                    signature={
                        **dict.fromkeys(POINTERS, element),
                        **dict.fromkeys(TABLES, "*fp32"),
                        **dict.fromkeys(SIZES, "i32"),
                    },
                    constants={"INTERLEAVED": interleaved, "HALF": head_dim // 2, "BLOCK_D": head_dim // 2},
                    divisible_by_16=(*POINTERS, *TABLES, "tokens", "seq", "heads"),
                    proofs=[(self.backends[0], proof)],
                )


KERNELS = (RopeKernel(),)
