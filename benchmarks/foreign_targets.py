"""Kernels that foreign_breaks.py breaks: where each is, and which cases of examples/foreign run it interpreted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One jit function of a package; `cases` is what `pytest -k` takes, `file` and `suite` are below their folders."""

    package: str
    file: str
    function: str
    suite: str
    cases: str


def _liger(module: str, cases: str, *functions: str, suite: str = "test_liger.py") -> list[Target]:
    file = f"liger_kernel/ops/{module}.py"
    return [Target("liger-kernel", file, each, f"liger/{suite}", cases) for each in functions]


def _fla(file: str, cases: str, *functions: str, suite: str = "test_fla_layers.py") -> list[Target]:
    return [Target("fla-core", f"fla/{file}.py", each, f"fla-core/{suite}", cases) for each in functions]


def _conch(file: str, cases: str, *functions: str) -> list[Target]:
    file = f"conch/kernels/{file}.py"
    return [Target("conch-triton-kernels", file, each, "conch/test_conch.py", cases) for each in functions]


def _cce(file: str, *functions: str) -> list[Target]:
    suite, cases = "cut-cross-entropy/test_cut_cross_entropy.py", "linear_cross_entropy and both"
    return [Target("cut-cross-entropy", f"cut_cross_entropy/{file}.py", each, suite, cases) for each in functions]


LOSSES = "test_liger_losses.py"
TARGETS: list[Target] = [
    *_liger(
        "rms_norm",
        "test_rms_norm and both and not over",
        "_rms_norm_forward_kernel",
        "_rms_norm_backward_kernel",
    ),
    *_liger("layer_norm", "test_layer_norm", "_layer_norm_forward_kernel", "_layer_norm_backward_kernel"),
    *_liger("group_norm", "test_group_norm", "_group_norm_forward_kernel"),
    *_liger("fused_add_rms_norm", "test_fused_add_rms_norm", "_fused_add_rms_norm_forward_kernel"),
    *_liger("swiglu", "swiglu", "_swiglu_forward_kernel", "_swiglu_backward_kernel"),
    *_liger("geglu", "geglu", "_geglu_tanh_backward_kernel"),
    *_liger("softmax", "test_softmax", "_softmax_single_block_forward_kernel"),
    *_liger("sparsemax", "test_sparsemax", "_sparsemax_forward_kernel"),
    *_liger("rope", "test_rope", "_triton_rope"),
    *_liger("cross_entropy", "test_cross_entropy and both", "liger_cross_entropy_kernel", suite=LOSSES),
    *_liger("kl_div", "test_kl", "_kldiv_kernel_forward", "_kldiv_kernel_backward", suite=LOSSES),
    *_liger("jsd", "test_jensen", "_jsd_kernel", suite=LOSSES),
    *_fla("modules/norm/l2norm", "test_l2_norm", "l2norm_fwd_kernel", "l2norm_bwd_kernel"),
    *_fla("modules/norm/fused_norm_gate", "test_gated_rms_norm", "layer_norm_gated_fwd_kernel"),
    *_fla("modules/activations/ops", "test_swiglu", "swiglu_fwd_kernel"),
    *_fla("modules/rotary/ops", "test_rotary", "rotary_embedding_kernel"),
    *_fla("modules/token_shift", "test_token_shift", "token_shift_fwd_kernel_short"),
    *_fla("modules/fused_cross_entropy/ops", "test_cross_entropy", "cross_entropy_fwd_kernel"),
    *_fla(
        "ops/attn/parallel",
        "test_attention",
        "parallel_attn_fwd_kernel",
        "parallel_attn_bwd_kernel_dq",
        "parallel_attn_bwd_kernel_dkv",
        suite="test_fla_core.py",
    ),
    *_fla(
        "ops/common/fused_recurrent",
        "fused_recurrent_gla",
        "fused_recurrent_fwd_kernel",
        "fused_recurrent_bwd_kernel",
        suite="test_fla_core.py",
    ),
    *_fla(
        "ops/delta_rule/fused_recurrent",
        "fused_recurrent_delta_rule",
        "fused_recurrent_delta_rule_fwd_kernel",
        suite="test_fla_core.py",
    ),
    *_conch("normalization/rms_norm", "test_rms_norm", "_rms_norm_kernel"),
    *_conch("activation/silu_and_mul", "test_gated_activation and silu", "_silu_and_mul_kernel"),
    *_conch("activation/gelu_tanh_and_mul", "test_gated_activation and gelu", "_gelu_tanh_and_mul_kernel"),
    *_conch("embedding/rotary_embedding", "test_rotary", "_rotary_embedding_kernel"),
    *_conch("vllm/reshape_and_cache", "test_reshape_and_cache", "_reshape_and_cache_kernel"),
    *_conch("vllm/copy_blocks", "test_copy_blocks", "_copy_blocks_kernel"),
    *_conch(
        "attention/paged_attention",
        "test_paged_attention",
        "_paged_attention_compute_splits_kernel",
        "_paged_attention_reduce_splits_kernel",
    ),
    *_cce("cce_lse_forward", "_cce_lse_forward_kernel"),
    *_cce("indexed_dot", "_indexed_neg_dot_forward_kernel"),
    *_cce("cce_backward", "_cce_backward_kernel"),
]
