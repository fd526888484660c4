"""Finds which package named `aiter` is on the path, and its version, from files only. It imports nothing.

Importing ROCm's aiter may build for minutes, and another package of that name may do anything.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

UNKNOWN = "unknown"
DISTRIBUTIONS = ("amd-aiter", "aiter")
"""Names of ROCm's distribution; the second was used until 2025-12. PyPI's packages of both names are not usable."""

STALE_ON_PYPI = "0.1.7.post2.dev18"
"""The only release of `amd-aiter` on PyPI. It has no compiled modules, and outdated names of tuning files."""

_VERSION_LINE = re.compile(r"""^(?:__version__\s*=\s*)?(?:version|__version__)\s*=\s*['"]([^'"]+)['"]""", re.MULTILINE)
_REVISION = re.compile(r"\bg([0-9a-f]{7,40})\b")
_SHA = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Installed:
    """ROCm's aiter as found on the path.

    folder     the folder that holds `ops/` and `jit/`
    version    of the distribution that owns the folder, or of its `_version.py`; 'unknown' where neither has one
    revision   commit of a source checkout, or the one in the version; '' where it is unknown
    """

    folder: Path
    version: str
    revision: str


def missing_aiter() -> list[str]:
    """Returns why ROCm's aiter cannot be used, judged by files only; empty when it is installed."""
    folders, where = _find_folders()
    if where is None:
        return ["aiter is not installed (it is ROCm/aiter on GitHub; the package `aiter` on PyPI is unrelated)"]
    rocm = next((folder for folder in folders if _is_rocms(folder)), None)
    if rocm is None:
        return [_describe_stranger(folders, where)]
    if _find_version(rocm) == STALE_ON_PYPI:
        return [
            f"`aiter` at {rocm} is amd-aiter {STALE_ON_PYPI}, the stale pre-release on PyPI without compiled modules; "
            "uninstall it and install ROCm/aiter from its GitHub releases or from source"
        ]
    return []


def find_installed() -> Installed | None:
    """Returns folder, version and commit of ROCm's aiter on the path; None where there is none."""
    folders, _ = _find_folders()
    folder = next((folder for folder in folders if _is_rocms(folder)), None)
    if folder is None:
        return None
    version = _find_version(folder)
    return Installed(folder, version, _find_revision(folder, version))


def version_entries() -> dict[str, str]:
    """Returns the entries of `Prepared.config` that name aiter: 'aiter' -> version, and 'aiter_revision' -> commit, if
    known."""
    found = find_installed()
    if found is None:
        return {"aiter": UNKNOWN}
    entries = {"aiter": found.version}
    return {**entries, "aiter_revision": found.revision} if found.revision else entries


def _find_folders() -> tuple[list[Path], str | None]:
    """Returns (folders of the package `aiter`, a text that says where it is); ([], None) if there is none."""
    try:
        spec = importlib.util.find_spec("aiter")
    except ValueError:  # a module put into sys.modules without a spec
        folders = [Path(folder) for folder in getattr(sys.modules["aiter"], "__path__", ())]
        return folders, str(folders[0]) if folders else "a module without a file"
    if spec is None:
        return [], None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return folders, str(folders[0]) if folders else str(spec.origin)


def _is_rocms(folder: Path) -> bool:
    return (folder / "ops" / "mha.py").is_file() and (folder / "jit").is_dir()


def _describe_stranger(folders: list[Path], where: str) -> str:
    """Returns a sentence that says what the package named `aiter` in `folders` is, if not ROCm's; `where` is its place
    in words."""
    if any((folder / "azip.py").is_file() for folder in folders):
        return f"`aiter` at {where} is PyPI's asyncio package, not ROCm/aiter; uninstall it and install ROCm/aiter"
    if any(_is_rocms(folder / "aiter") for folder in folders):
        return (
            f"`aiter` at {where} is the root of a checkout of ROCm/aiter, and its package lies one folder deeper; "
            "install it (python setup.py develop), or run where no folder of that name is on the path"
        )
    if any((folder / "ops" / "triton").is_dir() for folder in folders):
        return f"`aiter` at {where} is a copy of parts of ROCm/aiter: it has ops/triton, but no ops/mha.py and jit/"
    return f"`aiter` at {where} is an unknown package of that name: ROCm/aiter has ops/mha.py and jit/"


def _find_version(folder: Path) -> str:
    """Returns the version of the distribution that owns the folder (another of that name may be installed too), else
    that of its `_version.py`; 'unknown' if there is neither."""
    for name in DISTRIBUTIONS:
        for distribution in importlib.metadata.distributions(name=name):
            if any(root.resolve() == folder.parent.resolve() for root in _list_roots(distribution)):
                return distribution.version
    try:
        text = (folder / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return UNKNOWN
    line = _VERSION_LINE.search(text)
    return line.group(1) if line else UNKNOWN


def _list_roots(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Yields folders that may hold the packages of a distribution: where it is installed, then its checkout if it is
    editable."""
    yield Path(str(distribution.locate_file("")))
    try:
        url = json.loads(distribution.read_text("direct_url.json") or "{}").get("url", "")
    except (ValueError, AttributeError):
        return
    if str(url).startswith("file:"):
        yield Path(unquote(urlparse(str(url)).path))


def _find_revision(folder: Path, version: str) -> str:
    """Returns the commit of the checkout around the folder, else the one that the version names, or ''."""
    root = folder.parent
    if (root / "op_tests").is_dir() or (root / "csrc").is_dir():
        head = _git_head(root)
        if head:
            return head
    named = _REVISION.search(version)
    return named.group(1) if named else ""


def _git_head(root: Path) -> str:
    """Returns the commit checked out in a folder, read without git; '' where it cannot be read."""
    try:
        git = root / ".git"
        if git.is_file():
            git = (root / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()).resolve()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.partition("ref:")[2].strip()
        sha = _read_ref(git, name) if name else head
    except OSError:
        return ""
    return sha if _SHA.fullmatch(sha) else ""


def _read_ref(git: Path, name: str) -> str:
    """Returns the commit of the branch `name`; '' if it is not found. A worktree has branches in git's common
    folder."""
    common = git / "commondir"
    folders = [git, (git / common.read_text(encoding="utf-8").strip()).resolve()] if common.is_file() else [git]
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    for folder in folders:
        if (folder / "packed-refs").is_file():
            for line in (folder / "packed-refs").read_text(encoding="utf-8").splitlines():
                sha, _, ref = line.partition(" ")
                if ref.strip() == name:
                    return sha
    return ""
