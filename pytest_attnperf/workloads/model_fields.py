"""The fields of a Hugging Face `config.json`: read from the file, checked one by one, and grouped by their meaning.

The lists of fields come from the configuration classes of transformers (`src/transformers/models/*/configuration_*` for
llama, llama4, qwen2, qwen2_moe, qwen3, qwen3_moe, mistral, mixtral, gemma2, gemma3, phi3, deepseek_v2, deepseek_v3 and
gpt_oss, and `configuration_utils.py`), and from the files published with those models.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.records.regular_file import read_regular

BYTES_MAX = 1_000_000
"""Largest file that is read: a configuration has a few kilobytes, weights have more."""
SIZE_MAX = 1 << 20
"""Largest number of heads, or of elements in a row; a larger one is taken for a typing error."""
IGNORE_FLAG = "--attnperf-model=FILE,ignore="
NESTED = "text_config"
INHERITED = ("model_type", "torch_dtype", "dtype")
"""Fields of the outer configuration that also apply to a nested one, unless that has the field itself."""
_ROPE_TABLES = ("rope_scaling", "rope_parameters")
SHOWN = 80
"""Number of characters of a field's name in a message."""
_NAMES_SHOWN = 8


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


USED = _split_names(
    "model_type hidden_size num_attention_heads num_key_value_heads head_dim torch_dtype dtype attention_bias qkv_bias "
    "sliding_window use_sliding_window max_window_layers num_hidden_layers layer_types sliding_window_pattern "
    "_sliding_window_pattern max_position_embeddings attn_logit_softcapping query_pre_attn_scalar kv_lora_rank "
    "q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim rope_interleave rope_scaling rope_parameters use_qk_norm "
    "attention_chunk_size attn_temperature_tuning no_rope_layers no_rope_layer_interval quantization_config"
)
"""Fields that workloads, or notes, are made from."""

LATENT = ("q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
"""Further fields of latent attention; `kv_lora_rank` is the field that announces it."""

WITHOUT_BEARING = _split_names(
    # of every configuration
    "_name_or_path name_or_path _commit_hash architectures auto_map transformers_version torchscript use_bfloat16 "
    "tf_legacy_loss tie_word_embeddings tie_encoder_decoder chunk_size_feed_forward is_decoder return_dict use_cache "
    "cache_implementation output_hidden_states output_attentions gradient_checkpointing finetuning_task id2label "
    "label2id num_labels tokenizer_class prefix task_specific_params problem_type bos_token_id eos_token_id "
    "pad_token_id sep_token_id decoder_start_token_id image_token_id video_token_id vision_token_id "
    "vision_start_token_id vision_end_token_id image_token_index vision_config attn_implementation "
    "_attn_implementation _attn_implementation_autoset _attn_implementation_internal "
    # of generation
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens "
    # of the layers around attention, and of training
    "vocab_size intermediate_size intermediate_size_mlp hidden_act hidden_activation mlp_bias rms_norm_eps "
    "layer_norm_eps initializer_range pretraining_tp attention_dropout resid_pdrop embd_pdrop hidden_dropout "
    "final_logit_softcapping lm_head_bias "
    # of experts
    "num_local_experts num_experts num_experts_per_tok experts_per_token moe_intermediate_size "
    "shared_expert_intermediate_size n_routed_experts n_shared_experts n_group topk_group topk_method norm_topk_prob "
    "scoring_func routed_scaling_factor first_k_dense_replace moe_layer_freq decoder_sparse_step mlp_only_layers "
    "output_router_logits router_aux_loss_coef router_jitter_noise aux_loss_alpha seq_aux ep_size moe_layers "
    "interleave_moe_layer_step num_nextn_predict_layers for_llm_compressor swiglu_limit swiglu_alpha "
    # of the values in tables of cosines and sines, and of factors on queries: the work stays the same
    "rope_theta rope_local_base_freq original_max_position_embeddings initial_context_length use_mrope floor_scale "
    "attn_scale rope_scaling_factor rope_ntk_alpha rope_ntk_beta"
)
"""Fields that change neither the inputs of attention nor its amount of work."""

_OF_LATENT = frozenset({"head_dim", "qk_head_dim"})
"""Fields that transformers writes for latent attention in addition, and that follow from its other fields."""

_NO_CROSS = "it attends to another sequence; no family has cross attention"
REFUSED: Mapping[str, tuple[tuple[object, ...], str]] = {
    "alibi": ((False,), "its scores depend on distance; only families prefill and varlen support that, with 'alibi'"),
    "partial_rotary_factor": ((1, 1.0), "it rotates a part of a head; families rope and block rotate whole heads"),
    "rotary_pct": ((1, 1.0), "it rotates a part of a head; families rope and block rotate whole heads"),
    "position_embedding_type": (("rope", "rotary"), "families rope and block have rotary positions only"),
    "is_encoder_decoder": ((False,), _NO_CROSS),
    "add_cross_attention": ((False,), _NO_CROSS),
    "cross_attention_hidden_size": ((), _NO_CROSS),
    "cross_attention_layers": (([],), _NO_CROSS),
    "use_bidirectional_attention": ((False,), "tokens see later ones; families prefill, decode and block are causal"),
    "is_causal": ((True,), "tokens see later ones; families prefill, decode and block are causal"),
    "pruned_heads": (({}, []), "layers have different numbers of heads, which no family supports"),
}
"""Fields that change attention: the values that do not change it (besides null), and the meaning of other values."""

_ATTENTION = _split_names(
    "attn attention head rope rotary pos_emb position window qk kv query key value lora sink softcap alibi mla causal "
    "bidirectional mask"
)
"""Words in the name of a field that may concern attention."""


@dataclass(frozen=True)
class Fields:
    """The fields of one configuration; `file` is for messages. A field that is null counts as absent."""

    file: str
    values: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Returns whether the field exists and is not null."""
        return self.values.get(name) is not None

    def refuse(self, name: str, rule: str) -> NoReturn:
        """Raises WorkloadError: '<file>: <name>=<its value> <rule>'; `rule` says what the field breaks."""
        raise WorkloadError(f"{self.file}: {name[:SHOWN]}={_format_value(self.values.get(name))} {rule}")

    def refuse_missing(self, name: str, way_out: str = "") -> NoReturn:
        """Raises WorkloadError that the field is missing, with an existing field of similar name, then `way_out`."""
        close = difflib.get_close_matches(name, [held for held in self.values if self.has(held)], n=1)
        hint = f"; it has {close[0][:SHOWN]!r}, is that misspelt?" if close else ""
        raise WorkloadError(
            f"{self.file}: {name} is missing{hint}{way_out or '; fields are named as in configurations of Llama'}"
        )

    def read_integer(self, name: str, default: int | None = None, *, least: int = 1, most: int = SIZE_MAX) -> int:
        """Returns the field as an integer from `least` to `most`, or `default` if it is missing. Raises WorkloadError
        for another value, and if it is missing without a default."""
        if not self.has(name):
            if default is None:
                self.refuse_missing(name)
            return default
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}")
        return value

    def read_flag(self, name: str, *, default: bool) -> bool:
        """Returns whether the field is true, `default` if missing. Raises WorkloadError for anything but true and
        false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def read_word(self, name: str) -> str:
        """Returns the field as a text without outer spaces. Raises WorkloadError if it is missing, empty or no text."""
        if not self.has(name):
            self.refuse_missing(name)
        value = self.values[name]
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, "must be a text")
        return value.strip()


def read_fields(path: str | Path, ignore: Collection[str] = ()) -> Fields:
    """Returns the fields of a `config.json`, or of its text model if it has one; those in `ignore` are set to null.
    Raises WorkloadError for a file that cannot be read, is larger than 1 MB or holds no JSON object, for a field given
    twice, for NaN and infinities, and for a name in `ignore` that the file does not have."""
    outer = _read_object(Path(path))
    values, nested = dict(outer), outer.get(NESTED)
    if "hidden_size" not in outer and isinstance(nested, dict):
        values = {**{name: outer[name] for name in INHERITED if name in outer}, **nested}
    for name in ignore:
        held = [fields for fields in (values, *_list_tables(values)) if name in fields]
        if not held:
            close = difflib.get_close_matches(name, values, n=1)
            hint = f"; it has {close[0][:SHOWN]!r}" if close else ""
            raise WorkloadError(f"{path}: {IGNORE_FLAG} names {name[:SHOWN]!r}, which is no field of this file{hint}")
        for fields in held:
            fields[name] = None
    return Fields(str(path), values)


def _read_object(path: Path) -> dict[str, object]:
    if path.is_dir():
        raise WorkloadError(f"{path} is a folder; give the configuration in it, e.g. {path / 'config.json'}")
    try:
        content = read_regular(path, BYTES_MAX, WorkloadError, "; give the model's config.json, not its weights")
    except (OSError, ValueError) as error:
        raise WorkloadError(f"the model's configuration {path} cannot be read: {error}") from error
    try:
        loaded = json.loads(
            content.decode("utf-8-sig"), parse_constant=_refuse_number, object_pairs_hook=_refuse_repeated
        )
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{path} is no JSON that can be read: {error}") from error
    if not isinstance(loaded, dict):
        raise WorkloadError(f"{path} must hold a JSON object of fields, got {_format_value(loaded)}")
    return loaded


def _refuse_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _refuse_repeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Returns the pairs as a dict; raises ValueError for a field given twice, which JSON readers silently accept."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice[:SHOWN]!r} is given twice")
    return dict(pairs)


def _format_value(value: object) -> str:
    """Formats a value as JSON, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse_what_no_family_says(fields: Fields) -> None:
    """Raises WorkloadError for a field that changes attention in a way that no workload supports, and for an unknown
    one whose name contains a word such as 'attn' or 'rope'."""
    for name, (harmless, meaning) in REFUSED.items():
        for held in (fields, *(Fields(fields.file, table) for table in _list_tables(fields.values))):
            if held.has(name) and not any(_is_same(held.values[name], value) for value in harmless):
                allowed = " or ".join(_format_value(value) for value in (*harmless, None))
                held.refuse(name, f"is not supported ({meaning}); allowed: {allowed}. {_way_out(name)}")
    for name in _list_unknown(fields):
        if any(word in name.lower() for word in _ATTENTION):
            fields.refuse(name, f"is an unknown field, and by its name it may change attention. {_way_out(name)}")


def note_of_unknown(fields: Fields) -> str:
    """Returns a note that names the unknown fields that are left out; '' if there are none."""
    names = sorted(_list_unknown(fields))
    if not names:
        return ""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"unknown fields, left out: {', '.join(name[:SHOWN] for name in names[:_NAMES_SHOWN])}{more}"


def _list_unknown(fields: Fields) -> list[str]:
    known = USED | WITHOUT_BEARING | REFUSED.keys() | (_OF_LATENT if fields.has("kv_lora_rank") else frozenset())
    return [name for name in fields.values if fields.has(name) and name not in known]


def _list_tables(values: Mapping[str, object]) -> list[dict[str, object]]:
    """Returns the dicts of rotary-position settings, and the dicts inside them, one for each kind of layer."""
    tables = [table for name in _ROPE_TABLES if isinstance(table := values.get(name), dict)]
    return [*tables, *(inner for table in tables for inner in table.values() if isinstance(inner, dict))]


def _way_out(name: str) -> str:
    return f"To measure without it: {IGNORE_FLAG}{name[:SHOWN]}"


def _is_same(left: object, right: object) -> bool:
    """Returns whether two values are equal; unlike in Python, true does not equal 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right
