"""Files with cases that another tree has and the working tree does not: where a new case may have come from."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from pytest_attnperf.workers.launch import LaunchPlan

FIXTURES = frozenset({"attnperf", "code_object"})
"""A test is a case by asking for one of these by name."""


def vanished_files(plan: LaunchPlan, root: Path) -> tuple[str, ...]:
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
    return tuple(sorted(name for name, path in gone.items() if _holds_cases(path)))


def _test_files(chosen: Path, plan: LaunchPlan) -> Iterator[str]:
    """Of a folder what its name makes a test file; a file that was named itself is one."""
    if chosen.is_file():
        yield str(chosen)
    for folder, folders, files in os.walk(chosen):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_environment(Path(folder, name))]
        yield from (str(Path(folder, name)) for name in files if any(fnmatch(name, one) for one in plan.patterns))


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file()


def _holds_cases(path: Path) -> bool:
    """Whether a function in the file takes one of our fixtures; a file that is no Python holds none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any(FIXTURES & {argument.arg for argument in function.args.args} for function in functions)
