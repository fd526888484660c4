"""Checks which Triton is installed, whether torch requires that one, and for which devices it compiles."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_attnperf.environment.software import TRITON_DISTRIBUTIONS, version_of
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

OLDEST = (3, 3)
"""Oldest minor version with which code objects were tried."""

_REQUIRED = re.compile(rf"^({'|'.join(sorted(TRITON_DISTRIBUTIONS, key=len, reverse=True))})\s*\(?==\s*([^;\s,)]+)")


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'triton': its version, whether torch requires that one, and the devices it compiles for."""
    found = {name: version for name in TRITON_DISTRIBUTIONS if (version := version_of(name))}
    folder = _find_package_folder()
    if not found and folder is None:
        return (_absent_finding(here),)
    names = " and ".join(f"{name} {version}" for name, version in found.items()) or "of unknown version"
    backends = _list_backends(folder)
    value = f"{names}, compiles for {', '.join(backends) or 'no device that is known'}"
    return (_judge_installed(here, value, found, backends),)


def _judge_installed(here: Surroundings, value: str, found: dict[str, str], backends: list[str]) -> DoctorFinding:
    wanted = required_by_torch()
    if len(found) > 1:
        meaning = "they share one folder: which files it holds depends on the order of installation"
        keep = wanted[0] if wanted else "the one that torch brought"
        fix = f"pip uninstall {' '.join(found)}, then pip install --force-reinstall --no-deps {keep}"
        return DoctorFinding("triton", Status.WARNING, value, meaning, fix)
    if here.vendor and here.vendor not in backends:
        meaning = f"it has no backend for {here.vendor.upper()}: Triton's kernels do not run on the GPU here"
        return DoctorFinding(
            "triton", Status.PROBLEM, value, meaning, "install the torch build for this GPU: it brings one"
        )
    (name, version), *_ = [*found.items(), ("triton", "")]
    if _is_too_old(version):
        meaning = f"code objects need {OLDEST[0]}.{OLDEST[1]} or newer"
        return DoctorFinding(
            "triton", Status.WARNING, value, meaning, "install a newer torch, which brings a newer one"
        )
    if wanted and wanted != (name, version):
        meaning = f"this torch requires {wanted[0]} {wanted[1]}: torch.compile is untested with another one"
        return DoctorFinding("triton", Status.WARNING, value, meaning, f"pip install {wanted[0]}=={wanted[1]}")
    belongs = "the one that torch requires" if wanted else "torch requires none"
    return DoctorFinding("triton", Status.OK, value, details=(belongs,))


def required_by_torch() -> tuple[str, str] | None:
    """Returns the (distribution, version) of Triton that the installed torch pins; None if it pins none (CPU
    builds) or torch is absent."""
    try:
        requirements = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    pinned = next(filter(None, map(_REQUIRED.match, requirements)), None)
    return (pinned[1], pinned[2]) if pinned else None


def _absent_finding(here: Surroundings) -> DoctorFinding:
    status = Status.WARNING if here.vendor else Status.NOTE
    meaning = "triton.* and torch.compile's kernels are UNSUPPORTED, and their code objects cannot be built"
    fix = "install the torch build for this GPU: it brings one" if here.vendor else "pip install triton"
    return DoctorFinding("triton", status, "not installed", meaning, fix)


def _find_package_folder() -> Path | None:
    try:
        spec = importlib.util.find_spec("triton")
    except ValueError:
        return None
    return next((Path(path) for path in (spec.submodule_search_locations or ())), None) if spec else None


def _list_backends(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    return [name for name in ("amd", "nvidia") if (folder / "backends" / name / "compiler.py").is_file()]


def _is_too_old(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST
