from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pytest_attnperf.tools.history import engines
from pytest_attnperf.tools.history.engines import is_on_network
from pytest_attnperf.tools.history.history_store import open_store


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
