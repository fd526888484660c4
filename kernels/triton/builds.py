"""Shared by the declarations of our Triton kernels: whether products run on matrix units, and names of builds.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.configs import ConfigChoice, ConfigRule, Space
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, KeyTile, Proof, TritonSource

if TYPE_CHECKING:
    from pytest_attnperf.workloads.base import Workload

CDNA = frozenset({"gfx908", "gfx90a", "gfx942", "gfx950"})


ELEMENTS = {"f16": ("*fp16", 16), "bf16": ("*bf16", 16), "f32": ("*fp32", 32)}
"""Workload dtype -> its pointer type as Triton writes it, and bits."""


def has_matrix_instructions(arch: str, element_bits: int) -> bool:
    """Returns whether products of this width run on matrix units: 16 bits everywhere, exact 32 bits on CDNA only.

    AMD's instruction set guides: V_MFMA_F32_*_F32 exists from CDNA1 on, RDNA3's and RDNA4's WMMA takes 16 bits and
    fewer. NVIDIA's tensor cores round 32-bit inputs to TF32, which 'ieee' forbids.
    """
    return element_bits <= 16 or arch in CDNA


@dataclass(frozen=True)
class TritonKernel(Kernel):
    """A kernel of this folder. A subclass defines `builds_under`, or `builds` if only certain problems are compiled.

    space    its configuration space
    """

    space: Space

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns the builds of each rule for `arch` (its own, else 'default'); of equal ids only the first."""
        found: dict[str, KernelBuild] = {}
        for rule in self.space.load_rules(arch):
            for one in self.builds_under(arch, rule):
                found.setdefault(one.config, one)
        return list(found.values())

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterable[KernelBuild]:
        """Returns the builds in the configuration of one rule: one for every kind of problem that it serves."""
        raise NotImplementedError(f"{type(self).__name__} must override builds() or builds_under()")


def make_build(
    kernel: str,
    arch: str,
    config: str,
    space: Space,
    rule: ConfigRule,
    *,
    module: str,
    function: str,
    signature: Mapping[str, str],
    constants: Mapping[str, object],
    divisible_by_16: Sequence[str] = (),
    matrix: bool = False,
    tile: KeyTile | None = None,
    proofs: Iterable[tuple[str, Workload]] = (),
    pins: Iterable[tuple[Space, ConfigRule]] = (),
) -> KernelBuild:
    """Returns one build of `kernels.triton.<module>.<function>` for `arch` under a rule of `space`.

    kernel       registered name, e.g. 'triton.gemm'
    config       id of the configuration, see `KernelBuild`
    module       e.g. 'gemm.kernel'
    constants    values of the `tl.constexpr` arguments that the rule does not set
    tile         see `KernelBuild`
    proofs       (backend, problem) on which the build is executed, in the configuration of `rule`
    pins         rules of further kernels of the backends for that, or of this one where `rule` lacks entries
    """
    choice = ConfigChoice(space.rules_arch(arch), rule)
    entries: dict[str, str] = {}
    for one, pinned in ((space, rule), *pins):
        chosen = ConfigChoice(one.rules_arch(arch), pinned)
        # A backend with several kernels names the kernel before each entry, one with a single kernel does not.
        entries |= {**chosen.config_entries(), **chosen.config_entries(f"{one.kernel}.")}
    return KernelBuild(
        kernel=kernel,
        config=config,
        arch=arch,
        source=TritonSource(
            module=f"kernels.triton.{module}",
            function=function,
            signature=signature,
            constants={**constants, **rule.constants},
            divisible_by_16=divisible_by_16,
            options=rule.options,
        ),
        settings={name: str(value) for name, value in sorted(rule.config.items())},
        matrix=matrix,
        tile=tile,
        where=f"kernels/triton/configs/{space.kernel}/{choice.arch}.json",
        proofs=tuple(Proof(backend, workload, entries) for backend, workload in proofs),
    )
