"""Handles a case that runs the machine code and configuration of its baseline: proves it right, and does not time it.

Its correctness is checked on fresh inputs like that of every case: the same machine code gives wrong results if it gets
wrong values. Only the timing is left out, and only where everything that could have changed the time is known to be
unchanged. Where anything is not known the case is timed.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.correctness.what_ran import compute_launch_identity, is_launch_unchanged
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.gate.comparable import find_creep, list_config_changes, reasons_not_comparable
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Fingerprint, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_records import (
    mark_disappeared,
    result_from_look,
    unmeasured_result,
    with_notes,
    with_stored_processes,
)
from pytest_attnperf.session.looking import RunBench
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.look import Ending, take_identity_look

NOT_KNOWN = "the machine code of some kernel is not known"


def judge_unchanged(bench: RunBench, case: Case, place: int, found: StoredEntry | None) -> CaseResult | None:
    """Returns RIGHT and `unchanged` if the case runs what its stored entry ran, under the same toolchain.

    Returns None if it has to be timed, and the result if it is wrong, unsupported or an error. Starts nothing if the
    stored entry or this machine already requires timing. Raises WorkerError if a worker fails, and CaseFailedError if
    the case raises there, except for lack of memory.
    """
    if found is None or compute_launch_identity(found.entry.launches) is None:
        return None
    if _has_moved(bench.pool.wait_until_ready(place).fingerprint, found.fingerprint):
        return None
    try:
        look, timer = take_identity_look(
            bench.pool, place, bench.make_request(case, case.next_key), bench.settings.plan
        )
    except CaseFailedError as error:
        if error.out_of_memory:  # a graph at several places takes more memory than timing the case does
            return None
        raise
    if look.ending is not Ending.RIGHT:
        result = unmeasured_result(case, look)
        gone = f"unsupported now, but a baseline is stored in {found.path.name}"
        return mark_disappeared(result, gone) if look.ending is Ending.UNSUPPORTED else result
    result = result_from_look(case, Verdict.RIGHT, "", look)
    if not timer or look.final.foreign_sources or reasons_to_time(result, found, timer):
        return None
    return with_notes(as_unchanged(result, found), case, found)


def reasons_to_time(result: CaseResult, found: StoredEntry, timer: str) -> list[str]:
    """Returns why a case, proven right, may run something else than its stored entry and must be timed; [] if not.

    timer   the timer that it would be timed with
    """
    if result.fingerprint is None or result.figures is None:
        return ["its machine or its workload is not known"]
    definition = result.figures.definition
    reasons = reasons_not_comparable(
        found.entry,
        found.fingerprint,
        result.fingerprint,
        timer=timer,
        definition=definition,
        checks=result.checks,
    )
    reasons += result.fingerprint.list_changes(found.fingerprint)
    if result.cost_limits or found.entry.cost_limits:
        reasons.append("its test gates costs, which are measured beside the time")
    if compute_launch_identity(result.launches) is None or compute_launch_identity(found.entry.launches) is None:
        reasons.append(NOT_KNOWN)
    elif not is_launch_unchanged(result.launches, found.entry.launches):
        reasons.append("other machine code ran, or was launched differently")
    return reasons + list_config_changes(found.entry.config, result.config)


def as_unchanged(result: CaseResult, found: StoredEntry) -> CaseResult:
    """Returns the result as RIGHT and `unchanged`, with the stored times. Call it if `reasons_to_time` gives none."""
    kernels = sum(launch.kind == "kernel" for launch in result.launches)
    what = f"{kernels} kernel{'s' if kernels != 1 else ''}"
    commit = f" ({found.entry.commit})" if found.entry.commit else ""
    summary = (
        f"unchanged: {what} and configuration equal those of the baseline of {found.entry.recorded}{commit}; not timed"
    )
    # What was slow when it was recorded has crept as far now: that is known without a time.
    note = find_creep(found.entry, 1.0, Policy(**result.policy), result.nodeid)
    notes = (*result.notes, note) if note else result.notes
    return replace(
        with_stored_processes(result, found), verdict=Verdict.RIGHT, summary=summary, unchanged=True, notes=notes
    )


def _has_moved(machine: Fingerprint, stored: Fingerprint) -> bool:
    """Returns whether machine or toolchain differ from the stored ones, in the fields that both fingerprints have."""
    shared = machine.must_match.keys() & stored.must_match.keys()
    return any(machine.must_match[name] != stored.must_match[name] for name in shared) or bool(
        machine.list_changes(stored)
    )
