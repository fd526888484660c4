"""What a model's attention layers are, and what a tensor-parallel rank has of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import model_workloads
from pytest_attnperf.workloads.model_config import ModelConfig

MODELS = Path(__file__).parents[2] / "suites" / "models"
LLAMA: dict[str, Any] = json.loads((MODELS / "llama3-8b.json").read_text())
DEEPSEEK: dict[str, Any] = json.loads((MODELS / "deepseek-v3.json").read_text())


def read(folder: Path, base: dict[str, Any] = LLAMA, **fields: Any) -> ModelConfig:
    """A model with other fields; a field that is `...` is left out."""
    path = folder / "config.json"
    path.write_text(json.dumps({name: value for name, value in {**base, **fields}.items() if value is not ...}))
    return ModelConfig.read(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hidden_size": ...}, "hidden_size is missing; fields are named as in configurations of Llama"),
        ({"hidden_size": ..., "hiden_size": 4096}, "hidden_size is missing; it has 'hiden_size', is that misspelt"),
        ({"model_type": ...}, "model_type is missing"),
        ({"model_type": 3}, "model_type=3 must be a text"),
        ({"num_attention_heads": ...}, "num_attention_heads is missing"),
        ({"torch_dtype": ...}, r"torch_dtype is missing \(or dtype\); allowed are float16, bfloat16, float32"),
        ({"torch_dtype": "float8"}, 'torch_dtype="float8" must be one of float16, bfloat16, float32'),
        ({"dtype": "int8"}, 'dtype="int8" must be one of'),
        ({"hidden_size": 4096.0}, "hidden_size=4096.0 must be a whole number from 1 to 1048576"),
        ({"hidden_size": True}, "hidden_size=true must be a whole number"),
        ({"hidden_size": "4096"}, 'hidden_size="4096" must be a whole number'),
        ({"num_attention_heads": 0}, "num_attention_heads=0 must be a whole number from 1"),
        ({"num_attention_heads": 10**9}, "num_attention_heads=1000000000 must be a whole number"),
        ({"num_key_value_heads": 5}, "num_attention_heads=32 must be a multiple of num_key_value_heads=5"),
        (
            {"num_attention_heads": 33, "num_key_value_heads": 3},
            "hidden_size=4096 is no multiple of .*=33, and head_dim",
        ),
        ({"head_dim": 63}, "head_dim=63 must be even"),
        ({"head_dim": 1024}, "head_dim=1024 must be .*at most 512"),
        ({"num_attention_heads": 4, "num_key_value_heads": 4}, r"head_dim=1024 \(hidden_size / heads\) must be"),
        ({"max_position_embeddings": 0}, "max_position_embeddings=0 must be a whole number"),
        ({"attention_bias": 1}, "attention_bias=1 must be true or false"),
        ({"sliding_window": -1}, "sliding_window=-1 must be a whole number from 0"),
        ({"layer_types": "full_attention"}, 'layer_types="full_attention" must be a list of texts'),
        (
            {"layer_types": ["mamba"]},
            "layer_types has 'mamba', an attention that no family supports.*allowed: full_attention, sliding_",
        ),
        ({"layer_types": ["sliding_attention"]}, "sliding_window is missing; layer_types has 'sliding_attention'"),
        ({"attn_logit_softcapping": 30.5}, "attn_logit_softcapping=30.5 must be a whole number.*decode and mixed"),
        ({"attn_logit_softcapping": 0}, "attn_logit_softcapping=0 must be"),
        ({"v_head_dim": 128}, "kv_lora_rank is missing; v_head_dim means that the model has latent attention"),
    ],
)
def test_a_field_that_cannot_be_is_named(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    """The error names file, field and value, and what is allowed."""
    with pytest.raises(WorkloadError, match=said) as error:
        read(tmp_path, **fields)
    assert "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"qk_rope_head_dim": ...}, "qk_rope_head_dim is missing"),
        ({"qk_rope_head_dim": 63}, "qk_rope_head_dim=63 must be even"),
        ({"qk_nope_head_dim": 500}, "qk_nope_head_dim=500 and qk_rope_head_dim=64 may be 512 together"),
        ({"v_head_dim": 513}, "v_head_dim=513 must be a whole number from 1 to 512"),
    ],
)
def test_a_field_of_latent_attention_that_cannot_be_is_named(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    """The same, of a model with latents."""
    with pytest.raises(WorkloadError, match=said):
        read(tmp_path, DEEPSEEK, **fields)


def test_what_a_file_leaves_out(tmp_path: Path) -> None:
    """Absent K/V heads are the heads, an absent head_dim their share of the hidden size, absent positions no bound;
    null is as absent, and `dtype` goes before `torch_dtype`."""
    config = read(tmp_path, num_key_value_heads=..., max_position_embeddings=..., dtype="torch.float16")
    assert (config.kv_heads, config.head_dim, config.positions, config.dtype) == (32, 128, 2**31 - 1, "f16")
    assert read(tmp_path, num_key_value_heads=None, head_dim=None).kv_heads == 32
    assert read(tmp_path, head_dim=64).head_dim == 64


@pytest.mark.parametrize(
    ("model_type", "fields", "windows"),
    [
        ("llama", {}, (0,)),
        ("mistral", {"sliding_window": 4096}, (4096,)),
        ("mistral", {"sliding_window": None}, (0,)),
        ("phi3", {"sliding_window": 2047}, (2047,)),
        ("qwen2", {"sliding_window": 4096}, (0,)),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, (0,)),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, (0, 4096)),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 32}, (0,)),
        ("qwen3", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0}, (4096,)),
        ("qwen2_moe", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 28}, (0, 64)),
        ("gemma2", {"sliding_window": 4096}, (0, 4096)),
        ("gemma3_text", {"sliding_window": 512, "sliding_window_pattern": 6}, (0, 512)),
        ("gpt_oss", {"layer_types": ["sliding_attention", "full_attention"]}, (0, 128)),
        ("gpt_oss", {"sliding_window": 128}, (0, 128)),
        ("llama", {"layer_types": ["sliding_attention"] * 3, "sliding_window": 64}, (64,)),
        ("llama4_text", {"layer_types": ["chunked_attention", "full_attention"]}, (0,)),
    ],
)
def test_windows_of_the_kinds_of_layers(
    tmp_path: Path, model_type: str, fields: dict[str, Any], windows: tuple[int, ...]
) -> None:
    """Whether all layers have a window, some or none, as the model type's class decides it."""
    assert read(tmp_path, model_type=model_type, num_hidden_layers=32, **fields).windows == windows


def test_biases(tmp_path: Path) -> None:
    """Qwen 2 has one on queries, keys and values though its file does not say so; others say it."""
    assert not read(tmp_path).bias
    assert read(tmp_path, model_type="qwen2").bias
    assert not read(tmp_path, model_type="qwen2_moe", qkv_bias=False).bias
    assert read(tmp_path, attention_bias=True).bias


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"attention_bias": True}, "the output projection's bias is left out of block"),
        ({"model_type": "qwen3"}, "norms of queries and keys are left out of block"),
        ({"use_qk_norm": True}, "norms of queries and keys are left out of block"),
        ({"model_type": "falcon"}, "model type falcon is unknown: its fields are read as Llama's"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is left out: weights and caches are bf16"),
        ({"query_pre_attn_scalar": 144}, "scores are scaled by 1/sqrt(128), not by query_pre_attn_scalar"),
        ({"attn_temperature_tuning": 4}, "attn_temperature_tuning, a factor of queries, is left out"),
        ({"attention_chunk_size": 64}, "beyond 64 tokens (attention_chunk_size) only the layers of full attention"),
        ({"no_rope_layers": [1, 0]}, "layers without rotary positions are measured as those with them"),
        ({"model_type": "gpt_oss"}, "sinks are in decode and mixed, and left out of other families"),
        (
            {"model_type": "mixtral", "num_key_value_heads": ...},
            "not in the file, defaults of mixtral: num_key_value_heads=8",
        ),
    ],
)
def test_what_is_left_out_or_assumed_is_noted(tmp_path: Path, fields: dict[str, Any], note: str) -> None:
    """A reader sees in what the workloads differ from the model's layers."""
    assert any(said.startswith(note) for said in read(tmp_path, **fields).notes)


def test_ranks(tmp_path: Path) -> None:
    """Heads are shared out; K/V heads, too, until each rank has one, and are then held by several."""
    config = read(tmp_path)
    shares = [(config.make_rank(tp).heads, config.make_rank(tp).kv_heads) for tp in (1, 4, 8, 16, 32)]
    assert shares == [(32, 8), (8, 2), (4, 1), (2, 1), (1, 1)]
    for tp in (0, -1, 3, 64):
        with pytest.raises(WorkloadError, match=rf"32 heads and 8 K/V heads .* tp={tp} ranks; allowed: 1, 2, 4, 8, 16"):
            config.make_rank(tp)
    with pytest.raises(WorkloadError, match=r"28 heads and 4 K/V heads .* tp=7 ranks; allowed: 1, 2, 4, 28$"):
        ModelConfig.read(MODELS / "qwen2.5-7b.json").make_rank(7)
    assert ModelConfig.read(MODELS / "deepseek-v3.json").make_rank(128).heads == 1


def test_a_model_is_described_in_one_line() -> None:
    """Type, file without its folder, and what one rank has."""
    llama, deepseek = (ModelConfig.read(MODELS / f"{name}.json") for name in ("llama3-70b", "deepseek-v3"))
    assert llama.describe(8) == (
        "model llama (llama3-70b.json), tp 8: heads 8, K/V heads 1, head_dim 128, hidden 8192, bf16"
    )
    assert deepseek.describe(16) == (
        "model deepseek_v3 (deepseek-v3.json), tp 16: heads 8 of 128+64, values of 128, latents of 512, hidden 7168, "
        "bf16"
    )


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(0, 600) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*LLAMA, *DEEPSEEK, "layer_types", "sliding_window", "rope_scaling", "head_dim"]) | st.text()


@settings(max_examples=60, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.sampled_from([LLAMA, DEEPSEEK]), changes=st.dictionaries(NAMES, JSON_VALUES, max_size=4), tp=st.integers()
)
def test_mutated_configurations_give_workloads_or_a_clean_error(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], tp: int
) -> None:
    """Whatever stands in a field, it is a model that workloads are made of, or a WorkloadError that names the file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**base, **changes}))
    assert "config.json" in _outcome(path, tp if tp in (2, 3) else 1)


def _outcome(path: Path, tp: int) -> str:
    """What the model's error says, or what is said of a model whose families all have workloads, or a reason."""
    try:
        config = ModelConfig.read(path)
        for family in model_workloads.BUILDERS:
            found = model_workloads.workloads_of(config, family, tp, (1, 4), (16, 64))
            assert found or model_workloads.reason_no_workload(config, family)
        return config.describe(tp)
    except WorkloadError as error:
        return str(error)


@settings(max_examples=30, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40), cut=st.integers(0, 300))
def test_mutated_bytes_give_a_clean_error(tmp_path: Path, content: bytes, cut: int) -> None:
    """A file that was cut off and goes on with foreign bytes is a WorkloadError."""
    path = tmp_path / "config.json"
    whole = json.dumps(LLAMA).encode()
    path.write_bytes(whole[: cut % len(whole)] + content)
    with pytest.raises(WorkloadError, match=r"config\.json"):
        ModelConfig.read(path)
