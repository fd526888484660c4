"""Builds of `gluon.gemm`: each dtype, layout and rule, on problems that stand for what a user runs. Names and values
only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.configs import ConfigChoice
from kernels.gluon.gemm.space import DTYPES, SINCE, SPACE, problem_of
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, Proof, TritonSource
from pytest_attnperf.workloads.base import DTYPE_BYTES
from pytest_attnperf.workloads.gemm import Gemm

PROBLEMS = (
    "gemm-m8192-n8192-k8192-f16",
    "gemm-m2048-n14336-k4096-bf16-nt",
    "gemm-m4096-n4096-k4096-bf16-outf32",
    "gemm-m1000-n1112-k776-f16",
    "gemm-m4096-n4096-k4096-f8e4m3-nt",
    "gemm-m4096-n4096-k4096-f8e5m2-nt-outf16",
)
CUT_PROBLEM = "gemm-m1792-n2432-k8192-bf16-nt"
"""The problem whose last tiles are cut along K."""

ELEMENTS = DTYPES | {"f32": "fp32"}


@dataclass(frozen=True)
class GluonGemmKernel(Kernel):
    """The kernel of `gluon.gemm` for an architecture, in the configurations that its launcher takes."""

    name: str = "gluon.gemm"
    backends: tuple[str, ...] = ("gluon.gemm", "gluon.gemm_cut")

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per entry of PROBLEMS, and of CUT_PROBLEM; none for an architecture without a kernel."""
        if arch not in SINCE:
            return []
        workloads = [Gemm.parse(text) for text in (*PROBLEMS, CUT_PROBLEM)]
        chosen = [SPACE.choose(arch, problem_of(workload)) for workload in workloads[:-1]]
        chosen.append(SPACE.choose_alternative("cut", arch, problem_of(workloads[-1])))
        return [self._make_build(arch, *each) for each in zip(workloads, chosen, strict=True)]

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns that there is no kernel for `arch`, or nothing."""
        return [] if arch in SINCE else [f"{self.name} has a kernel for {', '.join(SINCE)}, not for {arch}"]

    def _make_build(self, arch: str, workload: Gemm, choice: ConfigChoice) -> KernelBuild:
        rule, cut = choice.rule, bool(choice.rule.constants["CUT"])
        block_m, block_n, block_k = (int(rule.constants[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        transposed = workload.layout == "nt"
        scales = ("a_scale_ptr", "b_scale_ptr")
        signature = {
            "a_desc": _describe(workload.dtype, block_m, block_k),
            "b_desc": _describe(workload.dtype, *((block_n, block_k) if transposed else (block_k, block_n))),
            "out_desc": _describe(workload.out_dtype, 64, 128 // DTYPE_BYTES[workload.out_dtype]),
            **({"parts_desc": _describe("f32", 64, 32)} if cut else {}),
            **dict.fromkeys(scales if workload.is_scaled else (), "*fp32"),
            **dict.fromkeys(("items", "whole", "parts", "tiles_m", "tiles_n", "tiles_k"), "i32"),
        }
        constants = {name: value for name, value in rule.constants.items() if not name.startswith(("BLOCK", "CUT"))}
        small = replace(
            workload, size_m=2 * block_m + 72, size_n=block_n + 48, size_k=(19 if cut else 3) * block_k + 16
        )
        return KernelBuild(
            kernel=self.name,
            config=workload.id.removeprefix("gemm-"),
            arch=arch,
            source=TritonSource(
                module=f"kernels.gluon.gemm.{arch}",
                function=f"gemm_{arch}_kernel",
                signature=signature,
                constants={
                    "TRANSPOSED": transposed,
                    **({} if cut else {"parts_desc": None}),
                    **dict.fromkeys(() if workload.is_scaled else scales),
                    **constants,
                },
                divisible_by_16=scales if workload.is_scaled else (),
                options=rule.options,
            ),
            settings={name: str(value) for name, value in sorted(rule.config.items())},
            matrix=True,
            where=f"kernels/gluon/configs/{SPACE.kernel}/{arch}.json",
            proofs=(Proof(self.backends[cut], small, choice.config_entries()),),
        )


def _describe(dtype: str, rows: int, columns: int) -> str:
    """Returns the type of a TMA descriptor of blocks of a matrix, as Triton writes it."""
    bits = 8 * DTYPE_BYTES[dtype]
    layout = f"NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth={bits}, rank=2)"
    return f"tensordesc<{ELEMENTS[dtype]}[{rows}, {columns}],{layout}>"


KERNELS = (GluonGemmKernel(),)
