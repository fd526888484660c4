"""An environment that a user names, and what is installed there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.environments import asked_inside
from pytest_attnperf.workers.launch import SCRUBBED

ADDS = "+"
"""Between an interpreter and a folder that is first on its path."""

LIST_SECONDS = 120.0
TAIL_CHARACTERS = 400
PYTHONS = ("bin/python", "bin/python3", "Scripts/python.exe")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9.+!_-]{0,80}")
EXACT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?\s*===?\s*[^\s,;)*]+\s*\)?\s*(?:;(.*))?$")
"""A requirement of one exact version: 'triton==3.6.0; platform_system == "Linux"'."""


@dataclass(frozen=True)
class PythonEnvironment:
    """An interpreter, with folders that are first on its import path.

    python    absolute path; links are kept, because they lead to its virtual environment
    folders   absolute paths
    """

    text: str
    python: Path
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True)
class InstalledPackage:
    """One distribution of an environment. `name` is normalised; `exact` has the names that it requires in one version.

    entries       packages and modules that it consists of, relative to `folder`: 'triton', 'nvidia/cudnn', 'six.py'
    metadata      name of its folder .dist-info, '' without one
    digest        tells two builds of one version apart
    is_whole      whether its files are known, and links to them have the same effect
    """

    name: str
    version: str
    folder: Path
    exact: frozenset[str] = frozenset()
    entries: tuple[str, ...] = ()
    metadata: str = ""
    digest: str = ""
    is_compiled: bool = False
    is_whole: bool = True

    @property
    def modules(self) -> tuple[str, ...]:
        """Names by which its entries are imported: 'nvidia.cudnn', 'six'."""
        stems = (entry.split("/") for entry in self.entries)
        return tuple(".".join([*parts[:-1], parts[-1].partition(".")[0]]) for parts in stems)

    def is_same(self, other: InstalledPackage | None) -> bool:
        """Returns whether both are one version with the same files, as far as is known."""
        return other is not None and (self.version, self.digest) == (other.version, other.digest)


@dataclass(frozen=True)
class Inventory:
    """What is installed in an environment; `tag` names the interpreter's binary interface, e.g. 'cpython-311'."""

    environment: PythonEnvironment
    python: str
    tag: str
    packages: Mapping[str, InstalledPackage]

    def is_added(self, package: InstalledPackage) -> bool:
        """Returns whether a package lies in one of the folders that were added to the interpreter's path."""
        return any(package.folder.is_relative_to(folder) for folder in self.environment.folders)


def parse_environment(text: str, cwd: Path, option: str) -> PythonEnvironment:
    """Parses ENV: a virtual environment's folder or an interpreter, and with '+DIR' folders that come first on its
    path. Raises UsageError, naming `option`, for anything else, and for a command: its packages cannot be swapped."""
    first, *more = _split_text(text, cwd)
    python = _find_python(first, cwd)
    if python is None:
        if len(first.split()) > 1:
            raise UsageError(
                f"{option}={text} is a command: packages behind a command (a container) cannot be swapped. Compare "
                f"both as wholes: pytest --attnperf --attnperf-interleave=all --attnperf-against=COMMAND "
                f"--attnperf-candidate=COMMAND (docs/containers.md), or give {option} a virtual environment"
            )
        raise UsageError(
            f"{option}={text}: {_absolute(first, cwd)} is neither a virtual environment (a folder with bin/python) nor "
            f"an interpreter; give one, or PYTHON{ADDS}DIR for an interpreter with DIR first on its path"
        )
    folders = tuple(_absolute(folder, cwd) for folder in more)
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{option}={text}: {folder} is no folder; behind {ADDS} stands a folder with packages")
    return PythonEnvironment(text, python, folders)


def _split_text(text: str, cwd: Path) -> list[str]:
    """Splits at each '+', but not inside the name of something that exists."""
    found: list[str] = []
    for part in text.split(ADDS):
        joined = f"{found[-1]}{ADDS}{part}" if found else part
        if found and (not found[-1] or _absolute(joined, cwd).exists()):
            found[-1] = joined
        else:
            found.append(part)
    return found


def _find_python(text: str, cwd: Path) -> Path | None:
    path = _absolute(text, cwd)
    if path.is_dir():
        return next((path / name for name in PYTHONS if (path / name).is_file()), None)
    if not path.is_file() and "/" not in text and (found := shutil.which(text)):
        path = Path(os.path.abspath(found))
    return path if path.is_file() and os.access(path, os.X_OK) else None


def _absolute(text: str, cwd: Path) -> Path:
    return Path(os.path.abspath(os.path.join(cwd, os.path.expanduser(text))))


def import_path(folders: Sequence[Path], environ: Mapping[str, str]) -> str:
    """Returns PYTHONPATH with the folders before its present entries."""
    inherited = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join([*map(str, folders), *inherited])


def list_packages(environment: PythonEnvironment, scratch: Path) -> Inventory:
    """Asks an environment's interpreter what is installed. Raises UsageError if it does not answer."""
    source = Path(asked_inside.__file__).read_text(encoding="utf-8")
    given = json.dumps([str(folder) for folder in environment.folders])
    command = [str(environment.python), "-c", source, asked_inside.LIST, given]
    environ = {name: value for name, value in os.environ.items() if name not in SCRUBBED}
    environ.update(PYTHONPATH=import_path(environment.folders, os.environ), PYTHONDONTWRITEBYTECODE="1")
    try:
        ended = subprocess.run(
            command, cwd=scratch, env=environ, capture_output=True, timeout=LIST_SECONDS, check=False,
            stdin=subprocess.DEVNULL, text=True, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{environment.text}: {environment.python} could not list its packages: {error}") from error
    lines = [line for line in ended.stdout.splitlines() if line.startswith(asked_inside.MARK)]
    if ended.returncode or not lines:
        tail = ended.stderr.strip()[-TAIL_CHARACTERS:]
        raise UsageError(
            f"{environment.text}: {environment.python} could not list its packages, exit status {ended.returncode}: "
            f"{tail or 'it printed nothing'}; Python 3.10 or later is needed"
        )
    return read_listing(environment, json.loads(lines[-1].removeprefix(asked_inside.MARK)))


def read_listing(environment: PythonEnvironment, listing: Mapping[str, Any]) -> Inventory:
    """Returns a listing's packages. What has a name or version that no distribution may have is left out: they are
    printed."""
    packages = {}
    for name, one in listing["packages"].items():
        if NAME.fullmatch(name) and VERSION.fullmatch(one["version"]):
            packages[name] = InstalledPackage(
                name,
                one["version"],
                Path(one["folder"]),
                frozenset(filter(None, map(read_exact_requirement, one["requires"]))),
                tuple(entry for entry in one["entries"] if _is_safe_entry(entry)),
                one["metadata"],
                one["digest"],
                one["is_compiled"],
                one["is_whole"],
            )
    return Inventory(environment, listing["python"], listing["tag"], packages)


def read_exact_requirement(text: str) -> str:
    """Returns the normalised name that a requirement asks for in exactly one version, 'triton' of 'triton==3.6.0'; ''
    for any other requirement, and for one of an extra."""
    found = EXACT.match(text)
    if found is None or "extra" in (found[2] or ""):
        return ""
    return re.sub(r"[-_.]+", "-", found[1]).lower()


def _is_safe_entry(entry: str) -> bool:
    parts = entry.split("/")
    return bool(entry) and not entry.startswith("/") and not {"", ".", ".."}.intersection(parts)
