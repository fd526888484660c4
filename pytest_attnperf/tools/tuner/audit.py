"""Compares the workloads of a project or a model with the entries of configuration files that backends take for them.

Nothing is compiled or timed. What a wrong entry costs is not known without a GPU; the share of the GPU that stands idle
under the entry's tiles is an estimate of it, see `estimate_idle`.
"""

from __future__ import annotations

import enum
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.backends import Backend
from pytest_attnperf.errors import UnsupportedError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.tuned_tables import Auditable, Coverage, TableEntry, Tiles
from pytest_attnperf.workloads.base import Workload

AUDIT_SCHEMA = "attnperf.audit/1"
"""Kind and version of the JSON. The number increases when a field is renamed or changes its meaning."""

NO_TABLES = "it has no `find_entries` (pytest_attnperf.records.tuned_tables.Auditable)"

_RELEASE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,4}")


class Age(str, enum.Enum):
    """The versions that an entry records, compared with those in use. JSON has the values."""

    FRESH = "fresh"
    STALE = "STALE"
    UNKNOWN = "unknown"
    """It records none, or the software in use is not installed here."""


@dataclass(frozen=True)
class AuditRow:
    """One kernel of a backend on one workload.

    idle   estimated share of the GPU that stands idle under the entry's tiles; None where its tiles are not known
    """

    backend: str
    families: tuple[str, ...]
    family: str
    workload: str
    entry: TableEntry
    age: Age
    idle: float | None

    @property
    def is_gap(self) -> bool:
        """Whether no entry of a file is exactly for this workload."""
        return self.entry.coverage is not Coverage.EXACT


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    in_use        software -> version on this machine, 'none' if it is not installed
    rows          in the order of the cases
    unaudited     (backend, family) -> why it has no table
    unsupported   pairs of a backend and a workload that this device cannot run, which were left out
    """

    device: DeviceInfo
    in_use: Mapping[str, str]
    rows: tuple[AuditRow, ...]
    unaudited: Mapping[tuple[str, str], str]
    unsupported: int

    @property
    def is_clean(self) -> bool:
        """Whether every workload has an exact entry and none is STALE."""
        return not any(row.is_gap or row.age is Age.STALE for row in self.rows)

    def list_commands(self) -> list[str]:
        """Returns the `attnperf tune` commands that search an entry for each gap and each STALE entry: one per rule
        and set of conditions that narrow it. Without those that no rule serves, which cannot be tuned."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            entry = row.entry
            if not entry.tunable or entry.coverage is Coverage.NONE or not (row.is_gap or row.age is Age.STALE):
                continue
            family = ("--family", row.family) if len(row.families) > 1 else ()
            when = [word for name, value in entry.when.items() for word in ("--when", f"{name}={value}")]
            words = ("attnperf", "tune", row.backend, *family, "--kernel", entry.kernel, *when)
            groups.setdefault((*words, entry.file, entry.key), []).append(row.workload)
        return [
            shlex.join([*words, *(word for name in dict.fromkeys(names) for word in ("--workload", name))])
            for (*words, _, _), names in groups.items()
        ]


def audit_pairs(pairs: Iterable[tuple[Backend[Any], Workload]], device: DeviceInfo, in_use: Mapping[str, str]) -> Audit:
    """Returns what the tables have for each backend and workload, each pair once. Raises UsageError, naming the file,
    for one that cannot be read or is ambiguous."""
    rows: list[AuditRow] = []
    unaudited: dict[tuple[str, str], str] = {}
    unsupported = 0
    for backend, workload in {(one.name, work.id): (one, work) for one, work in pairs}.values():
        where = (backend.name, workload.family)
        if not isinstance(backend, Auditable):
            unaudited[where] = NO_TABLES
            continue
        try:
            found = _audit_pair(backend, backend, workload, device, in_use)
        except UnsupportedError as error:
            unaudited[where] = str(error)
        else:
            rows += found
            unsupported += not found
    return Audit(device, in_use, tuple(rows), unaudited, unsupported)


def _audit_pair(
    backend: Backend[Any], tables: Auditable, workload: Workload, device: DeviceInfo, in_use: Mapping[str, str]
) -> list[AuditRow]:
    return [
        AuditRow(
            backend.name,
            tuple(backend.families),
            workload.family,
            workload.id,
            entry,
            compare_versions(entry.versions, in_use),
            estimate_idle(entry.tiles, device.compute_units) if entry.tiles else None,
        )
        for entry in tables.find_entries(workload, device)
    ]


def estimate_idle(tiles: Tiles, compute_units: int) -> float:
    """Returns the estimated share of the GPU's time, from 0 to below 1, that goes to padding of tiles and to the last
    wave of programs: 1 - filled * programs / (waves * compute units).

    It assumes one program per compute unit at a time, and equal work in each. Other tiles can win back at most this,
    and may lose more elsewhere.
    """
    waves = math.ceil(tiles.programs / compute_units)
    return 1 - tiles.filled * tiles.programs / (waves * compute_units)


def compare_versions(recorded: Mapping[str, str], in_use: Mapping[str, str]) -> Age:
    """Returns STALE if a recorded version is older than the one in use, UNKNOWN if none can be compared."""
    pairs = [
        (old, new)
        for name, text in recorded.items()
        if (old := _parse_release(text)) and (new := _parse_release(in_use.get(name, "")))
    ]
    if not pairs:
        return Age.UNKNOWN
    return Age.STALE if any(old < new[: len(old)] for old, new in pairs) else Age.FRESH


def _parse_release(text: str) -> list[int]:
    """Returns the numbers at the beginning of a version, e.g. [3, 6, 0] of '3.6.0+git'; [] if there are none."""
    found = _RELEASE.match(text)
    return [int(number) for number in found.group().split(".")] if found else []
