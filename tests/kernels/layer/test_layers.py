"""The set of layers over backends: names, what each refuses, what it asks of its attention, and pinned settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

import kernels
from kernels.hip.decode import BACKENDS as HIP_DECODE
from kernels.hip.prefill import BACKENDS as HIP_PREFILL
from kernels.layer.attention import problem_over_cache
from kernels.layer.layers import PinnableLayer, layer_over, layers_over, own_settings
from kernels.native.decode import BACKENDS as NATIVE_DECODE
from kernels.native.prefill import BACKENDS as NATIVE_PREFILL
from kernels.native.rows import BACKENDS as NATIVE_ROWS
from kernels.triton.decode.backend import BACKENDS as TRITON_DECODE
from kernels.triton.prefill.backend import BACKENDS as TRITON_PREFILL
from pytest_attnperf.backends import Backend, Pinnable, Prepared, Registry, Tensors, replay_choice
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.block import Block
from pytest_attnperf.workloads.decode import Decode

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu", interpreted=True)
H200 = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
ATTENTION = (*NATIVE_PREFILL, *TRITON_PREFILL, *NATIVE_DECODE, *TRITON_DECODE, *HIP_PREFILL, *HIP_DECODE)
LAYERS = {layer.name: layer for layer in layers_over(ATTENTION)}
PROMPT = Block.parse("block-b2-s64-h4-hk2-d32-f16")
STEP = Block.parse("block-b2-s1-p63-room100-h4-hk2-d32-f16")


@dataclass(frozen=True)
class Other(Backend[Workload]):
    """Another project's backend, which refuses lengths that differ unless told otherwise."""

    ragged: bool = False
    asked: frozenset[str] = field(default_factory=lambda: frozenset({"decode"}))

    @property
    def families(self) -> frozenset[str]:
        """What was asked for."""
        return self.asked

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """One, at most."""
        return ["takes one length"] if getattr(workload, "ragged", False) and not self.ragged else []

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Not bound here."""
        raise NotImplementedError


def test_there_is_one_layer_for_each_attention_backend() -> None:
    """The plain one first, then in the order of the backends, which they resemble; others make none."""
    registry = Registry()
    kernels.register(registry)
    every = [*registry, Other("other.any", 5.0, asked=frozenset({"decode", "prefill"})), *NATIVE_ROWS]
    attending = [backend for backend in every if {"prefill", "decode"}.intersection(backend.families)]
    layers = layers_over(every)
    assert [layer.name for layer in layers] == ["layer.plain", *(f"layer.{backend.name}" for backend in attending)]
    assert {layer.families for layer in layers} == {("block",)}
    for layer, backend in zip(layers[1:], attending, strict=True):
        limits = (backend.cpu_flops_max, backend.times_on_cpu, backend.tolerance)
        assert (layer.cpu_flops_max, layer.times_on_cpu, layer.tolerance) == limits
    assert layers[0].tolerance == Tolerance()
    Registry().add(*layers)


def test_the_rope_is_of_the_same_library() -> None:
    """Triton's beside Triton's kernels, HIP's beside HIP's, torch's operators beside all others."""
    ropes = {name: layer.rope.name for name, layer in LAYERS.items()}
    assert ropes["layer.triton.flash"] == ropes["layer.triton.flash_decode"] == "triton.rope"
    assert ropes["layer.hip.best"] == "hip.rope"
    assert ropes["layer.plain"] == ropes["layer.native.sdpa_cudnn"] == "native.eager_rope"
    assert layer_over(Other("other.flash")).rope.name == "native.eager_rope"


@pytest.mark.parametrize("block", [PROMPT, STEP])
def test_attention_of_the_other_kind_is_refused(block: Block) -> None:
    """Backends for prompts take no decode steps and the other way round; the plain layer takes both."""
    family, said = ("decode", "whole prompts, and this is a decode step") if block is STEP else ("prefill", "no decode")
    for attention in ATTENTION:
        reasons = LAYERS[f"layer.{attention.name}"].unsupported_reasons(block, H200)
        refused = any(said in reason and "layer.plain" in reason for reason in reasons)
        assert refused == (family not in attention.families)
    assert LAYERS["layer.plain"].unsupported_reasons(block, H200) == []


def test_reasons_are_those_of_the_parts_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the attention cannot do here, and what the rope cannot; where both say the same it is said once."""
    monkeypatch.setattr("kernels.hip.prefill.missing_hip", lambda device: ["no compiler"])
    monkeypatch.setattr("kernels.hip.rope.missing_hip", lambda device: ["no compiler"])
    wide = replace(PROMPT, dtype="f32")
    assert LAYERS["layer.hip.best"].unsupported_reasons(wide, H200) == [
        "no compiler",
        "hip.best takes bf16, f16, not f32",
    ]
    assert LAYERS["layer.native.sdpa_flash"].unsupported_reasons(wide, H200) == [
        "torch's FLASH_ATTENTION attention on a GPU takes bf16, f16, not f32"
    ]
    monkeypatch.setattr("kernels.hip.rope.missing_hip", lambda device: ["no rope"])
    assert LAYERS["layer.hip.best"].unsupported_reasons(PROMPT, H200) == ["no compiler", "no rope"]


def test_keys_that_lie_apart_are_refused_where_they_must_not() -> None:
    """A cache with more room than keys is contiguous for one sequence only; torch and aiter read it anyway."""
    roomy = replace(PROMPT, past=16, room=100)
    for name in ("layer.triton.flash", "layer.hip.best"):
        (reason,) = [text for text in LAYERS[name].unsupported_reasons(roomy, CPU) if "contiguous" in text]
        assert "the first 80 rows of 2 sequences in a cache with room for 100 are not; use b=1, room=80" in reason
    for layer, block in (
        (LAYERS["layer.triton.flash"], replace(roomy, batch=1)),
        (LAYERS["layer.triton.flash"], replace(roomy, room=80)),
        (LAYERS["layer.native.eager"], roomy),
        (LAYERS["layer.plain"], roomy),
        (LAYERS["layer.triton.flash_decode"], STEP),
        (layer_over(Other("other.decode", ragged=True)), STEP),
    ):
        assert layer.unsupported_reasons(block, CPU) == []
    (reason,) = layer_over(Other("other.decode")).unsupported_reasons(STEP, CPU)
    assert reason.startswith("other.decode needs contiguous keys and values, and the first 64 rows of 2 sequences")


def test_decode_is_over_the_whole_cache_where_lengths_are_read() -> None:
    """A backend that takes lengths that differ reads them; another is asked for the rows that are seen alone."""
    whole = STEP.attention
    seen = replace(whole, seq_kv=64)
    assert isinstance(whole, Decode)
    assert whole.seq_kv == 100
    asked = {backend.name: problem_over_cache(backend, STEP, CPU) for backend in (*NATIVE_DECODE, *TRITON_DECODE)}
    assert asked == {"native.eager_decode": whole, "native.sdpa_decode": seen, "triton.flash_decode": whole}
    (hip_decode,) = HIP_DECODE
    assert problem_over_cache(hip_decode, STEP, H200) == whole
    assert problem_over_cache(Other("other.decode"), replace(STEP, batch=1), CPU) == replace(seen, batch=1)
    assert problem_over_cache(Other("other.decode"), replace(STEP, room=64), CPU) == seen


def test_stored_settings_go_to_the_part_they_were_stored_for() -> None:
    """Without the part's prefix, and with what autotuners chose, which has none."""
    stored = {
        "attention.BLOCK_N": "64",
        "rope.BLOCK_S": "4",
        "autotuned.triton_tem_0": "BLOCK_M: 16",
        "rope": "triton.rope",
    }
    assert own_settings(stored, "attention.") == {"BLOCK_N": "64", "autotuned.triton_tem_0": "BLOCK_M: 16"}
    flex = LAYERS["layer.native.flex"]
    replayed = replay_choice(flex, stored)
    assert isinstance(replayed, PinnableLayer)
    assert getattr(replayed.attention, "kernel_options", None) == (("BLOCK_M", 16),)
    assert replayed.name == flex.name


def test_only_layers_with_a_choice_are_pinnable() -> None:
    """One whose parts choose nothing stays as it is; one that lacks a stored choice says which."""
    assert not isinstance(LAYERS["layer.native.eager"], Pinnable)
    assert not isinstance(LAYERS["layer.plain"], Pinnable)
    assert replay_choice(LAYERS["layer.native.eager"], {}) is LAYERS["layer.native.eager"]
    with pytest.raises(UsageError, match="the stored configuration"):
        replay_choice(LAYERS["layer.triton.flash"], {"rope.BLOCK_S": "4"})
