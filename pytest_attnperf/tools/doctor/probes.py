"""What a probe is, all it may look at, what it finds, and every probe in the order of the report.

A new one is a module here and a line in PROBES.
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
"""The probe that takes a minute, and that --quick leaves out."""


@dataclass(frozen=True)
class Surroundings:
    """The machine and the project as probes see them; tests pass their own.

    root      the project: the current folder
    python    the interpreter that started the doctor, which child processes are started with
    clock     seconds, monotonic
    has_gpu   whether a device node is there that this environment does not hide
    vendor    '', 'amd' or 'nvidia', from the device nodes alone
    ends_s    by `clock`, when the doctor has promised to be done: what measures for as long as it may heeds it
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
    """One thing to look at.

    title     the heading its findings stand under: 'Python and packages', 'Device', 'Measuring', 'Disk'
    limit_s   seconds after which it is given up
    first     ends before any other starts where there is a GPU, because others put processes of ours on it
    alone     runs after the others and by itself where there is a GPU, because it times
    """

    name: str
    title: str
    run: Callable[[Surroundings], Sequence[DoctorFinding]]
    needs_gpu: bool = False
    limit_s: float = 10.0
    first: bool = False
    alone: bool = False


def _later(module: str, function: str = "probe") -> Callable[[Surroundings], Sequence[DoctorFinding]]:
    """A probe whose module is imported when it runs: one that cannot be imported is one UNKNOWN line."""

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
    """How a finding stands, from good to bad; UNKNOWN where the probe itself failed."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the report.

    name      'torch', 'aiter', 'render nodes': short, unique in a report
    value     what was seen, one line: '2.13.0+cpu, CPU only'
    meaning   what it means for the numbers, one sentence
    fix       the command, or the step, that mends it; '' where nothing is to be done
    details   shown with -v and in the bundle
    """

    name: str
    status: Status
    value: str
    meaning: str = ""
    fix: str = ""
    details: tuple[str, ...] = ()
