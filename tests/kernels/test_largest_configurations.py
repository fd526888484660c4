"""Each kernel of ours is right where its tuning space takes the most shared memory, also under jitter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

import kernels
from kernels.configured import Configured
from kernels.tuning import declared_by_kernel
from pytest_attnperf.backends import Registry
from pytest_attnperf.measure.pinned_backend import pin_backend
from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.trials import TrialCase, run_trials
from pytest_attnperf.tuning_records import Candidate, TuningSpace
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.decode import Decode
from pytest_attnperf.workloads.gemm import Gemm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.mla import Mla
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.softmax import Softmax
from pytest_attnperf.workloads.varlen import Varlen

WORKLOADS: dict[str, Workload] = {
    "prefill": Prefill.parse("prefill-b2-s300-h4-d128-f16-causal"),
    "varlen": Varlen.parse("varlen-q300-h4-d128-bf16"),
    "decode": Decode.parse("decode-b4-kv1024-h8-hk2-d128-f16"),
    "gemm": Gemm.parse("gemm-m520-n512-k512-bf16-nt"),
    "softmax": Softmax.parse("softmax-r512-c4096-bf16"),
    "rmsnorm": RmsNorm.parse("rmsnorm-r512-c4096-bf16"),
    "layernorm": LayerNorm.parse("layernorm-r512-c4096-bf16"),
    "mla": Mla.parse("mla-b1-s300-h4-d128-r64-c512-bf16-causal"),
}
TRIED_MOST = 40
"""Candidates that are tried from the largest on; those that the device refuses are too large."""


def list_kernels() -> Iterator[tuple[str, Any, Workload]]:
    """Kernel, a backend that runs it, and a small problem that the backend takes, for each kernel with a space."""
    registry = Registry()
    kernels.register(registry)
    for name, declared in declared_by_kernel().items():
        for backend in registry:
            known = isinstance(backend, Configured) and any(space is declared.space for space in backend.spaces)
            workload = next((WORKLOADS[f] for f in backend.families if f in declared.families), None)
            if known and workload is not None:
                yield name, backend, workload
                break


KERNELS = {name: (backend, workload) for name, backend, workload in list_kernels()}


def order_by_size(space: TuningSpace) -> list[Candidate]:
    """The candidates that hold the constraints, with the most stages of the largest tiles first, and of these the one
    with the most blocks per cluster."""
    grid = [dict(zip(space.values, values, strict=True)) for values in itertools.product(*space.values.values())]
    every = [values for values in grid if all(one.holds(values) for one in space.constraints)]

    def size(values: dict[str, Any]) -> tuple[float, int]:
        tiles = [int(value) for name, value in values.items() if "BLOCK" in name and int(value)]
        return int(values.get("num_stages", 1)) * math.prod(tiles), int(values.get("num_ctas", 1))

    return [Candidate(values) for values in sorted(every, key=size, reverse=True)]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_every_space_has_a_largest_configuration(kernel: str, arch: str) -> None:
    """The selection that runs on a GPU is not empty, and none of ours has clusters of several blocks yet."""
    backend, workload = KERNELS[kernel]
    space = backend.tuning_space([workload], arch, kernel=kernel)
    assert order_by_size(space)
    assert set(space.values.get("num_ctas", (1,))) <= {0, 1}


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_the_largest_configuration_is_right_under_jitter(kernel: str) -> None:
    """The largest that the device takes, which is told where none is."""
    from pytest_attnperf.measure.torch_device import TorchDevice

    backend, workload = KERNELS[kernel]
    device = TorchDevice.open("gpu", interpreted=False).info()
    if reasons := backend.unsupported_reasons(workload, device):
        pytest.skip(reasons[0])
    space = backend.tuning_space([workload], device.arch, kernel=kernel)
    refused: list[str] = []
    for candidate in order_by_size(space)[:TRIED_MOST]:
        pinned = pin_backend(backend, backend.tuning_pin(candidate, space))
        try:
            prepared = pinned.prepare(workload, workload.make_inputs(1, "cuda", planted=False))
            prepared.run()
        except Exception as error:
            if "out of resource" not in str(error).lower() and "OutOfResources" not in type(error).__name__:
                raise
            refused.append(f"{candidate.values}: {error}")
            continue
        prover = Prover(pinned, workload, device, Seeds(1, 2, 3))
        judge = prover.make_judge(prepared)
        report = judge.check_call("check", prepared.run, seed=2, planted=True)
        assert report.right, (candidate.values, report.problems)
        tried = run_trials(["jitter"], TrialCase(prover, prepared))
        assert tried.right, (candidate.values, tried.problems)
        return
    pytest.fail(f"none of the {len(refused)} largest configurations runs: {refused[-1:]}")
