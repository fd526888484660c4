"""Imports parts of ROCm's aiter from old and new modules, turns failures into reasons, and undoes side effects.

Importing aiter starts builds, reads the GPU's architecture and sets environment variables. Written from its source,
v0.1.5 to 2026-08; never run on an AMD GPU.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels.aiter.failures import call_failure, import_reason
from kernels.aiter.package import find_installed, missing_aiter
from pytest_attnperf.errors import UnsupportedError

__all__ = [
    "Changes",
    "call_failure",
    "environment_entries",
    "import_aiter",
    "import_changes",
    "restored_environment",
    "toggle_entries",
    "without_ck",
]

READ_LATER = ("AITER_", "FLYDSL_", "MAX_JOBS", "HIP_", "TORCHINDUCTOR_")
"""Prefixes of environment variables that aiter (and torch, which aiter loads) sets during import and reads later, in
calls or builds; in AITER_ASM_DIR its C++ finds the assembly kernels. These are not put back."""

RECORDED = ("AITER_", "FLASH_ATTENTION_", "ENABLE_CK", "GPU_ARCHS", "CU_NUM", "CK_DIR")
"""Prefixes of environment variables that choose what aiter runs."""

PLACES = ("_DIR", "_PATH", "_FILE", "AITER_CONFIG")
"""Parts of names of variables that hold paths: the files' contents are recorded, never the path."""

LOGGING = ("_LOG_", "AITER_LOG", "AITER_DEBUG", "_JIT_DIR", "_ROOT_DIR", "_CACHE")
"""Parts of names of variables that change no kernel."""

TOGGLES = ("_MHA_IMPL", "_USE_FUSED_BWD_KERNEL", "_USE_INT64_STRIDES", "_MHA_SWIZZLE")
TRITON_MHA = ("aiter.ops.triton.attention.mha", "aiter.ops.triton.mha")
"""Globals of aiter's Triton attention that change what runs, and the module that holds them, newest place first."""


@dataclass
class Changes:
    """Side effects of some code on the process's environment variables.

    restored   environment variables put back, and the value each was given ('' for one that was deleted)
    kept       environment variables left as they were set, because aiter reads them later
    """

    restored: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


_changes = Changes()
_failed: dict[tuple[str, str], str] = {}
"""(folder of aiter, module) -> why its import failed. A second import would raise another error: parts are loaded."""

WHOLE = "aiter"
"""Key for all modules, used where the package itself could not be imported."""


def import_aiter(module: str, *names: str, old: str = "") -> Any:
    """Imports a module of aiter. Returns the module; with one of `names` that attribute, with several a tuple of them.

    `old` is the module's place in earlier versions, tried only where the new place does not exist. Raises
    UnsupportedError with the reason and the exception where aiter or a name is missing or cannot be imported.
    """
    found = find_installed()
    reasons = missing_aiter()
    if found is None or reasons:
        raise UnsupportedError("; ".join(reasons) or "aiter not installed")
    folder = str(found.folder)
    known = _failed.get((folder, WHOLE)) or _failed.get((folder, module))
    if known:
        raise UnsupportedError(known)
    try:
        loaded = _import_module(module, old)
    except UnsupportedError as error:
        _failed[folder, module if WHOLE in sys.modules else WHOLE] = str(error)
        raise
    values = tuple(_get_attribute(loaded, name, found.version) for name in names)
    return values if len(names) > 1 else values[0] if names else loaded


@contextmanager
def restored_environment() -> Iterator[Changes]:
    """Restores environment variables and the root logger when the block ends, also after an exception.

    Variables that aiter reads later stay (READ_LATER). Yields a `Changes` that is filled when the block ends.
    """
    before, root = dict(os.environ), logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    changes = Changes()
    try:
        yield changes
    finally:
        for name in sorted(before.keys() | os.environ.keys()):
            value = os.environ.get(name)
            if value == before.get(name):
                continue
            if name.startswith(READ_LATER):
                changes.kept[name] = value or ""
            else:
                changes.restored[name] = value or ""
                _put_back(name, before.get(name))
        root.setLevel(level)
        root.handlers[:] = handlers


def import_changes() -> Changes:
    """Returns what importing aiter changed in this process so far: variables restored, and variables left as set."""
    return _changes


def without_ck() -> list[str]:
    """Returns a reason if ENABLE_CK=0, which makes aiter run Triton instead of Composable Kernel; else empty."""
    value = os.environ.get("ENABLE_CK", "1").strip()
    off = value.lstrip("+-").isdecimal() and int(value) == 0
    return [f"ENABLE_CK={value} makes aiter take Triton in place of Composable Kernel; unset it"] if off else []


def environment_entries() -> dict[str, str]:
    """Returns `Prepared.config` entries of set variables that choose what aiter runs, e.g. {'env.ENABLE_CK': '0'}.

    Variables that aiter set itself are left out. For a variable that names files, the entry is a hash of the contents.
    """
    entries = {}
    for name in sorted(os.environ):
        if not name.startswith(RECORDED) or name in _changes.kept or any(part in name for part in LOGGING):
            continue
        value = os.environ[name]
        entries[f"env.{name}"] = _hash_contents(value) if any(part in name for part in PLACES) else value
    return entries


def toggle_entries() -> dict[str, str]:
    """Returns `Prepared.config` entries of aiter's Triton attention's globals, e.g. {'toggle._MHA_IMPL': 'default'}.

    Empty while that module is not loaded. Only backends that run it record them.
    """
    module = next((sys.modules[name] for name in TRITON_MHA if name in sys.modules), None)
    return {f"toggle.{name}": str(getattr(module, name)) for name in TOGGLES if hasattr(module, name)}


def _import_module(module: str, old: str) -> ModuleType:
    try:
        with restored_environment() as changes:
            return _new_or_old(module, old)
    finally:
        _changes.restored.update(changes.restored)
        _changes.kept.update(changes.kept)


def _new_or_old(module: str, old: str) -> ModuleType:
    """Imports `module` if it exists, else `old`. It never imports both, because that would run the same file twice.
    Raises UnsupportedError with the reason."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # AssertionError, KeyError, RuntimeError, ... by what is missing
        if not old or not _is_absent(error, module):
            raise UnsupportedError(import_reason(error, module)) from error
    try:
        return importlib.import_module(old)
    except Exception as error:
        raise UnsupportedError(import_reason(error, old)) from error


def _is_absent(error: Exception, module: str) -> bool:
    """Returns whether the error says that this module or its package is missing, not one that it imports."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and (module == name or module.startswith(f"{name}."))


def _get_attribute(module: ModuleType, name: str, version: str) -> Any:
    if not hasattr(module, name):
        raise UnsupportedError(f"aiter {version} has no {module.__name__}.{name}")
    return getattr(module, name)


def _put_back(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _hash_contents(value: str) -> str:
    """Returns 'set, contents <hash>' for paths of files; 'set, a folder' or 'set, not readable' if one is no file."""
    digest = hashlib.sha256()
    for part in value.split(os.pathsep):
        path = Path(part)
        if path.is_file():
            digest.update(path.read_bytes())
        elif not path.is_dir():
            return "set, not readable"
        else:
            return "set, a folder"
    return f"set, contents {digest.hexdigest()[:12]}"
