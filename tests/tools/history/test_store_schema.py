from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import store_schema
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.history_tables import SCHEMA_VERSION
from pytest_attnperf.tools.history.pruning import Pruned

if TYPE_CHECKING:
    from sqlalchemy import Connection

MakeRun = Callable[..., RunResult]
VERSION_1 = Path(__file__).with_name("version_1.sql")
"""A SQLite store of two cases in three runs, the second wrong, as the last release with schema 1 left it."""


def _add_tag(connection: Connection) -> None:
    """A step as a later version would have it."""
    connection.exec_driver_sql("ALTER TABLE attnperf_runs ADD COLUMN tag VARCHAR(20) DEFAULT 'none' NOT NULL")


def _fail(connection: Connection) -> None:
    raise HistoryError("the step failed")


@pytest.fixture
def filled_url(store_url: str, make_run: MakeRun) -> str:
    """A store of today's schema with one run."""
    with open_store(store_url) as store:
        store.append(make_run(1))
    return store_url


def _later(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[Connection], None]) -> None:
    """Make this the version whose schema is so many steps later."""
    monkeypatch.setattr(store_schema, "SCHEMA_VERSION", SCHEMA_VERSION + len(steps))
    monkeypatch.setattr(store_schema, "STEPS", dict(enumerate(steps, SCHEMA_VERSION)))


def _columns(store: HistoryStore) -> list[str]:
    from sqlalchemy import inspect

    return [str(column["name"]) for column in inspect(store.transactions.engine).get_columns("attnperf_runs")]


def test_every_older_version_has_a_step() -> None:
    """A schema version without the step that leads to it could not be reached."""
    assert sorted(store_schema.STEPS) == list(range(1, SCHEMA_VERSION))


def test_an_older_store_is_migrated_when_it_is_opened_for_writing(
    monkeypatch: pytest.MonkeyPatch, filled_url: str, make_run: MakeRun
) -> None:
    """Step by step; what was in it stays, and it is done once."""
    seen: list[int] = []
    _later(monkeypatch, _add_tag, lambda connection: seen.append(1))
    for _ in range(2):
        with open_store(filled_url) as store:
            assert "tag" in _columns(store)
            assert [one.points for one in store.list_cases()] == [1]
    assert seen == [1]


def test_an_older_store_is_not_read_but_says_how_to_migrate_it(
    monkeypatch: pytest.MonkeyPatch, filled_url: str
) -> None:
    """Reading changes nothing."""
    _later(monkeypatch, _add_tag)
    with pytest.raises(HistoryError, match=r"has schema 2, this version reads 3; migrate it by attnperf history"):
        open_store(filled_url, read_only=True)


def test_a_step_that_fails_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch, filled_url: str) -> None:
    """All steps are one transaction."""
    with monkeypatch.context() as later:
        _later(later, _add_tag, _fail)
        with pytest.raises(HistoryError, match="the step failed"):
            open_store(filled_url)
    with open_store(filled_url) as store:
        assert "tag" not in _columns(store)
        assert [one.points for one in store.list_cases()] == [1]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_newer_store_is_refused(monkeypatch: pytest.MonkeyPatch, filled_url: str, read_only: bool) -> None:
    """An older program cannot know what it would damage."""
    with monkeypatch.context() as later:
        _later(later, _add_tag)
        open_store(filled_url).close()
    with pytest.raises(HistoryError, match=r"has schema 3, this version knows up to 2; upgrade pytest-attnperf"):
        open_store(filled_url, read_only=read_only)


def test_a_store_without_its_version_is_refused(filled_url: str) -> None:
    """Somebody emptied the table."""
    from sqlalchemy import delete

    from pytest_attnperf.tools.history.history_tables import define_tables

    with open_store(filled_url) as store:
        store.transactions.write(lambda connection: connection.execute(delete(define_tables().schema)))
    with pytest.raises(HistoryError, match="its schema version is None, not 1 to 2"):
        open_store(filled_url)


def test_a_file_of_version_1_is_migrated(tmp_path: Path) -> None:
    """Its points stay, what is counted is counted, and it is appended to and pruned like a new one."""
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(VERSION_1.read_text())
    connection.close()
    with pytest.raises(HistoryError, match=r"has schema 1, this version reads 2; migrate it by attnperf history"):
        open_store(str(path), read_only=True)
    with open_store(str(path)) as store:
        assert [(one.points, one.wrong, one.first[:10], one.last[:10]) for one in store.list_cases()] == [
            (2, 1, "2026-01-01", "2026-01-03")
        ] * 2
        (history,) = store.load_history("native.eager")
        assert [point.run_id for point in history.points] == ["run 0", "run 2"]
        assert store.prune(keep_runs=1) == Pruned(4, 2, 0, 0, 2)
        assert indexes_of(store) == {"ix_attnperf_measurements_run_id"}


def make_version_1(connection: Connection) -> None:
    """Makes of an empty store of today on PostgreSQL one of version 1."""
    name = "attnperf_measurements"
    connection.exec_driver_sql("DROP TABLE attnperf_totals, attnperf_uses")
    for facts in ("machine_id", "environment_id"):
        connection.exec_driver_sql(f"CREATE INDEX ix_{name}_{facts} ON {name} ({facts})")
        connection.exec_driver_sql(
            f"ALTER TABLE {name} ADD CONSTRAINT {name}_{facts}_fkey FOREIGN KEY ({facts}) REFERENCES attnperf_facts"
        )
    connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey")
    connection.exec_driver_sql(f"ALTER TABLE {name} ADD PRIMARY KEY (case_id, started, run_id)")
    connection.exec_driver_sql("UPDATE attnperf_schema SET version = 1")


def test_a_server_of_version_1_is_migrated(postgres_url: str, make_run: MakeRun) -> None:
    """It has then what a new store has: columns in the index of the key, no index or reference of facts, and totals."""
    from sqlalchemy import inspect

    with open_store(postgres_url) as store:
        store.append(make_run(1))
        new = inspect(store.transactions.engine)
        key, foreign = new.get_pk_constraint("attnperf_measurements"), new.get_foreign_keys("attnperf_measurements")
        store.transactions.write(make_version_1)
    with open_store(postgres_url) as store:
        found = inspect(store.transactions.engine)
        assert found.get_pk_constraint("attnperf_measurements") == key
        assert key["dialect_options"]["postgresql_include"] == ["median_us", "machine_id", "verdict"]
        assert found.get_foreign_keys("attnperf_measurements") == foreign
        assert indexes_of(store) == {"ix_attnperf_measurements_run_id"}
        assert [one.points for one in store.list_cases()] == [1]


def test_a_server_vacuums_new_rows_daily(postgres_url: str) -> None:
    """Its own rule waits for a fifth of the table; an index alone answers only for rows that were vacuumed."""
    with open_store(postgres_url) as store, store.transactions.engine.connect() as connection:
        query = "SELECT reloptions FROM pg_class WHERE oid = 'attnperf_measurements'::regclass"
        assert connection.exec_driver_sql(query).scalar_one() == [
            "autovacuum_vacuum_insert_scale_factor=0",
            f"autovacuum_vacuum_insert_threshold={store_schema.VACUUM_ROWS}",
        ]


def indexes_of(store: HistoryStore) -> set[str]:
    """The names of the indexes of measurements, beside that of the key."""
    from sqlalchemy import inspect

    return {str(one["name"]) for one in inspect(store.transactions.engine).get_indexes("attnperf_measurements")}
