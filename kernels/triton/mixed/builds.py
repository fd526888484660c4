"""Builds of the kernel for mixed batches: every shipped rule, at its largest head dimension.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space, pad_size
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.mixed.space import SPACE
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.mixed import Mixed

ELEMENTS = {"f16": "*fp16", "bf16": "*bf16", "kvf8e4m3": "*fp8e4nv", "kvi8": "*i8"}
"""Dtype word of an id -> the element type as Triton writes it."""

GROUP = 4
PAGE = 16
"""As in Llama 3 8B, served with pages of 16."""


@dataclass(frozen=True)
class MixedVariant:
    """One compiled variant of a rule; `name` is its part of the configuration's id.

    decode   whether it is only for steps without prompts
    """

    head_dim: int
    dtype: str
    decode: bool = False
    cache: str = ""
    window: int = 0
    cap: float = 0.0
    sinks: bool = False

    @property
    def proof(self) -> Mixed:
        """A small step: prompts, one of them continued, beside single tokens, or single tokens alone."""
        return Mixed(
            "q1s45_q1s7_q1" if self.decode else "q21_q1s45_q5s30",
            heads=2 * GROUP,
            kv_heads=2,
            head_dim=self.head_dim,
            dtype=self.dtype,
            page=PAGE,
            window=self.window,
            cap=int(self.cap),
            cache=self.cache,
            sinks=self.sinks,
        )

    @property
    def name(self) -> str:
        """Part of the build's id for this variant, e.g. 'd128-bf16-decode-kvi8'."""
        words = [f"d{self.head_dim}", self.dtype, "decode" if self.decode else "mixed", self.cache]
        words += [f"w{self.window}" if self.window else "", f"cap{self.cap:.0f}" if self.cap else ""]
        return "-".join(word for word in [*words, "sinks" if self.sinks else ""] if word)


VARIANTS = (
    MixedVariant(128, "bf16"),
    MixedVariant(128, "f16"),
    MixedVariant(128, "bf16", cache="kvf8e4m3"),
    MixedVariant(128, "bf16", cache="kvi8", window=1024, cap=30.0, sinks=True),
    MixedVariant(128, "bf16", decode=True),
    MixedVariant(128, "bf16", decode=True, cache="kvf8e4m3"),
    MixedVariant(256, "bf16"),
    MixedVariant(256, "bf16", decode=True),
)
"""Plain ones, 8-bit caches, one with every feature, and the largest head dimension."""


@dataclass(frozen=True)
class MixedKernel(TritonKernel):
    """`mixed_kernel` in each variant, under the rule that would take it."""

    space: Space = SPACE
    name: str = "triton.mixed"
    backends: tuple[str, ...] = ("triton.unified",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per variant in VARIANTS."""
        return list(self._make_builds(arch))

    def _make_builds(self, arch: str) -> Iterator[KernelBuild]:
        for variant in VARIANTS:
            problem = {
                "head_dim": variant.head_dim,
                "group": GROUP,
                "longest_query": 1 if variant.decode else 2048,
                "cache_bits": 8 if variant.cache else 16,
            }
            rule: ConfigRule = self.space.choose(arch, problem).rule
            yield make_build(
                self.name,
                arch,
                variant.name,
                self.space,
                rule,
                module="mixed.kernel",
                function="mixed_kernel",
                signature=_kernel_signature(ELEMENTS[variant.dtype], ELEMENTS[variant.cache or variant.dtype]),
                constants=_kernel_constants(variant),
                divisible_by_16=[name for name in _kernel_signature("", "") if name.endswith("_ptr")],
                matrix=has_matrix_instructions(arch, 16),
                proofs=[(self.backends[0], variant.proof)],
            )


def _kernel_signature(element: str, cached: str) -> dict[str, str]:
    """Returns argument name -> type of `mixed_attention`'s launch; `element` is q's, `cached` that of k and v."""
    return {
        **dict.fromkeys(("q_ptr", "out_ptr"), element),
        **dict.fromkeys(("k_ptr", "v_ptr"), cached),
        **dict.fromkeys(("table_ptr", "cu_seqlens_ptr", "seq_lens_ptr"), "*i32"),
        **dict.fromkeys(("sinks_ptr", "k_scale_ptr", "v_scale_ptr"), "*fp32"),
        **dict.fromkeys(("sequences", "table_stride", "kv_heads"), "i32"),
        "scale": "fp32",
    }


def _kernel_constants(variant: MixedVariant) -> dict[str, object]:
    return {
        "GROUP": GROUP,
        "PAGE": PAGE,
        "WINDOW": variant.window,
        "CAP": variant.cap,
        "WITH_SINKS": variant.sinks,
        "QUANTISED": bool(variant.cache),
        "HEAD_DIM": variant.head_dim,
        "BLOCK_D": pad_size(variant.head_dim),
        "PRECISION": "ieee",
        "IN_FP32": False,
    }


KERNELS = (MixedKernel(),)
