"""One name for all sources that a case may read: it follows content wherever it lies, and nothing that runs leave."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.workers import source_tree
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.source_tree import Revisions, is_counted, source_id, strip_libraries, top_folders

LOADED = {"kernels/flash.py": "1", "conftest.py": "2"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with kernels, their data, and what is no source of theirs."""
    for name in ("kernels/flash.py", "kernels/configs/h200.json", "conftest.py", "README.md", "docs/page.md"):
        write(tmp_path, name, name)
    return tmp_path


def write(tree: Path, name: str, text: str) -> None:
    """A file with its folders."""
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


def named(tree: Path, loaded: dict[str, str] | None = None) -> str:
    """The name as a process that begins now gives it."""
    source_tree._tree_id.cache_clear()
    return source_id(tree, LOADED if loaded is None else loaded)


@pytest.mark.parametrize(
    "name",
    [
        "kernels/flash.py",
        "kernels/other.py",
        "kernels/configs/h200.json",
        "kernels/new/loops.txt",
        "conftest.py",
        "x.py",
    ],
)
def test_other_content_of_a_source_folder_is_another_name(tree: Path, name: str) -> None:
    """Changed or new, code or data, loaded or not; and Python files that stand directly in the tree."""
    before = named(tree)
    write(tree, name, "other")
    assert named(tree) != before


def test_a_file_that_is_gone_or_renamed_is_another_name(tree: Path) -> None:
    """What code looks for and does not find is a value, too."""
    before = named(tree)
    (tree / "kernels/configs/h200.json").rename(tree / "kernels/configs/h100.json")
    renamed = named(tree)
    (tree / "kernels/configs/h100.json").unlink()
    assert len({before, renamed, named(tree)}) == 3


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/page.md", "baselines/sm_90/h200/prefill.json", "kernels/__pycache__/flash.pyc",
     ".attnperf/r.json", "kernels/.cache/x", "kernels/built.so", "kernels/run.log",
     "kernels/README.md", "fake_device.json"],
)  # fmt: skip
def test_what_is_no_source_changes_nothing(tree: Path, name: str) -> None:
    """Other folders of the tree, baselines among them, hidden files, pages, and what builds and runs leave behind."""
    before = named(tree)
    write(tree, name, "other")
    assert named(tree) == before


def test_the_name_does_not_depend_on_which_modules_were_loaded_so_far(tree: Path) -> None:
    """A process that ran other cases before has loaded more files of the same folders."""
    for name in ("kernels/decode.py", "docs/x.py"):
        write(tree, name, "")
    assert named(tree) == named(tree, {**LOADED, "kernels/decode.py": "3"})
    assert named(tree, {**LOADED, "docs/x.py": "3"}) != named(tree)


def test_a_loaded_library_counts_beside_the_sources(tree: Path) -> None:
    """Which no revision holds, so that the part of the sources stays what it was."""
    one = named(tree, {**LOADED, "kernels/built.so": "3"})
    other = named(tree, {**LOADED, "kernels/built.so": "4"})
    assert (one != other, strip_libraries(one), strip_libraries(other)) == (True, named(tree), named(tree))


def test_links_count_by_what_they_point_to(tree: Path) -> None:
    """As git stores them; nothing is read through them."""
    os.symlink("flash.py", tree / "kernels/link.py")
    os.symlink("/", tree / "kernels/everything")
    before = named(tree)
    (tree / "kernels/link.py").unlink()
    os.symlink("other.py", tree / "kernels/link.py")
    assert named(tree) != before


def test_nothing_loaded_or_too_much_has_no_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that takes too long to read is not known, and never taken for unchanged."""
    assert named(tree, {}) == ""
    monkeypatch.setattr(source_tree, "BYTES_MOST", 10)
    assert named(tree) == ""
    monkeypatch.setattr(source_tree, "BYTES_MOST", 1 << 20)
    monkeypatch.setattr(source_tree, "FILES_MOST", 2)
    assert named(tree) == ""


def test_folders_and_files_that_count() -> None:
    """Files directly in the tree only where they are Python."""
    assert top_folders(["kernels/a/b.py", "conftest.py"]) == {"kernels"}
    folders = frozenset({"kernels"})
    assert [is_counted(path, folders) for path in ("a.py", "a.json", "kernels/a.json", "docs/a.py", ".a.py")] == [
        *(True, False, True, False, False)
    ]


def git(folder: Path, *words: str) -> str:
    """Run git as nobody in particular."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    answer = subprocess.run(
        ["git", *who, *words], cwd=folder, env=environment, capture_output=True, check=True, text=True
    )
    return answer.stdout.strip()


@pytest.mark.parametrize("inside", [".", "part/of/it"])
def test_a_revision_is_named_as_its_tree_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    """By git alone, also where the tree is a folder of the repository; links and odd names included. Not where git
    does not know the commit, or is missing."""
    root = tmp_path / inside
    for name in ("kernels/flash.py", "kernels/configs/h 200 é.json", "conftest.py", "docs/page.md"):
        write(root, name, name)
    os.symlink("flash.py", root / "kernels/link.py")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    commit, before = git(tmp_path, "rev-parse", "HEAD"), named(root)
    write(root, "kernels/flash.py", "other")
    repository = Repository.find_around(root)
    assert repository is not None
    revisions = Revisions(repository, root, commit)
    folders = top_folders(LOADED)
    assert revisions.sources_of(commit, folders) == before != named(root)
    asked = {name: revisions.has_sources(name, folders, before) for name in (commit, f"{commit}+dirty", "unknown")}
    assert asked == {commit: True, f"{commit}+dirty": False, "unknown": True}
    assert revisions.has_sources(commit, folders, "")
    assert not revisions.has_sources(commit, folders, named(root))
    source_tree._revision_id.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert revisions.sources_of(commit, folders) == ""
    unknown = ("unknown", "", f"{commit}+dirty", "--output=x", "0" * 40)
    assert [revisions.sources_of(text, folders) for text in unknown] == [""] * len(unknown)
