"""Registers this repository's kernels through the plugin's public hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kernels as registered

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry
    from pytest_attnperf.kernel_builds import KernelRegistry


# Optional, so that the tree can still be collected by a pytest that does not have the plugin.
@pytest.hookimpl(optionalhook=True)
def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Add the backends under kernels/."""
    registered.register(registry)


@pytest.hookimpl(optionalhook=True)
def pytest_attnperf_register_kernels(kernels: KernelRegistry) -> None:
    """Add the kernels under kernels/ that can be compiled for an architecture without having it."""
    registered.register_kernels(kernels)
