"""Checks whether HIP kernels can run here, without importing torch or loading anything."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.hip import emulator
from kernels.hip.faces import NVIDIA_OLDEST
from pytest_attnperf.codeobject.hip_toolchain import hip_reasons

if TYPE_CHECKING:
    from pytest_attnperf.records import DeviceInfo

COMPILER = "ATTNPERF_HIP_COMPILER"
"""Environment variable: 'rtc' or 'extension' forces that way; unset takes the first that this torch supports."""

RTC_SINCE = {"cuda": (2, 8), "rocm": (2, 9)}
"""Kind of device -> the first torch with the private functions of `torch_gpu`."""

TOOLKITS = {
    "cuda": ("nvcc", ("CUDA_HOME", "CUDA_PATH"), "/usr/local/cuda"),
    "rocm": ("hipcc", ("ROCM_HOME", "ROCM_PATH"), "/opt/rocm"),
}
"""Kind of device -> the compiler of an extension, and the folders whose bin/ torch searches beside PATH."""


def missing_hip(device: DeviceInfo) -> list[str]:
    """Returns why no HIP kernel can run on this device; empty if they can."""
    if device.kind == "cpu":
        return emulator.missing_emulator()
    if device.interpreted:
        return hip_reasons(device.arch)
    if importlib.util.find_spec("torch") is None:
        return ["torch is not installed; its runtime compiler compiles the HIP kernels; install torch"]
    number = re.fullmatch(r"sm_(\d+)\w?", device.arch)
    if number is not None and int(number[1]) < NVIDIA_OLDEST:
        return [f"HIP kernels use instructions of sm_{NVIDIA_OLDEST} and newer; this device is {device.arch}"]
    return _missing_compiler(device.kind)


def _missing_compiler(kind: str) -> list[str]:
    """Returns why a HIP kernel cannot be built as an extension (no nvcc or hipcc). Empty if it can, or if it need not:
    torch is new enough to compile it, and ATTNPERF_HIP_COMPILER does not request an extension."""
    program, variables, usual = TOOLKITS[kind]
    since = RTC_SINCE[kind]
    if os.environ.get(COMPILER) != "extension" and _torch_version() >= since:
        return []
    homes = [os.environ.get(name, "") for name in variables]
    if any(Path(home, "bin", program).is_file() for home in (*filter(None, homes), usual)) or shutil.which(program):
        return []
    return [
        f"HIP kernels would be built as an extension, and there is no {program} on PATH, in {' or '.join(variables)} "
        f"or in {usual}; install it, or use torch {since[0]}.{since[1]} or newer without {COMPILER}=extension"
    ]


def _torch_version() -> tuple[int, ...]:
    """Returns (major, minor) of the installed torch; where it is not known, a version that has all that is needed."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return max(RTC_SINCE.values()) if found is None else (int(found[1]), int(found[2]))
