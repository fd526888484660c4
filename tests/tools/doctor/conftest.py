"""A machine and a project for probes, made of a folder."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.probes import Surroundings

MakeHere = Callable[..., Surroundings]


@pytest.fixture
def make_here(tmp_path: Path) -> MakeHere:
    """(vendor, has_gpu, environ) -> surroundings with an empty machine and an empty project, each in a folder."""

    def make(
        vendor: str = "", *, has_gpu: bool | None = None, environ: Mapping[str, str] | None = None, clock_s: float = 0.0
    ) -> Surroundings:
        machine, project = tmp_path / "machine", tmp_path / "project"
        machine.mkdir(exist_ok=True)
        project.mkdir(exist_ok=True)
        ticks = itertools.count(0.0, clock_s)
        return Surroundings(
            system=System(machine),
            environ={} if environ is None else environ,
            root=project,
            python=sys.executable,
            clock=lambda: next(ticks),
            has_gpu=bool(vendor) if has_gpu is None else has_gpu,
            vendor=vendor,
        )

    return make
