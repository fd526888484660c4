from __future__ import annotations

import importlib.metadata

import pytest
import torch
from torch.profiler import profile

from kernels.native.rows import BACKENDS
from pytest_attnperf.correctness.references import References
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.families import parse_workload
from tests.kernels.judging import find_problems

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")
BY_FAMILY = dict(zip(("softmax", "rmsnorm", "layernorm"), BACKENDS, strict=True))
CASES = (
    "softmax-r7-c2-f16",
    "softmax-r33-c17-f32",
    "softmax-r5-c4097-bf16",
    "rmsnorm-r7-c1-f32-residual",
    "rmsnorm-r33-c17-bf16",
    "rmsnorm-r5-c4097-f16-residual",
    "layernorm-r7-c2-bf16",
    "layernorm-r33-c17-f16-residual",
    "layernorm-r5-c4097-f32-residual",
    "layernorm-r9-c1000-bf16-residual",
)


def wrong(text: str, *, device: str = "cpu", seed: int = 1) -> list[str]:
    """What is beyond the backend's budget, on inputs that are planted for odd seeds."""
    workload = parse_workload(text)
    backend, planted = BY_FAMILY[workload.family], bool(seed % 2)
    inputs = workload.make_inputs(seed, device, planted=planted)
    expected = References().compute_expected(workload, inputs, seed=seed, planted=planted)
    prepared = backend.prepare(workload, inputs)
    before = [tensor.clone() for tensor in prepared.tensors]
    outputs = prepared.outputs(prepared.run())
    assert all(map(torch.equal, before, prepared.tensors))
    return list(find_problems(expected, outputs, backend.tolerance))


@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem_on_a_cpu(text: str) -> None:
    """torch's operators are within budget, planted or not, and leave their inputs alone."""
    for seed in (1, 2):
        assert wrong(text, seed=seed) == []


@pytest.mark.gpu
@pytest.mark.parametrize("text", CASES)
def test_right_on_every_small_problem_on_a_gpu(text: str) -> None:
    """The same operators are within budget on a GPU, whose fp32 sums are in another order."""
    assert wrong(text, device="cuda") == []


@pytest.mark.parametrize("text", ["softmax-r12-c40-f32", "rmsnorm-r12-c40-f16-residual", "layernorm-r12-c40-bf16"])
def test_no_seed_is_a_false_alarm(text: str) -> None:
    """Each of 20 seeds is within budget on a problem of a few hundred elements, planted or not."""
    assert [problem for seed in range(20) for problem in wrong(text, seed=seed)] == []


@pytest.mark.parametrize("text", CASES)
def test_what_is_declared_runs(text: str) -> None:
    """The operator that a backend names is among those that a call runs, and how a residual is added is recorded."""
    workload = parse_workload(text)
    prepared = BY_FAMILY[workload.family].prepare(workload, workload.make_inputs(1, "cpu", planted=False))
    with profile() as profiler:
        prepared.run()
    names = {event.name for event in profiler.events() or ()}
    (operator,) = prepared.declares.operators
    assert operator in names
    assert ("torch.add" in prepared.config.get("residual", "")) == text.endswith("residual")


@pytest.mark.parametrize(("release", "shown"), [("2.3.1+cu121", "2.3"), ("2.4.0", ""), ("2.13.0+cpu", ""), ("3.0", "")])
def test_rms_norm_needs_a_torch_that_has_it(release: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older torch is refused with both versions; the other two operators are in every torch."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: release)
    found = {
        family: backend.unsupported_reasons(parse_workload(f"{family}-r2-c8-f16"), CPU)
        for family, backend in BY_FAMILY.items()
    }
    expected = [f"torch has F.rms_norm from 2.4 on, not in {shown}"] if shown else []
    assert found == {"softmax": [], "rmsnorm": expected, "layernorm": []}


def test_without_torch_reasons_are_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting on a machine without torch raises nothing."""

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    (reason,) = BY_FAMILY["rmsnorm"].unsupported_reasons(parse_workload("rmsnorm-r2-c8-f16"), CPU)
    assert reason == "torch has F.rms_norm from 2.4 on, not in 0.0"
