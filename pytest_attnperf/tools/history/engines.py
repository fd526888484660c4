"""Locates a store by its address and runs transactions on it. Waits for other writers, and repeats transactions after
errors that may pass."""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from pytest_attnperf.tools.history.history_failures import (
    HistoryError,
    is_passing,
    is_unopenable,
    make_content_error,
    translate_error,
)

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

T = TypeVar("T")
WAIT_SECONDS = 30.0
"""Seconds that a writer waits for others."""

READ_LIMIT = "120s"
"""Longest statement that reads a server: it ends queries whose reader went away, too."""

READ_MEMORY = "32MB"
"""Least memory of a statement that reads a server: by its default, 4 MB, it sorts a case of two years on the disk."""

ATTEMPTS = 10
PAUSE_SECONDS = (0.01, 0.15)
CONNECT_SECONDS = 10
WRITES = {"attnperf_writes": True}
"""Connection option: take the write lock at once, because data may change before a later lock."""

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "fuse.")
"""File systems without write-ahead logging: it needs memory that processes share, and two hosts share none."""

MOUNTS = Path("/proc/self/mounts")

FORMS = "a path, sqlite:///path or postgresql://user@host/database"
POSTGRESQL = {"postgresql", "postgres", "postgresql+psycopg"}
_NEARLY_URL = re.compile(r"(postgres\w*|sqlite|mysql|mariadb|oracle|mssql)(\+\w+)?:", re.IGNORECASE)
"""Matches a malformed address, which must not be used as a path: it may hold a password."""

_SECRETS = {"password", "sslpassword"}
"""Parameters after an address's '?' that hold a password."""


class Transactions:
    """Runs functions in transactions of one store, by `read` and `write`, which raise HistoryError."""

    def __init__(self, place: StoreLocation, *, read_only: bool, wait_s: float = WAIT_SECONDS) -> None:
        self.place = place
        self.wait_s = wait_s
        self.read_only = read_only
        if place.path is None:
            self.engine = _make_server_engine(place, read_only, wait_s)
        else:
            self.engine = _make_file_engine(place, read_only, wait_s)

    @property
    def is_sqlite(self) -> bool:
        """Whether the store is a SQLite file."""
        return self.place.path is not None

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and returns its result. Raises HistoryError for an error of the database, and
        for stored values that cannot be valid."""
        from sqlalchemy.exc import DBAPIError, StatementError

        try:
            with self.engine.connect() as connection, connection.begin():
                return work(connection)
        except DBAPIError as error:
            if self._can_read_without_log(error):
                self.engine = _make_file_engine(self.place, True, self.wait_s, immutable=True)
                return self.read(work)
            raise translate_error(self.place, error) from error
        except StatementError as error:
            raise translate_error(self.place, error) from error
        except (ValueError, TypeError) as error:
            raise make_content_error(self.place, error) from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and returns its result; stores all or nothing. Repeats it after errors that may
        pass, up to ATTEMPTS times and `wait_s` seconds. Raises HistoryError if it is open for reading only, or the last
        attempt fails."""
        from sqlalchemy.exc import DBAPIError, StatementError

        if self.read_only:
            raise HistoryError(f"history {self.place.shown} is open for reading only; open it with read_only=False")
        deadline = time.monotonic() + self.wait_s
        attempt = 0
        while True:
            attempt += 1
            try:
                with self.engine.connect().execution_options(**WRITES) as connection, connection.begin():
                    return work(connection)
            except DBAPIError as error:
                if attempt == ATTEMPTS or not is_passing(error) or time.monotonic() > deadline:
                    raise translate_error(self.place, error) from error
            except StatementError as error:
                raise translate_error(self.place, error) from error
            time.sleep(random.uniform(*PAUSE_SECONDS) * attempt)

    def close(self) -> None:
        """Closes all connections to the store."""
        self.engine.dispose()

    def _can_read_without_log(self, error: Any) -> bool:
        """Returns whether opening the SQLite file as immutable can help after this error: SQLite could not make its log
        files, as in a read-only folder, and the log is absent or empty, so that it is not needed."""
        path = self.place.path
        if not self.read_only or path is None or not is_unopenable(error) or not path.is_file():
            return False
        written = path.with_name(f"{path.name}-wal")
        return "immutable" not in self.engine.get_execution_options() and not (
            written.is_file() and written.stat().st_size
        )


def enable_write_ahead_log(transactions: Transactions) -> None:
    """Enables write-ahead logging for a local SQLite file, so that readers do not wait for the writer. Does nothing for
    a server or a network file system, or if SQLite refuses."""
    from sqlalchemy.exc import DBAPIError

    path = transactions.place.path
    if path is None or is_on_network(path):
        return
    try:
        with transactions.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            if raw is not None:
                raw.execute("PRAGMA journal_mode=WAL").close()
    except (DBAPIError, sqlite3.DatabaseError):
        # Another writer is active, or the file system cannot do it. A real problem fails again later, with its reason.
        return


def is_on_network(path: Path, mounts: Path = MOUNTS) -> bool:
    """Returns whether a path lies on a file system that several hosts may share; False if unknown."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    folder = path.resolve().parent
    kinds: dict[int, str] = {}
    for line in lines:
        _, where, kind, *_ = [*line.split(), "", "", ""]
        mounted = Path(where.encode().decode("unicode_escape", errors="replace"))
        if mounted == folder or mounted in folder.parents:
            kinds[len(mounted.parts)] = kind
    return bool(kinds) and kinds[max(kinds)].startswith(NETWORK_FILE_SYSTEMS)


def _make_file_engine(place: StoreLocation, read_only: bool, wait_s: float, *, immutable: bool = False) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    assert place.path is not None
    address = f"file:{quote(str(place.path.resolve()))}?mode={'ro' if read_only else 'rwc'}"
    address += "&immutable=1" if immutable else ""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=False)

    said = {"immutable": True} if immutable else {}
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, execution_options=said)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("attnperf_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _make_server_engine(place: StoreLocation, read_only: bool, wait_s: float) -> Engine:
    from sqlalchemy import case, create_engine, event, func, select
    from sqlalchemy.pool import NullPool

    assert place.url is not None
    engine = create_engine(
        place.url,
        poolclass=NullPool,
        connect_args={
            "connect_timeout": CONNECT_SECONDS,
            "tcp_user_timeout": int(2000 * WAIT_SECONDS),
            "application_name": "attnperf",
        },
        execution_options={"postgresql_readonly": True} if read_only else {},
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Without a limit, a writer that is stopped in its transaction makes others wait for ever.
        limits = [func.set_config("lock_timeout", f"{max(1, int(1000 * wait_s))}ms", True)]
        if not connection.get_execution_options().get("attnperf_writes"):
            # A limit of the server, the user or the address stays, and so does more memory.
            time, memory = func.current_setting("statement_timeout"), func.current_setting("work_mem")
            less = func.pg_size_bytes(memory) < func.pg_size_bytes(READ_MEMORY)
            limits += [
                func.set_config("statement_timeout", case((time == "0", READ_LIMIT), else_=time), True),
                func.set_config("work_mem", case((less, READ_MEMORY), else_=memory), True),
            ]
        connection.execute(select(*limits))

    return engine


@dataclass(frozen=True)
class StoreLocation:
    """Where a store is.

    shown      its address for messages, without the password
    path       path of a SQLite file; None for a server, which has a `url`
    passwords  kept only to remove them from messages of libraries
    """

    shown: str
    path: Path | None = None
    url: URL | None = field(default=None, repr=False)
    passwords: tuple[str, ...] = field(default=(), repr=False)


def parse_location(text: str) -> StoreLocation:
    """Returns where the store of an address is: a path, sqlite:///path or postgresql://... Raises HistoryError for an
    unknown scheme, no file or database, and missing libraries."""
    scheme, has_scheme, rest = text.partition("://")
    if not has_scheme:
        if _NEARLY_URL.match(text):
            raise HistoryError(f"history: an address needs '//' after its scheme; known: {FORMS}")
        return _parse_file(text, text)
    if scheme == "sqlite":
        if not rest.startswith("/"):
            raise HistoryError(
                "history: the sqlite address names no file; three slashes and a path: sqlite:///history.sqlite"
            )
        if re.search(r"\?\w+=", rest):
            raise HistoryError(f"history {text!r}: options after a '?' are not supported; known: {FORMS}")
        return _parse_file(rest[1:], text)
    if scheme in POSTGRESQL:
        return _parse_server(text)
    raise HistoryError(f"history: unknown scheme {scheme[:60]!r}; known: {FORMS}")


def _require_sqlalchemy() -> None:
    """Raises HistoryError that names the extra to install if SQLAlchemy 2 is missing."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise HistoryError(f"a history needs SQLAlchemy ({error}): pip install 'pytest-attnperf[history]'") from error
    if sqlalchemy.__version__.startswith(("0.", "1.")):
        raise HistoryError(
            f"a history needs SQLAlchemy 2, found {sqlalchemy.__version__}: pip install 'pytest-attnperf[history]'"
        )


def _parse_file(path: str, text: str) -> StoreLocation:
    if not path or path == ":memory:":
        raise HistoryError(f"history {text!r} names no file; known: {FORMS}")
    if path.endswith("/") or Path(path).is_dir():
        raise HistoryError(f"history {text!r} is a folder; name a file in it, e.g. {path.rstrip('/')}/history.sqlite")
    _require_sqlalchemy()
    return StoreLocation(path, Path(path))


def _parse_server(text: str) -> StoreLocation:
    _require_sqlalchemy()
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The library's text may repeat the address with its password.
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
    return StoreLocation(shown, url=url.set(drivername="postgresql+psycopg"), passwords=passwords)
