"""Whether a stored entry and a current case may be compared at all; every reason why not makes it INCOMPARABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_attnperf.baselines.schema import Entry, plain
from pytest_attnperf.records import Fingerprint
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.workloads.defined import known_to

BASELINE_PROCESSES_MIN = 7
"""Fresh processes a baseline is made from: fewer leave its centre too uncertain for a 2 % threshold."""


def comparable(
    entry: Entry,
    stored: Fingerprint,
    current: Fingerprint,
    *,
    timer: str,
    definition: Mapping[str, Any],
    processes_min: int = BASELINE_PROCESSES_MIN,
) -> list[str]:
    """Reasons why `entry`, recorded under `stored`, says nothing about a case measured now; empty when it does.

    Machine and method version are in the fingerprints' `must_match`. `timer` made the current number, `definition` is
    the current workload's. `processes_min` may be lowered for a local
    baseline that is not kept.
    """
    reasons: list[str] = [Note(NoteKind.MACHINE, reason) for reason in current.mismatches(stored)]
    stored_timer = entry.processes[0].timer
    if stored_timer != timer and current.must_match.get("timer") == stored.must_match.get("timer"):
        reasons.append(Note(NoteKind.MACHINE, f"timer: {timer} here, {stored_timer} stored"))
    reasons += _definition_changes(known_to(entry.workload, plain(definition)), entry.workload)
    if len(entry.processes) < processes_min:
        said = f"processes: {len(entry.processes)} stored, at least {processes_min} needed"
        reasons.append(Note(NoteKind.PROCESSES, said))
    return reasons


def _definition_changes(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[Note]:
    """Fields of the workload definition that differ; both sides in the plain form JSON gives back."""
    absent = "absent"
    return [
        Note(NoteKind.WORKLOAD, f"workload {field}: {ours.get(field, absent)} here, {stored.get(field, absent)} stored")
        for field in sorted(ours.keys() | stored.keys())
        if ours.get(field, absent) != stored.get(field, absent)
    ]
