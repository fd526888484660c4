"""The machine, the project and the environment that the doctor was started in."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pytest_attnperf.environment import kfd
from pytest_attnperf.environment.gpus import visible_gpus
from pytest_attnperf.environment.system import System
from pytest_attnperf.tools.doctor.probes import Surroundings

PROMISED_S = 72.0
"""All of the doctor on a GPU, with some seconds to write what it found, takes less than 75 s."""

_NVIDIA_NODE = re.compile(r"nvidia\d+")


def surroundings_here() -> Surroundings:
    """Of this process: the current folder is the project. Reads device nodes only; no device is touched."""
    system, environ = System(), dict(os.environ)
    return Surroundings(
        system=system,
        environ=environ,
        root=Path.cwd(),
        python=sys.executable,
        clock=time.monotonic,
        has_gpu=has_gpu(system, environ),
        vendor=vendor_of(system),
        ends_s=time.monotonic() + PROMISED_S,
    )


def has_gpu(system: System, environ: Mapping[str, str]) -> bool:
    """Whether a GPU can be opened by its device node and is not hidden by this environment."""
    try:
        return bool(visible_gpus(environ, system.root))
    except OSError:
        return False


def vendor_of(system: System) -> str:
    """'nvidia', 'amd' or '': whose driver shows a GPU here, device node or not.

    A container that was started without its devices still shows the driver of the machine.
    """
    dev = system.root / "dev"
    if any(_NVIDIA_NODE.fullmatch(node.name) for node in dev.glob("nvidia*")):
        return "nvidia"
    if kfd.architectures(system):
        return "amd"
    gpus = system.root / "proc/driver/nvidia/gpus"
    return "nvidia" if gpus.is_dir() and any(gpus.iterdir()) else ""
