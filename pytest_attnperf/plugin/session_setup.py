"""What the controller and its workers set up alike: device kind, role, collector, and errors as pytest words them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from pytest_attnperf.environment.gpus import has_gpu
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.records import Role

DEVICE_KINDS = ("auto", "gpu", "cpu")


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Our errors as pytest's: one line on the terminal, exit status 4."""
    try:
        yield
    except AttnperfError as error:
        raise pytest.UsageError(str(error)) from error


def device_kind(config: pytest.Config) -> tuple[str, str]:
    """('gpu' or 'cpu', why), without importing torch and without touching a device."""
    asked = options.choice(config, "device", DEVICE_KINDS)
    if asked != "auto":
        return asked, f"--attnperf-device={asked}"
    found, reason = has_gpu(os.environ)
    return ("gpu" if found else "cpu"), reason


def role_of(kind: str) -> Role:
    """Without a GPU Triton kernels are interpreted, which one process cannot mix with compiling them."""
    return Role.DEVICE if kind == "gpu" else Role.INTERPRET


def make_collector(config: pytest.Config) -> CaseCollector:
    """Register the collector of cases."""
    kind, reason = device_kind(config)
    collector = CaseCollector(config, on_gpu=kind == "gpu", gpu_reason=reason)
    config.pluginmanager.register(collector, "attnperf-cases")
    return collector
