"""Decoding token by token with one growing cache against the whole prompt, over torch's attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kernels.layer.growing import decode_token_by_token
from kernels.layer.layer import Layer
from kernels.layer.layers import layers_over
from kernels.native.decode import BACKENDS as DECODE
from kernels.native.prefill import BACKENDS as PREFILL
from pytest_attnperf.workloads.block import Block

LAYERS = {layer.name: layer for layer in layers_over((*PREFILL, *DECODE))}
PAIRS = {
    "layer.plain": "layer.plain",
    "layer.native.eager": "layer.native.eager_decode",
    "layer.native.sdpa_math": "layer.native.sdpa_decode",
}
"""What attends over the first token alone -> what decodes the others."""

AGREE = {"f16": 0.01, "bf16": 0.05}
"""How far both ways may be apart, of the size of the result; each is within the budget of the reference."""


def _of_pair(prompt: str, step: str, block: Block) -> Layer:
    return LAYERS[step if block.is_decode else prompt]


@pytest.mark.parametrize("text", ["block-b2-s7-h4-hk2-d16-f16-bias", "block-b2-s5-p3-room12-h4-d16-bf16"])
def test_right_token_by_token(text: str, judged_outputs: Callable[..., tuple[str, ...]]) -> None:
    """The results, and the rows of the cache, are those of the whole prompt, whose inputs stay as they are."""
    torch = pytest.importorskip("torch")
    block = Block.parse(text)
    inputs = block.make_inputs(2, "cpu", planted=True)
    before = [tensor.clone() for tensor in inputs]
    whole = LAYERS["layer.plain"].prepare(block, inputs)
    at_once = whole.outputs(whole.run())
    for prompt, step in PAIRS.items():
        outputs = decode_token_by_token(partial(_of_pair, prompt, step), block, inputs)
        assert all(map(torch.equal, inputs, before))
        assert judged_outputs(block, inputs, outputs) == ()
        for name, output in outputs.items():
            assert float((output - at_once[name]).norm() / at_once[name].norm()) < AGREE[block.dtype]


def test_one_cache_grows() -> None:
    """Every call is given the same cache, in which the rows of the calls before it stand."""
    torch = pytest.importorskip("torch")
    block = Block.parse("block-b1-s4-h2-d8-f16")
    inputs = block.make_inputs(2, "cpu", planted=True)
    seen = []

    class Spy:
        def prepare(self, step: Block, tensors: tuple[torch.Tensor, ...]) -> object:  # type: ignore[name-defined]
            seen.append((step.past, tensors[3].data_ptr(), tensors[3].clone()))
            return LAYERS["layer.plain"].prepare(step, tensors)

    outputs = decode_token_by_token(lambda one: Spy(), block, inputs)  # type: ignore[arg-type, return-value]
    assert [past for past, _, _ in seen] == [0, 1, 2, 3]
    assert len({address for _, address, _ in seen}) == 1
    for past, _, cache in seen:
        assert torch.equal(cache[:, :past], outputs["k"][:, :past])
        assert torch.equal(cache[:, past:], inputs[3][:, past:])
