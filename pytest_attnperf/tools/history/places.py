"""Where a store is, from what the user typed: a path, `sqlite:///path` or `postgresql://...`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.tools.history.failures import HistoryError

if TYPE_CHECKING:
    from sqlalchemy import URL

FORMS = "a path, sqlite:///path or postgresql://user@host/database"
POSTGRESQL = {"postgresql", "postgres", "postgresql+psycopg"}
_NEARLY_URL = re.compile(r"(postgres\w*|sqlite|mysql|mariadb|oracle|mssql)(\+\w+)?:", re.IGNORECASE)
"""Begins no path: what follows may hold a password, and would become a file's name."""

_SECRETS = {"password", "sslpassword"}
"""Parameters behind an address's '?'."""


@dataclass(frozen=True)
class Place:
    """A store's place.

    shown      as messages name it, without the password
    path       of a SQLite file; None for a server, whose `url` is then given
    passwords  kept only so that messages of others can be cleared of them
    """

    shown: str
    path: Path | None = None
    url: URL | None = field(default=None, repr=False)
    passwords: tuple[str, ...] = field(default=(), repr=False)


def place_of(text: str) -> Place:
    """Raises HistoryError for an unknown scheme, an address that names no file or database, and missing libraries."""
    scheme, has_scheme, rest = text.partition("://")
    if not has_scheme:
        if _NEARLY_URL.match(text):
            raise HistoryError(f"history: an address has '//' behind its scheme; known: {FORMS}")
        return _file(text, text)
    if scheme == "sqlite":
        if not rest.startswith("/"):
            raise HistoryError(
                "history: the sqlite address names no file; three slashes and a path: sqlite:///history.sqlite"
            )
        if re.search(r"\?\w+=", rest):
            raise HistoryError(f"history {text!r}: options behind a '?' are not taken; known: {FORMS}")
        return _file(rest[1:], text)
    if scheme in POSTGRESQL:
        return _server(text)
    raise HistoryError(f"history: unknown scheme {scheme[:60]!r}; known: {FORMS}")


def require_sqlalchemy() -> None:
    """Raises HistoryError naming the extra where SQLAlchemy 2 is missing."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise HistoryError(f"a history needs SQLAlchemy ({error}): pip install 'pytest-attnperf[history]'") from error
    if sqlalchemy.__version__.startswith(("0.", "1.")):
        raise HistoryError(
            f"a history needs SQLAlchemy 2, found {sqlalchemy.__version__}: pip install 'pytest-attnperf[history]'"
        )


def _file(path: str, text: str) -> Place:
    if not path or path == ":memory:":
        raise HistoryError(f"history {text!r} names no file; known: {FORMS}")
    if path.endswith("/") or Path(path).is_dir():
        raise HistoryError(f"history {text!r} is a folder; name a file in it, e.g. {path.rstrip('/')}/history.sqlite")
    require_sqlalchemy()
    return Place(path, Path(path))


def _server(text: str) -> Place:
    require_sqlalchemy()
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # Their text may repeat the address, and with it the password.
        raise HistoryError(f"history: the address is malformed; known: {FORMS}") from None
    if "@" in (url.host or ""):
        raise HistoryError(f"history: the address is malformed, an '@' in a password is written %40; known: {FORMS}")
    hidden = url.update_query_dict({name: "***" for name in url.query if name.lower() in _SECRETS})
    shown = hidden.render_as_string(hide_password=True).replace("=%2A%2A%2A", "=***")
    if not url.database:
        raise HistoryError(f"history {shown} names no database; known: {FORMS}")
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise HistoryError(
            f"history {shown} needs psycopg ({error}): pip install 'pytest-attnperf[postgresql]'"
        ) from error
    secrets = [url.password, *(value for name, value in url.query.items() if name.lower() in _SECRETS)]
    passwords = tuple(one for one in secrets if isinstance(one, str))
    return Place(shown, url=url.set(drivername="postgresql+psycopg"), passwords=passwords)
