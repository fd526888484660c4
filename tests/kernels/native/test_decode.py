"""torch's attention decode: right on crossed features, what is refused, and mistakes that the judge must see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.native.decode import BACKENDS, eager_decode
from pytest_attnperf.backends import Outputs, Tensors
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.decode import Decode
from tests.kernels.judging import find_problems

EAGER, SDPA = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
NVIDIA = DeviceInfo(kind="cuda", arch="sm_90", product="NVIDIA H200")
EXTRAS = "decode-b3-q4-kv100-h4-hk2-d32-page16-cap30-w20-bf16-kvf8e4m3-sinks-ragged-lse"
CASES = (
    "decode-b2-kv70-h4-hk2-d32-f16",
    "decode-b2-q3-kv70-h4-hk2-d32-bf16",
    "decode-b2-q8-kv8-h4-d16-f32",
    EXTRAS,
    "decode-b2-kv257-h4-hk1-d40-page128-w100-f32-kvi8-ragged",
    "decode-b2-q2-kv129-h2-d16-page64-cap5-f32-lse",
    "decode-b2-q5-kv96-h2-d32-w33-f16-kvf8e4m3fnuz-sinks",
)

REFERENCES = References()


def judged(workload: Decode, outputs: Outputs, device: str = "cpu") -> tuple[str, ...]:
    """What is wrong with outputs for the planted inputs of seed 1."""
    inputs = workload.make_inputs(1, device, planted=True)
    expected = REFERENCES.compute_expected(workload, inputs, seed=1, planted=True)
    return find_problems(expected, outputs)


def run(backend: Any, workload: Decode, device: str) -> Outputs:
    """What a backend gives for the planted inputs of seed 1."""
    prepared = backend.prepare(workload, workload.make_inputs(1, device, planted=True))
    outputs: Outputs = prepared.outputs(prepared.run())
    return outputs


@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features(case: str) -> None:
    """Every backend that takes a problem is within budget; eager takes all."""
    workload = Decode.parse(case)
    taking = [backend for backend in BACKENDS if not backend.unsupported_reasons(workload, CPU)]
    assert EAGER in taking
    for backend in taking:
        assert judged(workload, run(backend, workload, "cpu")) == ()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_right_on_crossed_features_on_a_gpu(case: str) -> None:
    """The same on a GPU."""
    workload = Decode.parse(case)
    for backend in BACKENDS:
        if not backend.unsupported_reasons(workload, NVIDIA):
            assert judged(workload, run(backend, workload, "cuda"), "cuda") == ()


@pytest.mark.parametrize(
    ("text", "device", "reasons"),
    [
        ("b2-kv70-h4-d32-f16-sinks", CPU, ["scaled_dot_product_attention takes no sinks"]),
        ("b2-kv70-h4-d32-page16-f16", CPU, ["scaled_dot_product_attention takes no pages"]),
        ("b2-kv70-h4-d32-f16-ragged", CPU, ["scaled_dot_product_attention takes no lengths that differ"]),
        ("b2-kv70-h4-d32-cap9-f16-lse", CPU, [
            "scaled_dot_product_attention takes no soft cap",
            "scaled_dot_product_attention returns no log-sum-exp",
        ]),
        ("b2-kv70-h4-d32-w9-f16-kvi8", CPU, [
            "scaled_dot_product_attention takes no sliding window",
            "scaled_dot_product_attention takes no 8-bit cache",
        ]),
        ("b2-kv70-h4-d32-f32", NVIDIA, ["torch's FLASH_ATTENTION on a GPU takes bf16, f16, not f32"]),
        ("b2-kv70-h4-d264-f16", NVIDIA, ["torch's FLASH_ATTENTION takes a head_dim of at most 256, not 264"]),
        ("b2-kv70-h4-d36-f16", NVIDIA, []),
        ("b2-kv70-h4-d32-f32", CPU, []),
    ],
)  # fmt: skip
def test_sdpa_says_what_it_does_not_compute(text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """Each extra is a reason of its own."""
    assert SDPA.unsupported_reasons(Decode.parse(f"decode-{text}"), device) == reasons


def test_a_wrong_block_table_is_refused_when_prepared() -> None:
    """An entry beyond the cache is named before anything reads there."""
    pytest.importorskip("torch")
    workload = Decode.parse("decode-b2-kv40-h2-d16-page16-f16")
    inputs = workload.make_inputs(1, "cpu", planted=False)
    inputs[3][1, 2] = 99
    with pytest.raises(UsageError, match=r"block_table\[1, 2\] is 99, allowed is 0 to 6"):
        EAGER.prepare(workload, inputs)


Lie = Callable[[Decode, list[Any]], Decode]


def _swap_pages(workload: Decode, inputs: list[Any]) -> Decode:
    """The page at the start of a sequence and the one at its end, which is not full."""
    table, lengths = inputs[3], workload.lengths
    for b, length in enumerate(lengths):
        last = (length - 1) // workload.page
        table[b, [0, last]] = table[b, [last, 0]]
    return workload


def _changed(index: int, change: Callable[[Any], Any]) -> Lie:
    def lie(workload: Decode, inputs: list[Any]) -> Decode:
        inputs[index] = change(inputs[index])
        return workload

    return lie


def _without_sinks(workload: Decode, inputs: list[Any]) -> Decode:
    del inputs[5]
    return replace(workload, sinks=False)


LIES: dict[str, Lie] = {
    "the last key is dropped": _changed(4, lambda lengths: lengths - 1),
    "one key past the end is read": _changed(4, lambda lengths: lengths + 1),
    "pages are in another order": _swap_pages,
    "sinks are forgotten": _without_sinks,
    "sinks are added once per split": _changed(5, lambda sinks: sinks + 0.7),
    "the scale of keys is forgotten": _changed(6, lambda scale: scale * 0 + 1),
    "the scale of values is forgotten": _changed(7, lambda scale: scale * 0 + 1),
    "the window is short by one": lambda workload, inputs: replace(workload, window=workload.window - 1),
    "the window is long by one": lambda workload, inputs: replace(workload, window=workload.window + 1),
    "the cap is forgotten": lambda workload, inputs: replace(workload, cap=0),
    "another cap": lambda workload, inputs: replace(workload, cap=2 * workload.cap),
}


@pytest.mark.parametrize("lie", LIES)
def test_typical_mistakes_are_seen(lie: str) -> None:
    """The judge rejects what a kernel with one mistake gives, on planted inputs."""
    pytest.importorskip("torch")
    workload = Decode.parse("decode-b3-q2-kv90-h4-hk2-d32-page16-cap8-w40-f16-kvi8-sinks-ragged")
    inputs: Tensors = workload.make_inputs(1, "cpu", planted=True)
    changed = [tensor.clone() for tensor in inputs]
    told = LIES[lie](workload, changed)
    honest, _ = eager_decode(workload)(*inputs)
    lied, _ = eager_decode(told)(*changed)
    assert judged(workload, {"out": honest}) == ()
    assert judged(workload, {"out": lied}) != ()
