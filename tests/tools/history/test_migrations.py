from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import migrations
from pytest_attnperf.tools.history.failures import HistoryError
from pytest_attnperf.tools.history.schema import SCHEMA_VERSION
from pytest_attnperf.tools.history.store import HistoryStore, open_store

if TYPE_CHECKING:
    from sqlalchemy import Connection

MakeRun = Callable[..., RunResult]


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
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", SCHEMA_VERSION + len(steps))
    monkeypatch.setattr(migrations, "STEPS", dict(enumerate(steps, SCHEMA_VERSION)))


def _columns(store: HistoryStore) -> list[str]:
    from sqlalchemy import inspect

    return [str(column["name"]) for column in inspect(store.transactions.engine).get_columns("attnperf_runs")]


def test_every_older_version_has_a_step() -> None:
    """A schema version without the step that leads to it could not be reached."""
    assert sorted(migrations.STEPS) == list(range(1, SCHEMA_VERSION))


def test_an_older_store_is_migrated_when_it_is_opened_for_writing(
    monkeypatch: pytest.MonkeyPatch, filled_url: str, make_run: MakeRun
) -> None:
    """Step by step; what was in it stays, and it is done once."""
    seen: list[int] = []
    _later(monkeypatch, _add_tag, lambda connection: seen.append(1))
    for _ in range(2):
        with open_store(filled_url) as store:
            assert "tag" in _columns(store)
            assert [one.points for one in store.cases()] == [1]
    assert seen == [1]


def test_an_older_store_is_not_read_but_says_how_to_migrate_it(
    monkeypatch: pytest.MonkeyPatch, filled_url: str
) -> None:
    """Reading changes nothing."""
    _later(monkeypatch, _add_tag)
    with pytest.raises(HistoryError, match=r"is of schema 1, this version reads 2; migrate it by attnperf history"):
        open_store(filled_url, read_only=True)


def test_a_step_that_fails_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch, filled_url: str) -> None:
    """All steps are one transaction."""
    with monkeypatch.context() as later:
        _later(later, _add_tag, _fail)
        with pytest.raises(HistoryError, match="the step failed"):
            open_store(filled_url)
    with open_store(filled_url) as store:
        assert "tag" not in _columns(store)
        assert [one.points for one in store.cases()] == [1]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_newer_store_is_refused(monkeypatch: pytest.MonkeyPatch, filled_url: str, read_only: bool) -> None:
    """An older program cannot know what it would damage."""
    with monkeypatch.context() as later:
        _later(later, _add_tag)
        open_store(filled_url).close()
    with pytest.raises(HistoryError, match=r"is of schema 2, this version knows up to 1; upgrade pytest-attnperf"):
        open_store(filled_url, read_only=read_only)


def test_a_store_without_its_version_is_refused(filled_url: str) -> None:
    """Somebody emptied the table."""
    from sqlalchemy import delete

    from pytest_attnperf.tools.history.schema import tables

    with open_store(filled_url) as store:
        store.transactions.writing(lambda connection: connection.execute(delete(tables().schema)))
    with pytest.raises(HistoryError, match="its schema version is None; known: 1 to 1"):
        open_store(filled_url)
