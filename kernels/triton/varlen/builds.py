"""Builds of the flash attention kernels over packed sequences, at a head dimension of 128.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.configs import Problem, Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.prefill.builds import DTYPES, SCALES
from kernels.triton.prefill.launch import head_dims
from kernels.triton.varlen.space import PERSISTENT, SPACE
from pytest_attnperf.kernel_builds import KernelBuild, KeyTile
from pytest_attnperf.workloads.varlen import Varlen

TYPES = {"f16": "*fp16", "bf16": "*bf16"}
HEAD_DIM = 128


@dataclass(frozen=True)
class VarlenVariant:
    """One way to launch a flash attention kernel over packed sequences, for which a build is made.

    config      id of the configuration
    q, kv, out  types of q, of k and v, and of out, as Triton writes them
    feature     '', 'window', 'bias', or for int8 k and v 'pv8', 'pv16', 'kv8'
    """

    config: str
    q: str = "*bf16"
    kv: str = "*bf16"
    out: str = "*bf16"
    causal: bool = True
    feature: str = ""
    head_dim: int = HEAD_DIM

    @property
    def bits(self) -> int:
        """Bits of an element of k and v."""
        return 8 if self.kv == "*i8" else 16

    @property
    def problem(self) -> Problem:
        """The properties, name -> value, by which a rule is chosen."""
        return {
            "head_dim": self.head_dim,
            "causal": self.causal,
            "element_bits": self.bits,
            "plain": self.feature not in ("window", "bias"),
            "bias": self.feature == "bias",
            "int8": self.feature if self.bits == 8 else "none",
        }

    @property
    def tile(self) -> KeyTile | None:
        """As of `PrefillVariant`."""
        return None if self.feature == "bias" else KeyTile(4 * self.head_dim, 2 * self.head_dim * self.bits // 8)

    @property
    def proof(self) -> Varlen:
        """A small problem: sequences of 1 to 70 tokens, one of them with more queries than keys."""
        return Varlen(
            seqs_q=(33, 1, 20),
            seqs_kv=(70, 37, 9),
            heads=4,
            kv_heads=2,
            head_dim=self.head_dim,
            dtype=DTYPES[self.kv],
            causal=self.causal,
            lse=True,
            bias=self.feature == "bias",
            int8=self.feature if self.feature in ("pv16", "kv8") else "",
            out="f16" if self.bits == 8 and self.out == "*fp16" else "",
        )

    def kernel_signature(self) -> dict[str, str]:
        """Returns name -> type of the launch's arguments that are neither None nor constants."""
        found = {"q_ptr": self.q, "k_ptr": self.kv, "v_ptr": self.kv, "out_ptr": self.out, "lse_ptr": "*fp32"}
        if self.bits == 8:
            found |= dict.fromkeys(SCALES[1:] if self.feature == "kv8" else SCALES, "*fp32")
        if self.feature == "bias":
            found["bias_ptr"] = self.out
        found |= dict.fromkeys(("cu_q_ptr", "cu_k_ptr"), "*i32")
        sizes = {"pv8": ("value_keys",), "bias": ("bias_rows", "bias_keys"), "window": ("window",)}
        found |= dict.fromkeys(("heads", "kv_heads", "total_q", *sizes.get(self.feature, ())), "i32")
        return found | {"scale_log2": "fp32"}

    def kernel_constants(self) -> dict[str, object]:
        """Returns name -> value of the launch's constants that no rule sets, None for absent arguments, as in
        `launch.varlen_constants`."""
        given = self.kernel_signature()
        absent = (*SCALES, "slopes_ptr", "bias_ptr", "value_keys", "bias_rows", "bias_keys", "window")
        return {
            **{name: None for name in absent if name not in given},
            "CAUSAL": self.causal,
            "WINDOWED": self.feature == "window",
            "WITH_LSE": True,
            "GUARDED": self.causal or self.feature == "bias",
            **head_dims(self.head_dim, self.head_dim, self.bits // 8, self.feature),
            "INT8_WEIGHTS": self.feature == "pv8",
            "V_TRANSPOSED": self.feature == "pv8",
            "PRECISION": "ieee",
            "IN_FP32": False,
        }


PLAIN = tuple(
    VarlenVariant(f"d{HEAD_DIM}-{dtype}-{'causal' if causal else 'full'}", element, element, element, causal)
    for dtype, element in TYPES.items()
    for causal in (True, False)
)
"""f16 and bf16, causal and not."""

FEATURES = (
    VarlenVariant("d128-bf16-full-bias", causal=False, feature="bias"),
    VarlenVariant("d128-i8-causal-pv8", q="*i8", kv="*i8", feature="pv8"),
    VarlenVariant("d128-i8-causal-pv16-outf16", q="*i8", kv="*i8", out="*fp16", feature="pv16"),
)
"""The variants with a bias, and in 8 bits, one with a result of another dtype."""


@dataclass(frozen=True)
class VarlenForwardKernel(TritonKernel):
    """`varlen_forward_kernel` in f16 and bf16 for both masks, with a bias, and in int8; with log-sum-exp."""

    space: Space = SPACE
    name: str = "triton.varlen_forward"
    backends: tuple[str, ...] = ("triton.flash_varlen",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns a build for `arch` of each variant in PLAIN, then of each in FEATURES."""
        return [
            build_variant(self.name, arch, self.space, each, backends=self.backends) for each in (*PLAIN, *FEATURES)
        ]


@dataclass(frozen=True)
class VarlenPersistentKernel(TritonKernel):
    """`varlen_persistent_kernel` in bf16, causal, with log-sum-exp."""

    space: Space = PERSISTENT
    name: str = "triton.varlen_persistent"
    backends: tuple[str, ...] = ("triton.flash_varlen_persistent",)

    def builds(self, arch: str) -> Sequence[KernelBuild]:
        """Returns one build for `arch`."""
        variant = VarlenVariant("d128-bf16-causal")
        return [build_variant(self.name, arch, self.space, variant, PERSISTENT_ARGUMENTS, self.backends)]


PERSISTENT_ARGUMENTS = {"sequences": "i32", "multiprocessors": "i32"}
"""Arguments, name -> type, that the persistent kernel has more than the other."""


def build_variant(
    kernel: str,
    arch: str,
    space: Space,
    variant: VarlenVariant,
    further: Mapping[str, str] | None = None,
    backends: Sequence[str] = (),
) -> KernelBuild:
    """Returns the build of a variant in the configuration of the rule that serves it. `further` holds more arguments,
    name -> type; `backends` prove it."""
    signature = {**variant.kernel_signature(), **(further or {})}
    return make_build(
        kernel,
        arch,
        variant.config,
        space,
        space.choose(arch, variant.problem).rule,
        module="varlen.persistent" if further else "varlen.kernel",
        function=f"{space.kernel}_kernel",
        signature=signature,
        constants={**variant.kernel_constants(), **({} if further else {"XCDS": 1, "AS_READ": 0})},
        divisible_by_16=tuple(name for name, kind in signature.items() if kind.startswith("*")),
        matrix=has_matrix_instructions(arch, variant.bits),
        tile=variant.tile,
        proofs=[(backend, variant.proof) for backend in backends],
    )


KERNELS = (VarlenForwardKernel(), VarlenPersistentKernel())
