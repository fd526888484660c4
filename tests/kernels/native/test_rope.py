from __future__ import annotations

import pytest
import torch

from kernels.native.rope import BACKENDS
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.rope import Rope
from tests.kernels.judging import find_wrong

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
CASES = (
    "rope-b1-s1-h1-d2-f32",
    "rope-b2-s33-h4-hk2-d64-f16",
    "rope-b1-s63-h5-hk1-d80-bf16",
    "rope-b2-s33-h4-hk2-d64-bf16-interleaved",
    "rope-b1-s9-h2-d6-f32-interleaved",
)


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem_on_a_cpu(text: str) -> None:
    """The operators are within budget for both kinds of pairs, grouped heads and any even head dimension."""
    assert BACKEND.unsupported_reasons(Rope.parse(text), CPU) == []
    assert find_wrong(BACKEND, Rope.parse(text)) == ()


@pytest.mark.gpu
@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem_on_a_gpu(text: str) -> None:
    """The same operators are within budget on a GPU."""
    assert find_wrong(BACKEND, Rope.parse(text), "cuda") == ()


def test_inputs_are_left_alone() -> None:
    """The call writes into memory of its own, in the dtype of its inputs."""
    workload = Rope.parse(CASES[1])
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    before = [tensor.clone() for tensor in prepared.tensors]
    outputs = prepared.outputs(prepared.run())
    assert all(map(torch.equal, before, prepared.tensors))
    assert {output.dtype for output in outputs.values()} == {torch.float16}
