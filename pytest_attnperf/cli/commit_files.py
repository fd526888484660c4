"""Says how to commit files that a command wrote."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

GIT_SECONDS = 20.0


def format_commit(paths: Sequence[Path], message: str) -> str:
    """Returns the command that commits these files with this message, or where they are stored if git does not take
    them; a line without its end. `message` must be one line."""
    files = " ".join(shlex.quote(str(path)) for path in paths)
    if not can_be_added(paths):
        return f"stored in {files}, which is not under version control"
    return f"commit it: git add {files} && git commit -m {shlex.quote(message)}"


def can_be_added(paths: Sequence[Path], run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> bool:
    """Returns whether `git add` takes the files: it refuses ignored ones, and there must be a repository and a git.
    Tests replace `run`."""
    command = ["git", "check-ignore", "--", *map(str, paths)]
    try:
        answer = run(command, capture_output=True, text=True, errors="replace", timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 1
