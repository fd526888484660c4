"""Real git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


class GitRepository:
    """A repository in a folder of its own, and git commands on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *args: str, check: bool = True) -> str:
        """Run one git command here; what it printed."""
        command = ["git", "-C", str(self.path), *args]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        assert answer.returncode == 0 or not check, f"{command}: {answer.stderr}"
        return answer.stdout.strip()

    def clone(self, *options: str) -> GitRepository:
        """A clone beside this repository, over the file protocol, so that it can be shallow or partial."""
        path = self.path.with_name("clone")
        self.git("config", "uploadpack.allowFilter", "true")
        self.git("clone", "--quiet", *options, f"file://{self.path}", str(path))
        return GitRepository(path)

    def write(self, **files: str) -> None:
        """Write files. In a keyword `__` stands for '/' and a trailing `_py` for '.py'; a name with a dot is itself."""
        for name, text in files.items():
            path = self.path / (name if "." in name else name.replace("__", "/").replace("_py", ".py"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, message: str = "change", **files: str) -> str:
        """Write files and commit everything; the full commit id."""
        self.write(**files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def files(self) -> dict[str, bytes]:
        """Every file of the working tree and of .git, with its content: what nothing of ours may change."""
        return {str(p.relative_to(self.path)): p.read_bytes() for p in sorted(self.path.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module", autouse=True)
def only_our_plugin(lean_processes: None) -> None:
    """Workers, most of which live for one test."""


@pytest.fixture
def git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """git without this machine's settings, with a name to commit under."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A. Tester")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "tester@example.org")


@pytest.fixture
def repository_in(git_settings: None) -> Callable[[Path], GitRepository]:
    """Make a repository without a commit, on the branch main, in a folder that may exist."""

    def make(path: Path) -> GitRepository:
        path.mkdir(exist_ok=True)
        made = GitRepository(path)
        made.git("init", "--quiet", "--initial-branch=main")
        return made

    return make


@pytest.fixture
def repository(repository_in: Callable[[Path], GitRepository], tmp_path: Path) -> GitRepository:
    """A repository without a commit, on the branch main."""
    return repository_in(tmp_path / "repository")
