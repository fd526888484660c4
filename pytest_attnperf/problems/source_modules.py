"""Python code that stands in a JSON file, as modules: one package for each definition or solution.

A module's `__file__` is the JSON file, which a run therefore counts among the sources of its cases. Tracebacks, and
Triton, which reads the source of a kernel, find each line under '<the file>/<the source's path>'.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import UsageError, propose_name


@dataclass(frozen=True)
class _Source:
    """The code of a module, '' for a folder; `file` is the JSON file that holds it, `shown` its name in tracebacks."""

    code: str
    file: str
    shown: str
    is_package: bool


class SourceImporter:
    """Finds and loads the modules of packages that were added: an entry of `sys.meta_path`."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}

    def add(self, package: str, file: Path, sources: Mapping[str, str]) -> None:
        """Adds a package of these sources: path of a Python file, e.g. 'lib/main.py' -> its code."""
        for path, code in sources.items():
            *folders, name = Path(path).with_suffix("").parts
            for depth in range(len(folders) + 1):
                inner = ".".join((package, *folders[:depth]))
                self._sources.setdefault(inner, _Source("", str(file), f"{file}/", is_package=True))
            is_package = name == "__init__"
            module = ".".join((package, *folders, *(() if is_package else (name,))))
            self._sources[module] = _Source(code, str(file), f"{file}/{path}", is_package)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Returns how to load an added module; None for any other."""
        source = self._sources.get(name)
        if source is None:
            return None
        return ModuleSpec(name, self, origin=source.file, is_package=source.is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves making the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module's code."""
        source = self._sources[module.__name__]
        module.__file__ = source.file
        lines = source.code.splitlines(keepends=True)
        # Without a time of the file, so that nobody drops the lines because no such file is on the disk.
        linecache.cache[source.shown] = (len(source.code), None, lines, source.shown)
        exec(compile(source.code, source.shown, "exec"), vars(module))


IMPORTER = SourceImporter()


def load_function(kind: str, name: str, file: Path, sources: Mapping[str, str], entry: str) -> Callable[..., Any]:
    """Imports the source `entry` ('main.py::run') of a package of these sources, and returns its function. Raises what
    the code raises, and UsageError if it has no such function.

    kind, name   what the package is called, with a hash of its sources: the same name in every process
    """
    if IMPORTER not in sys.meta_path:
        sys.meta_path.append(IMPORTER)
    path, _, function = entry.partition("::")
    digest = hashlib.sha256(repr(sorted(sources.items())).encode(errors="backslashreplace")).hexdigest()[:8]
    package = f"{kind}_{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}"
    IMPORTER.add(package, file, {one: code for one, code in sources.items() if one.endswith(".py")})
    module = importlib.import_module(".".join((package, *Path(path).with_suffix("").parts)))
    found = getattr(module, function, None)
    if not callable(found):
        own = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise UsageError(f"{kind} {name!r} has no function {function!r}{propose_name(function, own)} in {path}")
    result: Callable[..., Any] = found
    return result


def clean_name(name: str) -> str:
    """Returns a foreign name with '_' for everything that a test's id or a backend's name may not have."""
    return re.sub(r"[^A-Za-z0-9_.+]", "_", name) or "_"
