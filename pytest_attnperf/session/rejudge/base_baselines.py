"""The baselines of another revision as files, read through git: nothing of the revision is checked out or run.

Only regular files under the baselines folder are read, by the ids of their blobs, into a new temporary folder. A
symbolic link or a submodule anywhere in it is refused: what it points at is not what was reviewed.
"""

from __future__ import annotations

import contextlib
import functools
import re
import string
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.revisions import Repository

BYTES_MAX = 200_000_000
"""Of all baselines of a revision together: a thousand cases take about two million."""

FILES_MAX = 10_000
REV, DIR = "rev:", "dir:"
BASELINE_DEPTH = 3
"""`<arch>/<product>/<suite>.json`; what lies deeper is no baseline of a case."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LISTED = re.compile(r"(?P<mode>[0-7]+) (?P<kind>\w+) (?P<blob>[0-9a-f]+) +(?P<size>\d+|-)\t(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True)
class Base:
    """Where baselines are read: their folder, and in words which they are.

    has   whether a commit is in the history of the revision; None for a folder
    """

    folder: Path
    label: str
    has: Callable[[str], bool] | None = None


@contextlib.contextmanager
def opened_base(text: str, baselines: str, cwd: Path) -> Iterator[Base]:
    """The baselines of a revision or a folder; `baselines` is the folder's name in a tree.

    A folder is what begins with '.' or '/', or with 'dir:'; anything else is a revision where git knows it, so that no
    folder that a change brings along can take a revision's place. '' is the working tree's. Raises UsageError.
    """
    if not text:
        yield Base(_folder(cwd, baselines, "."), "the working tree")
        return
    plain = text.removeprefix(DIR)
    as_folder = text.startswith((DIR, ".", "/"))
    repository = None if as_folder else Repository.around(cwd)
    if not as_folder and not text.startswith(REV) and (repository is None or not _knows(repository, text)):
        as_folder = (cwd / plain).is_dir()
    if as_folder:
        yield Base(_folder(cwd / plain, baselines, plain), plain)
        return
    if repository is None:
        raise UsageError(f"--base {text!r}: {cwd} is in no git repository, and no folder has that name")
    revision = text.removeprefix(REV)
    commit = repository.commit_of(revision)
    with tempfile.TemporaryDirectory(prefix="attnperf-base-") as folder:
        write_baselines(repository, commit, _prefix(repository, cwd, baselines), Path(folder))
        yield Base(Path(folder), f"{revision} ({commit[:12]})", functools.partial(is_in_history, repository, commit))


def write_baselines(repository: Repository, commit: str, prefix: str, folder: Path) -> None:
    """Write the baseline files of a commit that lie under `prefix` into `folder`. Raises UsageError."""
    listed = repository.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit, "--", prefix)
    if listed.returncode != 0:
        raise UsageError(f"git cannot list {prefix} of {commit[:12]}: {listed.stderr.strip()}")
    lines = [line for line in listed.stdout.split("\0") if line]
    if not lines:
        raise UsageError(f"commit {commit[:12]} has no folder {prefix}; name it with --baselines")
    if len(lines) > FILES_MAX:
        raise UsageError(f"{prefix} of {commit[:12]} holds {len(lines)} files; at most {FILES_MAX} are read")
    left = BYTES_MAX
    for line in lines:
        found = _LISTED.fullmatch(line)
        if found is None or found["kind"] != "blob" or found["mode"] not in ("100644", "100755"):
            raise UsageError(f"{prefix} of {commit[:12]} holds what is no regular file: {line!r}; nothing was read")
        parts = found["path"].removeprefix(f"{prefix}/").split("/")
        left -= int(found["size"])
        if left < 0:
            raise UsageError(f"{prefix} of {commit[:12]} is larger than {BYTES_MAX} bytes; nothing was read")
        if len(parts) <= BASELINE_DEPTH and parts[-1].endswith(".json") and all(map(_PART.fullmatch, parts)):
            _write_blob(repository, found["blob"], folder.joinpath(*parts))


def is_in_history(repository: Repository, commit: str, text: str) -> bool:
    """Whether `text` names, by its id, a commit that `commit` is or comes after."""
    if not text or set(text) - set(string.hexdigits):
        return False  # a name could be any revision's, or an option
    known = repository.run("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}").stdout.strip()
    return known.startswith(text) and repository.run("merge-base", "--is-ancestor", known, commit).returncode == 0


def _write_blob(repository: Repository, blob: str, path: Path) -> None:
    answer = repository.run("cat-file", "blob", blob)
    if answer.returncode != 0:
        raise UsageError(f"git cannot read {path.name}, blob {blob[:12]}: {answer.stderr.strip()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(answer.stdout.encode("utf-8", "surrogateescape"))


def _knows(repository: Repository, text: str) -> bool:
    if "..." not in text:
        return repository.knows(text)
    return all(repository.knows(side or "HEAD") for side in text.split("...", 1))


def _prefix(repository: Repository, cwd: Path, baselines: str) -> str:
    """The folder as git calls it. Raises UsageError for one outside of the repository."""
    folder = Path(cwd.resolve() / baselines)
    parts = folder.relative_to(repository.top).parts if folder.is_relative_to(repository.top) else ()
    if not parts or ".." in parts:
        raise UsageError(f"--baselines {baselines!r} is no folder inside the repository {repository.top}")
    return "/".join(parts)


def _folder(tree: Path, baselines: str, text: str) -> Path:
    """The baselines folder of a tree, or the tree itself where it is one. Raises UsageError."""
    if (tree / baselines).is_dir():
        return tree / baselines
    if tree.is_dir() and (any(tree.glob("*/*/*.json")) or any(tree.glob("*/*.json"))):
        return tree
    raise UsageError(
        f"--base {text!r} holds no baselines: neither {tree / baselines} nor <arch>/<product>/*.json there"
    )
