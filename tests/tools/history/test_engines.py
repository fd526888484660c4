from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.tools.history import engines
from pytest_attnperf.tools.history.engines import is_on_network
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import open_store

if TYPE_CHECKING:
    from sqlalchemy import Connection


def test_a_path_is_on_the_innermost_mount(tmp_path: Path) -> None:
    """Only that one's file system counts; without a list of mounts nothing is a network's."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nhost:/x {tmp_path.parent} nfs4 rw 0 0\nnone {tmp_path}/in tmpfs rw 0 0\nodd\n")
    assert is_on_network(tmp_path / "history.sqlite", mounts)
    assert not is_on_network(tmp_path / "in" / "history.sqlite", mounts)
    assert not is_on_network(Path("/somewhere/else"), mounts)
    assert not is_on_network(tmp_path, tmp_path / "missing")


@pytest.mark.parametrize(("network", "mode"), [(False, "wal"), (True, "delete")])
def test_a_file_is_logged_ahead_except_on_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: bool, mode: str
) -> None:
    """Hosts share no memory, by which processes on one host agree on the log."""
    monkeypatch.setattr(engines, "is_on_network", lambda path: network)
    open_store(str(tmp_path / "a.sqlite")).close()
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
    connection.close()


def test_a_failure_that_passes_is_tried_again(tmp_path: Path) -> None:
    """A deadlock, or a row that was pruned meanwhile, costs another attempt and nothing else."""
    from sqlalchemy.exc import DBAPIError

    class Deadlock(Exception):
        sqlstate = "40P01"

    attempts: list[int] = []

    def work(connection: object) -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise DBAPIError("INSERT", {}, Deadlock("deadlock detected"))
        return "done"

    with open_store(str(tmp_path / "a.sqlite")) as store:
        assert store.transactions.write(work) == "done"
    assert len(attempts) == 3


def test_a_query_that_takes_too_long_is_ended(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that went away leaves nothing behind; the message says what to ask for. Writers are not limited."""
    monkeypatch.setattr(engines, "READ_LIMIT", "50ms")
    with open_store(postgres_url) as store:
        with pytest.raises(HistoryError, match=r"too long. Ask for less, by CASE, --since or --limit; or allow more"):
            store.transactions.read(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(5)"))
        store.transactions.write(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(0.1)"))


def test_limits_of_the_address_stay(postgres_url: str) -> None:
    """A user's own limit of time, and more memory, count; less memory is raised."""
    with open_store(f"{postgres_url}%20-cstatement_timeout%3D7min%20-cwork_mem%3D64MB") as store:
        assert store.transactions.read(show_limits) == ("7min", "64MB")
    with open_store(f"{postgres_url}%20-cwork_mem%3D1MB") as store:
        assert store.transactions.read(show_limits) == ("2min", "32MB")


def show_limits(connection: Connection) -> tuple[str, ...]:
    """What the server keeps to in this transaction."""
    names = ("statement_timeout", "work_mem")
    return tuple(str(connection.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names)
