"""Layers over HIP kernels, emulated: right through the judge, decoding with a growing cache, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.hip.decode import BACKENDS as DECODE
from kernels.hip.emulator import missing_emulator
from kernels.hip.prefill import BACKENDS as PREFILL
from kernels.hip.staged import BACKENDS as STAGED
from kernels.layer.growing import decode_token_by_token
from kernels.layer.layers import layers_over
from pytest_attnperf.workloads.block import Block

LAYERS = {layer.name: layer for layer in layers_over((*PREFILL, *STAGED, *DECODE))}
PROMPT = "block-b1-s9-p20-room40-h4-hk2-d32-f16-bias"
CASES = (
    ("layer.hip.naive", PROMPT),
    ("layer.hip.best", PROMPT),
    ("layer.hip.staged", PROMPT),
    ("layer.hip.decode", "block-b2-s1-p20-room40-h4-hk2-d32-f16"),
)


@pytest.fixture(autouse=True)
def gfx942(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on the CPU run as on an MI300; skips where there is no emulator."""
    pytest.importorskip("torch")
    if missing := missing_emulator():
        pytest.skip("; ".join(missing))
    monkeypatch.setenv("ATTNPERF_HIP_EMULATE", "gfx942")


@pytest.mark.parametrize(("name", "text"), CASES)
def test_right_over_hip_backends(name: str, text: str, judged: Callable[..., tuple[str, ...]]) -> None:
    """The first and the last step of the ladder, unfused attention and decode pass the judge, checked for races."""
    assert judged(LAYERS[name], Block.parse(text)) == ()


def test_unfused_attention_shows_its_stages() -> None:
    """The attention's own stages stand in its place, under its name; the rope is HIP's."""
    block = Block.parse(PROMPT)
    prepared: Any = LAYERS["layer.hip.staged"].prepare(block, block.make_inputs(1, "cpu", planted=False))
    names = [stage.name for stage in prepared.call.stages]
    assert names == [
        "qkv_projection", "split", "rope", "cache_append",
        "attention.qk_scores", "attention.causal_mask", "attention.row_softmax", "attention.weighted_values",
        "flatten", "output_projection",
    ]  # fmt: skip
    assert prepared.config["rope"] == "hip.rope"
    assert {"qk_scores", "rope_forward"} <= set(prepared.declares.kernels)


@pytest.mark.parametrize(("batch", "copied"), [(1, "none"), (2, "q, k")])
def test_q_and_k_are_copied_for_the_rope_where_they_lie_apart(batch: int, copied: str) -> None:
    """The projection leaves the heads of one token together; those of several have other heads between them."""
    block = Block.parse(f"block-b{batch}-s1-p3-h4-hk2-d32-f16")
    prepared: Any = LAYERS["layer.hip.decode"].prepare(block, block.make_inputs(1, "cpu", planted=False))
    assert prepared.config["copied_for_rope"] == copied
    values = prepared.call.name_arguments(prepared.tensors)
    for stage in prepared.call.stages[:2]:
        values |= stage.run(values)
    shared = [values[name].data_ptr() - values["v"].data_ptr() for name in ("q", "k")]
    heads_apart = [-block.head_dim * heads * 2 for heads in (6, 2)]  # of f16, from the first value head back
    assert (shared == heads_apart) == (copied == "none")
    assert all(values[name].is_contiguous() for name in ("q", "k"))


def test_tokens_decoded_one_by_one_are_right(judged_outputs: Callable[..., tuple[str, ...]]) -> None:
    """Decoding with one cache that grows is within the budget of the whole prompt."""
    block = Block.parse("block-b1-s4-h4-hk2-d32-f16")
    inputs = block.make_inputs(2, "cpu", planted=True)
    prompt, step = LAYERS["layer.hip.best"], LAYERS["layer.hip.decode"]
    outputs = decode_token_by_token(lambda one: step if one.is_decode else prompt, block, inputs)
    assert judged_outputs(block, inputs, outputs) == ()
