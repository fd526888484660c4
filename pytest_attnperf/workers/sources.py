"""Which files of the repository a process has loaded, by content: the proof that a side ran its own code."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

HARNESS = "pytest_attnperf"


def loaded_sources(root: Path, modules: Mapping[str, ModuleType] | None = None) -> tuple[dict[str, str], list[str]]:
    """Hashes of the repository's loaded files, and modules that should be the repository's but are not.

    Returns ({path relative to root: SHA-256}, ['module kernels.x was loaded from PATH, not from ROOT', ...]), one line
    for each such package. The harness itself is left out: it is the working tree's on every side. Installed packages
    inside the tree (a virtual environment) and hidden folders are left out.
    """
    root = root.resolve()
    hashes: dict[str, str] = {}
    foreign: dict[str, list[str]] = {}
    for name, module in sorted((sys.modules if modules is None else modules).items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if top == HARNESS or not isinstance(file, str):
            continue
        path = _resolved(file)
        if _belongs(path, root):
            hashes[path.relative_to(root).as_posix()] = _digest(path, path.stat().st_mtime_ns)
        elif _is_repository_package(root, top) and not path.is_relative_to(root):
            foreign.setdefault(top, []).append(f"module {name} was loaded from {path}, not from {root}")
    for library in _mapped_libraries():
        if _belongs(library, root):
            hashes[library.relative_to(root).as_posix()] = _digest(library, library.stat().st_mtime_ns)
    return hashes, [
        first + (f", and so were {len(more)} more of {top}" if more else "") for top, (first, *more) in foreign.items()
    ]


@functools.lru_cache(maxsize=1 << 15)
def _resolved(file: str) -> Path:
    """A worker has thousands of modules and is asked after every case; following links each time took 0.1 s."""
    return Path(file).resolve()


@functools.lru_cache(maxsize=1 << 15)
def _belongs(path: Path, root: Path) -> bool:
    if not path.is_relative_to(root) or not path.is_file():
        return False
    parts = path.relative_to(root).parts
    return not any(part.startswith(".") or part == "site-packages" for part in parts)


@functools.lru_cache(maxsize=256)
def _is_repository_package(root: Path, top: str) -> bool:
    """Whether a folder holds more than the tests of an installed package that it is called like."""
    return any(
        not (file.name.startswith("test_") or file.name == "conftest.py") for file in (root / top).glob("**/*.py")
    )


@functools.lru_cache(maxsize=4096)
def _digest(path: Path, _mtime_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _mapped_libraries(maps: Path = Path("/proc/self/maps")) -> Iterable[Path]:
    """Shared objects mapped into this process: a compiled extension is code too."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return []
    names = {line.split(maxsplit=5)[5] for line in lines if line.rstrip().endswith(".so")}
    return [Path(name) for name in sorted(names)]
