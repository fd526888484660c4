"""Of a file that is no rocpd, of another schema, damaged, locked or not closed it is said what it is and what to do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.tools.profilers.rocpd.reader import read_rocpd
from pytest_attnperf.tools.profilers.rocpd.rocpd_schema import is_sqlite
from tests.tools.profilers.rocpd_database import Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """With the tables of one process, and no dispatch."""
    return Database(tmp_path / "4711_results.db")


@pytest.mark.parametrize("version", ["4", "2.1", "x"])
def test_another_schema_version(tmp_path: Path, version: str) -> None:
    """A schema of another major version is refused, with the command that converts it; 3.0.5 is read."""
    database = Database(tmp_path / "a.db", version=version)
    database.dispatch(1, 2)
    with pytest.raises(ProfileError, match=rf"schema version '{version}'.* rocpd convert -i a.db -f csv"):
        database.read()
    database = Database(tmp_path / "b.db", version="3.0.5")
    database.dispatch(1, 2)
    assert len(database.read().dispatches) == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [("users", r"it has 'users'\. Make one with: rocprofv3"), ("rocpd_op", r"'rocpd_op'\. It looks like .*\.rpd")],
)
def test_another_database(tmp_path: Path, table: str, said: str) -> None:
    """A SQLite file of something else is refused with its tables; an .rpd is recognised."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table} (x)")
    assert is_sqlite(path)
    with pytest.raises(ProfileError, match=rf"no table rocpd_kernel_dispatch.*{said}"):
        read_rocpd(path)


def test_no_database(tmp_path: Path) -> None:
    """Other files and folders are no SQLite, and a file that is read all the same is refused."""
    path = tmp_path / "trace.csv"
    path.write_text("Kind,Agent_Id\n")
    assert [is_sqlite(one) for one in (path, tmp_path, tmp_path / "none")] == [False] * 3
    with pytest.raises(ProfileError, match="is no SQLite database"):
        read_rocpd(path)


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_damaged_databases(database: Database, damage: str) -> None:
    """A database cut short or overwritten is refused with what SQLite says and what to do."""
    for start in range(1, 400):
        database.dispatch(start, start + 1)
    database.read()
    content = database.path.read_bytes()
    half = len(content) // 2
    database.path.write_bytes(content[:half] if damage == "cut" else content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(ProfileError, match=r"SQLite says '.*it is cut short or damaged"):
        read_rocpd(database.path)


def test_a_database_being_written(database: Database) -> None:
    """While a process writes it, it is refused and not waited for long."""
    database.dispatch(1, 2)
    database.connection.commit()
    database.run("BEGIN EXCLUSIVE")
    with pytest.raises(ProfileError, match=r"locked.*wait until rocprofv3 has ended"):
        read_rocpd(database.path)
    database.connection.rollback()
    assert len(read_rocpd(database.path).dispatches) == 1


def test_a_log_left_behind_is_read(database: Database) -> None:
    """Rows that are only in a write-ahead log count; a closed database in that mode is given no files."""
    database.run("PRAGMA journal_mode = WAL")
    database.dispatch(1, 2)
    database.connection.commit()
    assert len(read_rocpd(database.path).dispatches) == 1
    assert database.path.with_name(f"{database.path.name}-wal").stat().st_size
    database.read()
    assert [path.name for path in database.path.parent.iterdir()] == [database.path.name]
