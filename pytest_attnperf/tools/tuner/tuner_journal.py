"""Keeps every trial of a tuning run on disk, so that a killed tuner resumes with them.

One JSON object per line, appended and flushed to disk. The first line describes the search; a run with another space,
architecture, list of workloads or method must not add its trials. A line that a kill left half-written is dropped, with
a note.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.tuning_records import Candidate, Trial

MARK = '{"attnperf_tune_journal":'
"""First characters of every journal; any other file is left unchanged."""

VERSION = 1

BYTES_MAX = 1 << 30
SHOWN = 120
"""Most characters of a header's value in an error."""


@dataclass(frozen=True)
class SlotTrial:
    """A trial and its place in the search.

    slot      number of the process in the search; after a kill or a death another process times the rest of it
    attempt   0, or how often the worker died with it before
    """

    slot: int
    attempt: int
    trial: Trial


class TrialJournal:
    """An open journal. Close it or use it as a context manager; until then no other tuner can open it.

    notes   messages on earlier sessions, e.g. that a half-written line was dropped
    """

    def __init__(self, path: Path | None = None) -> None:
        """Makes a journal in memory only; `open` passes the `path` of a file."""
        self.path = path
        self.notes: list[str] = []
        self._timed: dict[tuple[int, str, str, int], SlotTrial] = {}
        self._others: list[tuple[str, dict[str, Any]]] = []
        self._guard = threading.Lock()
        self._lock: FileLock | None = None
        self._descriptor: int | None = None

    @classmethod
    def open(cls, path: Path, header: Mapping[str, str]) -> TrialJournal:
        """Opens or creates the journal at `path`.

        Raises UsageError if another tuner has it open, it belongs to another search, it is no journal, a line other
        than the last cannot be read, or the folder cannot be written."""
        journal = cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            journal._lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, thread_local=False)
            journal._lock.acquire()
            journal._load_or_begin(path, header)
        except Timeout as error:
            raise UsageError(
                f"{path}: another tuner is using this journal; wait for it to end, or give another --out"
            ) from error
        except OSError as error:
            journal.close()
            raise UsageError(f"{path}: the journal cannot be written ({error.strerror}); give another --out") from error
        except BaseException:
            journal.close()
            raise
        return journal

    def _load_or_begin(self, path: Path, header: Mapping[str, str]) -> None:
        whole, torn = drop_torn_line(path, MARK)
        if torn:
            self.notes.append(f"{path.name}: dropped a last line of {torn} bytes that an earlier run had half written")
        lines = whole.decode("utf-8", "replace").splitlines()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if not lines:
            self._write({"attnperf_tune_journal": VERSION, "header": dict(header)})
            return
        _check_header(path, lines[0], header)
        for number, line in enumerate(lines[1:], start=2):
            self._read_line(path, number, line)

    def _read_line(self, path: Path, number: int, line: str) -> None:
        try:
            self._remember(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"{path}: line {number} is no record of a tuning run ({type(error).__name__}: {error}); "
                "restore the file, or give another --out"
            ) from error

    @property
    def slot_trials(self) -> tuple[SlotTrial, ...]:
        """Every trial in recorded order, with its slot (numbered process of the search) and attempt."""
        with self._guard:
            return tuple(self._timed.values())

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial in recorded order."""
        return tuple(item.trial for item in self.slot_trials)

    def lookup(self, slot: int, candidate: Candidate, workload: str, attempt: int = 0) -> SlotTrial | None:
        """Returns the recorded trial of a candidate on a workload in this slot (numbered process of the search) and
        attempt; None if it was not measured."""
        with self._guard:
            return self._timed.get((slot, candidate.id, workload, attempt))

    def record(self, timed: SlotTrial) -> None:
        """Writes a trial to the journal; it is on disk when this returns. Raises UsageError if writing fails."""
        self.append("trial", _encode_trial(timed))

    def append(self, kind: str, data: Mapping[str, Any]) -> None:
        """Writes a record of another kind than 'trial', e.g. the candidates that a round dropped. `data` must fit JSON.
        A record equal to an earlier one is not written again."""
        with self._guard:
            plain = json.loads(json.dumps(dict(data)))
            if kind != "trial" and (kind, plain) in self._others:
                return
            self._remember({"kind": kind, **plain})
            self._write({"kind": kind, **plain})

    def iterate_records(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Returns an iterator over the records that `append` stored under `kind`, in order."""
        return iter([dict(data) for name, data in self._others if name == kind])

    def close(self) -> None:
        """Closes the journal file and releases its lock, so that other tuners can open it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> TrialJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _remember(self, record: dict[str, Any]) -> None:
        kind = record.pop("kind")
        if kind != "trial":
            self._others.append((kind, record))
            return
        timed = _decode_trial(record)
        trial = timed.trial
        self._timed[timed.slot, trial.candidate.id, trial.workload, timed.attempt] = timed

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, (json.dumps(record) + "\n").encode())
            os.fsync(self._descriptor)
        except OSError as error:
            raise UsageError(
                f"{self.path}: the journal cannot be written any more ({error.strerror}); free space or correct its "
                "permissions, then run the same again to resume"
            ) from error


def drop_torn_line(path: Path, mark: str = "") -> tuple[bytes, int]:
    """Cuts an incomplete last line off a file. Returns the complete lines, and the number of bytes cut off. A missing
    file gives (b'', 0). Raises UsageError and changes nothing if the file does not begin with `mark`; OSError if it
    cannot be read or cut."""
    if not path.exists():
        return b"", 0
    content = read_regular(path, BYTES_MAX)
    beginning = content[: len(mark)].decode("utf-8", "replace")
    if not mark.startswith(beginning):
        raise UsageError(f"{path}: no journal of a tuning run, it begins with {beginning!r}; give another --out")
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)
    return content[:end], len(content) - end


def _check_header(path: Path, line: str, header: Mapping[str, str]) -> None:
    try:
        found = json.loads(line)
        version, stored = found["attnperf_tune_journal"], dict(found["header"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: its first line cannot be read ({error}); give another --out") from error
    if version != VERSION:
        raise UsageError(f"{path}: journal version {version}, this attnperf reads {VERSION}; give another --out")
    differing = sorted(name for name in header.keys() | stored.keys() if header.get(name) != stored.get(name))
    if differing:
        told = "; ".join(
            f"{name[:SHOWN]} was {_format_value(stored.get(name))}, is {_format_value(header.get(name))}"
            for name in differing
        )
        raise UsageError(f"{path}: holds trials of another search: {told}. Give another --out, or delete the file")


def _format_value(value: object) -> str:
    text = repr(value) if value is not None else "absent"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _encode_trial(timed: SlotTrial) -> dict[str, Any]:
    trial = timed.trial
    return {
        "slot": timed.slot,
        "attempt": timed.attempt,
        "values": dict(trial.candidate.values),
        "label": trial.candidate.label,
        "workload": trial.workload,
        "process": trial.process,
        "median_us": trial.median_us,
        "failure": trial.failure,
        "summary": None if trial.summary is None else dataclasses.asdict(trial.summary),
    }


def _decode_trial(record: Mapping[str, Any]) -> SlotTrial:
    summary = record["summary"]
    if summary is not None:
        listed = {name: tuple(summary.get(name, ())) for name in ("block_us", "block_clock_mhz")}
        summary = ProcessSummary(**{**summary, **listed})
    trial = Trial(
        candidate=Candidate(dict(record["values"]), str(record["label"])),
        workload=str(record["workload"]),
        process=int(record["process"]),
        median_us=None if record["median_us"] is None else float(record["median_us"]),
        failure=str(record["failure"]),
        summary=summary,
    )
    return SlotTrial(int(record["slot"]), int(record["attempt"]), trial)
