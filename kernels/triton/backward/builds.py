"""Builds of the backward pass's kernels: every shipped rule, in variants that users run.

Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernels.configs import ConfigRule, pad_size
from kernels.triton.backward.space import DELTA, DKV, DQ
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.backward import Backward
from pytest_attnperf.workloads.varlen_backward import VarlenBackward

INPUTS = ("q_ptr", "k_ptr", "v_ptr", "dout_ptr")
STATISTICS = ("lse_ptr", "delta_ptr")
OFFSETS = ("cu_seqlens_q_ptr", "cu_seqlens_k_ptr")
LENGTHS = ("seq_q", "seq_kv", "stats_stride")


@dataclass(frozen=True)
class BackwardVariant:
    """One way to launch a rule: the element type, the mask, and which lengths.

    lengths    'even' where tiles and 16 divide them, 'ragged' where not, 'varlen' for packed sequences
    """

    dtype: str
    causal: bool
    lengths: str


VARIANTS = {
    64: (BackwardVariant("f16", True, "ragged"),),
    128: (
        BackwardVariant("bf16", True, "even"),
        BackwardVariant("bf16", False, "even"),
        BackwardVariant("f16", True, "varlen"),
    ),
    256: (BackwardVariant("f16", True, "ragged"),),
}
"""Largest head dimension of a 16-bit rule -> its variants."""

TRANS_V_VARIANTS = {64: (BackwardVariant("f16", False, "even"),), 128: (BackwardVariant("bf16", True, "even"),)}
"""The same over transposed values, at the head dimensions of `triton.flash_trans_v`."""

WIDE_VARIANTS = (BackwardVariant("f32", True, "ragged"),)
"""Variants of 32-bit rules."""

ELEMENTS = {"f16": "*fp16", "bf16": "*bf16", "f32": "*fp32"}


@dataclass(frozen=True)
class BackwardKernel(TritonKernel):
    """`backward_dkv_kernel` or `backward_dq_kernel`, at the largest head dimension of each rule.

    outputs         names of the pointers it writes to
    even            the constant that says whether the lengths of its loop are whole tiles
    variants        largest head dimension of a 16-bit rule -> its variants
    v_transposed    whether v, and dv, is (B, Hk, D, Skv); then no 32-bit rule is built
    """

    outputs: tuple[str, ...]
    even: str
    variants: Mapping[int, tuple[BackwardVariant, ...]] = field(default_factory=lambda: VARIANTS)
    v_transposed: bool = False

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` per variant that the rule takes."""
        head_dim, bits = int(rule.when["head_dim_max"]), int(rule.when["element_bits"])
        wide = () if self.v_transposed else WIDE_VARIANTS
        for variant in self.variants.get(head_dim, ()) if bits == 16 else wide:
            if rule.when.get("causal", variant.causal) != variant.causal:
                continue
            varlen, even = variant.lengths == "varlen", variant.lengths == "even"
            mask = "causal" if variant.causal else "full"
            pointers = (*INPUTS, *STATISTICS, *self.outputs, *(OFFSETS if varlen else ()))
            yield make_build(
                self.name,
                arch,
                f"d{head_dim}-{variant.dtype}-{mask}-{variant.lengths}",
                self.space,
                rule,
                module=f"backward.{self.space.kernel.removeprefix('backward_')}",
                function=f"{self.space.kernel}_kernel",
                signature=self._kernel_signature(ELEMENTS[variant.dtype], varlen=varlen),
                constants={
                    **({} if varlen else dict.fromkeys(OFFSETS)),
                    "CAUSAL": variant.causal,
                    "VARLEN": varlen,
                    self.even: even,
                    "HEAD_DIM": head_dim,
                    "BLOCK_D": pad_size(head_dim),
                    "V_TRANSPOSED": self.v_transposed,
                    "PRECISION": "ieee",
                    "IN_FP32": False,
                },
                divisible_by_16=(*pointers, "heads", *(LENGTHS if even else ())),
                matrix=has_matrix_instructions(arch, bits),
                proofs=[(self.backends[0], _make_proof(head_dim, variant, rule))],
            )

    def _kernel_signature(self, element: str, *, varlen: bool) -> dict[str, str]:
        """Returns argument name -> type of the launch. Dense problems have None as offsets, which are constants."""
        return {
            **dict.fromkeys((*INPUTS, *self.outputs), element),
            **dict.fromkeys(STATISTICS, "*fp32"),
            **(dict.fromkeys(OFFSETS, "*i32") if varlen else {}),
            **dict.fromkeys(("heads", "kv_heads", *LENGTHS), "i32"),
            "scale": "fp32",
        }


@dataclass(frozen=True)
class BackwardDeltaKernel(TritonKernel):
    """`backward_delta_kernel`, at the largest head dimension of each rule."""

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` under the rule: f32 if it is for 32 bits, else bf16."""
        head_dim = int(rule.when["head_dim_max"])
        dtype = "f32" if rule.when["element_bits"] == 32 else "bf16"
        pointers = ("dout_ptr", "out_ptr")
        yield make_build(
            self.name,
            arch,
            f"d{head_dim}-{dtype}",
            self.space,
            rule,
            module="backward.delta",
            function="backward_delta_kernel",
            signature={
                **dict.fromkeys(pointers, ELEMENTS[dtype]),
                "delta_ptr": "*fp32",
                **dict.fromkeys(("heads", "seq"), "i32"),
            },
            constants={"HEAD_DIM": head_dim, "BLOCK_D": pad_size(head_dim)},
            divisible_by_16=(*pointers, "delta_ptr"),
            proofs=[(self.backends[0], _make_proof(head_dim, BackwardVariant(dtype, True, "ragged"), rule, 4))],
        )


def _make_proof(
    head_dim: int, variant: BackwardVariant, rule: ConfigRule, heads: int = 16
) -> Backward | VarlenBackward:
    """Returns a small problem of the variant, with two query heads per K/V head; even lengths are those of a tile."""
    if variant.lengths == "varlen":
        return VarlenBackward(
            seqs_q=(9, 1), seqs_kv=(21, 5), heads=heads, kv_heads=heads // 2, head_dim=head_dim, dtype=variant.dtype,
            causal=variant.causal,
        )  # fmt: skip
    tile = max(int(rule.config[name]) for name in ("BLOCK_M", "BLOCK_N") if name in rule.config)
    seq_q, seq_kv = (tile, tile) if variant.lengths == "even" else (9, 21)
    return Backward(
        batch=1, seq_q=seq_q, seq_kv=seq_kv, heads=heads, kv_heads=heads // 2, head_dim=head_dim, dtype=variant.dtype,
        causal=variant.causal,
    )  # fmt: skip


LAUNCHED_BY, BY_TRANS_V = ("triton.flash_backward",), ("triton.flash_backward_trans_v",)
OUT_KV, OUT_Q = ("dk_ptr", "dv_ptr"), ("dq_ptr",)
KERNELS = (
    BackwardDeltaKernel("triton.backward_delta", (*LAUNCHED_BY, *BY_TRANS_V), DELTA),
    BackwardKernel("triton.backward_dkv", LAUNCHED_BY, DKV, OUT_KV, "EVEN_M"),
    BackwardKernel("triton.backward_dq", LAUNCHED_BY, DQ, OUT_Q, "EVEN_N"),
    BackwardKernel("triton.backward_dkv_trans_v", BY_TRANS_V, DKV, OUT_KV, "EVEN_M", TRANS_V_VARIANTS, True),
    BackwardKernel("triton.backward_dq_trans_v", BY_TRANS_V, DQ, OUT_Q, "EVEN_N", TRANS_V_VARIANTS, True),
)
