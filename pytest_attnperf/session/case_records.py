"""Builds a `CaseResult` from looks and decisions, field by field."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.gate.comparable import (
    advise_on_changes,
    find_creep,
    has_lost_planted_keys,
    list_coarser_outputs,
    list_config_changes,
    list_looser_tolerances,
    list_path_changes,
    reasons_not_comparable,
)
from pytest_attnperf.gate.decide import Decision
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, DeviceInfo, Measurement, ProcessSummary, Verdict
from pytest_attnperf.records.costs import PEAK_BYTES
from pytest_attnperf.records.notes import Note, NoteKind, filter_notes, reword_note
from pytest_attnperf.results import EXPIRED, FOREIGN, CaseResult
from pytest_attnperf.roofline.floors import compute_floor as floor_of
from pytest_attnperf.session.plausibility import judge_by_code, kernel_codes, list_launched_kernels, with_isa_hashes
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.look import Ending, Look

NOT_TO_BE_TIMED = "not timed: its test sets timed=False"

ABOUT_TIMES = frozenset(
    {
        *(Verdict.SLOWER, Verdict.UNDECIDED, Verdict.INCOMPARABLE, Verdict.ENVIRONMENT, Verdict.NO_BASELINE),
        *(Verdict.MOVED, Verdict.DRIFT, Verdict.STALE, Verdict.GREW),
    }
)
"""Verdicts about time or costs, which a quarantine keeps from failing. All others, such as INCORRECT, still fail."""

NOT_SLOWER = frozenset({Verdict.SAME, Verdict.FASTER})

MEMORY_GROWN = 1.1
"""Peak memory beyond this multiple of the stored one gets a note: speed may have been bought with memory."""


KEYS_SHOWN = 3


def note_loosened(what: str) -> Note:
    """Returns the note that `what` is looser than when the baseline was stored; the run repeats it as a finding."""
    return Note(NoteKind.LOOSENED, f"policy loosened since the baseline: {what}")


def list_shared_notes(noted: Iterable[tuple[CaseKey, Sequence[str]]], kind: NoteKind) -> list[str]:
    """Returns a line per note of this kind: the case's key and the note, or the number of cases and the first ones."""
    by_text: dict[str, list[str]] = {}
    for key, notes in noted:
        for note in filter_notes(notes, kind):
            by_text.setdefault(note, []).append(str(key))
    return [_format_shared(text, keys) for text, keys in by_text.items()]


def _format_shared(text: str, keys: Sequence[str]) -> str:
    if len(keys) == 1:
        return f"{keys[0]}: {text}"
    more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
    return f"{len(keys)} cases: {text} ({', '.join(keys[:KEYS_SHOWN])}{more})"


def case_result(case: Case, verdict: Verdict, summary: str, **fields: Any) -> CaseResult:
    """Returns a result of this case with its own policy; `fields` are further fields of CaseResult."""
    return CaseResult(
        key=case.key, nodeid=case.nodeid, verdict=verdict, summary=summary, policy=case.policy.to_record(), **fields
    )


def result_from_look(case: Case, verdict: Verdict, summary: str, look: Look) -> CaseResult:
    """Returns a look (one measurement) as a result with this verdict, or SUSPICIOUS if it was timed on an AMD GPU and
    its machine code cannot do what it is timed for."""
    final = with_isa_hashes(look.final)
    codes = kernel_codes(look.final) if look.ending is Ending.MEASURED else {}
    result = case_result(
        case,
        verdict,
        summary,
        reasons=look.reasons,
        notes=tuple(dict.fromkeys([*filter(None, [look.note]), *look.report.notes])),
        checks=(look.report,) if look.report.figures or look.report.problems else (),
        figures=look.figures,
        fingerprint=look.fingerprint,
        peak_memory_bytes=final.peak_memory_bytes,
        config=dict(final.config),
        launches=final.launches,
        code=list_launched_kernels(final.launches, codes),
        breakdown=look.breakdown,
        sources=dict(final.sources),
        source_id=final.source_id,
        cost_limits=dict(final.cost_limits),
    )
    return judge_by_code(result, codes, matrix=final.matrix) if _was_timed_on_amd(look) else result


NO_REASON = "no reason given"
"""Reason of a test that skips without giving one."""

NOT_MEASURED = {
    Ending.INCORRECT: Verdict.INCORRECT,
    Ending.BODY_FAILED: Verdict.ERROR,
    Ending.UNSUPPORTED: Verdict.UNSUPPORTED,
    Ending.SKIPPED: Verdict.UNSUPPORTED,
    Ending.RIGHT: Verdict.RIGHT,
}
"""The verdicts that need no time: wrong, broken, unsupported, or right without being timed."""


def unmeasured_result(case: Case, look: Look) -> CaseResult:
    """Returns the result of a case that was not timed, with the verdict for how `look` ended, e.g. UNSUPPORTED."""
    said = next((line for reason in look.reasons for line in reason.splitlines()), NO_REASON)
    summary = said if look.reasons else str(look.note or "right; not timed")
    result = result_from_look(case, NOT_MEASURED[look.ending], summary, look)
    return replace(result, skipped=summary) if look.ending is Ending.SKIPPED else result


def mark_proven_only(result: CaseResult, *, recording: bool) -> CaseResult:
    """Returns a RIGHT result with the summary and note that its test sets timed=False, so nothing is timed (and
    nothing recorded if `recording`). Returns any other result unchanged."""
    if result.verdict is not Verdict.RIGHT:
        return result
    summary = f"{NOT_TO_BE_TIMED}; nothing is recorded" if recording else NOT_TO_BE_TIMED
    return replace(result, summary=summary, notes=(*result.notes, Note(NoteKind.PROVEN_ONLY, summary)))


def mark_disappeared(result: CaseResult, what: str) -> CaseResult:
    """Returns the result as failing, because the case was timed before and no longer is; `what` says so."""
    text = f"{what}: {result.summary}"
    reason = Note(NoteKind.GONE, text, about=result.summary)
    return replace(result, summary=text, reasons=(reason, *result.reasons), fails=True)


def _was_timed_on_amd(look: Look) -> bool:
    machine = {} if look.fingerprint is None else look.fingerprint.must_match
    return look.ending is Ending.MEASURED and machine.get("arch", "").startswith("gfx")


def with_notes(base: CaseResult, case: Case, found: StoredEntry) -> CaseResult:
    """Adds notes on looser settings and changed configuration since the entry was stored, and on grown memory."""
    stored = found.entry.check
    looser_now = [f"tolerance of {what}" for what in list_looser_tolerances(base.checks, stored.tolerance)]
    looser_now += [
        f"the reference of {what}: record the baseline again"
        for what in list_coarser_outputs(base.checks, stored.coarseness)
    ]
    looser_now += ["inputs() planted keys when the baseline was stored, and no longer does"] * has_lost_planted_keys(
        base.checks, stored
    )
    looser_now += _list_looser_costs(base.cost_limits, found.entry.cost_limits)
    notes = [note_loosened(what) for what in (*case.policy.list_loosened(found.policy), *looser_now)]
    drift = list_config_changes(found.entry.config, base.config)
    if drift:
        said = f"configuration differs from the baseline's: {'; '.join(drift)}"
        notes.append(Note(NoteKind.DRIFTED, "; ".join([said, *filter(None, [advise_on_changes(drift)])])))
    return replace(base, notes=(*base.notes, *notes, *_more_memory(base, found.entry)))


def list_case_differences(case: CaseResult, found: StoredEntry) -> list[str]:
    """Returns why a timed case and the stored entry may not be compared, as texts; [] if they may."""
    assert case.fingerprint is not None
    assert case.figures is not None
    first, definition = case.first[0], case.figures.definition
    return reasons_not_comparable(
        found.entry, found.fingerprint, case.fingerprint, timer=first.timer, definition=definition,
        settings=first.settings, checks=case.checks,
    )  # fmt: skip


def _list_looser_costs(now: Mapping[str, float], stored: Mapping[str, float]) -> list[str]:
    """Returns each cost that may grow more than when the entry was stored, or is no longer gated, as texts."""
    return [
        f"cost {name} {percent:g} % -> {'not gated' if name not in now else f'{now[name]:g} %'}"
        for name, percent in stored.items()
        if now.get(name, math.inf) > percent
    ]


def _more_memory(base: CaseResult, entry: Entry) -> tuple[str, ...]:
    """Returns a note in a tuple if peak memory exceeds MEMORY_GROWN x the stored one, and the test does not gate it as
    a cost; else ()."""
    before, now = entry.peak_memory_bytes, base.peak_memory_bytes
    if PEAK_BYTES in base.cost_limits or now is None or before is None or now <= MEMORY_GROWN * before:
        return ()
    return (f"peak memory grew: {now / 2**20:.1f} MiB here, {before / 2**20:.1f} MiB stored",)


def with_stored_processes(base: CaseResult, found: StoredEntry) -> CaseResult:
    """Adds the times of the stored processes, their median, and the date and commit of their recording."""
    entry = found.entry
    return replace(
        base,
        baseline_us=median_us_of(entry.processes),
        stored_us=tuple(process.median_us for process in entry.processes),
        stored_commit=entry.commit,
        stored_at=entry.recorded,
    )


def with_creep(base: CaseResult, case: Case, found: StoredEntry) -> CaseResult:
    """Adds a note if the case has become slower than its anchor (the accepted reference time), even by small steps."""
    judged = base.verdict in (Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED)
    note = (
        find_creep(found.entry, base.ratio, case.policy, case.nodeid, base.threshold) if judged and base.ratio else None
    )
    return replace(base, notes=(*base.notes, note)) if note else base


def with_stored(base: CaseResult, case: Case, found: StoredEntry, looks: Iterable[Look] = ()) -> CaseResult:
    """Returns the result compared with the stored entry besides its time: a note on creep, INCOMPARABLE or a note if a
    library ran another code path.

    looks   further looks whose configurations count, besides that of `base`
    """
    configs = (base.config, *(look.final.config for look in looks))
    return with_path(with_creep(base, case, found), [(found.entry.config, config) for config in configs])


def with_path(
    base: CaseResult, sides: Iterable[tuple[Mapping[str, str], Mapping[str, str]]], *, name: str = "stored"
) -> CaseResult:
    """Returns the result marked where a library's dispatcher took another code path than on the other side.

    SAME, FASTER and UNDECIDED become INCOMPARABLE, because the two times are of different kernels. Other verdicts stay,
    with the path in the summary.

    sides   (other side's configuration, this side's), of every process that counts
    name    names the other side in the text
    """
    changed = list(
        dict.fromkeys(change for there, here in sides for change in list_path_changes(there, here, other=name))
    )
    if not changed:
        return base
    about = "; ".join(changed)
    said = f"another path ran: {about}"
    reasons = (Note(NoteKind.OTHER_PATH, said, about), *base.reasons)
    if base.verdict in (Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED):
        summary = f"{said}; {base.summary}"
        return replace(base, verdict=Verdict.INCOMPARABLE, summary=summary, reasons=reasons)
    return replace(base, summary=f"{base.summary}; {said}", reasons=reasons)


def mark_calibrated(recorded: CaseResult) -> CaseResult:
    """Turns RECORDED into RIGHT: a calibration run stores and gates nothing. Returns other results unchanged."""
    if recorded.verdict is not Verdict.RECORDED:
        return recorded
    summary = f"measured in {len(recorded.first)} processes to find their spread"
    return replace(recorded, verdict=Verdict.RIGHT, summary="; ".join([summary, *recorded.reasons]))


def with_replaced_entry(
    base: CaseResult, case: Case, found: StoredEntry | None, differences: Sequence[str], *, accepted: bool
) -> CaseResult:
    """Adds to a recorded result how it differs from the entry that it replaces: time, code path, and creep.

    differences   why the two times may not be compared; neither change nor creep is then known
    accepted      whether the user gave a reason for slower times, so that creep needs no note
    """
    if found is None or base.median_us is None:
        return replace(base, summary="recorded; nothing was stored before")
    if differences:
        summary = f"recorded; what was stored is not comparable: {'; '.join(differences)}"
        return replace(base, summary=summary, reasons=(*base.reasons, *differences))
    before = median_us_of(found.entry.processes)
    ratio = base.median_us / before
    summary = f"recorded; {ratio - 1:+.1%} against what was stored"
    base = replace(base, baseline_us=before, ratio=ratio, summary=summary)
    note = None if accepted else find_creep(found.entry, ratio, case.policy, case.nodeid)
    base = with_path(base, [(found.entry.config, base.config)])
    return replace(base, notes=(*base.notes, note)) if note else base


def with_figures(base: CaseResult, device: DeviceInfo) -> CaseResult:
    """Adds the workload's floor (shortest possible time) on this device, if the data sheet table has the device."""
    spec = spec_for(device)
    floor = None if spec is None or base.figures is None else floor_of(base.figures, spec)
    return base if floor is None else replace(base, floor_us=floor.us, floor_bound=floor.bound)


def apply_decision(base: CaseResult, decision: Decision) -> CaseResult:
    """Returns the result with the decision's verdict, reasons and figures; for STALE without figures."""
    if decision.verdict is Verdict.STALE:
        return replace(base, verdict=decision.verdict, summary=decision.summary, reasons=tuple(decision.reasons))
    limit = decision.detection_limit
    return replace(
        base,
        verdict=decision.verdict,
        summary=decision.summary,
        reasons=tuple(decision.reasons),
        ratio=decision.ratio,
        interval=decision.interval,
        threshold=decision.threshold,
        standard_error=decision.standard_error,
        degrees_of_freedom=decision.degrees_of_freedom,
        card_error=decision.card_error,
        detection_limit=limit if limit is not None and math.isfinite(limit) else None,
    )


def apply_quarantine(result: CaseResult, policy: Policy, today: date) -> CaseResult:
    """Returns the result of a gating run with its policy's quarantine applied: it decides whether the test fails.

    A quarantine does not protect a case without checks, as where a budget ended before it ran: it may be wrong. The
    last day belongs to the quarantine. From the next day on the test fails whatever its verdict, also SAME and
    UNSUPPORTED, so that somebody looks at the date. The verdict itself never changes.
    """
    if not policy.quarantine:
        return result
    if today > date.fromisoformat(policy.quarantine_until):
        return _mark_expired(result, policy)
    if result.verdict in ABOUT_TIMES and result.checks:
        return replace(result, fails=False, quarantined=f"{policy.quarantine} until {policy.quarantine_until}")
    if result.verdict in NOT_SLOWER and not result.fails:
        said = f"quarantined until {policy.quarantine_until}, but not slower: remove the quarantine"
        return replace(result, notes=(*result.notes, Note(NoteKind.NEEDLESS, said)))
    return result


def _mark_expired(result: CaseResult, policy: Policy) -> CaseResult:
    text = f"{EXPIRED} on {policy.quarantine_until}: {policy.quarantine}; fix it, or extend the date"
    first = next((reason for reason in result.reasons if reason == result.summary), result.summary)
    said = (reword_note(first, f"{result.verdict.value}: {first}"),) if first else ()
    others = tuple(reason for reason in result.reasons if reason != result.summary)
    return replace(result, fails=True, summary=text, reasons=(Note(NoteKind.EXPIRED, text), *said, *others))


def reject_other_tree(base: CaseResult, looks: Sequence[Look]) -> CaseResult | None:
    """Returns INCOMPARABLE if a process ran code of another tree, so that its time does not count; else None."""
    foreign = tuple(dict.fromkeys(source for look in looks for source in look.final.foreign_sources))
    if not foreign:
        return None
    reasons = tuple(Note(NoteKind.FOREIGN, source) for source in foreign)
    return replace(base, verdict=Verdict.INCOMPARABLE, summary=FOREIGN, reasons=reasons)


def reject_mixed_paths(base: CaseResult, looks: Sequence[Look]) -> CaseResult | None:
    """Returns INCOMPARABLE if a recording's processes took different paths, so that no one time is right; else None."""
    first, *others = (look.final.config for look in looks)
    mixed = [list_path_changes(first, config, other="in another process") for config in others]
    changes = tuple(dict.fromkeys(change for changed in mixed for change in changed))
    if not changes:
        return None
    said = f"not every process took the same path: {'; '.join(changes)}"
    return replace(base, verdict=Verdict.INCOMPARABLE, summary=said, reasons=(Note(NoteKind.MIXED_PATHS, said),))


def join_measurement(looks: list[Look]) -> Measurement:
    """Returns the looks' processes and checks as one Measurement, which rejects any that was not proven right."""
    peaks = [look.final.peak_memory_bytes for look in looks if look.final.peak_memory_bytes is not None]
    summaries = tuple(look.summary for look in looks if look.summary is not None)
    return Measurement(summaries, tuple(look.report for look in looks), max(peaks, default=None))


def median_us_of(processes: Sequence[ProcessSummary]) -> float:
    """Returns the median of several processes' medians, microseconds per call."""
    return statistics.median(process.median_us for process in processes)


def first_line(error: Exception) -> str:
    """Returns the first line of the error's text, or its type if it has no text."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
