"""Registers this repository's kernels through the plugin's public hook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kernels

if TYPE_CHECKING:
    from pytest_attnperf.backends import Registry


# Optional, so that the tree can still be collected by a pytest that does not have the plugin.
@pytest.hookimpl(optionalhook=True)
def pytest_attnperf_register_backends(registry: Registry) -> None:
    """Add the backends under kernels/."""
    kernels.register(registry)
