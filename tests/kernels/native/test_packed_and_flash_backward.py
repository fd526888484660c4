from __future__ import annotations

import pytest
import torch

from kernels.native.backward_flash import BACKENDS as FLASH
from kernels.native.varlen_backward import BACKENDS as PACKED
from pytest_attnperf.backends import Backend
from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import compare_output
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CUDA = DeviceInfo(kind="cuda", arch="sm_90", product="h200")
(EAGER,) = PACKED
DENSE_FLASH, PACKED_FLASH = FLASH

PACKED_CASES = (
    "varlen_backward-q40_5_33-kv40_35_2-h4-hk2-d64-f16-causal",
    "varlen_backward-q33_64-h2-d80-bf16",
    "varlen_backward-q65_7-kv20_66-h2-hk1-d16-f32-causal",
)
DENSE_CASES = (
    "backward-b2-s65-h4-hk2-d64-bf16-causal",
    "backward-b1-s33-kv70-h2-d128-f16-causal",
    "backward-b1-s70-kv31-h2-d64-f16-causal",
    "backward-b1-s64-h2-d256-f16",
)


def wrong(backend: Backend, text: str, device: str) -> list[str]:
    """What is beyond the backend's budget on planted inputs."""
    workload = parse_workload(text)
    inputs = workload.make_inputs(1, device, planted=True)
    expected = References().compute_expected(workload, inputs, seed=1, planted=True)
    prepared = backend.prepare(workload, inputs)
    outputs = prepared.outputs(prepared.run())
    return [
        problem
        for name, truth in expected.reference.items()
        for problem in list_problems(
            [compare_output(name, name, outputs[name], truth, expected.yardsticks[name], backend.tolerance)]
        )
    ]


@pytest.mark.parametrize("case", PACKED_CASES)
def test_eager_is_right_on_packed_sequences(case: str) -> None:
    """One sequence after the other is within budget, ragged, grouped, causal and with rows that see no key."""
    assert EAGER.unsupported_reasons(parse_workload(case), CPU) == []
    assert wrong(EAGER, case, "cpu") == []


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*PACKED_CASES[:2], *DENSE_CASES])
def test_flash_is_right_on_a_gpu(case: str) -> None:
    """torch's own flash attention is within budget: bottom-right masks, grouped heads, rows without keys, packed."""
    backend = PACKED_FLASH if case.startswith("varlen") else DENSE_FLASH
    assert backend.unsupported_reasons(parse_workload(case), CUDA) == []
    assert wrong(backend, case, "cuda") == []


def test_what_flash_refuses() -> None:
    """A device, a type and head dimensions that the operator does not take are each one reason."""
    workload = parse_workload("backward-b1-s8-h2-d64-f16")
    assert DENSE_FLASH.unsupported_reasons(workload, CUDA) == []
    (reason,) = DENSE_FLASH.unsupported_reasons(workload, CPU)
    assert reason == "torch's FlashAttention-2 is built for CUDA, this device is cpu"
    for text, said in (
        ("d64-f32", "takes bf16, f16, not f32"),
        ("d13-f16", "multiples of 8, not 13"),
        ("d264-f16", "head dimensions to 256, not 264"),
    ):
        (reason,) = DENSE_FLASH.unsupported_reasons(parse_workload(f"backward-b1-s8-h2-{text}"), CUDA)
        assert said in reason


def test_eager_refuses_a_single_key() -> None:
    """A sequence of one key is none of the dense family that it is made of."""
    workload = parse_workload("varlen_backward-q3_4-kv1_4-h2-d16-f16")
    assert EAGER.unsupported_reasons(workload, CPU) == [
        "takes sequences of at least 2 keys, this workload has one of 1"
    ]


def test_each_serves_its_own_family() -> None:
    """Dense and packed sequences are two baselines, so that each backend is in one family."""
    assert [backend.families for backend in (DENSE_FLASH, PACKED_FLASH, EAGER)] == [
        ("backward",),
        ("varlen_backward",),
        ("varlen_backward",),
    ]


def test_inputs_are_left_alone_and_reloaded() -> None:
    """`load` refills the timed tensors, and the call changes none of them."""
    workload = parse_workload(PACKED_CASES[0])
    first, second = (workload.make_inputs(seed, "cpu", planted=True) for seed in (1, 2))
    prepared = EAGER.prepare(workload, first)
    prepared.load(second)
    found = prepared.outputs(prepared.run())
    assert all(torch.equal(a, b) for a, b in zip(prepared.tensors, second, strict=True))
    fresh = EAGER.prepare(workload, second)
    expected = fresh.outputs(fresh.run())
    assert all(torch.equal(found[name], expected[name]) for name in expected)
