"""What situations are made with: a project in the state in which a run, or a command, prints what to type next."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from pytest_attnperf.testing.project import FakeProject

IGNORED = ".attnperf/\n__pycache__/\n.pytest_cache/\n"
Arrange = Callable[[FakeProject], str]

SITUATIONS: dict[str, Arrange] = {}
"""By name: makes the project, and returns what its last command printed."""


def situation(arrange: Arrange) -> Arrange:
    """Lists a situation by the name of its function."""
    SITUATIONS[arrange.__name__] = arrange
    return arrange


def git(project: FakeProject, *words: str) -> str:
    """Runs git as nobody in particular."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", *who, *words], cwd=project.path, env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def commit_all(project: FakeProject, message: str) -> None:
    """Commits every file, in a repository that is made first where there is none."""
    if not (project.path / ".git").exists():
        git(project, "init", "-q", "-b", "main")
        (project.path / ".gitignore").write_text(IGNORED)
    git(project, "add", "-A")
    git(project, "commit", "-qm", message)


def run(project: FakeProject, *words: str) -> str:
    """What `pytest WORDS suites/` prints."""
    return str(project.run(*words).stdout)


def set_time(project: FakeProject, time_us: float, **script: object) -> None:
    """The only backend takes so long."""
    project.backend("fake.a", time_us=time_us, **script)
