"""What another tree holds of this run's suite: its files, its pytest settings, and cases that this tree has no more."""

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
"""Where pytest looks for its settings, in its order, and what a file must hold to count."""

FIXTURES = frozenset({"attnperf", "code_object"})
"""A test is a case by asking for one of these by name."""


def relative_files(plan: LaunchPlan) -> list[str]:
    """The plan's files relative to its rootdir, without those outside it."""
    return [name for file in plan.files if (name := _relative_path(file, plan.rootdir)) is not None]


def find_missing_files(plan: LaunchPlan, root: Path) -> tuple[str, ...]:
    """Files of the suite that are not under `root`."""
    names = [_relative_path(file, plan.rootdir) for file in plan.files]
    return tuple(
        str(file) if name is None else name
        for file, name in zip(plan.files, names, strict=True)
        if name is None or not (root / name).is_file()
    )


def refuse_without_suite(missing: Sequence[str], where: str, hint: str = "") -> None:
    """Raise UsageError: none of these files, the whole suite, is in that tree."""
    raise UsageError(f"{where} lacks the suite: {_join_files(missing)} is not there{hint}")


def has_folder_of_suite(plan: LaunchPlan, root: Path) -> bool:
    """Whether a folder that holds the suite here stands under `root`, too: the tree may be an older one of this."""
    folders = {Path(name).parent for name in relative_files(plan)}
    return any((root / folder).is_dir() for folder in folders)


def _join_files(names: Sequence[str]) -> str:
    return f"{names[0]}, nor any other of {len(names)} files," if len(names) > 1 else "".join(names)


def _relative_path(file: str, rootdir: Path) -> str | None:
    """A suite file relative to the rootdir; None when it lies outside, where no other tree has a counterpart."""
    path, root = Path(os.path.abspath(rootdir / file)), Path(os.path.abspath(rootdir))
    if not path.is_relative_to(root):
        path, root = path.resolve(), root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def config_file(plan: LaunchPlan, root: Path) -> Path:
    """The other tree's own pytest settings: the file that the working tree uses, else the one pytest would find.

    With none, /dev/null: pytest would search the folders above the tree, and take the settings of something else.
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
    """Files under `root` that this run would have selected there, hold cases, and are not in the plan's tree.

    They are read, and nothing of them is run. Relative to the rootdir, sorted.
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
    """Of a folder what its name makes a test file; a file that was named itself is one."""
    if chosen.is_file():
        yield str(chosen)
    for folder, folders, files in os.walk(chosen):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_environment(Path(folder, name))]
        yield from (str(Path(folder, name)) for name in files if any(fnmatch(name, one) for one in plan.patterns))


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file()


def _has_cases(path: Path) -> bool:
    """Whether a function in the file takes one of our fixtures; a file that is no Python holds none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any(FIXTURES & {argument.arg for argument in function.args.args} for function in functions)
