"""Layers on a GPU: right, nothing but what they declare runs, and a stage that goes through the CPU is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

import kernels
from kernels.layer.growing import decode_token_by_token
from kernels.layer.layers import PLAIN, layers_over
from kernels.layouts import own_copies
from pytest_attnperf.backends import Backend, Pipeline, Prepared, Registry, Tensors
from pytest_attnperf.correctness import what_ran
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.measure import trace
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.rope import Rope, rotate

BLOCKS = (
    "block-b2-s33-h4-hk2-d64-f16-bias",
    "block-b1-s33-p31-room100-e96-h4-d64-bf16",
    "block-b2-s1-p63-room100-h4-hk2-d64-bf16-bias",
    "block-b1-s4-p61-h4-d64-f16",
)


def made() -> Registry:
    """Every backend of this repository."""
    registry = Registry()
    kernels.register(registry)
    return registry


LAYERS = {layer.name: layer for layer in layers_over(made())}
CASES = [
    (name, text)
    for name, layer in LAYERS.items()
    for text in BLOCKS
    if layer is PLAIN or ("decode" if Block.parse(text).is_decode else "prefill") in layer.attention.families
]


@dataclass(frozen=True)
class HostRope(Backend[Rope]):
    """A rope that falls back to the CPU, silently."""

    families = ("rope",)

    def unsupported_reasons(self, workload: Rope, device: DeviceInfo) -> list[str]:
        """None."""
        return []

    def prepare(self, workload: Rope, inputs: Tensors) -> Prepared:
        """Everything on the host, the result brought back."""

        def call(*tensors: object) -> Tensors:
            q, k, cos, sin = (tensor.cpu() for tensor in tensors)  # type: ignore[attr-defined]
            return tuple(rotate(x, cos, sin, False).to(x.dtype).to(inputs[0].device) for x in (q, k))

        return Prepared(call, own_copies(inputs), own_copies, lambda raw: dict(zip("qk", raw, strict=True)))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "text"), CASES)
def test_right_on_a_gpu(
    name: str, text: str, judged: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a layer takes it gets right, and only what it declares runs, on one stream and on the device alone."""
    monkeypatch.setattr(trace, "_used", [])
    block, layer = Block.parse(text), LAYERS[name]
    if reasons := layer.unsupported_reasons(block, identify_device("cuda")):
        pytest.skip("; ".join(reasons))
    assert judged(layer, block, "cuda") == ()
    prepared = layer.prepare(block, block.make_inputs(1, "cuda", planted=False))
    assert isinstance(prepared.call, Pipeline)
    assert what_ran.list_problems(trace.record_gpu_work(prepared.run), prepared.declares, name) == []


@pytest.mark.gpu
def test_a_stage_that_goes_through_the_cpu_is_refused(
    judged: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right result does not help a layer whose rope falls back: what crosses to the host is seen and named."""
    monkeypatch.setattr(trace, "_used", [])
    block, falling = Block.parse(BLOCKS[0]), replace(PLAIN, name="layer.falling", rope=HostRope("host.rope"))
    assert judged(falling, block, "cuda") == ()
    prepared = falling.prepare(block, block.make_inputs(1, "cuda", planted=False))
    (problem,) = what_ran.list_problems(trace.record_gpu_work(prepared.run), prepared.declares, falling.name)
    assert "between host and device" in problem


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("prompt", "step"),
    [
        ("layer.plain", "layer.plain"),
        ("layer.native.sdpa_flash", "layer.native.sdpa_decode"),
        ("layer.triton.flash", "layer.triton.flash_decode"),
        ("layer.hip.best", "layer.hip.decode"),
    ],
)
def test_tokens_decoded_one_by_one_are_right_on_a_gpu(
    prompt: str, step: str, judged_outputs: Callable[..., tuple[str, ...]]
) -> None:
    """Decoding with one cache that grows is within the budget of the whole prompt."""
    block = Block.parse("block-b1-s20-h4-hk2-d64-f16")
    inputs = block.make_inputs(2, "cuda", planted=True)
    outputs = decode_token_by_token(lambda one: LAYERS[step if one.is_decode else prompt], block, inputs)
    assert judged_outputs(block, inputs, outputs) == ()
