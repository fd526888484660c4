"""What the prefill kernel is compiled as: every shipped rule, in the variants that its launcher makes of it.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.triton.configs import PREFILL_FORWARD, Rule, load, padded_head_dim
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource

POINTERS = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
LENGTHS = ("seq_q", "seq_kv")
OPTIONS = frozenset({"num_warps", "num_stages", "waves_per_eu"})
"""Entries of a rule's config that are the compiler's; the others are the kernel's own constants."""

TYPES = {16: {"f16": "*fp16", "bf16": "*bf16"}, 32: {"f32": "*fp32"}}
"""Element types that a rule's width stands for, as Triton writes them."""

CDNA = frozenset({"gfx908", "gfx90a", "gfx942", "gfx950"})
WHERE = "kernels/triton/configs/prefill_forward.json"


@dataclass(frozen=True)
class PrefillForwardKernel:
    """`prefill_forward_kernel` at the largest head dimension of each rule, with log-sum-exp.

    Ragged lengths (both key loops, masked tails) for both masks; and for causal masks lengths that tiles and 16 divide,
    where the launcher leaves the masks of the last tile out.
    """

    path: Path = PREFILL_FORWARD
    name: str = "triton.prefill_forward"
    backends: tuple[str, ...] = ("triton.flash",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """One build per rule of `arch` (or of 'default'), element type, mask and kind of lengths."""
        rules = load(self.path)
        found: dict[str, KernelBuild] = {}
        for rule in rules.get(arch, rules["default"]):
            for build in _builds_of(self.name, arch, rule):
                found.setdefault(build.config, build)  # as `choose`: the first rule that takes the problem
        return list(found.values())

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Every architecture that Triton has is taken; a compiler that lacks one says so itself."""
        return []


def _builds_of(kernel: str, arch: str, rule: Rule) -> Iterator[KernelBuild]:
    for dtype, element in TYPES[rule.element_bits].items():
        for causal, even in ((True, False), (False, False), (True, True)):
            if rule.causal in (None, causal):
                mask, lengths = "causal" if causal else "full", "even" if even else "ragged"
                yield KernelBuild(
                    kernel=kernel,
                    config=f"d{rule.head_dim_max}-{dtype}-{mask}-{lengths}",
                    arch=arch,
                    source=_source(rule, element, causal=causal, even=even),
                    settings={name: str(value) for name, value in sorted(rule.config.items())},
                    matrix=_has_matrix_instructions(arch, rule.element_bits),
                    where=WHERE,
                )


def _source(rule: Rule, element: str, *, causal: bool, even: bool) -> TritonSource:
    """As `prefill_forward` launches it."""
    constants: dict[str, Any] = {
        "CAUSAL": causal,
        "WITH_LSE": True,
        "EVEN_N": even,
        "HEAD_DIM": rule.head_dim_max,
        "BLOCK_D": padded_head_dim(rule.head_dim_max),
        "PRECISION": "ieee",
        "IN_FP32": False,
        **{name: value for name, value in rule.config.items() if name not in OPTIONS},
    }
    return TritonSource(
        module="kernels.triton.prefill_forward",
        function="prefill_forward_kernel",
        signature={
            **dict.fromkeys(POINTERS, element),
            "lse_ptr": "*fp32",
            **dict.fromkeys(("heads", "kv_heads", *LENGTHS), "i32"),
            "scale_log2": "fp32",
        },
        constants=constants,
        divisible_by_16=(*POINTERS, "lse_ptr", *(LENGTHS if even else ())),
        options={name: value for name, value in rule.config.items() if name in OPTIONS},
    )


def _has_matrix_instructions(arch: str, element_bits: int) -> bool:
    """16-bit products run on matrix units everywhere, exact 32-bit ones on CDNA only.

    AMD's instruction set guides: V_MFMA_F32_*_F32 exists from CDNA1 on, RDNA3's and RDNA4's WMMA takes 16 bits and
    fewer. NVIDIA's tensor cores round 32-bit inputs to TF32, which 'ieee' forbids.
    """
    return element_bits == 16 or arch in CDNA
