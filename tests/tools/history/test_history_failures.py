from __future__ import annotations

import builtins
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history.engines import parse_location
from pytest_attnperf.tools.history.history_failures import HistoryError, hide_passwords
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store

MakeRun = Callable[..., RunResult]
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path, make_run: MakeRun) -> Path:
    """A store with one run."""
    path = tmp_path / "history.sqlite"
    with open_store(str(path)) as store:
        store.append(make_run(1))
    return path


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///h.sqlite?mode=ro", "options after a '\\?' are not supported; known: a path"),
        ("mysql://u:secret@h/d", "unknown scheme 'mysql'; known: a path, sqlite:///path or postgresql://"),
        ("postgresql+asyncpg://u:secret@h/d", "unknown scheme 'postgresql\\+asyncpg'; known"),
        ("sqlite://", "names no file; three slashes"),
        ("sqlite://u:secret@h/d", "names no file; three slashes"),
        ("sqlite:///a.sqlite?mode=ro", r"after a '\?'"),
        ("postgresql:/u:secret@h/d", "an address needs '//' after its scheme"),
        ("postgres:u:secret@h/d", "an address needs '//' after its scheme"),
        ("postgresql://u:sec@secret@h/d", "an '@' in a password is written %40"),
        ("sqlite:///", "names no file; known"),
        ("", "names no file; known"),
        (":memory:", "names no file; known"),
        ("postgresql://u:secret@h:port/d", "address is malformed; known"),
        ("postgresql://u:secret@h", r"postgresql://u:\*\*\*@h names no database"),
        ("postgresql://u@h?password=secret", r"postgresql://u@h\?password=\*\*\* names no database"),
        ("/", "is a folder; name a file in it, e.g. /history.sqlite"),
    ],
)
def test_an_address_that_is_off_is_said(url: str, said: str) -> None:
    """What is known is listed, and a password is never repeated."""
    with pytest.raises(HistoryError, match=said) as caught:
        parse_location(url)
    assert "secret" not in str(caught.value)


def _without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Importing `missing` fails."""
    real = builtins.__import__

    def fake(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", fake)


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("sqlalchemy", "a.sqlite", "history"),
        ("sqlalchemy", "postgresql://u@h/d", "history"),
        ("psycopg", "postgresql://u:secret@h/d", "postgresql"),
    ],
)
def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str, url: str, extra: str) -> None:
    """What to install is said as it is typed."""
    _without(monkeypatch, missing)
    with pytest.raises(HistoryError, match=rf"pip install 'pytest-attnperf\[{extra}\]'") as caught:
        parse_location(url)
    assert "secret" not in str(caught.value)


def test_an_old_sqlalchemy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLAlchemy 1 has another interface."""
    monkeypatch.setattr("sqlalchemy.__version__", "1.4.54")
    with pytest.raises(HistoryError, match=r"needs SQLAlchemy 2, found 1\.4\.54: pip install"):
        parse_location("a.sqlite")


def test_a_server_that_is_not_there_is_said() -> None:
    """With its address, without its password."""
    pytest.importorskip("psycopg")
    with pytest.raises(
        HistoryError, match=r"postgresql://u:\*\*\*@127\.0\.0\.1:1/d: the server cannot be reached"
    ) as told:
        open_store("postgresql://u:sec%20ret@127.0.0.1:1/d")
    assert "sec" not in str(told.value).replace("second", "")
    assert hide_passwords("refused sec ret by host", ("", "sec ret")) == "refused *** by host"


def test_a_password_is_in_nothing_that_shows_a_place() -> None:
    """pytest --showlocals prints what a frame holds; the address itself keeps the password for the driver."""
    pytest.importorskip("psycopg")
    place = parse_location("postgresql://u:secret%40@h/d?sslpassword=hidden&application_name=x")
    assert place.shown == "postgresql://u:***@h/d?application_name=x&sslpassword=***"
    assert place.passwords == ("secret@", "hidden")
    assert not any(word in repr(place) for word in ("secret", "hidden"))
    assert place.url is not None
    assert (place.url.password, place.url.query["sslpassword"]) == ("secret@", "hidden")


def test_a_server_whose_writer_stands_still_is_said(postgres_url: str, make_run: MakeRun) -> None:
    """Somebody who was stopped in the middle of the same run keeps nobody waiting longer than was asked."""
    from sqlalchemy import insert

    from pytest_attnperf.tools.history.history_rows import make_rows
    from pytest_attnperf.tools.history.history_tables import define_tables

    with open_store(postgres_url, wait_s=0.1) as store:
        with store.transactions.engine.connect() as other, other.begin():
            other.execute(insert(define_tables().runs).values(**make_rows(make_run(1), "").run))
            with pytest.raises(HistoryError, match="other programs have locked its tables; nothing was written"):
                store.append(make_run(1))
            other.rollback()
        assert store.append(make_run(1)).rows == 1


def test_a_store_that_disappears_is_said(store_url: str, make_run: MakeRun, tmp_path: Path) -> None:
    """Its file was removed, or its tables dropped, while it was open; the next opening makes it anew."""
    from pytest_attnperf.tools.history.history_tables import define_tables

    with open_store(store_url) as store:
        if store.transactions.is_sqlite:
            for path in tmp_path.glob("history.sqlite*"):
                path.unlink()
        else:
            store.transactions.write(define_tables().metadata.drop_all)
        with pytest.raises(HistoryError, match="its tables are missing"):
            store.append(make_run(1))
    with open_store(store_url) as store:
        assert store.append(make_run(1)).rows == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attnperf_facts SET facts = '{oops'",
        "UPDATE attnperf_measurements SET median_us = 'abc'",
        "UPDATE attnperf_measurements SET median_us = -1",
        "UPDATE attnperf_measurements SET process_us = '5'",
        "UPDATE attnperf_measurements SET baseline_us = 9e999",
    ],
)
def test_rows_that_nobody_writes_are_said(path: Path, change: str) -> None:
    """A file that somebody edited is an error, and no traceback."""
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with (
        open_store(str(path), read_only=True) as store,
        pytest.raises(HistoryError, match="it holds values that attnperf never writes"),
    ):
        store.load_history("triton")


def test_names_of_others_repaint_nothing(path: Path, make_run: MakeRun) -> None:
    """What an error lists may be anything."""
    with open_store(str(path)) as store:
        store.append(make_run(2, backend="\x1b[2J\u202e"))
        with pytest.raises(HistoryError, match="known: prefill/ ") as told:
            store.load_history("none of these")
    assert str(told.value).isprintable()


def test_a_locked_file_is_said(path: Path, make_run: MakeRun) -> None:
    """After waiting for so long as was asked; and reading goes on meanwhile."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with open_store(str(path), wait_s=0.05) as store:
        with pytest.raises(HistoryError, match=r"another program has locked it; nothing was written.*locked\)"):
            store.append(make_run(2))
        assert len(store.load_history("triton")[0].points) == 1
        other.close()
        assert store.append(make_run(2)).rows == 1


def _limit_pages(store: HistoryStore, pages: int) -> None:
    from sqlalchemy import event

    @event.listens_for(store.transactions.engine, "connect")
    def connected(raw: sqlite3.Connection, _: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_said_and_nothing_half_is_kept(path: Path, make_run: MakeRun) -> None:
    """The run is stored whole or not at all."""
    with open_store(str(path)) as store:
        _limit_pages(store, 1)
        with pytest.raises(HistoryError, match=r"the disk is full; nothing was written\. Free space, or shorten it"):
            store.append(make_run(2, nodeid="n" * 200_000))
    with open_store(str(path), read_only=True) as store:
        assert [point.run_id for point in store.load_history("triton")[0].points] == ["run 1"]


@pytest.mark.parametrize("read_only", [True, False])
def test_another_file_is_refused(tmp_path: Path, read_only: bool) -> None:
    """A text file, and a database of something else, are left as they are."""
    text = tmp_path / "notes.txt"
    text.write_text("no database at all\n" * 100)
    with pytest.raises(HistoryError, match=r"notes\.txt: it is no SQLite database\. Give another path"):
        open_store(str(text), read_only=read_only)
    assert text.read_text() == "no database at all\n" * 100
    foreign = tmp_path / "other.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE songs (a)")
    connection.close()
    with pytest.raises(HistoryError, match=r"belongs to another program, with tables 'songs'; give another"):
        open_store(str(foreign), read_only=read_only)


def test_a_damaged_file_is_said(path: Path) -> None:
    """Pages that are overwritten are found when they are read."""
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(HistoryError, match=r"the database is damaged\. Restore a copy"):
        open_store(str(path)).list_cases()


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path: Path) -> None:
    """Neither a file that is missing nor one that is empty."""
    path = tmp_path / "none.sqlite"
    with pytest.raises(HistoryError, match=r"does not exist yet; make it from the last run: attnperf history --hi"):
        open_store(str(path), read_only=True)
    assert not path.exists()
    path.touch()
    with pytest.raises(HistoryError, match="is empty"):
        open_store(str(path), read_only=True)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A file stands where the folder would."""
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match="its folder cannot be made"):
        open_store(str(tmp_path / "file" / "history.sqlite"))


@contextmanager
def _as_somebody_else() -> Iterator[None]:
    """Without root's right to write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def read_only_path(path: Path) -> Iterator[Path]:
    """A store in a folder that nobody may write to, but everybody read; pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="attnperf-read-only"))
    shutil.copy(path, folder / path.name)
    (folder / path.name).chmod(0o444)
    folder.chmod(0o555)
    yield folder / path.name
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_can_be_read_and_says_that_it_cannot_be_written(
    read_only_path: Path, make_run: MakeRun
) -> None:
    """Somebody without write permission looks at a team's file, although SQLite cannot make its files beside it."""
    with _as_somebody_else():
        with open_store(str(read_only_path), read_only=True) as store:
            assert len(store.load_history("triton")[0].points) == 1
        with pytest.raises(HistoryError, match="the file or its folder is read-only; nothing was written"):
            open_store(str(read_only_path)).append(make_run(2))
        with pytest.raises(HistoryError, match="cannot be opened or made"):
            open_store(str(read_only_path.with_name("new.sqlite")))
