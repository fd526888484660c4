"""Kernels that foreign_breaks.py breaks: where each is, and which cases of examples/foreign run it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One function of a package; `cases` is what `pytest -k` takes, `file` and `suite` are below their folders.

    needs_gpu   whether nothing of it is run without one
    """

    package: str
    file: str
    function: str
    suite: str
    cases: str
    needs_gpu: bool = False


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


def _attn_gym(file: str, cases: str, function: str) -> Target:
    return Target("attn-gym", f"attn_gym/{file}.py", function, "attn-gym/test_attn_gym.py", cases)


def _xformers(file: str, cases: str, function: str) -> Target:
    suite = "xformers/test_xformers.py"
    return Target("xformers", f"xformers/ops/{file}.py", function, suite, cases, needs_gpu=True)


def _torchao(cases: str, function: str) -> Target:
    file, suite = "torchao/kernel/blockwise_quantization.py", "torchao/test_torchao.py"
    return Target("torchao", file, function, suite, cases, needs_gpu=True)


def _sage(file: str, cases: str, function: str) -> Target:
    suite = "sageattention/test_sageattention.py"
    return Target("sageattention", f"sageattention/{file}.py", function, suite, cases, needs_gpu=True)


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
    *_liger("relu_squared", "test_relu_squared", "_relu_squared_forward_kernel"),
    *_liger("experimental/embedding", "test_embedding", "embedding_forward_kernel"),
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
    *_conch("normalization/gemma_rms_norm", "test_gemma_rms_norm", "_gemma_rms_norm_inplace_kernel"),
    *_conch("quantization/int8", "test_int8_quantisation", "_static_scaled_int8_quant_kernel"),
    *_conch("attention/varlen_attention", "test_varlen_attention", "_varlen_attention_compute_splits_kernel"),
    *_cce("cce_lse_forward", "_cce_lse_forward_kernel"),
    *_cce("indexed_dot", "_indexed_neg_dot_forward_kernel"),
    *_cce("cce_backward", "_cce_backward_kernel"),
    _attn_gym("masks/causal", "test_causal", "causal_mask"),
    _attn_gym("masks/sliding_window", "test_sliding_window", "sliding_window"),
    _attn_gym("masks/dilated_sliding_window", "test_dilated_window", "dilated_sliding_window"),
    _attn_gym("masks/document_mask", "test_documents", "doc_mask_mod"),
    _attn_gym("mods/alibi", "test_alibi", "alibi_mod"),
    _xformers("_triton/rmsnorm_kernels", "test_rms_norm and not sum", "_rms_norm_kernel"),
    _xformers("_triton/rmsnorm_kernels", "test_rms_norm_of_a_sum", "_rms_norm_add_kernel"),
    _xformers("_triton/rope_padded_kernels", "test_rope", "_rope_padded_kernel"),
    _xformers("_triton/k_index_select_cat", "test_index_select_cat", "index_select_cat_fwd_kernel"),
    _xformers("_triton/k_scaled_index_add", "test_scaled_index_add", "scaled_index_add_fwd_kernel"),
    _xformers("fmha/_triton/splitk_kernels", "test_decoding_attention", "_fwd_kernel_splitK"),
    Target(
        "conch-triton-kernels",
        "conch/kernels/quantization/fp8.py",
        "_static_scaled_fp8_quant_kernel",
        "conch/test_conch.py",
        "test_fp8_quantisation",
        needs_gpu=True,
    ),
    _torchao("test_activations", "_fp8_blockwise_act_quant_kernel_impl"),
    _torchao("test_weights_to", "_fp8_blockwise_weight_quant_kernel_impl"),
    _torchao("test_weights_from", "_fp8_blockwise_weight_dequant_kernel_impl"),
    _torchao("test_product_of_fp8 and 4096-4096", "blockwise_fp8_gemm_kernel"),
    _sage("attn_qk_int8_per_block", "test_attention and full-whole and not packed", "_attn_fwd_inner"),
    _sage("attn_qk_int8_per_block_causal", "test_attention and causal-whole and not packed", "_attn_fwd_inner"),
    _sage("attn_qk_int8_per_block_causal_varlen", "test_attention_of_packed and causal-whole", "_attn_fwd_inner"),
    _sage("quant_per_block", "test_attention and causal-whole and not packed", "quant_per_block_int8_kernel"),
]
