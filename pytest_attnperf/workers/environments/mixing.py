"""Puts environments together from two: an interpreter, and folders of links to packages of either.

Neither environment is changed: links lie in a scratch folder that is first on the import path, and no bytecode is
written.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_attnperf
from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.command_plan import MODULE
from pytest_attnperf.workers.environments import asked_inside
from pytest_attnperf.workers.environments.components import NEVER_SWAPPED, REST, Component
from pytest_attnperf.workers.environments.installed import InstalledPackage, Inventory, import_path
from pytest_attnperf.workers.launch import IMPORTED, SCRUBBED

START_SECONDS = 600.0
LIBRARY_PATH = "LD_LIBRARY_PATH"
LIBRARY_FORM = "NAME=OLD:NEW"


@dataclass(frozen=True)
class SwappedLibrary:
    """Native libraries in two folders, of which one is first on LD_LIBRARY_PATH."""

    name: str
    old: Path
    new: Path


def parse_library(text: str, cwd: Path) -> SwappedLibrary:
    """Parses NAME=OLD:NEW of `--library`. Raises UsageError for another form, and for what is no folder."""
    name, equals, folders = text.partition("=")
    old, colon, new = folders.partition(":")
    if not (name.isidentifier() and equals and colon and old and new):
        raise UsageError(f"--library={text} must be {LIBRARY_FORM}, e.g. rccl=/opt/old/lib:/opt/new/lib")
    found = SwappedLibrary(name, *(Path(os.path.abspath(cwd / Path(one).expanduser())) for one in (old, new)))
    for folder in (found.old, found.new):
        if not folder.is_dir():
            raise UsageError(f"--library={text}: {folder} is no folder; both hold the library's files")
    return found


@dataclass
class Mixer:
    """Puts environments together.

    parts       names of what is swapped by itself: components, libraries, and REST, which has everything else
    scratch     folder for links
    rootdir     of the suites
    """

    old: Inventory
    new: Inventory
    components: Sequence[Component]
    scratch: Path
    rootdir: Path
    libraries: Sequence[SwappedLibrary] = ()
    parts: Sequence[str] = ()
    _numbers: dict[frozenset[str], int] = field(default_factory=dict)

    def worker_command(self, mixture: frozenset[str], imported: Path | None = None) -> str:
        """Returns the command that starts a worker in an environment, quoted for `--attnperf-against`. `mixture` has
        the parts with their new version; `imported` is a folder for what the worker imports."""
        from pytest_attnperf.workers.trees import build_folders

        python, environ = self._python_of(mixture), self._make_environ(mixture)
        if imported is not None:
            imported.mkdir(parents=True, exist_ok=True)
            environ[IMPORTED] = str(imported)
        environ |= build_folders(self._folder_of(mixture) / "builds", own_aiter="AITER_JIT_DIR" in os.environ)
        settings = (f"{name}={value}" for name, value in environ.items())
        return shlex.join(["env", *settings, python, "-m", MODULE, "worker", f"--rootdir={self.rootdir}"])

    def find_start_problem(self, mixture: frozenset[str], imports: Iterable[str]) -> str:
        """Starts the environment, imports these modules there and returns what goes wrong, in one line; '' if nothing
        does. It also checks that each linked package is the one that is found."""
        wanted: dict[str, Any] = {"versions": {}, "folders": {}, "imports": list(imports)}
        linked = self._folder_of(mixture) / "site-packages"
        for package in self._list_linked(mixture):
            if package.metadata:
                wanted["versions"][package.name] = package.version
            for module in set(package.modules).intersection(wanted["imports"]):
                wanted["folders"][module] = str(linked)
        source = Path(asked_inside.__file__).read_text(encoding="utf-8")
        command = [self._python_of(mixture), "-c", source, asked_inside.START, json.dumps(wanted)]
        environ = {name: value for name, value in os.environ.items() if name not in SCRUBBED}
        try:
            ended = subprocess.run(
                command, cwd=self.scratch, env=environ | self._make_environ(mixture), stdin=subprocess.DEVNULL,
                capture_output=True, timeout=START_SECONDS, check=False, text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"its imports did not end within {START_SECONDS:.0f} s"
        lines = [line for line in ended.stdout.splitlines() if line.startswith(asked_inside.MARK)]
        if not lines:
            last = ended.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
            return f"its imports ended with {ended.returncode}: {last[0]}"
        return str(json.loads(lines[-1].removeprefix(asked_inside.MARK)))

    def _is_new(self, name: str, mixture: frozenset[str]) -> bool:
        return self._is_whole_new(mixture) or (name if name in self.parts else REST) in mixture

    def _is_whole_new(self, mixture: frozenset[str]) -> bool:
        return bool(mixture) and mixture == frozenset(self.parts)

    def _side_of(self, name: str, mixture: frozenset[str]) -> Inventory:
        """Returns the environment that a component, or the interpreter (REST), is taken from."""
        return self.new if self._is_new(name, mixture) else self.old

    def _python_of(self, mixture: frozenset[str]) -> str:
        return str(self._side_of(REST, mixture).environment.python)

    def _folder_of(self, mixture: frozenset[str]) -> Path:
        """Returns the scratch folder of an environment; numbered, because the names of its parts may be many."""
        if not mixture or self._is_whole_new(mixture):
            return self.scratch / ("new" if mixture else "old")
        return self.scratch / f"mixed-{self._numbers.setdefault(mixture, len(self._numbers))}"

    def _make_environ(self, mixture: frozenset[str]) -> dict[str, str]:
        """Returns the variables that make an environment of its interpreter."""
        bin_folder = Path(self._python_of(mixture)).parent
        environ = {
            "PYTHONPATH": import_path([self._link_harness(), *self._list_folders(mixture)], os.environ),
            "PATH": os.pathsep.join([str(bin_folder), os.environ.get("PATH", os.defpath)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        libraries = [str(one.new if self._is_new(one.name, mixture) else one.old) for one in self.libraries]
        if libraries:
            environ[LIBRARY_PATH] = os.pathsep.join(filter(None, [*libraries, os.environ.get(LIBRARY_PATH)]))
        return environ

    def _list_folders(self, mixture: frozenset[str]) -> tuple[Path, ...]:
        """Returns the folders that come first on the path: the user's own for a whole environment, else one of
        links."""
        if not mixture:
            return self.old.environment.folders
        if self._is_whole_new(mixture):
            return self.new.environment.folders
        folder = self._folder_of(mixture) / "site-packages"
        if not folder.exists():
            folder.mkdir(parents=True)
            for package in self._list_linked(mixture):
                link_package(package, folder)
        return (folder,)

    def _list_linked(self, mixture: frozenset[str]) -> list[InstalledPackage]:
        """Returns the packages that must be linked: those of each component's side that the interpreter itself does
        not have, and what its own folders add."""
        if not mixture or self._is_whole_new(mixture):
            return []
        host = self._side_of(REST, mixture)
        members = {name for one in self.components for name in (*one.old, *one.new)}
        found = [
            package
            for name, package in host.packages.items()
            if name not in members and host.is_added(package) and name not in NEVER_SWAPPED
        ]
        for component in self.components:
            side = self._side_of(component.name, mixture)
            packages = (component.new if side is self.new else component.old).values()
            found += [package for package in packages if side is not host or host.is_added(package)]
        return found

    def _link_harness(self) -> Path:
        folder = self.scratch / "harness"
        link = folder / pytest_attnperf.__name__
        if not link.is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(pytest_attnperf.__file__).resolve().parent, target_is_directory=True)
        return folder


def link_package(package: InstalledPackage, folder: Path) -> None:
    """Links a distribution's entries and its metadata into a folder; parts of a namespace into folders of its name. An
    entry that another distribution has linked stays, and nothing is written behind a link: that is an environment."""
    for entry in (*package.entries, *filter(None, [package.metadata])):
        link = folder / entry
        ours = [parent for parent in link.parents if parent != folder and parent.is_relative_to(folder)]
        if link.is_symlink() or link.exists() or any(parent.is_symlink() for parent in ours):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(package.folder / entry)


def is_same_interpreter(old: Inventory, new: Inventory) -> bool:
    """Returns whether both environments are one interpreter that differs in the added folders only."""
    return old.environment.python == new.environment.python


def read_imported(folder: Path) -> frozenset[str]:
    """Returns the names of all modules that workers wrote into `folder`; none if no worker came to its end."""
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    return frozenset(name for file in files for name in file.read_text(errors="replace").split())
