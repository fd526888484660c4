"""Fields of a model's configuration: what is read, what is refused, and what is merely not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.model_config import ModelConfig
from pytest_attnperf.workloads.model_fields import BYTES_MAX, read_fields

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "torch_dtype": "float16",
}


def read(folder: Path, ignore: tuple[str, ...] = (), **fields: Any) -> ModelConfig:
    """A small Llama with other fields; a field that is `...` is left out."""
    held = {name: value for name, value in {**LLAMA, **fields}.items() if value is not ...}
    path = folder / "config.json"
    path.write_text(json.dumps(held))
    return ModelConfig.read(path, ignore)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no JSON that can be read"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "field 'hidden_size' is given twice"),
        (b'{"hidden_size": NaN}', "NaN is no number of JSON"),
        (b'{"hidden_size": -Infinity}', "-Infinity is no number of JSON"),
        (b"\xff\xfe\x00", "is no JSON that can be read"),
        (b"[1, 2]", "must hold a JSON object of fields, got \\[1, 2\\]"),
        (b"[" * 100_000, "is no JSON that can be read"),
        (b'{"hidden_size": ' + b"9" * 10_000 + b"}", "is no JSON that can be read"),
        (b" " * (BYTES_MAX + 1), f"bytes; at most {BYTES_MAX:,} are read; give the model's config.json"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """Broken, doubled, endless and huge files are errors that name the file."""
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=said) as error:
        read_fields(path)
    assert "m.json" in str(error.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder names the file that lies in it, a missing file what the system says."""
    with pytest.raises(WorkloadError, match=r"is a folder; give the configuration in it, e\.g\. .*config\.json"):
        read_fields(tmp_path)
    with pytest.raises(WorkloadError, match=r"none\.json cannot be read: .*No such file"):
        read_fields(tmp_path / "none.json")
    with pytest.raises(WorkloadError, match=r"cannot be read: .*null"):
        read_fields("a\0b")


def test_a_nested_text_model_is_read(tmp_path: Path) -> None:
    """text_config is the model where the outer fields have no hidden_size; the outer dtype holds for it."""
    outer: dict[str, Any] = {"model_type": "gemma3", "torch_dtype": "bfloat16", "image_heads": 3, "hidden_size": ...}
    inner = {"model_type": "llama", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3}
    config = read(tmp_path, **outer, text_config=inner)
    assert (config.model_type, config.hidden, config.heads, config.dtype) == ("llama", 96, 6, "bf16")
    assert config.notes == ()
    assert read(tmp_path, text_config=inner).hidden == 64


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"alibi": True}, "alibi=true is not supported .*families prefill and varlen support.*allowed: false or null"),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor=0.5 is not supported .*rope and block rotate whole heads",
        ),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 is not supported"),
        ({"rope_scaling": {"full_attention": {"partial_rotary_factor": 0.5}}}, "partial_rotary_factor=0.5 is not"),
        ({"partial_rotary_factor": True}, "partial_rotary_factor=true is not supported"),
        ({"is_encoder_decoder": True}, "no family has cross attention"),
        ({"add_cross_attention": True}, "no family has cross attention"),
        ({"cross_attention_layers": [3, 8]}, r"cross_attention_layers=\[3, 8\] is not supported"),
        ({"use_bidirectional_attention": True}, "tokens see later ones"),
        ({"position_embedding_type": "absolute"}, "rotary positions only"),
        ({"pruned_heads": {"1": [2]}}, "different numbers of heads"),
        ({"index_head_dim": 128}, "index_head_dim=128 is an unknown field, and by its name it may change attention"),
        ({"kv_sharing": False}, "kv_sharing=false is an unknown field"),
        ({"qk_layernorm": "x" * 99}, 'qk_layernorm="xxx.*\\.\\.\\. is an unknown field'),
    ],
)
def test_what_changes_attention_and_cannot_be_said_is_refused(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    """The error names file, field, value and family, and the way out, which then works."""
    with pytest.raises(WorkloadError, match=said) as error:
        read(tmp_path, **fields)
    way_out = str(error.value).rpartition("--attnperf-model=FILE,ignore=")[2]
    assert way_out
    config = read(tmp_path, (way_out,), **fields)
    assert config.notes == (f"ignored, as asked for: {way_out}",)


def test_harmless_values_are_no_matter(tmp_path: Path) -> None:
    """null is as absent, whatever the field; so are the values that a feature is switched off with."""
    off: dict[str, Any] = {
        "alibi": False,
        "partial_rotary_factor": 1.0,
        "is_encoder_decoder": False,
        "cross_attention_layers": [],
    }
    config = read(tmp_path, **off, pruned_heads={}, is_causal=True, index_head_dim=None, position_embedding_type=None)
    assert config.notes == ()


def test_a_field_without_bearing_that_is_not_known_is_a_note(tmp_path: Path) -> None:
    """It is named, of many the first few; what is known to have no bearing is not mentioned."""
    assert read(tmp_path, vocab_size=3, rms_norm_eps=1e-5).notes == ()
    assert read(tmp_path, mood="good", zeal=1).notes == ("unknown fields, left out: mood, zeal",)
    many: dict[str, Any] = {f"x{number}": 1 for number in range(10)}
    assert read(tmp_path, **many).notes == ("unknown fields, left out: x0, x1, x2, x3, x4, x5, x6, x7 and 2 more",)


def test_what_is_to_be_ignored_must_be_there(tmp_path: Path) -> None:
    """A misspelt name would otherwise ignore nothing silently."""
    with pytest.raises(
        WorkloadError, match=r"--attnperf-model=FILE,ignore= names 'alibli', which is no field.*it has 'alibi'"
    ):
        read(tmp_path, ("alibli",), alibi=True)
    with pytest.raises(WorkloadError, match="hidden_size is missing"):
        read(tmp_path, ("hidden_size",))
