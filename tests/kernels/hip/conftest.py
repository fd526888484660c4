"""HIP kernels on the CPU: which architecture is imitated, and the judge of what they compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernels.hip.emulator import missing_emulator
from pytest_attnperf.backends import Backend, Outputs, Tensors
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import Tolerance
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_problems

SEED = 1

Problems = tuple[str, ...]
Judged = Callable[..., Problems]


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`emulate(arch)`: kernels on the CPU run as on that architecture; skips where there is no emulator."""
    pytest.importorskip("torch")
    if missing := missing_emulator():
        pytest.skip("; ".join(missing))
    return lambda arch: monkeypatch.setenv("ATTNPERF_HIP_EMULATE", arch)


@pytest.fixture(scope="session")
def judged_outputs() -> Judged:
    """`judged_outputs(workload, planted inputs of SEED, outputs)`: what is wrong with them, as the gate says it."""
    references = References()

    def judge(workload: Workload, inputs: Tensors, outputs: Outputs, tolerance: Tolerance | None = None) -> Problems:
        expected = references.compute_expected(workload, inputs, seed=SEED, planted=True)
        return find_problems(expected, outputs, tolerance)

    return judge


@pytest.fixture(scope="session")
def judged(judged_outputs: Judged) -> Judged:
    """`judged(backend, workload id, device)` runs a backend; what is wrong with its outputs, and inputs unchanged."""

    def run(backend: Backend, text: str, device: str = "cpu") -> Problems:
        import torch

        workload = parse_workload(text)
        inputs: Tensors = workload.make_inputs(SEED, device, planted=True)
        prepared = backend.prepare(workload, inputs)
        before = [tensor.clone() for tensor in prepared.tensors]
        outputs: Outputs = prepared.outputs(prepared.run())
        assert all(map(torch.equal, before, prepared.tensors)), "the inputs were changed"
        return judged_outputs(workload, inputs, outputs, backend.tolerance)

    return run
