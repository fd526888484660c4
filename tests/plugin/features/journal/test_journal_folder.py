"""Journals of a tree: who writes one, which are unfinished, and what is forgotten."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.plugin.features.journal.journaling import (
    KEPT_UNFINISHED,
    JournalWriter,
    check_own_journals,
    list_living,
    list_unfinished,
    read_journals,
)
from pytest_attnperf.reports.files.journal import JOURNAL_SCHEMA, JournalError, JournalHeader, header_line

HEADER = header_line(JournalHeader(JOURNAL_SCHEMA, "0.1.0", 1, "", "gate", {}, 1, 1, "pytest", "", "2026-01-02", 7))


def test_a_journal_lives_as_long_as_its_run(tmp_path: Path) -> None:
    """While it is written it is nobody's to resume; closed and kept it is unfinished; else it is gone."""
    kept, dropped = JournalWriter(tmp_path, [HEADER]), JournalWriter(tmp_path, [HEADER])
    assert set(list_living(tmp_path)) == {kept.path, dropped.path}
    assert list_unfinished(tmp_path) == []
    kept.append(b"line\n")
    kept.close(keep=True)
    dropped.close(keep=False)
    assert list_unfinished(tmp_path) == [kept.path] == list(tmp_path.iterdir())
    assert kept.path.read_bytes() == HEADER + b"line\n"


def test_old_journals_are_forgotten_and_living_ones_are_not(tmp_path: Path) -> None:
    """A new run leaves the newest unfinished ones, whatever still lives, and nothing that was only begun."""
    alive = JournalWriter(tmp_path, [HEADER])
    ended = [JournalWriter(tmp_path, [HEADER]) for _ in range(KEPT_UNFINISHED + 2)]
    for writer in ended:
        writer.close(keep=True)
    (tmp_path / "20260101-000000-000000-1.begun").write_bytes(HEADER)
    newest = JournalWriter(tmp_path, [HEADER])
    expected = {alive.path, newest.path, *(writer.path for writer in ended[2:])}
    assert set(tmp_path.iterdir()) == expected
    alive.close(keep=False)
    newest.close(keep=False)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the disk cuts short is taken back and is an error; the lines before it stay readable."""
    writer = JournalWriter(tmp_path, [HEADER])
    real = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: real(descriptor, data[:5]))
    with pytest.raises(OSError, match="No space left") as raised:
        writer.append(b"a long line\n")
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    writer.close(keep=True)
    assert writer.path.read_bytes() == HEADER
    (tmp_path / "99990101-000000-000000-1.jsonl").write_bytes(HEADER[:9])
    assert [path for path, _ in read_journals(list_unfinished(tmp_path))] == [writer.path]


def test_lines_reach_the_disk_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second after the last time the next line brings all of them there."""
    synced: list[int] = []
    now = [0.0]
    writer = JournalWriter(tmp_path, [HEADER], now=lambda: now[0])
    monkeypatch.setattr("os.fsync", synced.append)
    for now[0] in (0.5, 0.9, 1.1, 1.2, 2.2):
        writer.append(b"line\n")
    assert len(synced) == 2
    writer.close(keep=False)


def test_a_journal_that_came_with_the_tree_is_refused(tmp_path: Path) -> None:
    """One under version control could be a change's own verdicts on itself; one that a run left is not."""
    folder = Path(".attnperf") / "journal"
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "20260101-000000-000000-1.jsonl").write_bytes(HEADER)
    check_own_journals(tmp_path, folder)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    check_own_journals(tmp_path, folder)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-f", "."], check=True)
    with pytest.raises(JournalError, match=r"is under version control.*git rm -r --cached \.attnperf/journal"):
        check_own_journals(tmp_path, folder)


def test_what_is_no_journal_stops_no_writer(tmp_path: Path) -> None:
    """Folders in the place of old journals are left by who forgets, and named by who reads."""
    for number in range(KEPT_UNFINISHED + 2):
        (tmp_path / f"2026010{number + 1}-000000-000000-1.jsonl").mkdir()
    JournalWriter(tmp_path, [HEADER]).close(keep=False)
    with pytest.raises(JournalError, match=r"20260105-.*jsonl cannot be read \(Is a directory\)"):
        read_journals(list_unfinished(tmp_path))
