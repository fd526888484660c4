"""The source id: a short hash over all code and data that a case may read from its repository.

Which modules a process has loaded depends on the cases before it, and a kernel may read its block sizes or a loop count
from a data file. So the id covers whole folders: every top folder of the tree that a loaded file comes from, and all
Python files directly in the tree. Contents are hashed as git does it, so that a revision's id is known without a
check-out. Compiled libraries of the tree are added separately, and only those that the process has loaded.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.workers.revisions import Repository

ID_DIGITS = 16

BUILT_MARK = "+"
"""Separates the hash of the sources from that of loaded libraries, which no revision has."""

BUILT = frozenset({".so", ".pyd", ".dylib"})
"""Suffixes of libraries; only loaded ones count."""

LEFT_OUT = BUILT | {".pyc", ".pyo", ".o", ".a", ".log", ".lock", ".md"}
"""Suffixes of files that builds and runs create, and of pages for people: no time depends on them."""

FOLDERS_LEFT_OUT = frozenset({"__pycache__", "site-packages", "node_modules"})

FILES_MOST = 20_000
BYTES_MOST = 1 << 28
"""Limits of a tree; a larger one has no id, because reading it would take longer than measuring."""


_COMMIT = re.compile(r"[0-9a-f]{7,64}")
"""A clean commit, without '+dirty': the files of a changed tree are not known later."""


@dataclass(frozen=True)
class Revisions:
    """Computes source ids (hashes of all code and data that a case may read) of revisions, as `source_id` for a tree.

    root   root of the tree in the repository
    base   commit id of the base revision
    """

    repository: Repository
    root: Path
    base: str

    def sources_of(self, commit: str, folders: frozenset[str]) -> str:
        """Returns the source id (hash of all code and data) of these top folders in a commit; '' if `commit` is no
        commit id or git does not have it."""
        return _revision_id(self.repository, self.root, commit, folders) if _COMMIT.fullmatch(commit) else ""

    def has_sources(self, commit: str, folders: frozenset[str], named: str) -> bool:
        """Returns whether a commit has the sources with the id `named` in these folders. True where git does not know
        the commit, or the id is '' (not recorded); False for '+dirty'."""
        if not _COMMIT.fullmatch(commit):
            return "+" not in commit
        return not named or self.sources_of(commit, folders) in ("", strip_libraries(named))


class TooLargeError(Exception):
    """The folders exceed FILES_MOST or BYTES_MOST."""


def source_id(root: Path, loaded: Mapping[str, str]) -> str:
    """Returns a hash of all code and data that a process may have read, e.g. '0123456789abcdef': Python files directly
    in `root`, and its top folders with loaded files. BUILT_MARK and a hash of the libraries in `loaded` follow, if
    there are any. '' if `loaded` is empty, or the tree is too large or unreadable.

    loaded   path of each loaded file relative to `root` -> hash of its content
    """
    if not loaded:
        return ""
    try:
        named = _tree_id(root, top_folders(loaded))
    except (TooLargeError, OSError):
        return ""
    built = [(path, digest) for path, digest in loaded.items() if Path(path).suffix in BUILT]
    return f"{named}{BUILT_MARK}{digest_of(built)}" if built else named


def strip_libraries(name: str) -> str:
    """Returns the source id without its hash of loaded libraries, to compare it with a revision's."""
    return name.partition(BUILT_MARK)[0]


def top_folders(loaded: Iterable[str]) -> frozenset[str]:
    """Returns the first parts of these relative paths; files directly in the tree have none."""
    return frozenset(top for top, slash, _ in (path.partition("/") for path in loaded) if slash)


def is_counted(path: str, folders: frozenset[str]) -> bool:
    """Returns whether the file `path`, relative to the tree, is part of a source id: a Python file directly in the
    tree, or any in `folders`, but no hidden file, library or build output."""
    *parents, name = path.split("/")
    if name.startswith(".") or Path(name).suffix in LEFT_OUT:
        return False
    if not parents:
        return name.endswith(".py")
    return parents[0] in folders and not any(part.startswith(".") or part in FOLDERS_LEFT_OUT for part in parents)


def digest_of(named: Iterable[tuple[str, str]]) -> str:
    """Returns the first hex digits of a SHA-256 over (path, content hash) pairs; their order does not matter."""
    text = "\n".join(f"{path}\0{digest}" for path, digest in sorted(named))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:ID_DIGITS]


@functools.lru_cache(maxsize=16)
def _tree_id(root: Path, folders: frozenset[str]) -> str:
    """Returns the source id of these folders under `root`. Cached: the process's imports are from the time of the first
    call. Raises TooLargeError for too large a tree, OSError if a file cannot be read."""
    return digest_of(_list_contents(root, folders))


@functools.lru_cache(maxsize=64)
def _revision_id(repository: Repository, root: Path, commit: str, folders: frozenset[str]) -> str:
    """Returns a commit's source id from content hashes of `git ls-tree`; '' if git or the commit is missing."""
    part = root.resolve().relative_to(repository.top).as_posix()
    try:
        listed = repository.run("ls-tree", "-r", "-z", "--full-tree", f"{commit}:{'' if part == '.' else part}")
    except UsageError:  # git is missing or hangs
        return ""
    if listed.returncode != 0:
        return ""
    lines = [line.partition("\t") for line in listed.stdout.split("\0") if line]
    blobs = [
        (path, head.split()[2]) for head, _, path in lines if head.split()[1] == "blob" and is_counted(path, folders)
    ]
    return digest_of(blobs)


def _list_contents(root: Path, folders: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yields (path relative to `root`, git's content hash) of every file that `is_counted` accepts. Raises
    TooLargeError beyond FILES_MOST or BYTES_MOST, OSError if a file cannot be read."""
    files, size = 0, 0
    for path in _list_paths(root, folders):
        file = root / path
        content = os.readlink(file).encode() if file.is_symlink() else _bytes_of(file, BYTES_MOST - size)
        files, size = files + 1, size + len(content)
        if files > FILES_MOST:
            raise TooLargeError
        yield path, hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _bytes_of(file: Path, most: int) -> bytes:
    if file.stat().st_size > most:
        raise TooLargeError
    return file.read_bytes()


def _list_paths(root: Path, folders: frozenset[str]) -> Iterator[str]:
    """Yields the regular files and links that `is_counted` accepts, relative to the root."""
    yield from (entry.name for entry in os.scandir(root) if _is_content(entry) and is_counted(entry.name, folders))
    for top in sorted(folders):
        for folder, inner, names in os.walk(root / top):
            inner[:] = [name for name in inner if not name.startswith(".") and name not in FOLDERS_LEFT_OUT]
            links = [name for name in inner if os.path.islink(os.path.join(folder, name))]
            for name in (*names, *links):
                path = Path(folder, name)
                relative = path.relative_to(root).as_posix()
                if is_counted(relative, folders) and (path.is_symlink() or path.is_file()):
                    yield relative


def _is_content(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)
