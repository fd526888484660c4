"""What a probe is, and all it may look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.finding import Finding


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
    run: Callable[[Surroundings], Sequence[Finding]]
    needs_gpu: bool = False
    limit_s: float = 10.0
    first: bool = False
    alone: bool = False
