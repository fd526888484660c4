"""Which commit a working tree is of, and which of its files that commit does not have as they are.

Baselines do not count: to record one suite after another changes their files, and nothing that is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.baselines.schema import COMMIT_DIGITS
from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.revisions import Repository

UNKNOWN = "unknown"
DIRTY = "+dirty"
"""Follows the commit in the name of a tree that differs from it."""


@dataclass(frozen=True)
class TreeState:
    """A working tree's commit, 'unknown' without git history, and the tracked files that differ from it."""

    commit: str
    changed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The commit, with '+dirty' appended if files differ."""
        return mark_dirty(self.commit) if self.changed else self.commit


def read_tree_state(root: Path, baselines: str) -> TreeState:
    """Returns the state of the repository around `root`; its folder of `baselines`, relative to `root`, does not count.
    Without git, or where git fails, the commit is 'unknown'."""
    repository = Repository.find_around(root)
    if repository is None:
        return TreeState(UNKNOWN)
    try:
        commit = repository.commit_of("HEAD")[:COMMIT_DIGITS]
        return TreeState(commit, tuple(repository.list_uncommitted(root / baselines)))
    except UsageError:
        return TreeState(UNKNOWN)


def list_uncommitted_sources(root: Path, loaded: Iterable[Collection[str]]) -> list[str]:
    """Returns the files that were loaded, by any of these collections of paths relative to `root`, and that git would
    add but does not have. Ignored files, which builds make, are none. Empty where git fails."""
    repository = Repository.find_around(root)
    try:
        added = set[str]() if repository is None else set(repository.list_untracked(root))
    except UsageError:
        return []
    return sorted(added.intersection(path for files in loaded for path in files))


def mark_dirty(commit: str) -> str:
    """Returns the name of a tree that differs from its commit: '4f2c1ab90d11+dirty'; 'unknown' stays."""
    return commit if commit == UNKNOWN or commit.endswith(DIRTY) else commit + DIRTY
