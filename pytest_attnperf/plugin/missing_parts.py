"""What this Python lacks for a run that measures, said once above it and only where one was asked for."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from pytest_attnperf.plugin.config import run_config

NEEDED = {
    "torch": "cases call kernels on its tensors; install the build for this GPU (a CPU build where there is none)",
}
"""What measuring stands on and this package never installs."""


def is_here(name: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # sys.modules holds something that was never found, or is kept from being so
        return sys.modules.get(name) is not None


def header(config: pytest.Config) -> list[str]:
    """A line per missing part; none where no run measures, or where a conftest brings a device of its own."""
    asked = run_config(config)
    if not asked.gate and not asked.records:
        return []
    if config.hook.pytest_attnperf_device.get_hookimpls():
        return []
    return [
        f"attnperf: {name} is not installed for {sys.executable}: {why}; attnperf doctor says more"
        for name, why in NEEDED.items()
        if not is_here(name)
    ]
