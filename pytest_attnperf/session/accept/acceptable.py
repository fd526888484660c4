"""Checks that a result may change a baseline entry without a new measurement. Every reason against it is a UsageError.

Verdict, ratio, median and floor are recomputed from the samples where these allow it; the file's own are not trusted.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_attnperf.baselines.acceptance import DAY
from pytest_attnperf.baselines.schema import Entry, to_plain
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import UsageError, quote_nodeid
from pytest_attnperf.gate.canary_drift import compare_canaries
from pytest_attnperf.gate.comparable import list_looser_tolerances, reasons_not_comparable
from pytest_attnperf.gate.limits import format_signed, tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.results import FOREIGN, CaseResult, RunResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import median_us_of, with_figures
from pytest_attnperf.session.consistent import find_contradictions, list_proof_gaps
from pytest_attnperf.session.rejudge.claims import device_of
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.stats.pair_ratios import centre_ratio

RECORDINGS = (RunMode.UPDATE.value, RunMode.CALIBRATE.value)
"""Modes whose first look is several fresh processes, none selected by what it measured."""

NAME_MAX = 100
"""Most characters of a commit or version, which an entry stores."""

TEXT_MAX = 300
"""Most characters of a file's text that a message quotes."""

NEVER = {
    Verdict.INCORRECT: "the time of a wrong result is never stored",
    Verdict.SUSPICIOUS: "a time that cannot be true is not stored; find out what ran",
    Verdict.ERROR: "its measurement did not finish",
    Verdict.GREW: "costs are stored only with the processes that measured them",
    Verdict.UNSUPPORTED: "nothing ran; remove its entry from the file if the case is gone for good",
}


def require_run(run: RunResult) -> None:
    """Raises UsageError unless the results are of a complete run that gates or records the working tree on a device."""
    if run.mode not in (RunMode.GATE.value, *RECORDINGS):
        raise UsageError(
            f"the results are of a run of mode {run.mode[:40]!r}, which stores and gates nothing; accept from one of "
            "pytest --attnperf, --update-baselines or --attnperf-calibrate"
        )
    if not run.complete:
        raise UsageError("the results are of a run that was interrupted; run it to the end")
    if run.device is None:
        raise UsageError("the results name no device: no worker answered; run again")
    if filter_notes(run.notes, NoteKind.CANDIDATE):
        raise UsageError(
            "the results are of --attnperf-candidate, which is not the working tree; accept from a run without it"
        )
    for name, text in (("commit", run.commit), ("version", run.version)):
        if len(text) > NAME_MAX or not text.isprintable():
            raise UsageError(f"the results have an invalid {name}: {text[:40]!r}; accept from an unchanged file")


def require_day(run: RunResult) -> str:
    """Returns the day on which the run started, YYYY-MM-DD. Raises UsageError if the results have none."""
    day = run.started[:10]
    if not DAY.fullmatch(day):
        raise UsageError(f"the results' start time {run.started[:40]!r} is not a date; accept from an unchanged file")
    return day


def require_acceptable(run: RunResult, case: CaseResult, found: StoredEntry | None) -> None:
    """Raises UsageError unless the case was timed and is proven right, ran this tree's code, has consistent figures,
    and is comparable with its stored entry `found`."""
    if not str(case.key).isprintable():
        raise UsageError(f"the key {str(case.key)[:TEXT_MAX]!r} has unprintable characters; rename the case")
    _require_verdict(case)
    assert run.device is not None
    ungated = run.mode == RunMode.GATE.value and case.verdict is Verdict.RIGHT
    if ungated or case.fingerprint is None or case.figures is None or not case.first:
        raise UsageError(
            f"{case.key} was not timed and gated in this run ({case.summary[:200]!r}): there is nothing to accept"
        )
    tolerance = None if found is None else found.entry.check.tolerance
    wrong = list_proof_gaps(case.checks, tolerance)
    if wrong:
        raise UsageError(f"{case.key} is not proven right: {wrong[0][:TEXT_MAX]}; correct it and run again")
    if tolerance is not None and (wider := list_looser_tolerances(case.checks, tolerance)):
        raise UsageError(
            f"{case.key} has a larger tolerance than its entry was stored with ({', '.join(wider)[:TEXT_MAX]}); "
            "record it with pytest --update-baselines"
        )
    _require_sound(run, case)
    if found is not None:
        _require_comparable(case, found)


def recompute_case(run: RunResult, case: CaseResult, found: StoredEntry | None) -> CaseResult:
    """Returns the case of a results file with time, ratio and shortest possible time recomputed from its samples.

    Ignores what the file says of these figures. Raises UsageError where the recomputed time is SUSPICIOUS.
    """
    assert run.device is not None
    assert case.fingerprint is not None
    device = device_of(case.fingerprint, run.device)
    new_us = median_us_of(case.second or case.first)
    ratio = None
    if case.pairs:
        ratio = centre_ratio(case.pairs)
    elif found is not None:
        ratio = new_us / median_us_of(found.entry.processes)
    plain = replace(case, median_us=new_us, ratio=ratio, floor_us=None, floor_bound="", verdict=Verdict.RIGHT, notes=())
    made = with_figures(plain, device)
    judged = plausibility.judge_by_floor(made, spec_for(device))
    if device.arch.startswith("gfx") and judged.verdict is not Verdict.SUSPICIOUS:
        judged = plausibility.judge_by_code(judged, {code.isa_hash: code for code in case.code}, matrix=False)
    if judged.verdict is Verdict.SUSPICIOUS:
        raise UsageError(f"{case.key} is SUSPICIOUS: {NEVER[Verdict.SUSPICIOUS]} ({judged.summary[:200]})")
    return replace(made, verdict=case.verdict)


def require_same_machine(case: CaseResult, found: StoredEntry) -> None:
    """Raises UsageError if the canary (a fixed GEMM and copy) slowed down enough to explain all of the case's slowdown.

    The time of a slow machine, once stored, would hide a later slowdown of the code. `case` is from `recompute_case`.
    """
    shift = compare_canaries(case.canary, found.canary)
    if shift is None or case.ratio is None or case.ratio <= 1:
        return
    tolerated = tolerated_ratio(parse_policy(found.policy), median_us_of(found.entry.processes))
    if shift.can_explain(case.ratio, max(tolerated, case.threshold or 1.0), case.floor_bound):
        raise UsageError(
            f"{case.key} is {format_signed(case.ratio - 1)}, but {shift.shift_for(case.floor_bound).in_words}, "
            f"too: the machine slowed down, not the code. Run again with --attnperf-against=REV: its pairs cancel that"
        )


def require_base_of_entry(case: CaseResult, found: StoredEntry, ratio: float) -> None:
    """Raises UsageError if stored time x `ratio` (of the pairs) exceeds the first measurement's time by more than the
    policy tolerates: the base side is then faster than the stored code, so the scaled entry would be too slow."""
    scaled_us = ratio * median_us_of(found.entry.processes)
    first_us = median_us_of(case.first)
    if scaled_us > first_us * tolerated_ratio(parse_policy(found.policy), scaled_us):
        raise UsageError(
            f"{case.key}: its pairs are {format_signed(ratio - 1)} against "
            f"{case.against[:100] or 'their base side'}. That scales its entry to {format_time(scaled_us)}, "
            f"but its first look took {format_time(first_us)}: the entry is not of that "
            "side's code. Accept from a second look (--attnperf-second-look=7), or record it again"
        )


def require_same_entry(run: RunResult, case: CaseResult, entry: Entry) -> None:
    """Raises UsageError if the case was compared with another entry than `entry`, or holds processes of `entry`."""
    medians_us = tuple(process.median_us for process in entry.processes)
    if run.mode in RECORDINGS:
        same = case.baseline_us == statistics.median(medians_us)
    elif not case.stored_us:
        raise UsageError(
            f"{case.key} was not compared with a stored entry in this run, or its version did not record which; "
            "run again"
        )
    else:
        same = (case.stored_us, case.stored_commit, case.stored_at) == (medians_us, entry.commit, entry.recorded)
    if not same:
        raise UsageError(
            f"the entry of {case.key}, recorded {entry.recorded}, is not the one that the results were compared with: "
            "it has changed since; run again"
        )
    _require_sound(run, case, entry.processes)


def is_already_stored(case: CaseResult, entry: Entry) -> bool:
    """Returns whether the entry holds exactly this recording's processes: only the reason is then left to accept."""
    return bool(to_plain(case.first) == to_plain(entry.processes))


def parse_policy(record: dict[str, Any]) -> Policy:
    """Returns the Policy of a plain record, ignoring unknown fields. Raises UsageError if it is invalid."""
    try:
        return Policy.from_record(record)
    except UsageError as error:
        raise UsageError(
            f"the results' policy is invalid: {str(error)[:TEXT_MAX]}; accept from an unchanged file"
        ) from error


def _require_sound(run: RunResult, case: CaseResult, stored: Sequence[ProcessSummary] = ()) -> None:
    assert run.device is not None
    if damaged := find_contradictions(case, run.device, stored):
        raise UsageError(
            f"{case.key}: the figures in the file contradict each other: {damaged[0][:TEXT_MAX]}; run again"
        )


def _require_verdict(case: CaseResult) -> None:
    if case.verdict in NEVER:
        grew = case.verdict is Verdict.GREW
        store = f"; store both: pytest --update-baselines {quote_nodeid(case.nodeid)}" if grew else ""
        raise UsageError(f"{case.key} is {case.verdict.value}: {NEVER[case.verdict]}{store} ({case.summary[:200]})")
    if filter_notes(case.reasons, NoteKind.FOREIGN):
        raise UsageError(f"{case.key}: {FOREIGN}, so that its time is not that of these kernels; run it from this tree")
    if case.verdict is Verdict.INCOMPARABLE and not filter_notes(case.reasons, NoteKind.OTHER_PATH):  # where both hold
        raise UsageError(
            f"{case.key} is INCOMPARABLE with its entry ({case.summary[:200]}); record it with pytest "
            "--update-baselines on the machine that it is for"
        )


def _require_comparable(case: CaseResult, found: StoredEntry) -> None:
    """Raises UsageError unless machine state, timer and workload equal the stored entry's. Ignores process counts."""
    assert case.fingerprint is not None
    assert case.figures is not None
    timer, definition = case.first[0].timer, case.figures.definition
    other = reasons_not_comparable(found.entry, found.fingerprint, case.fingerprint, timer=timer, definition=definition,
                       settings=case.first[0].settings, processes_min=1, checks=case.checks)  # fmt: skip
    if other:
        raise UsageError(
            f"{case.key} was not measured as its entry was: {'; '.join(other[:3])[:TEXT_MAX]}; record it with pytest "
            "--update-baselines"
        )
