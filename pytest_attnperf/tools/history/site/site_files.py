"""The files of a site: how pages are named, which files of a folder are its own, and which are not wanted any more.

Names of cases and commits are foreign text: a hash tells their pages apart, never the text.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.reports.text.figures import one_line

HASH_DIGITS = 16
"""64 bits: two of a million names collide with a chance below 1e-7."""

READABLE_LENGTH = 60
CASES, COMMITS = "cases", "commits"
PAGE = re.compile(rf"(?:{CASES}|{COMMITS})/[a-z0-9]+(?:-[a-z0-9]+)*\.html")
"""What the path of a page below the site's folder looks like."""

MARKER = "attnperf-site.txt"
MARKER_TEXT = (
    "This folder is a site over a history, written by attnperf. Writing it again replaces its pages, and removes those "
    "of cases that are gone; a folder with other files is refused.\n"
)
INDEX, STYLE, SCRIPT, CASE_NAMES, RUN_NAMES = "index.html", "site.css", "site.js", "cases.js", "runs.js"
OWN = frozenset({MARKER, INDEX, STYLE, SCRIPT, CASE_NAMES, RUN_NAMES})
NAMED_IN_ERRORS = 5
NAME_LIMIT = 100
_TEMPORARY = re.compile(r"\.(.+)\.[^.]+\.[0-9a-f]{8}\.tmp")
"""A file that `write_atomically` had not finished when it was killed; the group is its final name."""


def make_page_name(folder: str, readable: str, *identity: str) -> str:
    """Returns the path of a page below the site's folder: 'cases/prefill-triton-flash-3f2a....html'.

    The hash is of `identity`; `readable` is for people only, reduced to small letters, digits and '-'."""
    text = "\0".join(identity).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text).hexdigest()[:HASH_DIGITS]
    words = re.sub(r"[^a-z0-9]+", "-", readable[: 4 * READABLE_LENGTH].lower())[:READABLE_LENGTH].strip("-")
    return f"{folder}/{words}-{digest}.html" if words else f"{folder}/{digest}.html"


def claim_folder(folder: Path) -> set[str]:
    """Makes the folder, marks it as a site's, and returns the paths in it. Raises UsageError, and changes nothing, if
    it is no folder, or holds files that no site wrote."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{one_line(str(folder), NAME_LIMIT)} is a file, but --html of a history writes a folder; "
                         "give the name of a folder")  # fmt: skip
    found = sorted(_list_paths(folder)) if folder.exists() else []
    foreign = [path for path in found if not is_own_path(path)]
    if found and MARKER not in found:
        foreign = found
    if foreign:
        shown = ", ".join(repr(one_line(path, NAME_LIMIT)) for path in foreign[:NAMED_IN_ERRORS])
        more = f" and {len(foreign) - NAMED_IN_ERRORS} more" if len(foreign) > NAMED_IN_ERRORS else ""
        raise UsageError(
            f"{one_line(str(folder), NAME_LIMIT)} holds files that no history site wrote: {shown}{more}. Nothing was "
            "written; give a new or empty folder, or move these files away"
        )
    write_atomically(folder / MARKER, MARKER_TEXT.encode())
    return set(found)


def is_own_path(path: str) -> bool:
    """Returns whether a site has a file of this path below its folder, temporary files of killed writers included."""
    folder, slash, name = path.rpartition("/")
    unfinished = _TEMPORARY.fullmatch(name)
    if unfinished:
        path = f"{folder}{slash}{unfinished.group(1)}"
    return path in OWN or PAGE.fullmatch(path) is not None


def remove_others(folder: Path, there: set[str], wanted: set[str]) -> int:
    """Removes the files `there` that are not `wanted`; returns their number. Only a site's own files are removed."""
    gone = [path for path in sorted(there - wanted) if is_own_path(path) and path != MARKER]
    for path in gone:
        (folder / path).unlink(missing_ok=True)
    return len(gone)


def _list_paths(folder: Path) -> Iterator[str]:
    """Yields the paths of all files below the folder; of a link, and of a folder that is not a site's, its own path."""
    for entry in os.scandir(folder):
        if entry.name in (CASES, COMMITS) and entry.is_dir(follow_symlinks=False):
            for inner in os.scandir(entry.path):
                regular = inner.is_file(follow_symlinks=False)
                yield f"{entry.name}/{inner.name}" if regular else f"{entry.name}/{inner.name}/"
        else:
            yield entry.name if entry.is_file(follow_symlinks=False) else f"{entry.name}/"
