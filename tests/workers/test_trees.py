from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers import trees
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.trees import (
    KEEP,
    Tree,
    build_folders,
    cache_folder,
    open_tree,
    remove_stale_locks,
    run_build,
    short_hash,
    toolchain_id,
)

if TYPE_CHECKING:
    from tests.workers.conftest import GitRepository


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder outside every repository."""
    return cache_folder(tmp_path / "cache", {})


def tree_of(repository: GitRepository, cache: Path, revision: str = "HEAD", variant: str = "") -> Tree:
    """The tree of a revision."""
    found = Repository.find_around(repository.path)
    assert found is not None
    with open_tree(found, found.commit_of(revision), cache, variant=variant) as tree:
        return tree


def content(top: Path) -> dict[str, str]:
    """Every file under a folder with its text."""
    return {p.relative_to(top).as_posix(): p.read_text() for p in sorted(top.rglob("*")) if p.is_file()}


def test_the_working_tree_is_not_touched(repository: GitRepository, cache: Path) -> None:
    """Whatever is staged, changed or untracked, the tree holds the commit, and every file of the repository stays as it
    was, the index and .git included."""
    repository.commit(kept_py="1\n", staged_py="1\n", changed_py="1\n", deleted_py="1\n")
    repository.write(staged_py="2\n", changed_py="2\n", untracked_py="2\n")
    repository.git("add", "staged.py")
    (repository.path / "deleted.py").unlink()
    before = repository.files()
    tree = tree_of(repository, cache)
    assert content(tree.top) == dict.fromkeys(["changed.py", "deleted.py", "kept.py", "staged.py"], "1\n")
    assert repository.files() == before
    assert tree.notes == ()


def test_files_are_as_git_would_write_them(repository: GitRepository, cache: Path) -> None:
    """Executable bits, links, odd names, what `git archive` would leave out and line ends by attribute are kept."""
    repository.write(**{".gitattributes": "secret export-ignore\nwin.txt eol=crlf\n", "secret": "s", "run": "#!\n"})
    repository.write(**{"a b\té": "odd", "win.txt": "1\n"})
    (repository.path / "run").chmod(0o755)
    (repository.path / "link").symlink_to("run")
    repository.commit()
    top = tree_of(repository, cache).top
    assert (top / "secret").read_text() == "s"
    assert (top / "a b\té").read_text() == "odd"
    assert (top / "win.txt").read_bytes() == b"1\r\n"
    assert (top / "run").stat().st_mode & stat.S_IXUSR
    assert os.readlink(top / "link") == "run"


def test_no_hook_and_no_monitor_runs(repository: GitRepository, cache: Path, tmp_path: Path) -> None:
    """Hooks, a file system monitor and a split index of the repository's settings stay out."""
    repository.commit(a_py="1\n")
    alarm = tmp_path / "alarm"
    program = tmp_path / "hook"
    program.write_text(f"#!/bin/sh\ntouch {alarm}\n")
    program.chmod(0o755)
    for name in ("post-index-change", "post-checkout"):
        (repository.path / ".git" / "hooks" / name).write_text(program.read_text())
        (repository.path / ".git" / "hooks" / name).chmod(0o755)
    repository.git("config", "core.fsmonitor", str(program))
    repository.git("config", "core.splitIndex", "true")
    tree_of(repository, cache)
    assert not alarm.exists()
    assert not list((repository.path / ".git").glob("sharedindex*"))
    repository.git("reset", "--quiet", "--hard")
    assert alarm.exists(), "the hooks of this test work when git is asked without our settings"


def test_a_tree_is_made_once(repository: GitRepository, cache: Path) -> None:
    """A second run, also one from another worktree of the repository, takes the tree that stands."""
    repository.commit(a_py="1\n")
    first = tree_of(repository, cache)
    made = (first.top / "a.py").stat().st_mtime_ns
    repository.git("worktree", "add", "--quiet", "--detach", str(cache.parent / "linked"))
    second = tree_of(type(repository)(cache.parent / "linked"), cache)
    assert second.top == first.top
    assert (second.top / "a.py").stat().st_mtime_ns == made
    assert (first.alone, second.alone) == (True, False)


def test_files_that_a_run_adds_are_no_change(repository: GitRepository, cache: Path) -> None:
    """Byte code and outputs beside the files of the commit leave a tree usable as it is."""
    repository.commit(a_py="1\n")
    top = tree_of(repository, cache).top
    (top / "a.pyc").write_text("byte code")
    assert (tree_of(repository, cache).top / "a.pyc").exists()


def test_a_changed_tree_is_made_again(repository: GitRepository, cache: Path) -> None:
    """A tree that somebody edited is not the commit any more; while another run uses it, it is named instead."""
    repository.commit(a_py="1\n", b_py="1\n")
    first = tree_of(repository, cache)
    (first.top / "a.py").write_text("print\n")
    (first.top / "b.py").unlink()
    assert "which another run uses, was changed: a.py, b.py" in tree_of(repository, cache).notes[0]
    assert isinstance(first.held, FileLock)
    first.held.release()
    again = tree_of(repository, cache)
    assert again.notes == ()
    assert content(again.top) == {"a.py": "1\n", "b.py": "1\n"}


def test_a_sparse_checkout_gives_a_whole_tree(repository: GitRepository, cache: Path) -> None:
    """What the user left out of the working tree may be what the suite of the old revision needs."""
    repository.commit(kept__a_py="1\n", left__b_py="1\n")
    repository.git("sparse-checkout", "set", "kept")
    assert not (repository.path / "left").exists()
    assert content(tree_of(repository, cache).top) == {"kept/a.py": "1\n", "left/b.py": "1\n"}


def test_a_partial_clone_fetches_what_it_lacks(repository: GitRepository, cache: Path) -> None:
    """A clone without file contents gets those of the revision while it is checked out."""
    repository.commit(a_py="old\n")
    repository.commit(a_py="new\n")
    clone = repository.clone("--filter=blob:none")
    assert content(tree_of(clone, cache, "HEAD~1").top) == {"a.py": "old\n"}


def test_a_worktree_of_a_bare_repository_works(repository: GitRepository, cache: Path, tmp_path: Path) -> None:
    """Its `.git` is a file, and the repository behind it has no tree of its own."""
    repository.commit(a_py="1\n")
    bare = type(repository)(tmp_path / "bare")
    repository.git("clone", "--quiet", "--bare", str(repository.path), str(bare.path))
    bare.git("worktree", "add", "--quiet", str(tmp_path / "tree"), "main")
    assert content(tree_of(type(repository)(tmp_path / "tree"), cache).top) == {"a.py": "1\n"}


def test_submodules_are_named(repository: GitRepository, cache: Path) -> None:
    """The folder of a submodule is empty in the tree, and a note says so and what to do."""
    commit = repository.commit(a_py="1\n")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},third_party/ck")
    repository.git("commit", "--quiet", "-m", "submodule")
    tree = tree_of(repository, cache)
    assert list((tree.top / "third_party/ck").iterdir()) == []
    (note,) = tree.notes
    assert "submodules are not checked out" in note
    assert "third_party/ck" in note
    assert "--attnperf-against=DIR" in note
    assert tree_of(repository, cache).notes == (note,)


def test_lfs_pointers_are_named(repository: GitRepository, cache: Path) -> None:
    """A file that git-lfs would fill is a pointer without it, and a note says so."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    repository.commit(**{".gitattributes": "*.bin filter=lfs\n", "w.bin": pointer, "x.bin": "whole"})
    (note,) = tree_of(repository, cache).notes
    assert "pointers in the base tree, git-lfs did not fetch them: w.bin;" in note


def test_what_a_dead_process_left_is_removed(repository: GitRepository, cache: Path) -> None:
    """A tree half-made is made again by the next run, and half-made trees of other commits go, too."""
    old = repository.commit(a_py="1\n")
    folder = tree_of(repository, cache).folder
    (folder / "tree").rename(folder / "tree.partial")
    dead = folder.with_name("0" * 40)
    (dead / "tree.partial").mkdir(parents=True)
    repository.commit(a_py="2\n")
    tree_of(repository, cache)
    assert not dead.exists()
    assert not folder.exists()
    assert content(tree_of(repository, cache, old).top) == {"a.py": "1\n"}


def test_the_trees_used_last_are_kept(repository: GitRepository, cache: Path) -> None:
    """Of more than KEEP trees the one whose last use is longest ago goes, but never one that a run uses."""
    made = []
    for number in range(KEEP + 1):
        repository.commit(a_py=f"{number}\n")
        made.append(tree_of(repository, cache))
        os.utime(made[-1].folder / "used", (number, number))
    assert all(tree.top.is_dir() for tree in made), "every tree is in use"
    for tree in made[1:]:
        assert isinstance(tree.held, FileLock)
        tree.held.release()
    repository.commit(a_py="new\n")
    tree_of(repository, cache)
    assert [tree.top.is_dir() for tree in made] == [True, False, True, True, True, True]


def test_a_variant_is_made_again_until_it_is_whole(repository: GitRepository, cache: Path) -> None:
    """A build that failed leaves nothing to the next; one that ended well is kept; each variant has its own tree."""
    repository.commit(a_py="1\n")
    failed = tree_of(repository, cache, variant="build")
    (failed.top / "half-built.o").touch()
    fresh = tree_of(repository, cache, variant="build")
    assert content(fresh.top) == {"a.py": "1\n"}
    assert not fresh.whole
    (fresh.top / "built.o").touch()
    (fresh.top / "a.py").write_text("written by the build\n")
    fresh.mark_whole()
    kept = tree_of(repository, cache, variant="build")
    assert kept.whole
    assert set(content(kept.top)) == {"a.py", "built.o"}
    assert content(tree_of(repository, cache).top) == {"a.py": "1\n"}


def test_another_run_that_makes_the_tree_is_waited_for(
    repository: GitRepository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has a limit, and then names the tree."""
    repository.commit(a_py="1\n")
    folder = tree_of(repository, cache).folder
    monkeypatch.setattr(trees, "LOCK_LIMIT_SECONDS", 0.05)
    with FileLock(f"{folder}.lock"), pytest.raises(UsageError, match="another run has been making the base tree"):
        tree_of(repository, cache)


def test_a_cache_inside_the_repository_is_refused(repository: GitRepository) -> None:
    """There the outer conftest and configuration would reach in."""
    repository.commit(a_py="1\n")
    with pytest.raises(UsageError, match=r"is inside the repository .*; set XDG_CACHE_HOME"):
        tree_of(repository, cache_folder(repository.path / ".cache", {}))


def test_a_cache_that_cannot_be_written_is_named(repository: GitRepository, tmp_path: Path) -> None:
    """The error names the folder, the reason, and the variable that moves it."""
    repository.commit(a_py="1\n")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot keep base trees in .*file/.*: Not a directory; set XDG_CACHE_HOME"):
        tree_of(repository, cache_folder(tmp_path / "file", {}))


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute $XDG_CACHE_HOME, else ~/.cache; without a home the error says what to set."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(None, {"XDG_CACHE_HOME": "/x"}) == Path("/x/pytest-attnperf")
    for environ in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(None, environ) == tmp_path / ".cache" / "pytest-attnperf"

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UsageError, match="no home folder for base trees; set XDG_CACHE_HOME"):
        cache_folder(None, {})


Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Run a build command in a folder; its log."""

    def run(command: str, limit_seconds: float = 30.0, **environment: str) -> Path:
        folder, log = tmp_path / "tree", tmp_path / "build.log"
        folder.mkdir(exist_ok=True)
        run_build(
            command,
            label="origin/main (4f2c1abc)",
            folder=folder,
            python=sys.executable,
            environment={"PATH": os.environ["PATH"], **environment},
            log=log,
            limit_seconds=limit_seconds,
        )
        return log

    return run


def test_a_build_runs_through_the_shell_in_the_tree(build: Build, tmp_path: Path) -> None:
    """Its folder is the tree, its environment the side's, and what it prints is in the log."""
    log = build("echo $WHO > built && pwd; echo problem >&2", WHO="base")
    assert (tmp_path / "tree" / "built").read_text() == "base\n"
    assert log.read_text() == f"{tmp_path / 'tree'}\nproblem\n"


def test_python_in_a_build_is_the_workers_interpreter(build: Build) -> None:
    """A build made with another python than the one that loads it would fail there, or worse, not fail."""
    log = build("python -c 'import sys; print(sys.prefix)'")
    assert log.read_text().strip() == sys.prefix


def test_a_failing_build_says_what_it_printed_last(build: Build) -> None:
    """The error names the side, the command, the status and the log, and quotes the log's last 25 lines."""
    with pytest.raises(UsageError) as caught:
        build("seq 1 100; exit 3")
    text = str(caught.value)
    assert "base side origin/main (4f2c1abc): the build command 'seq 1 100; exit 3'" in text
    assert "ended with exit status 3" in text
    assert "build.log ---\n76\n" in text
    assert text.endswith("\n100")


def test_a_silent_failure_and_a_killed_build_are_named(build: Build) -> None:
    """Without a line to quote the error says so; a signal is called by its name."""
    with pytest.raises(UsageError, match=r"ended with exit status 1; it printed nothing \(.*build.log\)"):
        build("false")
    with pytest.raises(UsageError, match="was killed by SIGKILL"):
        build("kill -9 $$")


def test_a_build_that_hangs_is_ended_with_its_children(build: Build, tmp_path: Path) -> None:
    """The limit ends everything that the command started."""
    with pytest.raises(UsageError, match="did not end within 0 s"):
        build("sleep 60 & echo $! > child; wait", limit_seconds=0.4)
    child = int((tmp_path / "tree" / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child of the build still runs")


def test_a_side_compiles_into_folders_of_its_own(tmp_path: Path) -> None:
    """torch's extensions and inductor always; aiter only where it is the side's own; Triton's cache is shared."""
    plain = build_folders(tmp_path / "a", own_aiter=False)
    assert set(plain) == {"TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR"}
    assert set(build_folders(tmp_path / "b", own_aiter=True)) - set(plain) == {"AITER_JIT_DIR"}
    assert all(Path(folder).is_dir() for folder in plain.values())


def test_locks_of_killed_compilers_are_removed(tmp_path: Path) -> None:
    """torch waits for ever for a lock file whose owner is gone; the extension itself stays."""
    folder = Path(build_folders(tmp_path, own_aiter=False)["TORCH_EXTENSIONS_DIR"])
    (folder / "my_kernel").mkdir()
    (folder / "my_kernel" / "lock").touch()
    (folder / "my_kernel" / "my_kernel.so").touch()
    remove_stale_locks(tmp_path)
    assert [path.name for path in (folder / "my_kernel").iterdir()] == ["my_kernel.so"]


def test_a_toolchain_is_told_from_another() -> None:
    """The same interpreter has one id, another has its own, and parts do not run together."""
    assert toolchain_id("/a/python") == toolchain_id("/a/python")
    assert toolchain_id("/a/python") != toolchain_id("/b/python")
    assert short_hash("a", "b") != short_hash("ab")
