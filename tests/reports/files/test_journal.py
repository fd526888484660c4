"""The journal of a run: what was written is what is read, whatever ended the run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files.journal import (
    JOURNAL_SCHEMA,
    JournalEntry,
    JournalError,
    JournalHeader,
    case_line,
    code_line,
    header_line,
    read_content,
    read_journal,
)
from pytest_attnperf.testing.sample_runs import sample_run

HEADER = JournalHeader(JOURNAL_SCHEMA, "0.1.0", 1, "ab", "gate", {}, 9, 8, "pytest --attnperf", "4f2c", "2026-01-02", 7)
FIRST, SECOND, THIRD = sample_run(3, verdicts=[Verdict.SAME]).cases
WRONG = replace(FIRST, checks=(CheckReport((ErrorFigures("fresh", "out", math.nan, 1.0, math.inf, 1.0),)),))
BESIDE = {"kernels": "k1"}
KERNEL = CodeResult(CaseKey("code_objects", "k", "c", "gfx942"), "t.py::k", Verdict.WORSE, "spills", fails=True)


def written(path: Path, *lines: bytes) -> Path:
    """A journal with these lines behind its header."""
    path.write_bytes(b"".join([header_line(HEADER), *lines]))
    return path


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Cases and kernels come back, the latest of each key; what was carried over is known, and no result of the run."""
    lines = [case_line(JournalEntry(case, BESIDE), carried=True) for case in (SECOND, THIRD)]
    latest = replace(FIRST, notes=("judged twice",))
    lines += [
        case_line(kept) for kept in (JournalEntry(FIRST, {}), JournalEntry(SECOND, BESIDE), JournalEntry(latest, {}))
    ]
    path = written(tmp_path / "a.jsonl", *lines, code_line(KERNEL))
    content = read_content(path)
    assert content.header == HEADER
    assert list(content.cases) == [SECOND.key, FIRST.key]
    assert content.reusable_results[THIRD.key] == JournalEntry(THIRD, BESIDE)
    run = read_journal(path)
    assert (run.cases, run.code) == ((SECOND, latest), (KERNEL,))
    assert (run.complete, run.gated, run.selected, run.mode) == (False, 3, 8, "gate")
    assert run.device is not None
    assert run.device.product == "sample"


def test_errors_that_are_no_number_survive(tmp_path: Path) -> None:
    """NaN and infinity of a wrong output, which JSON does not have."""
    (case,) = read_journal(written(tmp_path / "a.jsonl", case_line(JournalEntry(WRONG, {})))).cases
    assert math.isnan(case.checks[0].figures[0].max_error)
    assert case.checks[0].figures[0].rms_error == math.inf


@pytest.mark.parametrize("kept_bytes", [1, 40, -1])
def test_a_torn_last_line_is_dropped(tmp_path: Path, kept_bytes: int) -> None:
    """A kill within the last write loses that line alone."""
    path = written(
        tmp_path / "a.jsonl", case_line(JournalEntry(FIRST, {})), case_line(JournalEntry(SECOND, {}))[:kept_bytes]
    )
    assert list(read_content(path).cases) == [FIRST.key]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b'{"case": {"schema": 1\n', "line 2: cannot be read"),
        (b'{"case": {"schema": 1}, "more": 1}\n', "line 2: cannot be read"),
        (b'{"case": {"schema": 1}}\n', "line 2 is not a results file"),
        (b"{}\n", "line 2"),
        (b"[" * 100_000 + b"\n", "line 2: cannot be read"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, damage: bytes, said: str) -> None:
    """Any line but the last was whole when it was written: one that is not is an error with its number."""
    path = written(tmp_path / "a.jsonl", damage, case_line(JournalEntry(FIRST, {})))
    with pytest.raises(JournalError, match=said):
        read_content(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin with a journal"),
        (header_line(HEADER)[:30], "does not begin with a journal"),
        (b'{"schema": 1}\n', "does not begin with a journal"),
        (b'{"attnperf_journal": 1}\n', "line 1: is not a header of this version"),
        (header_line(replace(HEADER, attnperf_journal=2)), "journal format 2; this version reads 1"),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    """Another file, a half-written header, and a later version's journal are errors that say so."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(JournalError, match=said):
        read_content(path)
