from __future__ import annotations

import re

import pytest

from kernels.native.mixed import BACKENDS
from pytest_attnperf.correctness.budget import list_problems as problems_of
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import DeviceInfo, Tolerance
from pytest_attnperf.workloads.mixed import Mixed

EAGER, SDPA = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
SEED = 1

FEATURES = (
    "mixed-2q17_q9s40_5q1s70-h4-hk2-d128-page16-w10-cap20-bf16-kvi8",
    "mixed-q33_2q1s130_q5s33-h3-hk1-d64-page64-w10-cap20-f16-sinks",
    "mixed-q64_q3s64_q1s65-h4-hk2-d64-page16-cap20-f16-kvf8e4m3-sinks",
    "mixed-q33_2q1s130_q5s33-h2-d40-page32-w10-bf16-sinks",
)
PLAIN = (
    "mixed-q64_q3s64_q1s65-h8-hk1-d64-page64-bf16",
    "mixed-q33_2q1s130_q5s33-h3-hk1-d64-page16-bf16-kvf8e4m3",
    "mixed-2q17_q9s40_5q1s70-h4-hk2-d128-page32-f16-kvi8",
    "mixed-q1_q40-h2-d40-page16-f16",
)
CASES = [(backend, text) for backend in BACKENDS for text in (PLAIN if backend is SDPA else FEATURES + PLAIN)]


def found(name: str, text: str, device: str) -> tuple[str, ...]:
    """What is wrong with a backend's output for planted inputs."""
    (backend,) = [backend for backend in BACKENDS if backend.name == name]
    workload = Mixed.parse(text)
    inputs = workload.make_inputs(SEED, device, planted=True)
    expected = References().compute_expected(workload, inputs, seed=SEED, planted=True)
    prepared = backend.prepare(workload, inputs)
    out = prepared.outputs(prepared.run())["out"]
    return problems_of(
        [compare_output(name, "out", out, expected.reference["out"], expected.yardsticks["out"], Tolerance())]
    )


@pytest.mark.parametrize(("name", "text"), [(backend.name, text) for backend, text in CASES])
def test_right(name: str, text: str) -> None:
    """Within the ordinary budget on prompts, chunks and single tokens, with every feature that it takes."""
    assert found(name, text, "cpu") == ()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "text"), [(backend.name, text) for backend, text in CASES])
def test_right_on_a_gpu(name: str, text: str) -> None:
    """The same on a GPU."""
    assert found(name, text, "cuda") == ()


def test_inputs_are_left_alone() -> None:
    """A call changes none of its tensors, and two calls give the same."""
    import torch

    for backend in BACKENDS:
        workload = Mixed.parse(PLAIN[1])
        prepared = backend.prepare(workload, workload.make_inputs(SEED, "cpu", planted=True))
        before = [tensor.clone() for tensor in prepared.tensors]
        first, second = prepared.run(), prepared.run()
        assert torch.equal(first, second)
        pairs = zip(before, prepared.tensors, strict=True)
        assert all(torch.equal(old.view(torch.uint8), new.view(torch.uint8)) for old, new in pairs)


@pytest.mark.parametrize(
    ("text", "device", "reasons"),
    [
        (PLAIN[0], CUDA, []),
        (
            FEATURES[1],
            CUDA,
            [
                "torch's FLASH_ATTENTION takes no sliding window",
                "torch's FLASH_ATTENTION takes no soft cap",
                "torch's FLASH_ATTENTION takes no attention sinks",
            ],
        ),
        ("mixed-q5-h2-d264-page16-f16", CPU, []),
        ("mixed-q5-h2-d36-page16-f16", CUDA, []),
        (
            "mixed-q5-h2-d264-page16-f16",
            CUDA,
            ["torch's FLASH_ATTENTION on a GPU takes head dimensions to 256, not 264"],
        ),
    ],
)
def test_sdpa_says_what_it_does_not_compute(text: str, device: DeviceInfo, reasons: list[str]) -> None:
    """Each feature that flash attention lacks is a reason of its own."""
    assert SDPA.unsupported_reasons(Mixed.parse(text), device) == reasons


def test_eager_refuses_large_score_matrices() -> None:
    """The largest sequence decides, and the reason holds its size and the limit."""
    assert EAGER.unsupported_reasons(Mixed.parse("mixed-64q1s4k-h32-hk8-d128-page16-bf16"), CUDA) == []
    assert EAGER.unsupported_reasons(Mixed.parse("mixed-2q2k_8q1s1k-h32-hk8-d128-page16-bf16"), CUDA) == [
        "native.eager_mixed writes all scores of a sequence to memory, 256 MiB for the largest of this workload; it "
        "takes up to 64"
    ]


def test_a_block_table_out_of_range_is_refused() -> None:
    """A page that does not exist is named by its entry, by both."""
    workload = Mixed.parse("mixed-q5_q1s20-h2-d16-page16-f16")
    for backend in BACKENDS:
        inputs = workload.make_inputs(SEED, "cpu", planted=False)
        inputs[3][1, 1] = -1
        with pytest.raises(UsageError, match=re.escape("block_table[1, 1] is -1, allowed is 0 to 3")):
            backend.prepare(workload, inputs)
