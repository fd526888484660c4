"""A product of two matrices as the subject of a measurement."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")


def unchecked_product(
    call: Callable[..., torch.Tensor] = torch.matmul,
    cache_state: str = "hot",
    device: DeviceInfo = CPU,
    size: int = 32,
) -> TorchSubject:
    """A product of (size, size), prepared."""

    def make_inputs(seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator(device.torch_device).manual_seed(seed)
        return tuple(torch.randn(size, size, generator=generator, device=device.torch_device) for _ in range(2))

    workload = AdHoc("product", make_inputs, torch.matmul, cache_state=cache_state)
    subject = TorchSubject(CallableBackend("test.product", call), workload, device, Seeds(0, 1, 2))
    subject.prepare()
    return subject
