"""Builds of the staged pipeline's kernels: every shipped rule, at a head dimension of 128 and lengths that 16 and
every tile divide. Names and values only, so that listing them needs no Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels.configs import ConfigRule, Space
from kernels.triton.builds import TritonKernel, has_matrix_instructions, make_build
from kernels.triton.staged.space import CAUSAL_MASK, QK_SCORES, ROW_SOFTMAX, WEIGHTED_VALUES
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.workloads.prefill import Prefill

ELEMENTS = {16: ("bf16", "*bf16"), 32: ("f32", "*fp32")}
"""Bits of a rule -> the workload dtype that is built, and its pointer type as Triton writes it."""

HEAD_DIM = 128


@dataclass(frozen=True)
class TritonStagedKernel(TritonKernel):
    """One kernel of the pipeline, causal where that matters, with log-sum-exp where it has one.

    pointers    its tensors and their types, '' for the dtype of the attention
    integers    its sizes and strides that 16 divides
    others      its further numbers and their types
    constants   values of constants that its configuration does not set
    product     whether it multiplies matrices
    """

    pointers: Mapping[str, str]
    integers: Sequence[str]
    others: Mapping[str, str]
    constants: Mapping[str, object]
    product: bool = False

    def builds_under(self, arch: str, rule: ConfigRule) -> Iterator[KernelBuild]:
        """Yields one build for `arch` under the rule, in bf16 or, if it is for 32 bits, in f32."""
        bits = int(rule.when.get("element_bits", 16))
        once = {"ONE_PASS": "columns_max" in rule.when} if self.space is ROW_SOFTMAX else {}
        yield make_build(
            self.name,
            arch,
            _config_name(self.space, ELEMENTS[bits][0], rule),
            self.space,
            rule,
            module=f"staged.{self.space.kernel.removeprefix('staged_')}",
            function=f"{self.space.kernel}_kernel",
            signature={
                **{name: kind or ELEMENTS[bits][1] for name, kind in self.pointers.items()},
                **dict.fromkeys(self.integers, "i32"),
                **self.others,
            },
            constants={**self.constants, **once},
            divisible_by_16=(*self.pointers, *self.integers),
            matrix=self.product and has_matrix_instructions(arch, bits),
            proofs=[(self.backends[0], self._make_proof(ELEMENTS[bits][0], rule))],
        )

    def _make_proof(self, dtype: str, rule: ConfigRule) -> Prefill:
        """Returns a small attention of lengths that 16 and every tile divide; for the softmax, whose tiles are no wider
        than rows need, one head of few queries, and of many keys."""
        if self.space is ROW_SOFTMAX:
            columns = int(rule.config["BLOCK_C"]) + (-256 if "columns_max" in rule.when else 272)
            return Prefill(1, 16, 1, HEAD_DIM, seq_kv=columns, dtype=dtype, causal=True, lse=True)
        return Prefill(1, 48, 4, HEAD_DIM, seq_kv=128, kv_heads=2, dtype=dtype, causal=True, lse=True)


def _config_name(space: Space, dtype: str, rule: ConfigRule) -> str:
    """Returns the build's id: 'd128-bf16', or with the rule's minimum e.g. 'd128-bf16-pairs4194304'; for row_softmax
    'c8192' (the longest row) or 'long'; for the mask 'any'."""
    if space is CAUSAL_MASK:
        return "any"
    if space is ROW_SOFTMAX:
        return f"c{rule.when['columns_max']}" if "columns_max" in rule.when else "long"
    least = [f"{name.removesuffix('_min')}{size}" for name, size in rule.when.items() if name.endswith("_min")]
    return "-".join((f"d{HEAD_DIM}", dtype, *least))


KERNELS = (
    TritonStagedKernel(
        "triton.staged_qk_scores",
        ("triton.staged",),
        QK_SCORES,
        pointers={"q_ptr": "", "k_ptr": "", "scores_ptr": "*fp32"},
        integers=("q_batch", "q_token", "q_head", "k_batch", "k_token", "k_head", "seq_q", "seq_kv"),
        others={"heads": "i32", "group": "i32", "scale": "fp32"},
        constants={"HEAD_DIM": HEAD_DIM, "IN_FP32": False},
        product=True,
    ),
    TritonStagedKernel(
        "triton.staged_causal_mask",
        ("triton.staged",),
        CAUSAL_MASK,
        pointers={"scores_ptr": "*fp32"},
        integers=("seq_q", "seq_kv"),
        others={},
        constants={},
    ),
    TritonStagedKernel(
        "triton.staged_row_softmax",
        ("triton.staged",),
        ROW_SOFTMAX,
        pointers={"scores_ptr": "*fp32", "weights_ptr": "", "lse_ptr": "*fp32"},
        integers=("rows", "seq_q", "columns"),
        others={},
        constants={"CAUSAL": True},
    ),
    TritonStagedKernel(
        "triton.staged_weighted_values",
        ("triton.staged",),
        WEIGHTED_VALUES,
        pointers={"weights_ptr": "", "v_ptr": "", "out_ptr": ""},
        integers=("v_batch", "v_token", "v_head", "seq_q", "seq_kv"),
        others={"heads": "i32", "group": "i32"},
        constants={"CAUSAL": True, "EVEN_K": True, "HEAD_DIM": HEAD_DIM, "IN_FP32": False},
        product=True,
    ),
)
