"""Set-up that the controller and its workers share: device, role, collectors, and usage errors."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pytest_attnperf.environment.gpu_tokens import has_gpu
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure import interpreting
from pytest_attnperf.plugin.cases import CaseCollector
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
from pytest_attnperf.plugin.marker_values import require_typed_workload
from pytest_attnperf.records import Role
from pytest_attnperf.records.raised import describe_raised
from pytest_attnperf.workers.device_protocol import Device


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turns AttnperfError in the block into pytest's UsageError: one line on the terminal, exit status 4."""
    try:
        yield
    except AttnperfError as error:
        raise pytest.UsageError(str(error)) from error


def device_kind(config: pytest.Config) -> tuple[str, str]:
    """Returns ('gpu' or 'cpu', the reason), from --attnperf-device or this machine. Does not touch a device."""
    asked = run_config(config).choice("device")
    if asked != "auto":
        return asked, f"--attnperf-device={asked}"
    found, reason = has_gpu(os.environ)
    return ("gpu" if found else "cpu"), reason


def device_for(config: pytest.Config) -> Device:
    """Returns a conftest's device, or the real one through torch. Raises UsageError if it cannot be used."""
    kind, _ = device_kind(config)
    provided = provided_device(config)
    if provided is not None:
        return provided
    interpreting.start_interpreting()
    try:
        from pytest_attnperf.measure.torch_device import TorchDevice

        return TorchDevice.open(kind, interpreted=interpreting.is_interpreting())
    except AttnperfError as error:
        raise pytest.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise pytest.UsageError(
            f"torch is not installed for {sys.executable}, and cases need it; install the torch build for this GPU "
            "(a CPU build if there is none)"
        ) from error


def provided_device(config: pytest.Config) -> Device | None:
    """Returns the device that a conftest provides; None for the real one."""
    kind, _ = device_kind(config)
    provided: Device | None = config.hook.pytest_attnperf_device(config=config, kind=kind)
    return provided


def role_of(kind: str) -> Role:
    """Returns the workers' role: DEVICE for 'gpu'; INTERPRET for 'cpu', where Triton kernels are interpreted."""
    return Role.DEVICE if kind == "gpu" else Role.INTERPRET


@dataclass(frozen=True)
class Collectors:
    """The plugin objects that make items: of timed cases, and of compiled kernels."""

    cases: CaseCollector
    code: CodeCollector

    def register_all(self) -> None:
        """Lets every conftest register backends and kernels. Raises a usage error for an unknown backend, a malformed
        workload, and whatever the hooks raise; with --full-trace its traceback follows."""
        config = self.cases.config
        try:
            self.cases.register_backends()
            require_typed_workload(run_config(config).workload, self.cases.families)
            self.code.backends = self.cases.wanted_backends()
            self.code.register_kernels()
        except pytest.UsageError:
            raise
        except Exception as error:
            more = traceback.format_exception(error) if config.getoption("fulltrace") else ()
            raise pytest.UsageError("\n".join([describe_raised(error), *more])) from error

    @property
    def has_registered(self) -> bool:
        """Whether a conftest has registered a backend or a kernel; otherwise this plugin stays silent."""
        return bool(len(self.cases.registry) or len(list(self.code.registry)))


def make_collectors(config: pytest.Config) -> Collectors:
    """Makes, registers and returns the plugin objects that turn tests into cases and kernel builds."""
    kind, reason = device_kind(config)
    collectors = Collectors(CaseCollector(config, on_gpu=kind == "gpu", gpu_reason=reason), CodeCollector(config))
    config.pluginmanager.register(collectors.cases, "attnperf-cases")
    config.pluginmanager.register(collectors.code, "attnperf-code")
    return collectors
