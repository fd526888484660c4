"""Hooks that a project's conftest.py implements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry
    from pytest_attnperf.workers.device_protocol import Device
    from pytest_attnperf.workloads.families import Families


def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Adds backends: `registry.add(MyBackend("mine"))`. Called once per session, before tests are parametrised."""


def pytest_attnperf_register_kernels(kernels: KernelRegistry) -> None:
    """Adds kernels to compile without a GPU: `kernels.add(MyKernel("mine", ("mine",)))`. Called once per session."""


def pytest_attnperf_register_workloads(families: Families) -> None:
    """Adds op families of your own, so that the ids of their workloads parse. Called once per session."""


@pytest.hookspec(firstresult=True)
def pytest_attnperf_gpus(config: pytest.Config) -> tuple[str, ...] | None:
    """Returns GPUs of the device of `pytest_attnperf_device`, as tokens for workers' CUDA_VISIBLE_DEVICES; None: the
    machine's GPUs.

    Called in the process that starts workers. Tokens name leases on the whole machine: of two projects with the same
    tokens only one can run at a time.
    """


@pytest.hookspec(firstresult=True)
def pytest_attnperf_device(config: pytest.Config, kind: str) -> Device | None:
    """Returns the device that cases run on, or None. The first one returned is used, else the real device.

    `kind` is 'gpu' or 'cpu', from `--attnperf-device` and the machine. Called in the process that measures.
    """
