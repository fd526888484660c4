from __future__ import annotations

import pytest
import torch
from torch.profiler import profile

from kernels.native.bandwidth import BACKENDS
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.bandwidth import DTYPES, KINDS, Bandwidth
from tests.kernels.judging import find_wrong

(BACKEND,) = BACKENDS
CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_right_on_a_cpu(kind: str, dtype: str) -> None:
    """Every kind is exact, or of triad within budget, in every dtype, on one stretch of memory and on several."""
    for kib in (1, 33):
        workload = Bandwidth(kind, kib=kib, dtype=dtype)
        assert BACKEND.unsupported_reasons(workload, CPU) == []
        assert find_wrong(BACKEND, workload) == ()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_right_on_a_gpu(kind: str, dtype: str) -> None:
    """The same on a GPU."""
    for workload in (Bandwidth(kind, kib=33, dtype=dtype), Bandwidth(kind, mib=48, dtype=dtype)):
        assert find_wrong(BACKEND, workload, "cuda") == ()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_declared_runs(kind: str) -> None:
    """The operator that the backend names runs, the inputs stay as they are, and the result is memory of its own."""
    workload = Bandwidth(kind, kib=33)
    prepared = BACKEND.prepare(workload, workload.make_inputs(1, "cpu", planted=True))
    before = [tensor.clone() for tensor in prepared.tensors]
    with profile() as profiler:
        result = prepared.run()
    (operator,) = prepared.declares.operators
    assert prepared.config == {"operator": operator}
    assert operator in {event.name for event in profiler.events() or ()}
    assert all(map(torch.equal, before, prepared.tensors))
    assert result.data_ptr() not in {tensor.data_ptr() for tensor in prepared.tensors}
