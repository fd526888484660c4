"""What the controller and its workers set up alike: device kind, role, collector, and errors as pytest words them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pytest_attnperf.environment.gpus import has_gpu
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
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


@dataclass(frozen=True)
class Collectors:
    """What makes items: timed cases, and compiled kernels."""

    cases: CaseCollector
    code: CodeCollector

    def register(self) -> None:
        """Ask every conftest what there is, before tests are parametrised. Raises UsageError for an unknown backend."""
        self.cases.register()
        self.code.backends = self.cases.wanted_backends()
        self.code.register()

    @property
    def registered(self) -> bool:
        """Whether a conftest has named a backend or a kernel: other projects hear nothing of this plugin."""
        return bool(len(self.cases.registry) or len(list(self.code.registry)))


def make_collectors(config: pytest.Config) -> Collectors:
    """Register the collectors."""
    kind, reason = device_kind(config)
    collectors = Collectors(CaseCollector(config, on_gpu=kind == "gpu", gpu_reason=reason), CodeCollector(config))
    config.pluginmanager.register(collectors.cases, "attnperf-cases")
    config.pluginmanager.register(collectors.code, "attnperf-code")
    return collectors
