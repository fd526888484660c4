"""What the steps of the HIP ladder are compiled as for code objects. Names and values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.configs import ConfigChoice
from kernels.hip.builds import HipKernelBuilds, make_build
from kernels.hip.faces import face_of
from kernels.hip.steps import STEPS, LadderStep, problem_of
from pytest_attnperf.kernel_builds import KernelBuild, KeyTile, Proof
from pytest_attnperf.workloads.prefill import Prefill

SHAPES = (
    Prefill(batch=4, seq_q=4096, heads=32, kv_heads=8, head_dim=64, dtype="f16", causal=True),
    Prefill(batch=4, seq_q=4096, heads=32, kv_heads=8, head_dim=128, dtype="bf16", causal=True),
    Prefill(batch=4, seq_q=4096, heads=32, kv_heads=8, head_dim=128, dtype="f16", lse=True),
    Prefill(batch=4, seq_q=4096, heads=32, kv_heads=8, head_dim=256, dtype="f16", causal=True),
)
"""What users run: every head dimension of the suites, both element types, with and without mask and statistics."""


@dataclass(frozen=True)
class HipStepKernel(HipKernelBuilds):
    """One step of the ladder, compiled for an architecture that need not be here."""

    step: LadderStep

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per entry of SHAPES whose head dimension the step takes on `arch`; none without its
        instructions."""
        if self.step.arch_reasons(arch):
            return ()
        return tuple(self._make_build(arch, each) for each in SHAPES if each.head_dim <= self.step.head_dim_max(arch))

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns a reason for architectures other than AMD's, and for those without the step's instructions."""
        return [*super().unsupported_reasons(arch), *self.step.arch_reasons(arch)]

    def _make_build(self, arch: str, shape: Prefill) -> KernelBuild:
        choice = self.step.space.choose(arch, problem_of(shape))
        kernel, _ = self.step.make_kernel(shape, arch, choice)
        # Steps on matrix units give each wave 16 rows, or ROW_TILES times as many.
        rows = tuple(name for name in ("WAVES", "ROW_TILES") if name in self.step.constants)
        problem = replace(shape, batch=1, seq_q=37, seq_kv=83, heads=4, kv_heads=2)
        proofs = (problem, replace(problem, seq_q=45, seq_kv=19)) if shape.causal else (problem,)
        flags = [flag for flag in ("causal", "lse") if getattr(shape, flag)]
        return make_build(
            self.name,
            "_".join([f"d{shape.head_dim}", shape.dtype, *flags]),
            arch,
            kernel,
            settings=_format_settings(choice),
            matrix=self.step.matrix and face_of(arch).matrix,
            where=f"kernels/hip/configs/{self.step.space.kernel}/{choice.arch}.json",
            tile=KeyTile(4 * shape.head_dim, 4 * shape.head_dim, rows, 16) if rows else None,
            proofs=[Proof(self.backends[0], each, choice.config_entries()) for each in proofs],
        )


def _format_settings(choice: ConfigChoice) -> dict[str, str]:
    return {name: str(value) for name, value in sorted(choice.config.items())}


KERNELS = tuple(HipStepKernel(step.name, (step.name,), step) for step in STEPS)
