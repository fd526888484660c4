"""Figures from published reports, shown next to measured ones and never gated.

A published row is a printed number: no processes, no check, mostly no spread. It has a type of its own that no
comparison accepts, and no code that judges imports this module.

Format history: 1 = first published form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pytest_attnperf.baselines.store import read_content
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.records.published import PublishedTime, PublishedTimes

PUBLISHED_SCHEMA = 1

FOLDER = "published"
"""Folder of published reports within that of baselines."""


@dataclass(frozen=True)
class PublishedRow:
    """One figure of a report's table, as printed there, in microseconds per call.

    backend    the backend of this package that comes closest to what the report ran
    speedup    the printed speedup over the table's row of `PublishedReport.speedup_reference`; None without one
    """

    table: str
    workload: str
    backend: str
    time_us: float
    speedup: float | None = None
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedReport:
    """A report: who published it, how its figures were measured, and what is known to be wrong or unstated in it.

    `device` is empty where the report names none; caveats are shown with every row of the report.
    """

    schema: int
    title: str
    date: str
    authors: str
    source: str
    method: str
    device: str
    speedup_reference: str
    caveats: tuple[str, ...]
    rows: tuple[PublishedRow, ...]


def load_published(folder: Path) -> list[PublishedReport]:
    """Returns the published reports of a folder, sorted by file name; empty if there is no folder. Raises BaselineError
    for an invalid file."""
    return [_load_report(path) for path in sorted(folder.glob("*.json"))]


def collect_published(folder: Path, workloads: Iterable[str], device: DeviceInfo | None) -> tuple[PublishedTimes, ...]:
    """Returns the times that the reports in `folder` print for these workloads, sorted by workload within each report;
    () without a folder. Raises BaselineError for an invalid file."""
    wanted = set(workloads)
    found = []
    for report in load_published(folder):
        rows = sorted((row for row in report.rows if row.workload in wanted), key=lambda row: row.workload)
        if rows:
            same = device is not None and is_of_device(report, device)
            times = tuple(to_time(row) for row in rows)
            found.append(PublishedTimes(describe_source(report), report.device, same, times))
    return tuple(found)


def to_time(row: PublishedRow) -> PublishedTime:
    """Returns a row as a record of results, named by its backend and table."""
    return PublishedTime(row.workload, f"{row.backend} ({row.table})", row.time_us)


def describe_source(report: PublishedReport) -> str:
    """Returns a report's title, date, device, method and caveats as one text."""
    named = ", ".join(part for part in (report.title, report.date, report.device) if part)
    return " ".join([f"{named}.", report.method, *report.caveats])


def is_of_device(report: PublishedReport, device: DeviceInfo) -> bool:
    """Returns whether a report names the product and the architecture of `device` as its own device."""
    named = set(re.findall(r"\w+", report.device.lower()))
    return {device.arch.lower(), *device.product.lower().split("-")} <= named


def _load_report(path: Path) -> PublishedReport:
    try:
        report = msgspec.json.decode(read_content(path), type=PublishedReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path}: is not a published report ({error}); restore or remove it") from error
    if report.schema != PUBLISHED_SCHEMA:
        raise BaselineError(
            f"{path}: field `schema` is {report.schema}; this version reads {PUBLISHED_SCHEMA}. "
            "Use the pytest-attnperf that wrote it"
        )
    for index, row in enumerate(report.rows):
        if not row.time_us > 0:
            raise BaselineError(f"{path}: field `rows[{index}].time_us` is {row.time_us}, expected a positive time")
    return report
