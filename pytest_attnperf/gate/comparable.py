"""Whether a stored entry and a current case may be compared at all; every reason why not makes it INCOMPARABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_attnperf.baselines.schema import Entry, plain
from pytest_attnperf.records import Fingerprint
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
    settings: str = "",
    processes_min: int = BASELINE_PROCESSES_MIN,
) -> list[str]:
    """Reasons why `entry`, recorded under `stored`, says nothing about a case measured now; empty when it does.

    Machine and method version are in the fingerprints' `must_match`. `timer` made the current number, `definition` is
    the current workload's. `settings` of torch are compared where both sides know them: entries that were stored before
    they were recorded do not. `processes_min` may be lowered for a local
    baseline that is not kept.
    """
    reasons = current.mismatches(stored)
    stored_timer = entry.processes[0].timer
    if stored_timer != timer and not any(reason.startswith("timer:") for reason in reasons):
        reasons.append(f"timer: {timer} here, {stored_timer} stored")
    stored_settings = entry.processes[0].settings
    if settings and stored_settings and stored_settings != settings:
        reasons.append(f"settings of torch: {settings} here, {stored_settings} stored")
    reasons += _definition_changes(known_to(entry.workload, plain(definition)), entry.workload)
    if len(entry.processes) < processes_min:
        reasons.append(f"processes: {len(entry.processes)} stored, at least {processes_min} needed")
    return reasons


def _definition_changes(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Fields of the workload definition that differ; both sides in the plain form JSON gives back."""
    absent = "absent"
    return [
        f"workload {field}: {ours.get(field, absent)} here, {stored.get(field, absent)} stored"
        for field in sorted(ours.keys() | stored.keys())
        if ours.get(field, absent) != stored.get(field, absent)
    ]
