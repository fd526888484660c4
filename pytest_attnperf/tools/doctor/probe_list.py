"""Every probe of the doctor, in the order of its report. A new one is a module here and a line in this list."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from pytest_attnperf.tools.doctor.finding import Finding
from pytest_attnperf.tools.doctor.probes import Probe, Surroundings

PACKAGES, ENVIRONMENT, DEVICE, MEASURING, DISK = (
    "Python and packages",
    "Environment",
    "Device",
    "Measuring",
    "Disk",
)

NOISE = "noise"
"""The probe that takes a minute, and that --quick leaves out."""


def _later(module: str, function: str = "probe") -> Callable[[Surroundings], Sequence[Finding]]:
    """A probe whose module is imported when it runs: one that cannot be imported is one UNKNOWN line."""

    def run(here: Surroundings) -> Sequence[Finding]:
        imported = importlib.import_module(f"pytest_attnperf.tools.doctor.{module}")
        found: Sequence[Finding] = getattr(imported, function)(here)
        return found

    return run


PROBES: tuple[Probe, ...] = (
    Probe("packages", PACKAGES, _later("packages")),
    Probe("project", PACKAGES, _later("packages", "project_probe")),
    Probe("torch", PACKAGES, _later("torch_package", "build_probe")),
    Probe("torch device", PACKAGES, _later("torch_package", "device_probe"), limit_s=60.0),
    Probe("triton", PACKAGES, _later("triton_package")),
    Probe("aiter", PACKAGES, _later("aiter_package")),
    Probe("clang", PACKAGES, _later("compilers", "clang_probe"), limit_s=20.0),
    Probe("llvm-objdump", PACKAGES, _later("compilers", "objdump_probe"), limit_s=20.0),
    Probe("compilers of the GPU", PACKAGES, _later("compilers", "gpu_probe")),
    Probe("environment variables", ENVIRONMENT, _later("variables")),
    Probe("cpu", ENVIRONMENT, _later("processor")),
    Probe("rights", DEVICE, _later("rights")),
    Probe("partitions", DEVICE, _later("partitions"), needs_gpu=True, limit_s=20.0),
    Probe("power", DEVICE, _later("power"), needs_gpu=True, limit_s=20.0),
    Probe("GPU processes", DEVICE, _later("gpu_processes"), needs_gpu=True, limit_s=20.0, first=True),
    Probe("graph self-test", MEASURING, _later("timer"), limit_s=60.0, alone=True),
    Probe(NOISE, MEASURING, _later("self_test", "noise_probe"), needs_gpu=True, limit_s=65.0, alone=True),
    Probe("folders", DISK, _later("folders")),
)
