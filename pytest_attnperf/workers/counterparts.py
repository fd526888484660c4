"""Finds the counterparts of a suite in another tree: its files, its pytest settings, and files that are gone here."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.launch import LaunchPlan

CONFIG_FILES = {
    "pytest.toml": "",
    ".pytest.toml": "",
    "pytest.ini": "",
    ".pytest.ini": "",
    "pyproject.toml": "[tool.pytest",
    "tox.ini": "[pytest]",
    "setup.cfg": "[tool:pytest]",
}
"""File in which pytest looks for settings, in its order -> text that the file must contain to count."""

FIXTURES = frozenset({"attnperf", "code_object"})
"""A test that uses one of these fixtures is a case or compiles a kernel."""


def relative_files(plan: LaunchPlan) -> list[str]:
    """Returns the plan's test files relative to its rootdir, without those outside it."""
    return [name for file in plan.files if (name := _relative_path(file, plan.rootdir)) is not None]


def find_missing_files(plan: LaunchPlan, root: Path) -> tuple[str, ...]:
    """Returns the plan's test files that `root` does not have, relative to the rootdir; as given if outside it."""
    names = [_relative_path(file, plan.rootdir) for file in plan.files]
    return tuple(
        str(file) if name is None else name
        for file, name in zip(plan.files, names, strict=True)
        if name is None or not (root / name).is_file()
    )


def refuse_without_suite(missing: Sequence[str], where: str, hint: str = "") -> None:
    """Always raises UsageError: the tree `where` has none of the files `missing`. `hint` ends the message."""
    raise UsageError(f"{where} lacks the suite: {_join_files(missing)} is not there{hint}")


def has_folder_of_suite(plan: LaunchPlan, root: Path) -> bool:
    """Returns whether `root` has a folder of the plan's test files: then it may be an older tree of this project."""
    folders = {Path(name).parent for name in relative_files(plan)}
    return any((root / folder).is_dir() for folder in folders)


def _join_files(names: Sequence[str]) -> str:
    return f"{names[0]}, nor any other of {len(names)} files," if len(names) > 1 else "".join(names)


def _relative_path(file: str, rootdir: Path) -> str | None:
    """Returns a file's path relative to the rootdir; None if it is outside, where it has no counterpart."""
    path, root = Path(os.path.abspath(rootdir / file)), Path(os.path.abspath(rootdir))
    if not path.is_relative_to(root):
        path, root = path.resolve(), root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def config_file(plan: LaunchPlan, root: Path) -> Path:
    """Returns pytest's settings file for the tree `root`: the counterpart of `plan.config_file`, else the one pytest
    would find. A file outside the plan's tree is returned unchanged.

    Without any it is /dev/null, because pytest would search the folders above the tree.
    """
    if plan.config_file is not None:
        name = _relative_path(str(plan.config_file), plan.rootdir)
        if name is None:
            return plan.config_file
        if _has_settings(root / name, CONFIG_FILES.get(name, "")):
            return root / name
    found = (root / name for name, mark in CONFIG_FILES.items() if _has_settings(root / name, mark))
    return next(found, Path(os.devnull))


def _has_settings(path: Path, mark: str) -> bool:
    return path.is_file() and mark in path.read_text(errors="replace")


def find_vanished_files(plan: LaunchPlan, root: Path) -> tuple[str, ...]:
    """Returns files with cases under `root` that this run would select, but that are not in the plan's tree.

    The files are only read, not run. Paths are relative to the rootdir and sorted.
    """
    found: set[str] = set()
    top = plan.rootdir.resolve()
    for chosen in plan.selected:
        if chosen.is_relative_to(top):
            found.update(_test_files(root / chosen.relative_to(top), plan))
    names = {Path(path).relative_to(root).as_posix(): Path(path) for path in found}
    gone = {name: path for name, path in names.items() if not (plan.rootdir / name).exists()}
    return tuple(sorted(name for name, path in gone.items() if _has_cases(path)))


def _test_files(chosen: Path, plan: LaunchPlan) -> Iterator[str]:
    """Yields the paths of test files in the folder `chosen`, by the plan's name patterns; hidden folders and virtual
    environments are skipped. If `chosen` is a file, yields it whatever its name."""
    if chosen.is_file():
        yield str(chosen)
    for folder, folders, files in os.walk(chosen):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_environment(Path(folder, name))]
        yield from (str(Path(folder, name)) for name in files if any(fnmatch(name, one) for one in plan.patterns))


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file()


def _has_cases(path: Path) -> bool:
    """Returns whether a function in the file takes one of FIXTURES, the fixtures by which a test is a case; False for a
    file that cannot be read or is not valid Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any(FIXTURES & {argument.arg for argument in function.args.args} for function in functions)
