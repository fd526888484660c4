from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.workers.tree_state import TreeState, list_uncommitted_sources, mark_dirty, read_tree_state

if TYPE_CHECKING:
    from pathlib import Path

    from tests.workers.conftest import GitRepository


def test_changed_and_removed_files_make_a_tree_dirty(repository: GitRepository) -> None:
    """Tracked files that differ are named, staged or not, above the project's folder too; new files and baselines do
    not count, in a folder whose name git could read as a pattern either."""
    commit = repository.commit(**{"kernel.py": "", "project/a.py": "", "project/[b]/x.json": "", "project/gone.py": ""})
    root = repository.path / "project"
    assert read_tree_state(root, "[b]") == TreeState(commit[:12])
    repository.write(**{"project/[b]/x.json": "{}", "project/new.py": "", "new.py": ""})
    assert read_tree_state(root, "[b]").name == commit[:12]
    repository.write(**{"kernel.py": "1", "project/a.py": "2"})
    (root / "gone.py").unlink()
    repository.git("add", "kernel.py")
    state = read_tree_state(root, "[b]")
    assert sorted(state.changed) == ["kernel.py", "project/a.py", "project/gone.py"]
    assert state.name == f"{commit[:12]}+dirty"
    assert "project/[b]/x.json" in read_tree_state(root, "b").changed


def test_without_git_the_tree_is_unknown(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a repository, in one without a commit, and where git is missing."""
    (tmp_path / "elsewhere").mkdir()
    assert read_tree_state(tmp_path / "elsewhere", "baselines") == TreeState("unknown")
    assert read_tree_state(repository.path, "baselines") == TreeState("unknown")
    repository.commit(**{"a.py": ""})
    monkeypatch.setenv("PATH", "")
    assert read_tree_state(repository.path, "baselines") == TreeState("unknown")


def test_loaded_files_that_git_lacks(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were loaded and never added are found, in a project's folder by their paths in it; ignored ones, as
    builds make them, and files that nothing loaded are not. Without git none is."""
    repository.commit(**{".gitignore": "built.py\n", "project/old.py": ""})
    repository.write(**{"project/new.py": "", "project/built.py": "", "project/unread.py": "", "loose.py": ""})
    loaded = [{"old.py", "new.py"}, {"built.py", "new.py", "loose.py"}]
    assert list_uncommitted_sources(repository.path / "project", loaded) == ["new.py"]
    assert list_uncommitted_sources(tmp_path, loaded) == []
    monkeypatch.setenv("PATH", "")
    assert list_uncommitted_sources(repository.path / "project", loaded) == []


def test_a_dirty_tree_is_marked_once() -> None:
    """A commit gets '+dirty'; one that has it, or an unknown one, stays."""
    assert [mark_dirty(name) for name in ("4f2c", "4f2c+dirty", "unknown")] == ["4f2c+dirty", "4f2c+dirty", "unknown"]
