"""The workloads of the models that are shipped, to the letter, and of features that families have or lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.families import Families
from pytest_attnperf.workloads.model_config import ModelConfig
from pytest_attnperf.workloads.model_workloads import BUILDERS, reason_no_workload, workloads_of

MODELS = Path(__file__).parents[2] / "suites" / "models"
LLAMA: dict[str, Any] = json.loads((MODELS / "llama3-8b.json").read_text())


def shipped(name: str) -> ModelConfig:
    """A model of the suites."""
    return ModelConfig.read(MODELS / f"{name}.json")


def read(folder: Path, **fields: Any) -> ModelConfig:
    """Llama 3 8B with other fields."""
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **fields}))
    return ModelConfig.read(path)


def ids(
    config: ModelConfig,
    family: str,
    tp: int = 1,
    batches: tuple[int, ...] = (1, 16),
    lengths: tuple[int, ...] = (512, 4096),
) -> list[str]:
    """The ids of a family's workloads, without the family's name."""
    return [workload.id.partition("-")[2] for workload in workloads_of(config, family, tp, batches, lengths)]


def attention_ids(heads: str, *, bias: str = "", hidden: str = "") -> dict[str, list[str]]:
    """What a multi-head model has at the default batches and lengths, given its heads as ids name them."""
    shape = f"{heads}-d128-bf16"
    layer = f"{hidden}{shape}{bias}"
    steps = [f"b{batch}-s1-p{past}-{layer}" for past in (511, 4095) for batch in (1, 16)]
    return {
        "prefill": [f"b1-s{length}-{shape}-causal" for length in (512, 4096)],
        "decode": [f"b{batch}-kv{length}-{shape}" for length in (512, 4096) for batch in (1, 16)],
        "block": [f"b1-s512-{layer}", f"b1-s4096-{layer}", *steps],
        "rope": [f"{tokens}-{shape}" for tokens in ("b1-s512", "b1-s4096", "b1-s1", "b16-s1")],
        "varlen": [f"q512_4096-{shape}-causal"],
        "mixed": [f"q512_16q1s4k-{heads}-d128-page16-bf16"],
        "backward": [f"b1-s4096-{shape}-causal"],
        "varlen_backward": [f"q512_4096-{shape}-causal"],
        "qk_scores": [f"b1-s512-{shape}"],
        "causal_mask": [f"b1-s512-{heads.partition('-')[0]}-f32"],
        "row_softmax": [f"b1-s512-{heads.partition('-')[0]}-bf16-causal"],
        "weighted_values": [f"b1-s512-{shape}-causal"],
        "mla": [],
        "mla_block": [],
    }


def projection_ids(*projections: str) -> list[str]:
    """At prompts of 512 and 4096 tokens, and cold at decoded batches of 1 and 16."""
    rows = (("m512", ""), ("m4096", ""), ("m1", "-cold"), ("m16", "-cold"))
    return [f"{row}-{projection}-bf16-nt{cold}" for row, cold in rows for projection in projections]


@pytest.mark.parametrize(
    ("name", "tp", "attention", "projections", "hidden"),
    [
        ("llama3-8b", 1, attention_ids("h32-hk8"), ("n6144-k4096", "n4096-k4096"), 4096),
        ("llama3-8b", 8, attention_ids("h4-hk1", hidden="e4096-"), ("n768-k4096", "n4096-k512"), 4096),
        ("llama3-70b", 1, attention_ids("h64-hk8"), ("n10240-k8192", "n8192-k8192"), 8192),
        ("llama3-70b", 8, attention_ids("h8-hk1", hidden="e8192-"), ("n1280-k8192", "n8192-k1024"), 8192),
        ("qwen2.5-7b", 1, attention_ids("h28-hk4", bias="-bias"), ("n4608-k3584", "n3584-k3584"), 3584),
        ("qwen2.5-7b", 4, attention_ids("h7-hk1", bias="-bias", hidden="e3584-"), ("n1152-k3584", "n3584-k896"), 3584),
    ],
)
def test_shipped_models(
    name: str, tp: int, attention: dict[str, list[str]], projections: tuple[str, str], hidden: int
) -> None:
    """Every family's workloads of a shipped multi-head model, on one rank."""
    expected = {
        **attention,
        "gemm": projection_ids(*projections),
        "rmsnorm": [f"r{rows}-c{hidden}-bf16-residual" for rows in (512, 4096, 1, 16)],
    }
    config = shipped(name)
    assert {family: ids(config, family, tp) for family in BUILDERS} == expected
    assert config.notes == ()


@pytest.mark.parametrize(
    ("tp", "heads", "projections"),
    [
        (1, 128, ("n2112-k7168", "n24576-k1536", "n32768-k512", "n7168-k16384")),
        (8, 16, ("n2112-k7168", "n3072-k1536", "n4096-k512", "n7168-k2048")),
    ],
)
def test_shipped_latent_attention(tp: int, heads: int, projections: tuple[str, ...]) -> None:
    """DeepSeek-V3: its heads as prefill sees them, its latents as mla does, and no family of K/V heads; a decode step
    projects from the latent of keys and values, k512, within mla."""
    config, latent = shipped("deepseek-v3"), f"h{heads}-d128-r64-c512-bf16"
    found = {family: ids(config, family, tp) for family in BUILDERS}
    steps = [f"b{batch}-s1-kv{length}-{latent}" for length in (512, 4096) for batch in (1, 16)]
    layer = f"e7168-h{heads}-q1536-d128-r64-c512-bf16-fp8w"
    rotated = f"h{heads}-hk1-d64-bf16-interleaved"
    assert {family: of_family for family, of_family in found.items() if of_family} == {
        "prefill": [f"b1-s{length}-h{heads}-d192-dv128-bf16-causal" for length in (512, 4096)],
        "rope": [f"{tokens}-{rotated}" for tokens in ("b1-s512", "b1-s4096", "b1-s1", "b16-s1")],
        "gemm": [each for each in projection_ids(*projections) if not (each.endswith("-cold") and "-k512-" in each)],
        "rmsnorm": [f"r{rows}-c7168-bf16-residual" for rows in (512, 4096, 1, 16)],
        "mla": [f"b1-s512-{latent}-causal", f"b1-s4096-{latent}-causal", *steps],
        "mla_block": [
            f"{tokens}-{layer}"
            for tokens in ("b1-s512", "b1-s4096", "b1-s1-p511", "b16-s1-p511", "b1-s1-p4095", "b16-s1-p4095")
        ],
        "qk_scores": [f"b1-s512-h{heads}-d192-bf16"],
        "causal_mask": [f"b1-s512-h{heads}-f32"],
        "row_softmax": [f"b1-s512-h{heads}-bf16-causal"],
        "weighted_values": [f"b1-s512-h{heads}-d128-bf16-causal"],
    }
    assert reason_no_workload(config, "block") == (
        "block is multi-head attention; the model's is latent: see family mla_block"
    )
    assert config.notes == (
        "quantization_config is left out of all but mla_block's weights: weights and caches are bf16",
    )


def test_queries_may_be_projected_from_tokens(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite has no latent of queries."""
    latent = {"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    config = read(tmp_path, **latent, v_head_dim=128, hidden_size=2048, num_attention_heads=16)
    assert ids(config, "gemm", batches=(1,), lengths=(4,))[:3] == [
        "m4-n3072-k2048-bf16-nt",
        "m4-n576-k2048-bf16-nt",
        "m4-n4096-k512-bf16-nt",
    ]


def test_what_a_latent_layer_lacks_is_said(tmp_path: Path) -> None:
    """Weights of another 8-bit format are measured in the dtype, with a note; another rotation and a bias are not."""
    deepseek: dict[str, Any] = json.loads((MODELS / "deepseek-v3.json").read_text())
    blocks = deepseek["quantization_config"]
    for other in ({"bits": 4}, {**blocks, "weight_block_size": [64, 64]}, {**blocks, "fmt": "e5m2"}, None):
        config = read(tmp_path, **{**deepseek, "quantization_config": other})
        (found,) = ids(config, "mla_block", 8, batches=(1,), lengths=(512,))[:1]
        assert found == "b1-s512-e7168-h16-q1536-d128-r64-c512-bf16"
        left_out = "quantization_config is left out: weights and caches are bf16"
        assert config.notes == ((left_out,) if other else ())
    for field, why in (
        ({"rope_interleave": False}, "mla_block rotates pairs (2 i, 2 i + 1), and rope_interleave is false"),
        ({"attention_bias": True}, "mla_block has no bias, and attention_bias is true"),
    ):
        config = read(tmp_path, **{**deepseek, **field})
        assert (ids(config, "mla_block"), reason_no_workload(config, "mla_block")) == ([], why)
        assert ids(config, "mla") != []


def test_windows_are_said_where_they_can_be(tmp_path: Path) -> None:
    """A window as long as the keys is none; families without windows have the lengths that one holds."""
    config = read(tmp_path, sliding_window=1024)
    assert ids(config, "prefill") == ["b1-s512-h32-hk8-d128-bf16-causal", "b1-s4096-h32-hk8-d128-w1024-bf16-causal"]
    assert ids(config, "decode", batches=(2,), lengths=(4096,)) == ["b2-kv4096-h32-hk8-d128-w1024-bf16"]
    assert ids(config, "varlen") == ["q512_4096-h32-hk8-d128-w1024-bf16-causal"]
    assert ids(config, "mixed") == ["q512_16q1s4k-h32-hk8-d128-page16-w1024-bf16"]
    assert ids(config, "block", batches=(1,)) == ["b1-s512-h32-hk8-d128-bf16", "b1-s1-p511-h32-hk8-d128-bf16"]
    assert ids(config, "varlen_backward") == ["q2x512-h32-hk8-d128-bf16-causal"]
    narrow = read(tmp_path, sliding_window=64)
    for family in ("block", "backward", "varlen_backward", "qk_scores"):
        assert ids(narrow, family) == []
        assert reason_no_workload(narrow, family).startswith("every layer has a window of 64 keys")


def test_layers_of_full_attention_stand_beside_those_with_windows(tmp_path: Path) -> None:
    """Each kind is measured; sinks are where they can be said."""
    config = read(tmp_path, model_type="gpt_oss", sliding_window=128, head_dim=64, attention_bias=True)
    assert ids(config, "prefill", lengths=(512,)) == [
        "b1-s512-h32-hk8-d64-bf16-causal",
        "b1-s512-h32-hk8-d64-w128-bf16-causal",
    ]
    assert ids(config, "decode", batches=(1,), lengths=(512,)) == [
        "b1-kv512-h32-hk8-d64-bf16-sinks",
        "b1-kv512-h32-hk8-d64-w128-bf16-sinks",
    ]
    assert ids(config, "block", batches=(1,), lengths=(512,)) == [
        "b1-s512-e4096-h32-hk8-d64-bf16-bias",
        "b1-s1-p511-e4096-h32-hk8-d64-bf16-bias",
    ]


def test_soft_caps_are_said_by_decode_and_mixed(tmp_path: Path) -> None:
    """Other families of scores have no workload, and say that it is the cap; families without scores have theirs."""
    config = read(tmp_path, attn_logit_softcapping=50.0)
    assert ids(config, "decode", batches=(1,), lengths=(512,)) == ["b1-kv512-h32-hk8-d128-cap50-bf16"]
    assert ids(config, "mixed") == ["q512_16q1s4k-h32-hk8-d128-page16-cap50-bf16"]
    assert ids(config, "gemm")
    assert ids(config, "rope")
    for family in ("prefill", "block", "backward", "varlen", "varlen_backward", "row_softmax"):
        assert ids(config, family) == []
        assert reason_no_workload(config, family) == (
            "scores have a soft cap (attn_logit_softcapping=50); only decode and mixed support it"
        )


def test_families_that_have_none_say_why(tmp_path: Path) -> None:
    """A dtype that a family lacks, attention that is not latent, and families that no model has."""
    config = read(tmp_path, torch_dtype="float32")
    assert (ids(config, "mixed"), reason_no_workload(config, "mixed")) == ([], "mixed takes f16 and bf16, not f32")
    for family in ("mla", "mla_block"):
        assert (ids(config, family), reason_no_workload(config, family)) == ([], "llama has no latent attention")
    assert ids(config, "bandwidth") == []
    assert reason_no_workload(config, "bandwidth").startswith("bandwidth is none of the families")


def test_lengths_are_bounded_by_positions(tmp_path: Path) -> None:
    """Longer ones are left out; none that fits, and numbers that are none, are errors."""
    config = read(tmp_path, max_position_embeddings=1024)
    assert ids(config, "prefill", lengths=(512, 1024, 4096, 512)) == [
        "b1-s512-h32-hk8-d128-bf16-causal",
        "b1-s1024-h32-hk8-d128-bf16-causal",
    ]
    with pytest.raises(WorkloadError, match=r"no sequence length of 4096 is within max_position_embeddings=1024"):
        ids(config, "prefill", lengths=(4096,))
    with pytest.raises(WorkloadError, match=r"a sequence length must be a whole number from 1 to 2147483647, got 0"):
        ids(config, "prefill", lengths=(0,))
    with pytest.raises(WorkloadError, match=r"a batch must be a whole number from 1 to 65536, got 65537"):
        ids(config, "decode", batches=(65537,))
    with pytest.raises(WorkloadError, match=r"a batch must be .*, got none"):
        ids(config, "decode", batches=())


def test_a_single_position_is_no_prompt(tmp_path: Path) -> None:
    """Nothing could be told from the gradients or the softmax of one key."""
    config = read(tmp_path, max_position_embeddings=1)
    none = [family for family in BUILDERS if not ids(config, family, lengths=(1,))]
    assert none == [
        "backward",
        "varlen_backward",
        "mla",
        "mla_block",
        "qk_scores",
        "causal_mask",
        "row_softmax",
        "weighted_values",
    ]
    assert reason_no_workload(config, "backward").endswith("it needs at least 2 tokens")


def test_every_id_reads_back() -> None:
    """What is made of a model is what its id says, in every family that is registered."""
    families = Families()
    known = [family for family in BUILDERS if family in {held.name for held in families}]
    for config in (shipped("qwen2.5-7b"), shipped("deepseek-v3")):
        for family in known:
            for workload in workloads_of(config, family, 4, (1, 3), (100, 513)):
                assert families.parse_workload(workload.id) == workload
