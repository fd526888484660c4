"""Finds which package named `aiter` is installed: ROCm's, the stale pre-release or an unrelated one.

Its files are read, never run: importing ROCm's aiter may build for minutes, and PyPI has an unrelated asyncio package
of the same name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from pytest_attnperf.environment.software import aiter_version, version_of
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status, Surroundings

STALE = "0.1.7.post2.dev18"
"""The only release of `amd-aiter` on PyPI: a pre-release without compiled modules."""

INSTALL = (
    "git clone --recursive https://github.com/ROCm/aiter && cd aiter && python3 setup.py develop (never from PyPI, and "
    "never run Python in the clone's parent folder)"
)
LOSES = "cases of ck and aiter.* are UNSUPPORTED"


def probe(here: Surroundings) -> Sequence[DoctorFinding]:
    """Returns one finding 'aiter': which package of that name is installed (ROCm's, ROCm's stale pre-release, an
    unrelated one) or that none is."""
    folder = package_folder()
    if folder is None:
        return (_absent_finding(here),)
    if not is_rocm_aiter(folder):
        return (_stranger_finding(here, folder),)
    version = aiter_version()
    where = (f"in {folder}",)
    if STALE in (version, version_of("amd-aiter")):
        return (
            DoctorFinding(
                "aiter",
                Status.WARNING,
                f"amd-aiter {STALE}, the stale pre-release of PyPI",
                f"it has no compiled modules: {LOSES}",
                f"pip uninstall amd-aiter, then {INSTALL}",
                where,
            ),
        )
    return (DoctorFinding("aiter", Status.OK, f"{version}, ROCm's", details=where),)


def package_folder() -> Path | None:
    """Returns the folder of the package `aiter`, ROCm's or not (the file of a single module); None if there is none."""
    try:
        spec = importlib.util.find_spec("aiter")
    except ValueError:  # sys.modules holds a module of that name without a spec
        return None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    if locations:
        return Path(locations[0])
    return Path(spec.origin) if spec is not None and spec.origin else None


def is_rocm_aiter(folder: Path) -> bool:
    """Returns whether the folder holds ops/mha.py and jit/, as ROCm's aiter does."""
    return (folder / "ops/mha.py").is_file() and (folder / "jit").is_dir()


def _absent_finding(here: Surroundings) -> DoctorFinding:
    if here.vendor != "amd":
        return DoctorFinding("aiter", Status.OK, "not installed; it runs on AMD GPUs only")
    return DoctorFinding("aiter", Status.NOTE, "not installed", LOSES, INSTALL)


def _stranger_finding(here: Surroundings, folder: Path) -> DoctorFinding:
    """Returns the finding for an `aiter` that is not ROCm's: a problem with an AMD GPU; else a warning, because ROCm's
    aiter needs an AMD GPU."""
    where = (f"in {folder}",)
    status = Status.PROBLEM if here.vendor == "amd" else Status.WARNING
    if is_rocm_aiter(folder / "aiter"):
        return DoctorFinding(
            "aiter",
            status,
            "the root of a checkout of ROCm/aiter, found because Python runs in its parent folder",
            f"its package lies one folder deeper: {LOSES}",
            "change to another folder, or install it: cd aiter && python3 setup.py develop",
            where,
        )
    asyncio = (folder / "azip.py").is_file()
    what = "the asyncio package of PyPI" if asyncio else "a package of that name"
    version = f" {found}" if (found := version_of("aiter")) else ""
    return DoctorFinding(
        "aiter",
        status,
        f"{what}{version}, not ROCm's",
        f"it hides ROCm's aiter and has none of its kernels: {LOSES}",
        f"pip uninstall aiter, then {INSTALL}",
        where,
    )
