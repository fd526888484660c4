"""Proves which code a process runs: each side its own files, and the package's own code for judging and timing.

Files of the repository are listed with content hashes. A suite must not replace code that judges or measures: a
conftest that replaces a reference, a comparison or a timer makes every verdict worthless. It often happens by mistake,
when a fixture patches a function for its own tests and the patch stays for the whole process.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest_attnperf

HARNESS = "pytest_attnperf"

ROOMS = ("correctness", "measure", "stats", "workloads")
"""Rooms of the package whose code judges and measures."""

_PACKAGE = Path(pytest_attnperf.__file__).resolve().parent

_PREFIXES = tuple(f"{pytest_attnperf.__name__}.{room}" for room in ROOMS)

JUDGING = {
    "torch": ("equal", "stack", "where", "full_like", "empty_like", "clone", "isnan", "no_grad", "inference_mode"),
    "torch.linalg": ("vector_norm",),
    "torch.cuda": ("synchronize", "current_stream", "Event", "CUDAGraph", "graph", "is_current_stream_capturing"),
    "torch.cuda.Event": ("elapsed_time", "record", "synchronize", "wait", "query"),
    "torch.cuda.CUDAGraph": ("replay", "capture_begin", "capture_end"),
}
"""Functions of torch that judge and measure, by the module or class that has them."""

_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)

Place = tuple[Mapping[str, Any], str, Any]
"""Where a function or class is found: (namespace, name, value)."""


def loaded_sources(root: Path, modules: Mapping[str, ModuleType] | None = None) -> tuple[dict[str, str], list[str]]:
    """Returns hashes of the repository's loaded files, and modules of the repository that were loaded from elsewhere.

    Returns ({path relative to root: SHA-256}, ['module kernels.x was loaded from PATH, not from ROOT', ...]), one line
    for each such package. The harness is left out, because every side runs that of the working tree. Installed packages
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
        path = _resolve_file(file)
        if _is_in_repository(path, root):
            hashes[path.relative_to(root).as_posix()] = _hash_file(path, path.stat().st_mtime_ns)
        elif _is_repository_package(root, top) and not path.is_relative_to(root):
            foreign.setdefault(top, []).append(f"module {name} was loaded from {path}, not from {root}")
    for library in _mapped_libraries():
        if _is_in_repository(library, root):
            hashes[library.relative_to(root).as_posix()] = _hash_file(library, library.stat().st_mtime_ns)
    return hashes, [
        first + (f", and so were {len(more)} more of {top}" if more else "") for top, (first, *more) in foreign.items()
    ]


@functools.lru_cache(maxsize=1 << 15)
def _resolve_file(file: str) -> Path:
    """Resolves the links of a path, cached by file and folder: a worker checks thousands of modules after every case,
    which took 0.1 s without a cache.
    """
    folder, name = os.path.split(file)
    path = os.path.join(_resolve_folder(folder), name)
    return Path(os.path.realpath(path) if os.path.islink(path) else path)


@functools.lru_cache(maxsize=1 << 13)
def _resolve_folder(folder: str) -> str:
    return os.path.realpath(folder)


@functools.lru_cache(maxsize=1 << 15)
def _is_in_repository(path: Path, root: Path) -> bool:
    if not path.is_relative_to(root) or not path.is_file():
        return False
    parts = path.relative_to(root).parts
    return not any(part.startswith(".") or part == "site-packages" for part in parts)


@functools.lru_cache(maxsize=256)
def _is_repository_package(root: Path, top: str) -> bool:
    """Returns whether the folder `top` is a package of the repository, not only tests of an installed package."""
    return any(
        not (file.name.startswith("test_") or file.name == "conftest.py") for file in (root / top).glob("**/*.py")
    )


@functools.lru_cache(maxsize=4096)
def _hash_file(path: Path, _mtime_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _mapped_libraries() -> Iterable[Path]:
    """Returns the .so files mapped into this process, sorted: extensions are code, too. [] without /proc."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    names = {line.split(maxsplit=5)[5] for line in lines if line.rstrip().endswith(".so")}
    return [Path(name) for name in sorted(names)]


class OwnCode:
    """Checks that functions and classes of ROOMS are the package's own; remembers each from the first check on."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Place]] = {}

    def find_problem(self) -> str:
        """Returns a message that names the first function, class or module of this package, or function of torch that
        judges, that other code has replaced in this process, and by what; '' if none is."""
        for name, module in list(sys.modules.items()):
            if not name.startswith(_PREFIXES):
                continue
            places = self._seen.get(name)
            found = self._check_first(name, module) if places is None else self._find_replaced(name, places)
            if found:
                return found
        return self._find_replaced_in_torch()

    def _find_replaced_in_torch(self) -> str:
        """Returns what `find_problem` does, for functions of JUDGING and for methods of torch's tensors. What an
        installed library has replaced does not count: some do so for every user."""
        if "torch" not in sys.modules:
            return ""
        for place, names in JUDGING.items():
            owner: Any = functools.reduce(lambda held, part: getattr(held, part, None), place.split(".")[1:], _torch())
            for name in names:
                if _is_users(other := self._find_other_code(getattr(owner, name, None))):
                    return _describe_replacement(f"{place}.{name}", other)
        tensor: Any = getattr(_torch(), "Tensor", None)
        for name, value in () if tensor is None else vars(tensor).items():
            if hasattr(tensor.__base__, name) and _is_users(other := self._find_other_code(value)):
                return _describe_replacement(f"torch.Tensor.{name}", other)
        return ""

    def _check_first(self, name: str, module: ModuleType) -> str:
        file = str(getattr(module, "__file__", "") or "")
        if not _is_own(file):
            return _describe_replacement(name, file or "a module without a file")
        places = list(self._list_places(module))
        for namespace, attribute, value in places:
            if other := self._find_other_code(value):
                return _describe_replacement(f"{name}.{_qualified_name(namespace, attribute)}", other)
        self._seen[name] = places
        return ""

    def _find_replaced(self, name: str, places: list[Place]) -> str:
        for namespace, attribute, value in places:
            if (now := namespace.get(attribute)) is not value:
                other = self._find_other_code(now) or repr(now)[:80]
                return _describe_replacement(f"{name}.{_qualified_name(namespace, attribute)}", other)
        return ""

    def _list_places(self, module: ModuleType) -> Iterator[Place]:
        for name, value in vars(module).items():
            if isinstance(value, (FunctionType, type, functools.partial)) or hasattr(value, "__wrapped__"):
                yield vars(module), name, value
            if isinstance(value, type) and value.__module__ == module.__name__:
                for attribute, member in vars(value).items():
                    if _find_function(member) is not None:
                        yield vars(value), attribute, member

    def _find_other_code(self, value: Any) -> str:
        """Returns where a function ('file:line') or class (its file) is defined, if that is neither in this package nor
        in a library; else ''."""
        if isinstance(value, type):
            file = str(getattr(sys.modules.get(value.__module__), "__file__", None) or "<built in>")
            return "" if file.startswith(("<", *_LIBRARIES)) or _is_own(file) else file
        function = _find_function(value)
        if function is None:
            return ""
        file = function.__code__.co_filename
        if file.startswith("<"):  # made by dataclasses and named tuples
            file = str(function.__globals__.get("__file__", "<frozen"))
        if _is_own(file) or file.startswith(("<frozen", *_LIBRARIES)):
            return ""
        return f"{file}:{function.__code__.co_firstlineno}"


def _torch() -> Any:
    return sys.modules["torch"]


def _is_users(place: str) -> bool:
    """Returns whether 'file:line' is neither torch's, wherever that was built, nor of an installed library."""
    parts = Path(place).parts
    return bool(place) and not place.startswith(str(Path(_torch().__file__).parent)) and "site-packages" not in parts


@functools.cache
def _is_own(file: str) -> bool:
    """Returns whether a file, with links resolved, belongs to this package, which workers import through a link."""
    return Path(file).resolve().is_relative_to(_PACKAGE)


def _find_function(value: Any) -> FunctionType | None:
    """Returns the Python function in a method, property, partial or decorated function, or None."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    return value if isinstance(value, FunctionType) else None


def _qualified_name(namespace: Mapping[str, Any], attribute: str) -> str:
    """Returns 'Class.attribute' if the namespace is a class's, else the attribute."""
    owner = next((str(value.__qualname__).rsplit(".", 1)[0] for value in namespace.values() if _is_method(value)), "")
    return f"{owner}.{attribute}" if owner and "__name__" not in namespace else attribute


def _is_method(value: Any) -> bool:
    return isinstance(value, FunctionType) and "." in value.__qualname__


def _describe_replacement(name: str, by: str) -> str:
    return (
        f"{name} was replaced by {by}: judging and measuring must use the package's own code, and torch's. Remove the "
        "replacement; to add a workload, a backend or a reference, register your own"
    )
