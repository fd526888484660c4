"""What the kernels of the staged pipeline are compiled as for code objects. Names and values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.hip.builds import HipKernelBuilds, make_build
from kernels.hip.staged import kernels_of
from pytest_attnperf.kernel_builds import KernelBuild, Proof
from pytest_attnperf.workloads.prefill import Prefill

SHAPES = (
    Prefill.parse("prefill-b4-s1024-h8-d64-f16-causal"),
    Prefill.parse("prefill-b4-s2048-h32-hk8-d128-bf16-causal-lse"),
    Prefill.parse("prefill-b4-s1024-h8-d256-f16-causal"),
)
"""Every head dimension of the suites, both element types, with and without log-sum-exp."""


@dataclass(frozen=True)
class HipStagedKernel(HipKernelBuilds):
    """One kernel of the pipeline.

    function    its name, and its file's
    settings    macros that its builds differ in
    """

    function: str
    settings: tuple[str, ...] = ()

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per set of macros that SHAPES give this kernel."""
        found: dict[str, KernelBuild] = {}
        for shape in SHAPES:
            words = {
                "HEAD_DIM": f"d{shape.head_dim}",
                "ELEMENT_BF16": shape.dtype,
                "WITH_LSE": "lse" if shape.lse else "plain",
            }
            config = "-".join(words[name] for name in self.settings) or "any"
            problem = replace(shape, batch=1, seq_q=21, seq_kv=37, heads=4, kv_heads=2)
            proofs = [Proof(self.backends[0], each) for each in (problem, replace(problem, seq_kv=9))]
            found[config] = make_build(self.name, config, arch, kernels_of(shape)[self.function], proofs=proofs)
        return tuple(found.values())


LAUNCHED_BY = ("hip.staged",)
KERNELS = (
    HipStagedKernel("hip.qk_scores", LAUNCHED_BY, "qk_scores", ("HEAD_DIM", "ELEMENT_BF16")),
    HipStagedKernel("hip.causal_mask", LAUNCHED_BY, "causal_mask"),
    HipStagedKernel("hip.row_softmax", LAUNCHED_BY, "row_softmax", ("ELEMENT_BF16", "WITH_LSE")),
    HipStagedKernel("hip.weighted_values", LAUNCHED_BY, "weighted_values", ("HEAD_DIM", "ELEMENT_BF16")),
)
