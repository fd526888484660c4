"""Builds of `gluon.flash`: every head dimension and mask, with log-sum-exp. Names and values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.configs import ConfigChoice
from kernels.gluon.prefill.space import HEAD_DIMS, SINCE, SPACE
from kernels.triton.builds import ELEMENTS
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, KeyTile, Proof, TritonSource
from pytest_attnperf.workloads.prefill import Prefill

VARIANTS = (
    *((head_dim, "bf16", causal) for head_dim in HEAD_DIMS for causal in (True, False)),
    (128, "f16", True),
)
"""Head dimension, dtype and mask of each build."""


@dataclass(frozen=True)
class GluonPrefillKernel(Kernel):
    """The kernel of `gluon.flash` for an architecture, in the configurations that its launcher takes."""

    name: str = "gluon.prefill"
    backends: tuple[str, ...] = ("gluon.flash",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per entry of VARIANTS, for ragged lengths; none for an architecture without a kernel."""
        return [self._make_build(arch, *variant) for variant in VARIANTS] if arch in SINCE else []

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns that there is no kernel for `arch`, or nothing."""
        return [] if arch in SINCE else [f"{self.name} has a kernel for {', '.join(SINCE)}, not for {arch}"]

    def _make_build(self, arch: str, head_dim: int, dtype: str, causal: bool) -> KernelBuild:
        rule = SPACE.choose(arch, {"head_dim": head_dim}).rule
        element = ELEMENTS[dtype][0]
        if arch == "gfx950":
            tensors = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), element)
            constants: dict[str, object] = {"HEAD_DIM": head_dim, "XCDS": 8, **rule.constants}
        else:
            rows = {
                "q_desc": 64,
                "k_desc": rule.constants["BLOCK_N"],
                "v_desc": rule.constants["BLOCK_N"],
                "out_desc": 64,
            }
            tensors = {name: _describe(element, count, head_dim) for name, count in rows.items()}
            tensors["schedule_ptr"] = "*i32"
            constants = {"GROUPS": rule.constants["BLOCK_M"] // 64}
        problem = Prefill(1, 37, 8, head_dim, seq_kv=83, kv_heads=4, dtype=dtype, causal=causal, lse=True)
        pinned = ConfigChoice(SPACE.rules_arch(arch), rule).config_entries()
        sizes = dict.fromkeys((*(("most",) if arch == "sm_90" else ()), "heads", "kv_heads", "seq_q", "seq_kv"), "i32")
        return KernelBuild(
            kernel=self.name,
            config=f"d{head_dim}-{dtype}-{'causal' if causal else 'full'}",
            arch=arch,
            source=TritonSource(
                module=f"kernels.gluon.prefill.{arch}",
                function=f"prefill_{arch}_kernel",
                signature={**tensors, "lse_ptr": "*fp32", **sizes, "scale_log2": "fp32"},
                constants={"CAUSAL": causal, **constants},
                divisible_by_16=tuple(name for name in (*tensors, "lse_ptr") if name.endswith("_ptr")),
                options=rule.options,
            ),
            settings={name: str(value) for name, value in sorted(rule.config.items())},
            matrix=True,
            where=f"kernels/gluon/configs/{SPACE.kernel}/{arch}.json",
            tile=KeyTile(4 * head_dim, 4 * head_dim) if arch == "gfx950" else None,
            proofs=(Proof(self.backends[0], problem, pinned),),
        )


def _describe(element: str, rows: int, head_dim: int) -> str:
    """Returns the type of a TMA descriptor of `rows` rows of one head, as Triton writes it."""
    layout = "NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)"
    return f"tensordesc<{element.removeprefix('*')}[1, {rows}, 1, {head_dim}],{layout}>"


KERNELS = (GluonPrefillKernel(),)
