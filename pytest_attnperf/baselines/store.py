"""Baseline files on disk: found by arch, product and suite, written by merging under a lock.

A reader sees the old or the new file, whole, at any moment: the new text goes to a temporary file in the same folder,
which is flushed to disk and renamed over the old one. Writers take turns by a lock file beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock

from pytest_attnperf.baselines.anchor import environments_of, next_anchor
from pytest_attnperf.baselines.opened import OpenedFile, content_of, opened
from pytest_attnperf.baselines.schema import (
    BASELINE_SCHEMA,
    BaselineFile,
    Check,
    Entry,
    content_id,
    decode,
    encode,
    fields_lost,
    plain,
)
from pytest_attnperf.correctness.budget import PLANTED
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import CheckReport, Fingerprint, Launch, Measurement, ProcessSummary
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.stats.noise import NoiseModel

LOCK_TIMEOUT_S = 60.0
"""Longest wait for a writer that does not get on; a merge takes milliseconds."""

LOCK_POLL_S = 0.005
COURTESY_S = 0.03
"""Who writes the same file again at once waits so long first: those that poll for the lock would never get it."""

_released: dict[Path, float] = {}

_Version = tuple[int, int]

_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class NewEntry:
    """What is to be stored of one case; a `Measurement` exists only for results proven right."""

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


@dataclass(frozen=True)
class Found:
    """A stored entry with the environment and policy it was recorded under, and the file it came from.

    canary   processes of each canary that were measured when it was recorded; empty where none was
    """

    entry: Entry
    fingerprint: Fingerprint
    policy: dict[str, Any]
    path: Path
    canary: Mapping[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Replacement:
    """What takes the place of an entry, which must still be `before`; None where there was none.

    entry   as it is to be stored, its ids those of `fingerprint`, `policy` and `canary`
    """

    before: Entry | None
    entry: Entry
    fingerprint: Fingerprint
    policy: Mapping[str, Any]
    canary: Mapping[str, tuple[ProcessSummary, ...]] = field(default_factory=dict)


class BaselineStore:
    """Baselines under one or more roots; an entry of an earlier root hides those of later ones."""

    def __init__(self, *roots: Path) -> None:
        if not roots:
            raise ValueError("a baseline store needs at least one root folder")
        self.roots = roots
        self._opened: dict[Path, tuple[_Version, OpenedFile]] = {}
        self._noise: dict[tuple[str, str, str], tuple[tuple[_Version | None, ...], NoiseModel]] = {}

    def find(self, arch: str, product: str, suite: str, entry: str) -> Found | None:
        """The stored entry of a case (`CaseKey.entry`), or None.

        Raises BaselineError for an unsound entry or file; what is unsound in other entries is not looked at.
        """
        for root in self.roots:
            path = baseline_path(root, arch, product, suite)
            file = self._open(path, arch, product, suite)
            if file is not None and entry in file:
                return _found(file, entry, path)
        return None

    def load(self, arch: str, product: str, suite: str) -> dict[str, Found]:
        """All stored entries of a suite on a product, by `CaseKey.entry`. Raises BaselineError for an unsound file."""
        return dict(self._each(arch, product, suite))

    def noise(self, arch: str, product: str, suite: str) -> NoiseModel:
        """What unchanged code does between processes, pooled over a suite's stored cases.

        Pooled anew only when a file of the suite has changed. Raises BaselineError for an unsound file.
        """
        where = (arch, product, suite)
        versions = tuple(file_version(baseline_path(root, *where)) for root in self.roots)
        if where not in self._noise or self._noise[where][0] != versions:
            self._noise[where] = (versions, _pooled(self._each(*where)))
        return self._noise[where][1]

    def _each(self, arch: str, product: str, suite: str) -> Iterator[tuple[str, Found]]:
        """The stored entries of a suite, sorted, one after the other: nothing keeps those that were seen."""
        files: dict[str, tuple[OpenedFile, Path]] = {}
        for root in reversed(self.roots):
            path = baseline_path(root, arch, product, suite)
            file = self._open(path, arch, product, suite)
            if file is not None:
                files |= dict.fromkeys(file, (file, path))
        for key in sorted(files):
            yield key, _found(files[key][0], key, files[key][1])

    def suites(self, arch: str, product: str) -> list[str]:
        """Suites that have a file for a product, sorted."""
        folders = (root / component("arch", arch) / component("product", product) for root in self.roots)
        return sorted({path.stem for folder in folders for path in folder.glob("*.json")})

    def products(self, arch: str, suite: str) -> list[str]:
        """Products of an arch for which this suite has a file, sorted."""
        name = f"{component('suite', suite)}.json"
        folders = (root / component("arch", arch) for root in self.roots)
        return sorted({path.parent.name for folder in folders for path in folder.glob(f"*/{name}")})

    def merge(self, root: Path, arch: str, product: str, suite: str, records: Mapping[str, NewEntry]) -> Path:
        """Put `records` (by `CaseKey.entry`) into a suite's file under `root`, leaving its other entries untouched.

        Returns the file's path. Raises BaselineError, and writes nothing, when the file that is there is unsound,
        holds fields this version would lose, or stays locked for LOCK_TIMEOUT_S.
        """
        path = baseline_path(root, arch, product, suite)
        with locked(path):
            _replace(path, encode(_merged(_current(path, arch, product, suite), records)))
        self._opened.pop(path, None)
        return path

    def replace(self, root: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]) -> Path:
        """Put `replacements` (by `CaseKey.entry`) into a suite's file under `root`, all of them or none.

        Returns the file's path. Raises as `merge`, and BaselineError where an entry is not what it is to replace.
        """
        path = baseline_path(root, arch, product, suite)
        with locked(path):
            _replace(path, _with_replacements(path, arch, product, suite, replacements))
        self._opened.pop(path, None)
        return path

    def check(self, root: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]) -> None:
        """Raise BaselineError where `replace` would, for the file as it is now; nothing is written or locked."""
        path = baseline_path(root, arch, product, suite)
        decode(_with_replacements(path, arch, product, suite, replacements), f"the new text of {path}")

    def _open(self, path: Path, arch: str, product: str, suite: str) -> OpenedFile | None:
        """The file, read again only when its time or size changed; None where there is none."""
        version = file_version(path)
        if version is None:
            return None
        if path not in self._opened or self._opened[path][0] != version:
            file = opened(content_of(path), str(path))
            _require_place(file.tables, path, arch, product, suite)
            self._opened[path] = (version, file)
        return self._opened[path][1]


def _found(file: OpenedFile, key: str, path: Path) -> Found:
    entry, tables = file.entry(key), file.tables
    return Found(
        entry,
        tables.environments[entry.environment],
        tables.policies[entry.policy],
        path,
        tables.canaries.get(entry.canary, {}),
    )


def _pooled(stored: Iterable[tuple[str, Found]]) -> NoiseModel:
    """The noise model of these entries, of which only the figures of each process are kept meanwhile."""
    processes: dict[str, tuple[ProcessSummary, ...]] = {}
    bounds: dict[str, str] = {}
    for key, found in stored:
        processes[key] = tuple(dataclasses.replace(process, block_us=()) for process in found.entry.processes)
        bounds[key] = found.entry.bound
    return NoiseModel.from_processes(processes, bounds=bounds)


def baseline_path(root: Path, arch: str, product: str, suite: str) -> Path:
    """`<root>/<arch>/<product>/<suite>.json`. Raises BaselineError when a part is no plain file name."""
    return root / component("arch", arch) / component("product", product) / f"{component('suite', suite)}.json"


def component(kind: str, name: str) -> str:
    """`name` as a part of a baseline's path; `kind` says what it is. Raises BaselineError when it is no plain name."""
    if not _COMPONENT.fullmatch(name):
        raise BaselineError(
            f"{kind} {name!r} cannot be part of a baseline's path: use letters, digits, '_', '.' and '-', "
            "and begin with a letter, a digit or '_'"
        )
    return name


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Take turns with every other writer of `path`, whose folder is made.

    Raises BaselineError, before anything is written, when another process holds it for LOCK_TIMEOUT_S in which the
    file has not changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f".{path.name}.lock")
    lock = filelock.FileLock(name, timeout=LOCK_TIMEOUT_S)
    if time.monotonic() - _released.get(path, -math.inf) < COURTESY_S:
        time.sleep(COURTESY_S)
    _acquire(lock, path)
    try:
        yield
    finally:
        lock.release()
        _released[path] = time.monotonic()


def _acquire(lock: filelock.BaseFileLock, path: Path) -> None:
    """Wait as long as others get on: only a file that nobody writes is held by a process that is stuck."""
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


def file_version(path: Path) -> _Version | None:
    """What changes when a file is rewritten, None where there is none. Raises BaselineError when it cannot be read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror})") from error
    return status.st_mtime_ns, status.st_size


def refuse_loss(path: Path, lost: Sequence[str]) -> None:
    """Raise BaselineError where rewriting the file would lose fields (`fields_lost`) unknown to this version."""
    if lost:
        raise BaselineError(
            f"{path}: this version does not know {', '.join(lost[:5])}, and rewriting the file would lose it; "
            "nothing was written. Use the pytest-attnperf that wrote it"
        )


def _read(path: Path, arch: str, product: str, suite: str) -> tuple[bytes, BaselineFile]:
    data = content_of(path)
    file = decode(data, str(path))
    _require_place(file, path, arch, product, suite)
    return data, file


def _require_place(file: BaselineFile, path: Path, arch: str, product: str, suite: str) -> None:
    """Raise BaselineError where a file says that it belongs elsewhere."""
    for name, expected in (("arch", arch), ("product", product), ("suite", suite)):
        if getattr(file, name) != expected:
            raise BaselineError(
                f"{path}: field `{name}` is {getattr(file, name)!r}, but its path says {expected!r}: was it copied?"
            )


def _current(path: Path, arch: str, product: str, suite: str) -> BaselineFile:
    """What a merge starts from: the file as it is now, or an empty one."""
    if not path.exists():
        return BaselineFile(schema=BASELINE_SCHEMA, suite=suite, arch=arch, product=product)
    data, file = _read(path, arch, product, suite)
    refuse_loss(path, fields_lost(data, file, str(path)))
    return file


def _with_replacements(
    path: Path, arch: str, product: str, suite: str, replacements: Mapping[str, Replacement]
) -> bytes:
    """The file's new text. Raises BaselineError where an entry is not what it is to replace."""
    file = _current(path, arch, product, suite)
    for key, replacement in replacements.items():
        if file.entries.get(key) != replacement.before:
            raise BaselineError(f"{path}: entry {key!r} has changed since it was read; nothing was written")
    return encode(_replaced(file, replacements))


def _merged(file: BaselineFile, records: Mapping[str, NewEntry]) -> BaselineFile:
    """What was accepted of a case before stays with it; only who records again moves its anchor."""
    replacements = {}
    for key, record in records.items():
        old, entry = file.entries.get(key), entry_from(record)
        anchor = next_anchor(old, entry, file.environments, record.fingerprint, record.acknowledged)
        accepted = () if old is None else old.accepted
        entry = dataclasses.replace(entry, anchor=anchor, accepted=accepted)
        replacements[key] = Replacement(old, entry, record.fingerprint, record.policy, record.canary)
    return _replaced(file, replacements)


def _replaced(file: BaselineFile, replacements: Mapping[str, Replacement]) -> BaselineFile:
    """The file with these entries, and with what its entries name of environments, policies and canaries."""
    environments, policies, canaries = dict(file.environments), dict(file.policies), dict(file.canaries)
    for replacement in replacements.values():
        entry = replacement.entry
        environments[entry.environment] = replacement.fingerprint
        policies[entry.policy] = plain(replacement.policy)
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
    """What is stored of a record, without anchor and acceptances: these follow from what was stored before."""
    return Entry(
        workload=plain(record.workload),
        environment=content_id(record.fingerprint),
        policy=content_id(record.policy),
        processes=record.measurement.processes,
        check=worst_check(record.measurement.proof),
        recorded=record.recorded,
        harness_version=record.harness_version,
        commit=record.commit,
        peak_memory_bytes=record.measurement.peak_memory_bytes,
        config=dict(record.config),
        launches=record.launches,
        note=record.note,
        bound=record.bound,
        canary=content_id(record.canary) if record.canary else "",
    )


def worst_check(proof: Iterable[CheckReport]) -> Check:
    """The worst errors of passed checks, of which there is at least one with figures."""
    reports = list(proof)
    figures = [figure for report in reports for figure in report.figures]
    return Check(
        max_error_over_budget=max(_share(figure.max_error, figure.max_budget) for figure in figures),
        rms_error_over_budget=max(_share(figure.rms_error, figure.rms_budget) for figure in figures),
        tolerance=reports[0].tolerance,
        coarseness=reports[0].coarseness,
        planted=all(any(figure.check == PLANTED for figure in report.figures) for report in reports),
    )


def _share(error: float, budget: float) -> float:
    """Error in units of its budget, three digits; an exact result needs no budget."""
    return float(f"{error / budget:.3g}") if error else 0.0


def _replace(path: Path, data: bytes) -> None:
    """Put `data` at `path`, after reading it back as a sound file."""
    decode(data, f"the new text of {path}")
    write_atomically(path, data)
