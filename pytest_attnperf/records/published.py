"""Frozen data of published figures beside a run's own: printed numbers of other people's reports, never gated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedTime:
    """One printed time per call. `backend` is the report's, with the name of its table: 'ck (after tuning)'."""

    workload: str
    backend: str
    time_us: float


@dataclass(frozen=True)
class PublishedTimes:
    """A report's times for workloads of a run.

    source        title, date and device of the report, how it measured, and what is known to be wrong in it
    device        as the report names it; '' where it names none
    same_device   whether that is the device of the run
    """

    source: str
    device: str
    same_device: bool
    rows: tuple[PublishedTime, ...]
