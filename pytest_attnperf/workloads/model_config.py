"""The attention layers of a model, read from its Hugging Face `config.json`, and the share of one tensor-parallel rank.
Pure; reads nothing but the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import model_fields
from pytest_attnperf.workloads.block_scales import BLOCK
from pytest_attnperf.workloads.model_fields import Fields

DTYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
"""Dtype in a configuration -> workload dtype."""
HEAD_DIM_MAX = 512
"""Largest head dimension of every family with heads."""
POSITIONS_MAX = 2**31 - 1
UNBOUNDED = POSITIONS_MAX
LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")

MODEL_TYPES = frozenset(
    {
        *("llama", "llama4_text", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text", "phi3", "gpt_oss"),
        *("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3", "qwen3_moe"),
        *("deepseek_v2", "deepseek_v3"),
    }
)
"""Model types whose fields are known; others are read as Llama's, with a note."""
UNSAID: Mapping[str, Mapping[str, object]] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0},
    "gemma3_text": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "attention_bias": True},
    "llama4_text": {"num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4},
}
"""Model type -> defaults of fields that a file leaves out, as a nested configuration does with every default. For other
model types num_key_value_heads is num_attention_heads, and head_dim hidden_size / num_attention_heads."""
DTYPE_UNSAID = {"gpt_oss": "bfloat16"}
"""Default of the dtype, which gpt-oss's files do not name: its attention is not quantised."""
BOTH_KINDS = frozenset({"gemma2", "gemma3_text", "gpt_oss"})
"""Model types whose layers alternate between a window and none, if the file does not list them."""
NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
"""Model types that normalise queries and keys."""


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention, as in family `mla`.

    kv_rank       C, size of the latent that keys and values are projected from
    q_rank        size of the latent that queries are projected from; 0 if they are projected from the token
    nope_dim      D, size of a head's part that is not rotated
    rope_dim      R, size of the rotated part
    value_dim     Dv
    interleaved   whether the rotated pairs are (2 i, 2 i + 1)
    """

    kv_rank: int
    q_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    interleaved: bool


@dataclass(frozen=True)
class Rank:
    """The share of one tensor-parallel rank: some heads; latents of latent attention are not split."""

    heads: int
    kv_heads: int


@dataclass(frozen=True)
class ModelConfig:
    """A model's attention layers.

    file        the file's name without its folder
    head_dim    of queries and keys; for latent attention both parts together
    dtype       workload dtype
    bias        whether the projection to queries, keys and values has a bias
    windows     for each kind of layer the largest number of keys a token sees, its own included; 0 for all
    positions   the longest sequence
    cap         soft cap of the scores, 0 for none
    sinks       one more logit per head in the denominator of the softmax
    latent      None for multi-head attention
    fp8_weights    whether weights are f8e4m3 with a scale for each block of 128 x 128, as `mla_block` has them
    notes       notes for the reader: what was assumed, and what workloads leave out
    """

    file: str
    model_type: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    bias: bool
    windows: tuple[int, ...]
    positions: int
    cap: int
    sinks: bool
    latent: Latent | None
    fp8_weights: bool
    notes: tuple[str, ...]

    @classmethod
    def read(cls, path: str | Path, ignore: Collection[str] = ()) -> ModelConfig:
        """Reads the model of a `config.json`, without the fields in `ignore`. Raises WorkloadError naming file, field,
        value and what is allowed, also for a field that changes attention in a way that no workload can express."""
        read = model_fields.read_fields(path, ignore)
        model_type = read.read_word("model_type")
        model_fields.refuse_what_no_family_says(read)
        unsaid = _find_unsaid(read, model_type)
        fields = Fields(read.file, {**read.values, **unsaid})
        latent = _read_latent(fields)
        hidden, heads = fields.read_integer("hidden_size"), fields.read_integer("num_attention_heads")
        config = cls(
            file=Path(path).name,
            model_type=model_type,
            hidden=hidden,
            heads=heads,
            kv_heads=heads if latent else _read_kv_heads(fields, heads),
            head_dim=latent.nope_dim + latent.rope_dim if latent else _read_head_dim(fields, hidden, heads),
            dtype=_read_dtype(fields),
            bias=_read_bias(fields, model_type),
            windows=_read_windows(fields, model_type),
            positions=fields.read_integer("max_position_embeddings", UNBOUNDED, most=POSITIONS_MAX),
            cap=_read_cap(fields),
            sinks=model_type == "gpt_oss",
            latent=latent,
            fp8_weights=_has_fp8_blocks(fields),
            notes=(),
        )
        return replace(config, notes=tuple(_list_notes(fields, config, unsaid, ignore)))

    def make_rank(self, tp: int) -> Rank:
        """Returns the number of heads and K/V heads of one of `tp` ranks. With more ranks than K/V heads, several ranks
        hold the same one, as in vLLM. Raises WorkloadError listing the allowed numbers of ranks."""
        if not self._can_be_shared(tp):
            allowed = [count for count in range(1, self.heads + 1) if self._can_be_shared(count)]
            kv = "" if self.latent else f" and {self.kv_heads} K/V heads"
            raise WorkloadError(
                f"{self.file}: {self.heads} heads{kv} cannot be split over tp={tp} ranks; "
                f"allowed: {', '.join(map(str, allowed))}"
            )
        return Rank(self.heads // tp, self.heads // tp if self.latent else max(1, self.kv_heads // tp))

    def _can_be_shared(self, tp: int) -> bool:
        if tp < 1 or self.heads % tp:
            return False
        return self.latent is not None or self.kv_heads % tp == 0 or tp % self.kv_heads == 0

    def describe(self, tp: int) -> str:
        """Returns one line for people: model type, file, `tp`, and the heads, sizes and dtype of one rank."""
        rank = self.make_rank(tp)
        if self.latent:
            dims = f"{self.latent.nope_dim}+{self.latent.rope_dim}, values of {self.latent.value_dim}"
            heads = f"heads {rank.heads} of {dims}, latents of {self.latent.kv_rank}"
        else:
            heads = f"heads {rank.heads}, K/V heads {rank.kv_heads}, head_dim {self.head_dim}"
        return f"model {self.model_type} ({self.file}), tp {tp}: {heads}, hidden {self.hidden}, {self.dtype}"


def _read_latent(fields: Fields) -> Latent | None:
    if not fields.has("kv_lora_rank"):
        said = [name for name in model_fields.LATENT if fields.has(name)]
        if said:
            fields.refuse_missing("kv_lora_rank", f"; {said[0]} means that the model has latent attention")
        return None
    latent = Latent(
        kv_rank=fields.read_integer("kv_lora_rank"),
        q_rank=fields.read_integer("q_lora_rank", 0),
        nope_dim=fields.read_integer("qk_nope_head_dim"),
        rope_dim=fields.read_integer("qk_rope_head_dim"),
        value_dim=fields.read_integer("v_head_dim", most=HEAD_DIM_MAX),
        interleaved=fields.read_flag("rope_interleave", default=True),
    )
    if latent.nope_dim + latent.rope_dim > HEAD_DIM_MAX:
        fields.refuse("qk_nope_head_dim", f"and qk_rope_head_dim={latent.rope_dim} may be {HEAD_DIM_MAX} together")
    if latent.rope_dim % 2:
        fields.refuse("qk_rope_head_dim", "must be even: elements are rotated in pairs")
    return latent


def _find_unsaid(fields: Fields, model_type: str) -> dict[str, object]:
    """Returns {field: default of the model type} for fields that the file does not have; a field that is null counts as
    present, but for the dtype."""
    unsaid = {name: value for name, value in UNSAID.get(model_type, {}).items() if name not in fields.values}
    if model_type in DTYPE_UNSAID and not fields.has("torch_dtype") and not fields.has("dtype"):
        unsaid["torch_dtype"] = DTYPE_UNSAID[model_type]
    return unsaid


def _read_kv_heads(fields: Fields, heads: int) -> int:
    kv_heads = fields.read_integer("num_key_value_heads", heads)
    if heads % kv_heads:
        fields.refuse("num_attention_heads", f"must be a multiple of num_key_value_heads={kv_heads}")
    return kv_heads


def _read_head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if not fields.has("head_dim") and hidden % heads:
        fields.refuse("hidden_size", f"is no multiple of num_attention_heads={heads}, and head_dim is missing")
    head_dim = fields.read_integer("head_dim", hidden // heads)
    if head_dim % 2 or head_dim > HEAD_DIM_MAX:
        raise WorkloadError(
            f"{fields.file}: head_dim={head_dim}{'' if fields.has('head_dim') else ' (hidden_size / heads)'} must be "
            f"even, because elements are rotated in pairs, and at most {HEAD_DIM_MAX}"
        )
    return head_dim


def _read_dtype(fields: Fields) -> str:
    name = "dtype" if fields.has("dtype") or not fields.has("torch_dtype") else "torch_dtype"
    if not fields.has(name):
        fields.refuse_missing("torch_dtype", f" (or dtype); allowed are {', '.join(DTYPES)}")
    dtype = fields.read_word(name).removeprefix("torch.")
    if dtype not in DTYPES:
        fields.refuse(name, f"must be one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _read_bias(fields: Fields, model_type: str) -> bool:
    """Returns whether queries, keys and values have a bias. Qwen 2 has one, but its files do not name it."""
    attention = fields.read_flag("attention_bias", default=False)
    return fields.read_flag("qkv_bias", default=model_type.startswith("qwen2")) or attention


def _has_fp8_blocks(fields: Fields) -> bool:
    """Returns whether weights are stored as DeepSeek-V3's are."""
    value = fields.values.get("quantization_config")
    if not isinstance(value, dict) or value.get("quant_method") != "fp8" or value.get("fmt", "e4m3") != "e4m3":
        return False
    return value.get("weight_block_size") == [BLOCK, BLOCK]


def _read_cap(fields: Fields) -> int:
    value = fields.values.get("attn_logit_softcapping")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or not 0 < value < 1e6:
        fields.refuse("attn_logit_softcapping", "must be a whole number above 0, as in families decode and mixed")
    return int(value)


def _read_windows(fields: Fields, model_type: str) -> tuple[int, ...]:
    """Returns the window in keys of each kind of layer, full attention (0) first; (0,) if no layer has a window."""
    window = fields.read_integer("sliding_window", 0, least=0, most=POSITIONS_MAX)
    slides = fields.read_flag("use_sliding_window", default=not model_type.startswith("qwen"))
    kinds = _read_layer_types(fields)
    if "sliding_attention" in kinds and slides and not window:
        fields.refuse_missing("sliding_window", "; layer_types has 'sliding_attention'")
    if not window or not slides:
        return (0,)
    if kinds:
        full, sliding = bool(kinds - {"sliding_attention"}), "sliding_attention" in kinds
    else:
        full, sliding = _unlisted_kinds(fields, model_type)
    return (*((0,) if full else ()), *((window,) if sliding else ()))


def _unlisted_kinds(fields: Fields, model_type: str) -> tuple[bool, bool]:
    """Returns (whether layers of full attention exist, whether layers with a window do) of a model with a window but
    without layer_types."""
    layers = fields.read_integer("num_hidden_layers", UNBOUNDED, most=POSITIONS_MAX)
    if model_type in ("qwen2", "qwen3") and fields.has("max_window_layers"):
        full = fields.read_integer("max_window_layers", least=0, most=POSITIONS_MAX)
        return full > 0, full < layers
    patterns = ("sliding_window_pattern", "_sliding_window_pattern")
    both = model_type in BOTH_KINDS or any(fields.has(name) for name in patterns) or model_type == "qwen2_moe"
    return both, True


def _read_layer_types(fields: Fields) -> frozenset[str]:
    value = fields.values.get("layer_types")
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not value or not all(isinstance(kind, str) for kind in value):
        fields.refuse("layer_types", "must be a list of texts")
    unknown = sorted(set(value) - set(LAYER_TYPES))
    if unknown:
        raise WorkloadError(
            f"{fields.file}: layer_types has {unknown[0]!r}, an attention that no family supports; allowed: "
            f"{', '.join(LAYER_TYPES)}. To measure without it: {model_fields.IGNORE_FLAG}layer_types"
        )
    return frozenset(value)


def _list_notes(
    fields: Fields, config: ModelConfig, unsaid: Mapping[str, object], ignore: Collection[str]
) -> Iterator[str]:
    if ignore:
        yield f"ignored, as asked for: {', '.join(ignore)}"
    if config.model_type not in MODEL_TYPES:
        yield f"model type {config.model_type} is unknown: its fields are read as Llama's"
    if unsaid:
        said = ", ".join(f"{name}={value}" for name, value in unsaid.items())
        yield f"not in the file, defaults of {config.model_type}: {said}"
    if fields.has("quantization_config"):
        kept = " of all but mla_block's weights" if config.latent and config.fp8_weights else ""
        yield f"quantization_config is left out{kept}: weights and caches are {config.dtype}"
    if config.latent is None and fields.read_flag("attention_bias", default=False):
        yield "the output projection's bias is left out of block"
    if config.model_type in NORMED or fields.read_flag("use_qk_norm", default=config.model_type == "llama4_text"):
        yield "norms of queries and keys are left out of block"
    if config.sinks:
        yield "sinks are in decode and mixed, and left out of other families"
    yield from _list_score_notes(fields, config)
    unknown = model_fields.note_of_unknown(fields)
    if unknown:
        yield unknown


def _list_score_notes(fields: Fields, config: ModelConfig) -> Iterator[str]:
    """Yields notes on factors of scores that workloads leave out, and on layers that differ from the measured ones."""
    scalar = fields.values.get("query_pre_attn_scalar")
    if scalar is not None and scalar != config.head_dim:
        yield f"scores are scaled by 1/sqrt({config.head_dim}), not by query_pre_attn_scalar"
    if fields.values.get("attn_temperature_tuning"):  # a number in Llama 4's files, a truth value in its class
        yield "attn_temperature_tuning, a factor of queries, is left out"
    chunk = fields.read_integer("attention_chunk_size", UNBOUNDED, most=POSITIONS_MAX)
    if chunk < config.positions:
        yield f"beyond {chunk} tokens (attention_chunk_size) only the layers of full attention are as measured"
    if fields.has("no_rope_layers") or fields.has("no_rope_layer_interval"):
        yield "layers without rotary positions are measured as those with them"
