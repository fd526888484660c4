"""What the rotary embedding is compiled as for code objects. Names and values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.hip.builds import HipKernelBuilds, make_build
from kernels.hip.rope import kernel_of
from pytest_attnperf.kernel_builds import KernelBuild, Proof
from pytest_attnperf.workloads.rope import Rope

SHAPES = tuple(
    map(
        Rope.parse,
        (
            "rope-b4-s4096-h32-hk8-d128-bf16",
            "rope-b8-s4096-h12-d80-f16",
            "rope-b8-s2048-h16-d256-f16-interleaved",
            "rope-b1-s256-h4-hk2-d64-f32",
        ),
    )
)
"""The head dimensions of the suite, every dtype, both kinds of pairs."""


@dataclass(frozen=True)
class HipRopeKernel(HipKernelBuilds):
    """`rope_forward` for the shapes of the suite."""

    name: str = "hip.rope"
    backends: tuple[str, ...] = ("hip.rope",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch` per entry of SHAPES."""
        return tuple(self._make_build(arch, shape) for shape in SHAPES)

    def _make_build(self, arch: str, shape: Rope) -> KernelBuild:
        pairs = "interleaved" if shape.interleaved else "halves"
        proofs = [Proof(self.backends[0], replace(shape, batch=2, seq=7, heads=5, kv_heads=1))]
        config = f"d{shape.head_dim}-{shape.dtype}-{pairs}"
        return make_build(self.name, config, arch, kernel_of(shape), proofs=proofs)


KERNELS = (HipRopeKernel(),)
