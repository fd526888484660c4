"""Configurations with the fields that models are published with, and those that transformers writes beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.workloads.model_config import ModelConfig

EVERY = (
    "_name_or_path architectures auto_map transformers_version torchscript use_bfloat16 tf_legacy_loss "
    "tie_word_embeddings tie_encoder_decoder chunk_size_feed_forward is_decoder return_dict use_cache "
    "cache_implementation output_hidden_states output_attentions finetuning_task id2label label2id tokenizer_class "
    "prefix task_specific_params problem_type bos_token_id eos_token_id pad_token_id sep_token_id "
    "decoder_start_token_id max_length min_length do_sample early_stopping num_beams num_beam_groups "
    "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens vocab_size intermediate_size initializer_range rms_norm_eps attention_dropout hidden_act "
    "rope_theta _attn_implementation_autoset num_experts_per_tok norm_topk_prob moe_intermediate_size "
    "output_router_logits router_aux_loss_coef"
)
"""Names of fields that stand in many files and say nothing of attention."""
OFF: dict[str, Any] = {
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "pruned_heads": {},
}
QWEN = {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28, "rope_scaling": None}
DEEPSEEK = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_head_dim": 192}


def sizes(hidden: int, heads: int, kv_heads: int, **fields: Any) -> dict[str, Any]:
    """The fields that every model has."""
    held = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    return {**held, "num_hidden_layers": 32, "max_position_embeddings": 32768, "torch_dtype": "bfloat16", **fields}


PUBLISHED: dict[str, tuple[dict[str, Any], str, str]] = {
    "llama": (
        sizes(4096, 32, 8, attention_bias=False, head_dim=128, rope_scaling={"rope_type": "llama3", "factor": 8.0}),
        "mlp_bias pretraining_tp",
        "",
    ),
    "mistral": (sizes(4096, 32, 8, sliding_window=None, head_dim=128), "", ""),
    "mixtral": (sizes(4096, 32, 8, sliding_window=None), "num_local_experts router_jitter_noise", ""),
    "phi3": (
        sizes(3072, 32, 32, sliding_window=2047, attention_bias=False, rope_scaling={"type": "longrope"}),
        "embd_pdrop resid_pdrop original_max_position_embeddings",
        "",
    ),
    "qwen2": (sizes(3584, 28, 4, **QWEN), "use_mrope", ""),
    "qwen2_moe": (
        sizes(2048, 16, 16, **QWEN, qkv_bias=True),
        "decoder_sparse_step shared_expert_intermediate_size num_experts mlp_only_layers",
        "",
    ),
    "qwen3_moe": (
        sizes(2048, 32, 4, **QWEN, head_dim=128, attention_bias=False),
        "decoder_sparse_step num_experts mlp_only_layers",
        "norms of queries and keys",
    ),
    "gemma2": (
        sizes(3584, 16, 8, head_dim=256, query_pre_attn_scalar=256, attn_logit_softcapping=50.0, sliding_window=4096),
        "final_logit_softcapping hidden_activation",
        "",
    ),
    "gemma3_text": (
        sizes(1152, 4, 1, head_dim=256, query_pre_attn_scalar=256, attn_logit_softcapping=None, sliding_window=512,
              sliding_window_pattern=6, use_bidirectional_attention=False),
        "final_logit_softcapping hidden_activation rope_local_base_freq",
        "norms of queries and keys",
    ),
    "deepseek_v2": (
        sizes(2048, 16, 16, **DEEPSEEK, q_lora_rank=None, attention_bias=False),
        "aux_loss_alpha seq_aux ep_size first_k_dense_replace moe_layer_freq n_group n_routed_experts "
        "n_shared_experts routed_scaling_factor scoring_func topk_group topk_method pretraining_tp",
        "",
    ),
    "deepseek_v3": (
        sizes(7168, 128, 128, **DEEPSEEK, q_lora_rank=1536, rope_interleave=True, quantization_config={"fmt": "e4m3"}),
        "ep_size first_k_dense_replace moe_layer_freq n_group n_routed_experts n_shared_experts "
        "num_nextn_predict_layers routed_scaling_factor scoring_func topk_group topk_method",
        "quantization_config is left out",
    ),
    "gpt_oss": (
        sizes(2880, 64, 8, head_dim=64, sliding_window=128, layer_types=["sliding_attention", "full_attention"],
              attention_bias=False, rope_scaling={"rope_type": "yarn", "truncate": False}),
        "experts_per_token initial_context_length num_local_experts swiglu_limit num_experts rope_scaling_factor "
        "rope_ntk_alpha rope_ntk_beta",
        "sinks are in decode and mixed",
    ),
    "llama4_text": (
        sizes(5120, 40, 8, head_dim=128, attn_temperature_tuning=False, no_rope_layers=None, use_qk_norm=False,
              attention_chunk_size=None, attention_bias=False),
        "attn_scale floor_scale for_llm_compressor interleave_moe_layer_step intermediate_size_mlp moe_layers "
        "num_local_experts router_jitter_noise",
        "",
    ),
}  # fmt: skip
"""Model type -> fields that say something of its attention, names of others, and how its one note begins."""


@pytest.mark.parametrize("model_type", PUBLISHED)
def test_all_fields_of_a_published_model_are_known(tmp_path: Path, model_type: str) -> None:
    """None is refused, and none is noted as unknown: what notes there are is about attention."""
    fields, others, note = PUBLISHED[model_type]
    path = tmp_path / "config.json"
    without_bearing = dict.fromkeys(f"{EVERY} {others}".split(), 1)
    path.write_text(json.dumps({"model_type": model_type, **without_bearing, **OFF, **fields}))
    notes = ModelConfig.read(path).notes
    assert len(notes) == bool(note)
    assert not note or notes[0].startswith(note)


def test_a_nested_configuration_leaves_out_what_its_class_has(tmp_path: Path) -> None:
    """Gemma 3 4B's text model names neither heads nor positions: they are the class's, and a note says so."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text}))
    config = ModelConfig.read(path)
    assert (config.heads, config.kv_heads, config.head_dim, config.windows) == (8, 4, 256, (0, 1024))
    assert config.notes[0] == (
        "not in the file, defaults of gemma3_text: num_attention_heads=8, num_key_value_heads=4, head_dim=256"
    )
