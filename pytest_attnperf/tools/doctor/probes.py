"""Defines a probe, what it may read and what it returns. Lists every probe in the order of the report.

A new probe is a module in this folder and a line in PROBES.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pytest_attnperf.environment.system import System
from pytest_attnperf.records.listing import import_listed_function

PACKAGES, ENVIRONMENT, DEVICE, MEASURING, DISK = (
    "Python and packages",
    "Environment",
    "Device",
    "Measuring",
    "Disk",
)

NOISE = "noise"
"""Name of the probe that takes a minute; --quick leaves it out."""


@dataclass(frozen=True)
class Surroundings:
    """The machine and the project as probes see them; tests pass their own.

    root      the project: the current folder
    python    the interpreter that runs the doctor and its child processes
    clock     returns seconds, monotonic
    has_gpu   whether a device node exists that this environment does not hide
    vendor    '', 'amd' or 'nvidia', from the device nodes alone
    ends_s    time by `clock` at which the doctor must end; a probe that measures must stop before it
    """

    system: System
    environ: Mapping[str, str]
    root: Path
    python: str
    clock: Callable[[], float]
    has_gpu: bool
    vendor: str
    ends_s: float = math.inf


@dataclass(frozen=True)
class Probe:
    """One check of the doctor.

    title     heading of its findings: 'Python and packages', 'Device', 'Measuring', 'Disk'
    limit_s   seconds after which it is abandoned
    first     on a GPU, ends before any other probe starts, because others start processes on the GPU
    alone     on a GPU, runs after the others and by itself, because it measures times
    """

    name: str
    title: str
    run: Callable[[Surroundings], Sequence[DoctorFinding]]
    needs_gpu: bool = False
    limit_s: float = 10.0
    first: bool = False
    alone: bool = False


def _later(module: str, function: str = "probe") -> Callable[[Surroundings], Sequence[DoctorFinding]]:
    """Returns a function that imports `module` of this folder and calls its `function` when the probe runs, so that an
    import error is one UNKNOWN finding."""

    def run(here: Surroundings) -> Sequence[DoctorFinding]:
        look = import_listed_function(
            f"pytest_attnperf.tools.doctor.{module}", function, __file__, f'_later("{module}"'
        )
        found: Sequence[DoctorFinding] = look(here)
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


class Status(str, Enum):
    """Severity of a finding, from good to bad. UNKNOWN: the probe itself failed."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the report.

    name      'torch', 'aiter', 'render nodes': short, unique in a report
    value     what was found, one line: '2.13.0+cpu, CPU only'
    meaning   its effect on measurements, one sentence
    fix       the command or step that fixes it; '' if nothing is to be done
    details   shown with -v and in the bundle
    """

    name: str
    status: Status
    value: str
    meaning: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
