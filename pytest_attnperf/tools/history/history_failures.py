"""Turns errors of a store into one sentence that says what to do, without passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_attnperf.errors import AttnperfError

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError, StatementError

    from pytest_attnperf.tools.history.engines import StoreLocation


class HistoryError(AttnperfError):
    """The store cannot be opened, read or written, or a file cannot be imported. The run itself is not lost.

    Its text may quote foreign text, so control characters are removed."""

    def __init__(self, text: str) -> None:
        super().__init__("".join(letter if letter.isprintable() else " " for letter in text))


CANNOT_SAY = "cannot be used"
_SQLITE: tuple[tuple[str, str], ...] = (
    ("is locked", "another program has locked it; nothing was written. Try again, or end that program"),
    (
        "readonly database",
        "the file or its folder is read-only; nothing was written. Give write permission, or another path",
    ),
    (
        "disk is full",
        "the disk is full; nothing was written. Free space, or shorten it: attnperf history --prune --keep-days N",
    ),
    ("not a database", "it is no SQLite database. Give another path, or move that file away"),
    ("no such table", "its tables are missing: the file was removed or replaced meanwhile. Try again"),
    ("malformed", "the database is damaged. Restore a copy, or save what is left: sqlite3 FILE .recover"),
    ("unable to open", "the file cannot be opened or made. Check the permissions of the file and its folder"),
    ("disk i/o error", "the disk failed to read or write. Check the disk, or give a path on another"),
)
"""(part of SQLite's error text, our message)."""

_POSTGRESQL: dict[str, str] = {
    "53100": "the server's disk is full; nothing was written",
    "53300": "the server has no connection left; try again, or raise its max_connections",
    "25006": "the server or this user may only read; nothing was written",
    "42501": "this user may not do that; ask for the rights to create and write tables, or give another user",
    "42P01": "its tables are missing: somebody dropped them. Try again",
    "55P03": "other programs have locked its tables; nothing was written. Try again, or end these programs",
    "57P01": "the server is being shut down; nothing was written. Try again",
    "57P03": "the server is starting or ending; nothing was written. Try again",
    "57014": "the server ended the query, because it took too long. Ask for less, by CASE, --since or --limit; or "
    "allow more: end the address with ?options=-cstatement_timeout%3D10min",
}
"""SQLSTATE -> our message."""

_PASSING_STATES = {"40001", "40P01", "23503"}
"""SQLSTATE of a serialisation failure, a deadlock, and a row that a pruning deleted after it was found."""


def is_passing(error: DBAPIError) -> bool:
    """Returns whether the transaction may succeed if it is run again, e.g. after a lock or a deadlock."""
    return "is locked" in str(error.orig) or getattr(error.orig, "sqlstate", None) in _PASSING_STATES


def is_unopenable(error: DBAPIError) -> bool:
    """Returns whether the error says that SQLite could not open its file or its log files."""
    return any(part in str(error.orig) for part in ("unable to open", "readonly database"))


def translate_error(place: StoreLocation, error: StatementError) -> HistoryError:
    """Returns a HistoryError that says what a database library's error means and what to do, without passwords."""
    said = hide_passwords(re.sub(r"\s+", " ", str(error.orig or error)).strip(), place.passwords)
    state = getattr(error.orig, "sqlstate", None)
    if place.path is None:
        known = _POSTGRESQL.get(state or "")
        if known is None and state is None:
            known = "the server cannot be reached, or refused. Check host, port, user, password and database"
    else:
        known = next((meaning for part, meaning in _SQLITE if part in said.lower()), None)
    return HistoryError(f"history {place.shown}: {known or CANNOT_SAY} ({said[:300]})")


def make_content_error(place: StoreLocation, error: Exception) -> HistoryError:
    """Returns a HistoryError which says that the store holds values that attnperf never writes, and what to do;
    `error` is what reading them raised."""
    said = hide_passwords(f"{type(error).__name__}: {error}", place.passwords)
    return HistoryError(
        f"history {place.shown}: it holds values that attnperf never writes; it was damaged or edited. Restore "
        f"a copy, or delete these rows ({said[:300]})"
    )


def hide_passwords(text: str, passwords: Iterable[str]) -> str:
    """Returns the text of a server or library with '***' for each password."""
    for password in passwords:
        text = text.replace(password, "***") if password else text
    return text
