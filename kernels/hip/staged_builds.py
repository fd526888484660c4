"""What the kernels of the staged pipeline are compiled as for code objects. Names and values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.hip.builds import build, not_amd
from kernels.hip.staged import kernels_of
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.prefill import Prefill

SHAPES = (
    Prefill.parse("prefill-b4-s1024-h8-d64-f16-causal"),
    Prefill.parse("prefill-b4-s2048-h32-hk8-d128-bf16-causal-lse"),
    Prefill.parse("prefill-b4-s1024-h8-d256-f16-causal"),
)
"""Every head dimension of the suites, both element types, with and without log-sum-exp."""


@dataclass(frozen=True)
class HipStagedKernel:
    """One kernel of the pipeline.

    function    its name, and its file's
    settings    macros that its builds differ in
    """

    function: str
    settings: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("hip.staged",)

    @property
    def name(self) -> str:
        """'hip.' and the function."""
        return f"hip.{self.function}"

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """One for each shape that gives other macros."""
        found: dict[str, KernelBuild] = {}
        for shape in SHAPES:
            words = {
                "HEAD_DIM": f"d{shape.head_dim}",
                "ELEMENT_BF16": shape.dtype,
                "WITH_LSE": "lse" if shape.lse else "plain",
            }
            config = "-".join(words[name] for name in self.settings) or "any"
            found[config] = build(self.name, config, arch, kernels_of(shape)[self.function])
        return tuple(found.values())

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Compiled ahead for AMD only."""
        return not_amd(self.name, arch)


KERNELS = (
    HipStagedKernel("qk_scores", ("HEAD_DIM", "ELEMENT_BF16")),
    HipStagedKernel("causal_mask"),
    HipStagedKernel("row_softmax", ("ELEMENT_BF16", "WITH_LSE")),
    HipStagedKernel("weighted_values", ("HEAD_DIM", "ELEMENT_BF16")),
)
