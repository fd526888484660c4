from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.cli import commit_files
from pytest_attnperf.cli.commit_files import can_be_added, format_commit


def test_git_add_is_named_only_where_git_takes_the_file() -> None:
    """git says by its status that no file is ignored (1), that one is (0), or that there is no repository (128)."""

    def answers(code: int) -> bool:
        return can_be_added([Path("b.json")], lambda command, **_: subprocess.CompletedProcess(command, code, ""))

    def missing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError("git")

    assert [answers(1), answers(0), answers(128), can_be_added([Path("b.json")], missing)] == [True, *[False] * 3]


def test_a_commit_is_proposed_as_it_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and message are quoted for a shell; files that git does not take are only named."""
    paths = [Path("my baselines/a.json"), Path("b.json")]
    monkeypatch.setattr(commit_files, "can_be_added", lambda _: True)
    assert format_commit(paths, "Pool 2 'cases'").startswith("commit it: git add 'my baselines/a.json' b.json && git ")
    monkeypatch.setattr(commit_files, "can_be_added", lambda _: False)
    assert format_commit(paths[1:], "x") == "stored in b.json, which is not under version control"


def test_git_is_asked_about_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository two files can be added, unless one of them is ignored."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    paths = [Path("a.json"), Path("folder/b.json")]
    assert can_be_added(paths)
    Path(".gitignore").write_text("folder\n")
    assert not can_be_added(paths)
