"""Builds of `gluon.flash_backward`: its kernel at every head dimension, dense and packed, and both passes around it.
Names and values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigChoice, ConfigRule
from kernels.gluon.backward.space import SINCE, SPACE
from kernels.gluon.prefill.space import HEAD_DIMS
from kernels.triton.builds import ELEMENTS
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, Proof, TritonSource
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

VARIANTS = (
    *((head_dim, "bf16", causal, False) for head_dim in HEAD_DIMS for causal in (True, False)),
    *((head_dim, "f16", True, True) for head_dim in HEAD_DIMS),
)
"""Head dimension, dtype, mask, and whether sequences are packed, of each build."""

ROWS_PTR = {"backward_prepare_kernel": ("dout_ptr", "out_ptr"), "backward_round_kernel": ("dq_ptr",)}
"""A pass -> its pointers to 16-bit rows; others are to fp32."""
FP32_PTR = {
    "backward_prepare_kernel": ("lse_ptr", "delta_ptr", "lse_log2_ptr", "dq_sums_ptr"),
    "backward_round_kernel": ("dq_sums_ptr",),
}
SIZES = {
    "backward_prepare_kernel": ("heads", "seq_q", "lse_stride", "padded_rows"),
    "backward_round_kernel": ("heads", "seq_q", "padded_rows"),
}


@dataclass(frozen=True)
class GluonBackwardKernel(Kernel):
    """A kernel of `gluon.flash_backward`, in the configurations that its launcher takes."""

    name: str = "gluon.backward"
    backends: tuple[str, ...] = ("gluon.flash_backward",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per entry of VARIANTS, for ragged lengths; none for an architecture without a kernel."""
        return [self._make_build(arch, *variant) for variant in VARIANTS] if arch in SINCE else []

    def unsupported_reasons(self, arch: str) -> list[str]:
        """Returns that there is no kernel for `arch`, or nothing."""
        return [] if arch in SINCE else [f"{self.name} has a kernel for {', '.join(SINCE)}, not for {arch}"]

    def _make_build(self, arch: str, head_dim: int, dtype: str, causal: bool, packed: bool) -> KernelBuild:
        rule = SPACE.choose(arch, {"head_dim": head_dim, "causal": causal}).rule
        sizes = {"heads": 8, "kv_heads": 4, "head_dim": head_dim, "dtype": dtype, "causal": causal}
        problem: Backward | VarlenBackward = Backward(1, 37, seq_kv=83, **sizes)  # type: ignore[arg-type]
        if packed:
            problem = VarlenBackward(seqs_q=(37, 1), seqs_kv=(83, 5), **sizes)  # type: ignore[arg-type]
        mask, lengths = "causal" if causal else "full", "varlen" if packed else "dense"
        return KernelBuild(
            kernel=self.name,
            config=f"d{head_dim}-{dtype}-{mask}-{lengths}",
            arch=arch,
            source=self._make_source(ELEMENTS[dtype][0], rule, head_dim, causal=causal, packed=packed),
            settings={name: str(value) for name, value in sorted(rule.config.items())},
            matrix=self.name == "gluon.backward",
            where=f"kernels/gluon/configs/{SPACE.kernel}/{arch}.json",
            proofs=(Proof(self.backends[0], problem, ConfigChoice(SPACE.rules_arch(arch), rule).config_entries()),),
        )

    def _make_source(
        self, element: str, rule: ConfigRule, head_dim: int, *, causal: bool, packed: bool
    ) -> TritonSource:
        """Returns how a launch specialises the main kernel."""
        block_m, block_n = int(rule.config["BLOCK_M"]), int(rule.config["BLOCK_N"])
        keys, rows = _describe(element, (1, 1, block_n, head_dim)), _describe(element, (1, 1, block_m, head_dim))
        return _make_source(
            "sm_90",
            "backward_sm_90_kernel",
            {
                "q_desc": rows,
                "k_desc": keys,
                "v_desc": keys,
                "dout_desc": rows,
                **dict.fromkeys(("lse_desc", "delta_desc"), _describe("*fp32", (block_m,))),
                "dk_desc": keys,
                "dv_desc": keys,
                "dq_ptr": "*fp32",
                **dict.fromkeys(("heads", "kv_heads", "seq_q", "seq_kv", "padded_rows"), "i32"),
                **dict.fromkeys(("scale_log2", "scale"), "fp32"),
            },
            {"CAUSAL": causal, "SLOTS": rule.config["SLOTS"], "PAIRS": rule.config["PAIRS"]},
            ("cu_seqlens_q_ptr", "cu_seqlens_k_ptr"),
            rule.options,
            packed=packed,
        )


@dataclass(frozen=True)
class GluonBackwardPass(GluonBackwardKernel):
    """A pass over the rows before or after the main kernel; it has no mask, so that it is built once for each.

    function    its name in `kernels.gluon.backward.passes`
    """

    function: str = "backward_prepare_kernel"

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build per head dimension, dense and packed; none for an architecture without a kernel."""
        variants = [variant for variant in VARIANTS if variant[2]]
        return [self._make_build(arch, *variant) for variant in variants] if arch in SINCE else []

    def _make_source(
        self, element: str, rule: ConfigRule, head_dim: int, *, causal: bool, packed: bool
    ) -> TritonSource:
        """Returns how a launch specialises the pass."""
        return _make_source(
            "passes",
            self.function,
            {
                **dict.fromkeys(ROWS_PTR[self.function], element),
                **dict.fromkeys(FP32_PTR[self.function], "*fp32"),
                **dict.fromkeys(SIZES[self.function], "i32"),
                **({"scale": "fp32"} if self.function == "backward_round_kernel" else {}),
            },
            {"HEAD_DIM": head_dim, "BLOCK_M": rule.config["BLOCK_M"]},
            ("cu_seqlens_q_ptr",),
            {"num_warps": 4},
            packed=packed,
        )


def _make_source(
    module: str,
    function: str,
    signature: Mapping[str, str],
    constants: Mapping[str, object],
    offsets: Sequence[str],
    options: Mapping[str, object],
    *,
    packed: bool,
) -> TritonSource:
    """Returns the source of a kernel; dense problems have None as offsets, which are constants."""
    signature = {**signature, **(dict.fromkeys(offsets, "*i32") if packed else {})}
    return TritonSource(
        module=f"kernels.gluon.backward.{module}",
        function=function,
        signature=signature,
        constants={**constants, **({} if packed else dict.fromkeys(offsets))},
        divisible_by_16=tuple(name for name in signature if name.endswith("_ptr")),
        options=options,
    )


def _describe(element: str, block: tuple[int, ...]) -> str:
    """Returns the type of a TMA descriptor of blocks, as Triton writes it; one of rows is swizzled."""
    bits, swizzle = (32, 0) if element == "*fp32" else (16, 128)
    layout = f"NVMMASharedLayout(swizzle_byte_width={swizzle}, element_bitwidth={bits}, rank={len(block)})"
    return f"tensordesc<{element.removeprefix('*')}[{', '.join(map(str, block))}],{layout}>"


KERNELS = (
    GluonBackwardKernel(),
    GluonBackwardPass("gluon.backward_prepare"),
    GluonBackwardPass("gluon.backward_round", function="backward_round_kernel"),
)
