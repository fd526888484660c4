"""Finds objects that `make kernels` compiled ahead, by their sources and macros."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernels.hip.kernel_source import format_path, root_of
from kernels.hip.sources import HipKernel
from pytest_attnperf.codeobject.built import OBJECT_LIMIT_BYTES
from pytest_attnperf.codeobject.object_manifest import AGAIN, PrebuiltObject, read_manifest
from pytest_attnperf.errors import CodeObjectError, UsageError

OBJECTS = "ATTNPERF_HIP_OBJECTS"
"""Environment variable that names the folder, e.g. build/kernels."""


@dataclass(frozen=True)
class Prebuilt:
    """A prebuilt object that matches a kernel."""

    path: Path
    data: bytes = field(repr=False)


def find_prebuilt(kernel: HipKernel, arch: str, environ: Mapping[str, str]) -> Prebuilt | None:
    """Returns the object of this function with these macros for this architecture; None where the folder has none, or
    none is named.

    Raises UsageError where the named folder does not exist, CodeObjectError where the object or its manifest is damaged
    or where the sources changed since it was compiled.
    """
    named = environ.get(OBJECTS, "")
    if not named:
        return None
    if not Path(named).is_dir():
        raise UsageError(f"{OBJECTS}={named} is no folder; build the kernels first (make kernels), or unset it")
    folder = Path(named, arch)
    fitting = [one for one in read_manifest(folder, arch) if _is_match(one, kernel)]
    if not fitting:
        return None
    changed = _find_changed_sources(fitting[0], root_of(kernel.path))
    if changed:
        raise CodeObjectError(
            f"{folder / fitting[0].file} was compiled from another {changed[0]} than the present one; {AGAIN}, "
            f"or unset {OBJECTS}"
        )
    return _read_object(folder / fitting[0].file, fitting[0])


def _is_match(candidate: PrebuiltObject, kernel: HipKernel) -> bool:
    """Returns whether a prebuilt object has the kernel's file, function and macros."""
    named = (candidate.source, candidate.function, candidate.defines)
    return named == (format_path(kernel.path), kernel.function, dict(kernel.defines))


def _find_changed_sources(candidate: PrebuiltObject, root: Path) -> list[str]:
    """Returns the sources changed since the object was compiled; also the kernel's file if the manifest lacks it."""
    unnamed = [] if candidate.source in candidate.sources else [candidate.source]
    return unnamed + [name for name, digest in candidate.sources.items() if _hash_file(root / name) != digest]


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _read_object(path: Path, wanted: PrebuiltObject) -> Prebuilt:
    """Reads the object file. Raises CodeObjectError if too large, unreadable, or not the one in the manifest."""
    try:
        if path.stat().st_size > OBJECT_LIMIT_BYTES:
            raise CodeObjectError(f"{path} has more than {OBJECT_LIMIT_BYTES:,} bytes, which no kernel has; {AGAIN}")
        data = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path} is in the manifest and cannot be read ({error.strerror}); {AGAIN}") from error
    if hashlib.sha256(data).hexdigest() != wanted.sha256:
        raise CodeObjectError(f"{path} is not the object that the manifest describes; {AGAIN}")
    return Prebuilt(path, data)
