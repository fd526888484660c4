"""Writes baseline files: builds what is stored of a case, and merges it under a lock without losing anything.

A reader always sees either the old or the new file, complete: the new text goes to a temporary file in the same folder,
which is flushed to disk and renamed over the old one. Writers take turns by a lock file next to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import filelock
import msgspec

from pytest_attnperf import __version__
from pytest_attnperf.baselines.anchor import environments_of, next_anchor
from pytest_attnperf.baselines.schema import (
    BASELINE_SCHEMA,
    BaselineFile,
    Check,
    Entry,
    content_id,
    decode_baseline,
    encode_baseline,
    named_errors,
    to_plain,
)
from pytest_attnperf.baselines.store import BaselineStore, baseline_path, file_version, read_content, require_place
from pytest_attnperf.correctness.budget import PLANTED
from pytest_attnperf.correctness.digest import select_agreed
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import CheckReport, Fingerprint, Launch, Measurement, ProcessSummary, Verdict
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.results import CaseResult

LOCK_TIMEOUT_S = 60.0
"""Longest wait for a writer that makes no progress; a merge takes milliseconds."""

LOCK_POLL_S = 0.005

COURTESY_S = 0.03
"""Pause before the same process writes the same file again: processes that poll for the lock would never get it."""

_released: dict[Path, float] = {}


@dataclass(frozen=True)
class NewEntry:
    """One case to be stored; a `Measurement` exists only for results proven right."""

    measurement: Measurement
    workload: Mapping[str, Any]
    fingerprint: Fingerprint
    policy: Mapping[str, Any]
    recorded: str
    harness_version: str
    commit: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    note: str = ""
    bound: str = ""
    canary: Mapping[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)
    acknowledged: str = ""
    source_id: str = ""
    cost_limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Replacement:
    """A new entry in place of the present one, which must still be `before`; None where there was none.

    entry   to be stored; its ids are those of `fingerprint`, `policy` and `canary`
    """

    before: Entry | None
    entry: Entry
    fingerprint: Fingerprint
    policy: Mapping[str, Any]
    canary: Mapping[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)


def new_entry(result: CaseResult, commit: str, acknowledged: str = "") -> NewEntry:
    """Returns what is stored of a RECORDED result. `acknowledged` says why a slowdown since the anchor is wanted.

    Raises BaselineError for any other verdict: only right results are stored.
    """
    if result.verdict is not Verdict.RECORDED or result.fingerprint is None or result.figures is None:
        raise BaselineError(f"{result.key} is {result.verdict.value}: only RECORDED results become a baseline")
    return NewEntry(
        measurement=Measurement(result.first, result.checks, result.peak_memory_bytes),
        workload=result.figures.definition,
        fingerprint=result.fingerprint,
        policy=result.policy,
        recorded=datetime.now(timezone.utc).date().isoformat(),
        harness_version=__version__,
        commit=commit,
        config=result.config,
        launches=result.launches,
        bound=result.floor_bound,
        canary=result.canary,
        acknowledged=acknowledged,
        source_id=result.source_id,
        cost_limits=result.cost_limits,
    )


def merge_entries(
    store: BaselineStore, root: Path, arch: str, product: str, suite: str, records: Mapping[str, NewEntry]
) -> Path:
    """Writes `records` (by `CaseKey.entry`) into a suite's file under `root`; other entries stay unchanged.

    Returns the file's path. Raises BaselineError, and writes nothing, when the present file is invalid, has fields that
    this version would lose, or stays locked for LOCK_TIMEOUT_S.
    """
    path = baseline_path(root, arch, product, suite)
    with lock_file(path):
        _write_checked(path, encode_baseline(_merge_records(_current_file(path, arch, product, suite), records)))
    store.forget(path)
    return path


def replace_entries(
    store: BaselineStore, root: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]
) -> Path:
    """Writes `replacements` (by `CaseKey.entry`) into a suite's file under `root`, all of them or none.

    Returns the file's path. Raises BaselineError, and writes nothing, where a stored entry is no longer `before` of its
    replacement, or the file is invalid or stays locked.
    """
    path = baseline_path(root, arch, product, suite)
    with lock_file(path):
        _write_checked(path, _with_replacements(path, arch, product, suite, replacements))
    store.forget(path)
    return path


def remove_entries(
    store: BaselineStore, root: Path, arch: str, product: str, suite: str, keys: Collection[str]
) -> Path:
    """Removes entries from a suite's file, or the file if none is left, and returns its path. Raises BaselineError if
    the file is invalid, would lose fields, or is locked too long."""
    path = baseline_path(root, arch, product, suite)
    with lock_file(path):
        file = _current_file(path, arch, product, suite)
        left = {key: entry for key, entry in file.entries.items() if key not in keys}
        if left:
            _write_checked(path, encode_baseline(_replace_in_file(dataclasses.replace(file, entries=left), {})))
        else:
            path.unlink()
    store.forget(path)
    return path


def check_replacements(
    root: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]
) -> None:
    """Raises BaselineError if `replace_entries` would fail for the file as it is now. Writes and locks nothing."""
    path = baseline_path(root, arch, product, suite)
    decode_baseline(_with_replacements(path, arch, product, suite, replacements), f"the new text of {path}")


def check_entries(root: Path, arch: str, product: str, suite: str, records: Mapping[str, NewEntry]) -> None:
    """Raises BaselineError if `merge_entries` would fail for the file as it is now, or would write an invalid one.
    Writes and locks nothing."""
    path = baseline_path(root, arch, product, suite)
    merged = _merge_records(_current_file(path, arch, product, suite), records)
    decode_baseline(encode_baseline(merged), f"the new text of {path}")


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Locks `path` against other writers while the block runs, and makes its folder.

    Raises BaselineError, before anything is written, when another process holds the lock for LOCK_TIMEOUT_S without
    changing the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f".{path.name}.lock")
    lock = filelock.FileLock(name, timeout=LOCK_TIMEOUT_S)
    if time.monotonic() - _released.get(path, -math.inf) < COURTESY_S:
        time.sleep(COURTESY_S)
    _acquire_lock(lock, path)
    try:
        yield
    finally:
        lock.release()
        _released[path] = time.monotonic()


def _acquire_lock(lock: filelock.BaseFileLock, path: Path) -> None:
    """Takes the lock, waiting as long as the file still changes. Raises BaselineError if it stays locked, unchanged."""
    while not lock.is_locked:
        version = file_version(path)
        try:
            lock.acquire(poll_interval=LOCK_POLL_S)
        except filelock.Timeout as error:
            if file_version(path) != version:
                continue
            raise BaselineError(
                f"{path}: another process has held {lock.lock_file} for {LOCK_TIMEOUT_S:g} s; nothing was written. "
                "Wait for it, or end it, and run again"
            ) from error


def refuse_loss(path: Path, lost: Sequence[str]) -> None:
    """Raises BaselineError if `lost` (of `list_lost_fields`) names a field: rewriting the file would lose it."""
    if lost:
        raise BaselineError(
            f"{path}: this version does not know {', '.join(lost[:5])}, and rewriting the file would lose it; "
            "nothing was written. Use the pytest-attnperf that wrote it"
        )


def list_lost_fields(data: bytes, file: object, source: str) -> list[str]:
    """Returns the fields in `data` that its decoded form `file` lacks, because this version does not know them."""
    with named_errors(data, source, Entry):
        return _list_lost(msgspec.json.decode(data), to_plain(file), "$")


def rewrite_file(path: Path) -> bool:
    """Rewrites a file of timed cases in this version's form. Returns False if nothing changed, or for another file.

    Raises BaselineError, and writes nothing, for a damaged file, and where a field would be lost.
    """
    if not _holds_cases(read_content(path), path):
        return False
    with lock_file(path):
        data = read_content(path)
        file = decode_baseline(data, str(path))
        refuse_loss(path, list_lost_fields(data, file, str(path)))
        anew = encode_baseline(file)
        if anew == data:
            return False
        if decode_baseline(anew, f"the new text of {path}") != file:
            raise BaselineError(f"{path}: its new text would change its content; nothing was written. Report this")
        write_atomically(path, anew)
    return True


def _holds_cases(data: bytes, path: Path) -> bool:
    """Returns whether a file has the fields of timed cases. Raises BaselineError if it is no JSON. Only such files have
    summary lines, which rewriting makes again."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path}: is not readable as JSON ({error}); restore it from version control") from error
    return {"suite", "entries", "environments"} <= fields.keys()


def _read_file(path: Path, arch: str, product: str, suite: str) -> tuple[bytes, BaselineFile]:
    data = read_content(path)
    file = decode_baseline(data, str(path))
    require_place(file, path, arch, product, suite)
    return data, file


def _current_file(path: Path, arch: str, product: str, suite: str) -> BaselineFile:
    """Returns the content of a file, or an empty one where there is none. Raises BaselineError if it is invalid, or if
    rewriting it would lose fields that this version does not know."""
    if not path.exists():
        return BaselineFile(schema=BASELINE_SCHEMA, suite=suite, arch=arch, product=product)
    data, file = _read_file(path, arch, product, suite)
    refuse_loss(path, list_lost_fields(data, file, str(path)))
    return file


def _with_replacements(
    path: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]
) -> bytes:
    """Returns the file's JSON text with the replacements. Raises BaselineError if a stored entry has changed."""
    file = _current_file(path, arch, product, suite)
    for key, replacement in replacements.items():
        if file.entries.get(key) != replacement.before:
            raise BaselineError(f"{path}: entry {key!r} has changed since it was read; nothing was written. Run again")
    return encode_baseline(_replace_in_file(file, replacements))


def _merge_records(file: BaselineFile, records: Mapping[str, NewEntry]) -> BaselineFile:
    """Returns the file with these new entries. Keeps earlier acceptances; sets each anchor by `next_anchor`."""
    replacements = {}
    for key, record in records.items():
        old, entry = file.entries.get(key), entry_from(record)
        anchor = next_anchor(old, entry, file.environments, record.fingerprint, record.acknowledged)
        accepted = () if old is None else old.accepted
        entry = dataclasses.replace(entry, anchor=anchor, accepted=accepted)
        replacements[key] = Replacement(old, entry, record.fingerprint, record.policy, record.canary)
    return _replace_in_file(file, replacements)


def _replace_in_file(file: BaselineFile, replacements: Mapping[str, Replacement]) -> BaselineFile:
    """Returns the file with the replacements, and only those environments, policies and canaries that entries name."""
    environments, policies, canaries = dict(file.environments), dict(file.policies), dict(file.canaries)
    for replacement in replacements.values():
        entry = replacement.entry
        environments[entry.environment] = replacement.fingerprint
        policies[entry.policy] = to_plain(replacement.policy)
        if entry.canary:
            canaries[entry.canary] = dict(replacement.canary)
    entries = file.entries | {key: replacement.entry for key, replacement in replacements.items()}
    used = list(entries.values())
    return dataclasses.replace(
        file,
        environments={key: environments[key] for entry in used for key in environments_of(entry)},
        policies={key: policies[key] for key in {entry.policy for entry in used}},
        entries=entries,
        canaries={key: canaries[key] for key in {entry.canary for entry in used if entry.canary}},
    )


def entry_from(record: NewEntry) -> Entry:
    """Returns the entry to store for a case, still without anchor and acceptances, which the stored entry
    determines."""
    return Entry(
        workload=to_plain(record.workload),
        environment=content_id(record.fingerprint),
        policy=content_id(record.policy),
        processes=record.measurement.processes,
        check=find_worst_check(record.measurement.proof),
        recorded=record.recorded,
        harness_version=record.harness_version,
        commit=record.commit,
        peak_memory_bytes=record.measurement.peak_memory_bytes,
        config=dict(record.config),
        launches=record.launches,
        note=record.note,
        bound=record.bound,
        canary=content_id(record.canary) if record.canary else "",
        source_id=record.source_id,
        cost_limits=dict(record.cost_limits),
    )


def find_worst_check(proof: Iterable[CheckReport]) -> Check:
    """Returns what an entry stores of its passed checks: the largest errors as shares of their budgets, tolerances, and
    digests of inputs. At least one check must have figures."""
    reports = list(proof)
    figures = [figure for report in reports for figure in report.figures]
    return Check(
        max_error_over_budget=max(_budget_share(figure.max_error, figure.max_budget) for figure in figures),
        rms_error_over_budget=max(_budget_share(figure.rms_error, figure.rms_budget) for figure in figures),
        tolerance=reports[0].tolerance,
        coarseness=reports[0].coarseness,
        truth=select_agreed(report.truth for report in reports),
        planted=all(any(figure.check == PLANTED for figure in report.figures) for report in reports),
    )


def _budget_share(error: float, budget: float) -> float:
    """Returns error / budget, three digits; 0 for an exact result, whose budget may be 0."""
    return float(f"{error / budget:.3g}") if error else 0.0


def _write_checked(path: Path, data: bytes) -> None:
    """Writes `data` to `path` atomically. Raises BaselineError, before writing, if it is no valid baseline file."""
    decode_baseline(data, f"the new text of {path}")
    write_atomically(path, data)


def _list_lost(read: Any, kept: Any, path: str) -> list[str]:
    if isinstance(read, dict) and isinstance(kept, dict):
        gone = [f"{path}.{key}" for key in read if key not in kept]
        return gone + [
            part for key in read if key in kept for part in _list_lost(read[key], kept[key], f"{path}.{key}")
        ]
    if isinstance(read, list) and isinstance(kept, list):
        pairs = zip(read, kept, strict=True)
        return [
            part for index, (ours, theirs) in enumerate(pairs) for part in _list_lost(ours, theirs, f"{path}[{index}]")
        ]
    return []
