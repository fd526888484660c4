"""Versions of the software below a kernel: a report names differences, but they never prevent a comparison."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_attnperf.environment.system import ProbeError, System, probe_or_unknown

TRITON_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")
AITER_DISTRIBUTIONS = ("amd-aiter", "aiter")
"""ROCm's aiter has had both names; on PyPI the second belongs to an unrelated asyncio package."""

ABSENT = "none"

FP_FUSION, NO_FP_FUSION = "TRITON_DEFAULT_FP_FUSION", "TRITON_FORCE_DISABLE_FP_FUSION"
"""Triton's default of FP fusion, which workers turn on, and the variable that overrides it (from Triton 3.9 on)."""

_ON = frozenset({"1", "true", "yes", "on", "y"})
"""Values that Triton reads as true, in upper or lower case (`knobs.env_bool`)."""

_DRIVER = re.compile(r"\b(\d+\.\d+(?:\.\d+)?)\b")


def named_fields(device_kind: str, system: System, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns name -> version of python, torch, triton, aiter and the Linux kernel; triton_fp_fusion if it is off;
    driver and cuda or rocm on a GPU.

    `device_kind` is 'cpu', 'cuda' or 'rocm'. torch is imported on GPUs only, for the CUDA or ROCm version of its build.
    All else comes from package metadata, the system and `environ`.
    """
    fields = {
        "python": platform.python_version(),
        "torch": _read_version("torch"),
        "triton": _first_version(TRITON_DISTRIBUTIONS),
        "aiter": aiter_version(),
        "kernel": platform.release(),
    }
    if device_kind == "cuda":
        fields["driver"] = probe_or_unknown(lambda: nvidia_driver(system))
    elif device_kind == "rocm":
        fields["driver"] = probe_or_unknown(lambda: amd_driver(system))
    return fields | fp_fusion(environ) | _read_toolkit(device_kind)


def fp_fusion(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns {'triton_fp_fusion': 'off'} if `environ` turns off Triton's fusion of multiplications and additions.
    Otherwise it returns {}, because older fingerprints lack this field."""
    default, disabled = environ.get(FP_FUSION, "1"), environ.get(NO_FP_FUSION, "0")
    is_off = default.lower() not in _ON or disabled.lower() in _ON
    return {"triton_fp_fusion": "off"} if is_off else {}


def nvidia_driver(system: System) -> str:
    """Reads the driver's version from /proc/driver/nvidia/version, e.g. '580.95.05'. Raises ProbeError without one."""
    text = system.read("proc/driver/nvidia/version").partition("\n")[0]
    found = _DRIVER.search(text)
    if not found:
        raise ProbeError(f"/proc/driver/nvidia/version holds {text[:60]!r}")
    return found[1]


def amd_driver(system: System) -> str:
    """Reads the version of the amdgpu module; 'in-kernel' for the Linux kernel's own module, which has no version.
    Raises ProbeError if no such module is loaded."""
    if not (system.root / "sys/module/amdgpu").is_dir():
        raise ProbeError("/sys/module/amdgpu does not exist")
    if not (system.root / "sys/module/amdgpu/version").exists():
        return "in-kernel"
    return system.read("sys/module/amdgpu/version")


def aiter_version() -> str:
    """Returns the version of ROCm's aiter, 'none' if it is absent, 'none (...)' if another package has this name.

    Its files identify it: importing it compiles code, and PyPI's `aiter` (asyncio tools) has the same name.
    """
    spec = importlib.util.find_spec("aiter")
    if spec is None or not spec.submodule_search_locations:
        return ABSENT
    folder = Path(next(iter(spec.submodule_search_locations)))
    if not ((folder / "ops/mha.py").exists() and (folder / "jit").is_dir()):
        return "none (the package named aiter here is not ROCm's)"
    return _first_version(AITER_DISTRIBUTIONS, absent="unknown (no package metadata)")


def _read_toolkit(device_kind: str) -> dict[str, str]:
    if device_kind == "cpu":
        return {}
    import torch

    if device_kind == "rocm":
        return {"rocm": torch.version.hip or ABSENT}
    return {"cuda": torch.version.cuda or ABSENT}


def _read_version(distribution: str) -> str:
    return _first_version((distribution,))


def _first_version(distributions: tuple[str, ...], *, absent: str = ABSENT) -> str:
    return next(filter(None, map(version_of, distributions)), absent)


def version_of(distribution: str) -> str:
    """Reads the version of an installed distribution; '' if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
