"""Hooks that a project's conftest.py implements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry
    from pytest_attnperf.workers.device import Device
    from pytest_attnperf.workloads.families import Families


def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Add implementations: `registry.add(MyBackend("mine"))`. Called once per session, before parametrisation."""


def pytest_attnperf_register_kernels(kernels: KernelRegistry) -> None:
    """Add kernels to compile without a GPU: `kernels.add(MyKernel("mine", ("mine",)))`. Called once a session."""


def pytest_attnperf_register_workloads(families: Families) -> None:
    """Add op families of your own, so that their ids parse. Called once per session."""


@pytest.hookspec(firstresult=True)
def pytest_attnperf_gpus(config: pytest.Config) -> tuple[str, ...] | None:
    """Name the GPUs of a device of your own, as tokens that its workers find in CUDA_VISIBLE_DEVICES; None for the
    machine's. Called in the process that starts workers. Tokens name leases on the whole machine: two projects with
    the same tokens exclude each other.
    """


@pytest.hookspec(firstresult=True)
def pytest_attnperf_device(config: pytest.Config, kind: str) -> Device | None:
    """Provide the device that cases run on; the first that returns one is taken, the real device otherwise.

    kind: 'gpu' or 'cpu', as `--attnperf-device` and the machine decided. Called in the process that measures.
    """
