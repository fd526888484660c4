"""Checked-out trees of revisions, outside the repository, kept from run to run.

    <cache>/pytest-attnperf/trees/<repository>/<commit>[-<variant>]/
        tree/        the files of the commit
        index        git's index of these files, which shows whether the tree was changed since
        users/       a locked file per run that uses the tree
        whole        written when the tree is complete (a build command has succeeded)
        used         modified at each use

Next to each folder is `<name>.lock`, held while the folder is made, built or removed. So an incomplete folder whose
lock is free was left by a process that died, and is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.revisions import USE_A_COPY, Repository

KEEP = 5
"""Number of trees kept per repository."""
LOCK_LIMIT_SECONDS = 3600.0
"""Seconds to wait for another run that makes or builds the same tree."""
NAMED_FILES = 3
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_POINTER_BYTES_MAX = 1024


@dataclass(frozen=True)
class Tree:
    """A checked-out commit. `held` is a lock: while it exists no other run removes the tree.

    top      root of the files
    folder   the tree's folder in the cache, also for its logs and build outputs
    whole    whether an earlier run completed the tree; see `mark_whole`
    alone    whether no other run uses the tree now
    notes    notes on the tree for the results, a sentence each
    """

    top: Path
    folder: Path
    whole: bool
    alone: bool
    notes: tuple[str, ...] = ()
    held: object = field(default=None, repr=False, compare=False)

    def mark_whole(self) -> None:
        """Writes the file `whole`: the tree is complete, and the next run uses it without a build."""
        (self.folder / "whole").touch()


def cache_folder(cache_root: Path | None, environ: Mapping[str, str]) -> Path:
    """Returns the folder `pytest-attnperf` in `cache_root`, else $XDG_CACHE_HOME, else ~/.cache. Raises UsageError if
    there is no home folder."""
    named = environ.get("XDG_CACHE_HOME", "")
    if cache_root is None:
        try:
            cache_root = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
        except RuntimeError:
            raise UsageError("there is no home folder for base trees; set XDG_CACHE_HOME to a folder") from None
    return cache_root.resolve() / "pytest-attnperf"


@contextlib.contextmanager
def open_tree(repository: Repository, commit: str, cache: Path, *, variant: str = "") -> Iterator[Tree]:
    """Yields the tree of a commit, checked out if it does not exist. During the block no other run makes or builds it.
    Also removes old trees.

    A `variant` (a build command and its toolchain) has a separate tree, which is made again unless `mark_whole` was
    called, so that a failed build leaves nothing behind. Raises UsageError if the tree cannot be written, or another
    run holds it for too long.
    """
    trees = _trees_folder(repository, cache)
    folder = trees / (f"{commit}-{variant}" if variant else commit)
    with lock_folder(folder):
        notes = _make_tree(repository, commit, folder, needs_whole=bool(variant))
        alone = not _count_users(folder)
        held = _register_user(folder)
        (folder / "used").touch()
        _remove_old_trees(trees, folder)
        top = folder / "tree"
        notes += _incomplete_parts(repository, commit, top)
        yield Tree(top, folder, (folder / "whole").exists(), alone, tuple(notes), held)


def _trees_folder(repository: Repository, cache: Path) -> Path:
    if cache.is_relative_to(repository.top):
        raise UsageError(
            f"the cache folder {cache} is inside the repository {repository.top}, whose conftest and configuration "
            "would affect a base tree there; set XDG_CACHE_HOME to a folder outside it"
        )
    shared = repository.common_dir()
    name = (shared.parent if shared.name == ".git" else shared).name
    return cache / "trees" / f"{name}-{hashlib.sha256(os.fsencode(shared)).hexdigest()[:10]}"


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Holds `<folder>.lock` in the block, so that no other run makes or builds the same tree. Raises UsageError if the
    folder cannot be written, or another run holds the lock for LOCK_LIMIT_SECONDS."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot keep base trees in {folder.parent}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    lock = FileLock(f"{folder}.lock", timeout=LOCK_LIMIT_SECONDS)
    try:
        with lock:
            yield
    except Timeout:
        raise UsageError(
            f"another run has been making the base tree {folder} for {LOCK_LIMIT_SECONDS:.0f} s; wait for it, or end it"
        ) from None


def _make_tree(repository: Repository, commit: str, folder: Path, *, needs_whole: bool) -> list[str]:
    """Checks the commit out into `folder`/tree, or reuses a tree there: one whose build was completed if `needs_whole`,
    else one that is unchanged or in use by another run. Returns a note about a changed one in use, else []."""
    top, index = folder / "tree", folder / "index"
    if top.is_dir() and index.is_file():
        if needs_whole:
            if (folder / "whole").is_file():
                return []
        else:
            changed = repository.list_changed_files(top, index)
            if not changed:
                return []
            if _count_users(folder):
                return [f"the base tree {top}, which another run uses, was changed: {_join_some(changed)}"]
    _clear_folder(folder)
    partial, partial_index = folder / "tree.partial", folder / "index.partial"
    try:
        repository.check_out(commit, partial, partial_index)
    except OSError as error:
        raise UsageError(f"cannot write the base tree {top}: {error.strerror}; free space there") from error
    partial_index.replace(index)
    partial.rename(top)
    return []


def _clear_folder(folder: Path) -> None:
    """Empties a folder, in an order in which a crash never leaves a tree that looks complete."""
    (folder / "whole").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / "tree").rename(folder / f"{uuid.uuid4().hex}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def _register_user(folder: Path) -> FileLock:
    """Returns a new, locked file in `folder`/users; while this process holds it, no other run removes the tree."""
    users = folder / "users"
    users.mkdir(exist_ok=True)
    lock = FileLock(users / f"{uuid.uuid4().hex}.lock", timeout=0)
    lock.acquire()
    return lock


def _count_users(folder: Path) -> int:
    """Returns how many runs use the tree in `folder`; removes files of dead runs. The caller must hold the folder's
    lock."""
    return sum(map(_is_held, (folder / "users").glob("*.lock")))


def _is_held(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            path.unlink(missing_ok=True)
    except Timeout:
        return True
    return False


def _remove_old_trees(trees: Path, own: Path) -> None:
    """Removes all trees but `own` and the KEEP - 1 others used last, and incomplete parts of all. Never waits, and
    never removes a tree in use."""
    others = [path for path in trees.iterdir() if path.is_dir() and path != own]
    others.sort(key=_last_used, reverse=True)
    for rank, folder in enumerate(others, start=1):
        with contextlib.suppress(Timeout), FileLock(f"{folder}.lock", timeout=0):
            if rank >= KEEP and not _count_users(folder):
                _clear_folder(folder)
            for partial in folder.glob("*.partial"):
                _remove_path(partial)
            if not (folder / "tree").is_dir():
                shutil.rmtree(folder, ignore_errors=True)


def _last_used(folder: Path) -> float:
    try:
        return (folder / "used").stat().st_mtime
    except OSError:
        return 0.0


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _incomplete_parts(repository: Repository, commit: str, top: Path) -> list[str]:
    notes = []
    if submodules := repository.list_submodules(commit):
        notes.append(
            f"submodules are not checked out, their folders are empty in the base tree: {_join_some(submodules)}; "
            f"where the suite needs them, {USE_A_COPY}"
        )
    if pointers := _lfs_pointers(top):
        notes.append(
            f"files kept in git LFS are pointers in the base tree, git-lfs did not fetch them: {_join_some(pointers)}; "
            f"where the suite needs them, {USE_A_COPY}"
        )
    return notes


def _lfs_pointers(top: Path) -> list[str]:
    """Returns files that are LFS pointers instead of contents; searched only if a .gitattributes mentions LFS."""
    attributes = (path for path in top.rglob(".gitattributes") if path.is_file())
    if not any(b"filter=lfs" in path.read_bytes() for path in attributes):
        return []
    small = (p for p in top.rglob("*") if p.is_file() and p.stat().st_size <= LFS_POINTER_BYTES_MAX)
    return sorted(p.relative_to(top).as_posix() for p in small if p.read_bytes().startswith(LFS_POINTER))


def _join_some(names: list[str]) -> str:
    more = len(names) - NAMED_FILES
    return ", ".join(names[:NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


BUILD_LIMIT_SECONDS = 3600.0
LOG_TAIL_LINES = 25
TOOLCHAIN = ("torch", "triton", "pytorch-triton-rocm", "amd-aiter", "aiter")
"""Distributions whose versions decide whether an extension that was built before still loads."""


def toolchain_id(python: str) -> str:
    """Returns ten hexadecimal digits that change with the interpreter and the libraries that extensions use.

    The versions are those of this process, because a revision's workers use the same interpreter.
    """
    parts = [python, sys.version]
    for name in TOOLCHAIN:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name} {importlib.metadata.version(name)}")
    return short_hash(*parts)


def short_hash(*parts: str) -> str:
    """Returns ten hexadecimal digits of the SHA-256 of the parts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:10]


def build_folders(folder: Path, *, own_aiter: bool) -> dict[str, str]:
    """Makes separate folders for what a side compiles while it runs, and returns the environment variables for them.

    torch finds an extension by its name only, so two sides with the same folder would load each other's kernels.
    TRITON_CACHE_DIR stays shared, because Triton uses content hashes. AITER_JIT_DIR is set only for a side with its own
    aiter, because it makes aiter build everything again, for minutes, even modules that are installed ready to use.
    """
    names = {"TORCH_EXTENSIONS_DIR": "torch_extensions", "TORCHINDUCTOR_CACHE_DIR": "torchinductor"}
    if own_aiter:
        names["AITER_JIT_DIR"] = "aiter"
    folders = {variable: folder / name for variable, name in names.items()}
    for path in folders.values():
        path.mkdir(parents=True, exist_ok=True)
    return {variable: str(path) for variable, path in folders.items()}


def remove_stale_locks(folder: Path) -> None:
    """Removes lock files of killed compilers, for which torch and aiter would wait forever.
    Call it only while no other run uses the folder."""
    for pattern in ("torch_extensions/*/lock", "aiter/build/lock_*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def run_build(
    command: str,
    *,
    label: str,
    folder: Path,
    python: str,
    environment: Mapping[str, str],
    log: Path,
    limit_seconds: float = BUILD_LIMIT_SECONDS,
) -> None:
    """Runs a build command by the shell in `folder`, with its output in `log`.

    The folder of `python`, the workers' interpreter, is first on PATH. A tree of a revision has no `.git`. Raises
    UsageError with the exit status and the end of the log; the command and its children have then ended.
    """
    path = os.pathsep.join([str(Path(python).parent), environment.get("PATH", os.defpath)])
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=folder,
            env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"base side {label}: the build command {command!r} did not end within {limit_seconds:.0f} "
                f"s{_read_log_tail(log)}"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status != 0:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        raise UsageError(f"base side {label}: the build command {command!r} in {folder} {how}{_read_log_tail(log)}")


def _read_log_tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return "\n".join([f"\n--- end of {log} ---", *lines]) if lines else f"; it printed nothing ({log})"
