"""The top level of the repository holds what its users were promised, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

REQUIRED = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "baselines",
    "benchmarks",
    "conftest.py",
    "docs",
    "kernels",
    "pyproject.toml",
    "pytest_attnperf",
    "suites",
    "tests",
}
OPTIONAL = {".github", ".gitattributes", "CONTRIBUTING.md", "SECURITY.md", "examples"}

GENERATED = {
    ".attnperf",
    ".benchmarks",
    ".git",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "build",
    "dist",
}
"""Left out where there is no git to say what is ignored (a tarball, a container)."""


def top_level(root: Path) -> set[str]:
    """Names under the root that are, or would be, in the repository."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    if (root / ".git").exists():
        try:
            listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        except (FileNotFoundError, subprocess.CalledProcessError):
            pass  # no git, or one that refuses another user's checkout: the folder itself is looked at
        else:
            return {name.partition("/")[0] for name in listed if (root / name).exists()}
    return {path.name for path in root.iterdir()} - GENERATED


def root_problems(root: Path) -> list[str]:
    """What is at the top level and should not be, and what is missing there."""
    present = top_level(root)
    strange = [f"{name} does not belong at the top level" for name in sorted(present - REQUIRED - OPTIONAL)]
    return strange + [f"{name} is missing at the top level" for name in sorted(REQUIRED - present)]


def _fill(root: Path, names: set[str]) -> None:
    for name in names:
        (root / name).write_text("")


def test_root_holds_what_was_promised() -> None:
    """Every promised file and folder is at the top level, and no other."""
    assert root_problems(ROOT) == []


@pytest.mark.parametrize("with_git", [True, False])
def test_strange_and_missing_files_are_found(tmp_path: Path, with_git: bool) -> None:
    """A stray file and a missing one are both named, with git and without."""
    _fill(tmp_path, (REQUIRED | {"notes.txt"}) - {"LICENSE"})
    if with_git:
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert root_problems(tmp_path) == [
        "notes.txt does not belong at the top level",
        "LICENSE is missing at the top level",
    ]


def test_ignored_files_are_left_out(tmp_path: Path) -> None:
    """With git, what .gitignore names is no finding; without, what our tools generate is none."""
    _fill(tmp_path, REQUIRED | {"scratch.lock"})
    (tmp_path / ".venv").mkdir()
    assert root_problems(tmp_path) == ["scratch.lock does not belong at the top level"]
    (tmp_path / ".gitignore").write_text("*.lock\n.venv/\n")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert root_problems(tmp_path) == []
