"""Accepts a change of one named case: turns its result into the entry to store. Nothing is measured.

Where the new time comes from, best first:

- a recording (an update or a calibration) of at least 7 processes: these processes;
- a second look of at least 7 processes: these alone. The first look is left out: it was followed by a second one
  because it was slow, so it is biased towards slow;
- at least 7 interleaved pairs: the stored processes, scaled by the pairs' ratio. The ratio does not depend on the day
  and the machine. The times of turns are not those of blocks, so an entry does not store them;
- fewer, where the time has not changed: the stored time stays; changed launches and configuration are stored.

Seven, because a baseline's centre must be known better than the threshold that it serves (`gate.comparable`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.acceptance import Acceptance
from pytest_attnperf.baselines.anchor import anchor_of, next_anchor
from pytest_attnperf.baselines.schema import Anchor, Entry, content_id, to_plain
from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.baselines.writing import NewEntry, Replacement, entry_from, find_worst_check
from pytest_attnperf.correctness.what_ran import list_differences
from pytest_attnperf.errors import UsageError, quote_nodeid
from pytest_attnperf.gate.comparable import BASELINE_PROCESSES_MIN, find_creep, list_config_changes
from pytest_attnperf.gate.limits import tolerated_ratio
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Fingerprint, Measurement, NotProvenRightError, ProcessSummary
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.accept.acceptable import (
    NEVER,
    RECORDINGS,
    is_already_stored,
    parse_policy,
    recompute_case,
    require_acceptable,
    require_base_of_entry,
    require_day,
    require_run,
    require_same_entry,
    require_same_machine,
)
from pytest_attnperf.session.rejudge.claims import make_measurement
from pytest_attnperf.stats.pair_ratios import centre_ratio
from pytest_attnperf.stats.summaries import STORED_DIGITS

POLICY_ONLY, IDENTITY_ONLY, TIME_KEPT = "policy only", "identity only", "time kept"
PAIRS_ASKED = 2 * BASELINE_PROCESSES_MIN
"""Half of the pairs are taken if they show SAME (`gate.interleaved.is_surely_same`): half must be enough to accept."""

CHANGES_KEPT = 12
"""Most changes, as text, that an entry keeps of one acceptance."""

CHANGE_MAX = 300
"""Most characters of each change: names of kernels made from templates have thousands."""

IMPOSSIBLE = (NotProvenRightError, ValueError, TypeError, ArithmeticError, LookupError)
"""Errors that a computation raises for invented figures."""


@dataclass(frozen=True)
class Request:
    """Who accepts, why, and on which day (YYYY-MM-DD). With `policy` only the settings change; all figures stay."""

    reason: str
    author: str
    date: str
    policy: bool = False


@dataclass(frozen=True)
class Accepted:
    """The replacement of the entry, the acceptance that it records, and notes for the reader, one line each."""

    replacement: Replacement
    acceptance: Acceptance
    notes: tuple[str, ...] = ()

    def describe_acceptance(self, key: object) -> str:
        """Returns '<key>: 19.1 -> 20.2 us (+5.8 %; 7 processes), accepted by NAME: REASON' (stored -> new time)."""
        told = self.acceptance
        if told.before_us is None:
            what = f"{format_time(told.after_us)}, nothing was stored before ({told.how})"
        elif told.how in (POLICY_ONLY, IDENTITY_ONLY, TIME_KEPT):
            what = f"{format_time(told.after_us)} as before ({told.how})"
        else:
            change = f"{100 * (told.after_us / told.before_us - 1):+.1f} %"
            what = f"{format_times([told.before_us, told.after_us])} ({change}; {told.how})"
        return f"{key}: {what}, accepted by {told.author}: {told.reason}"


def accept(run: RunResult, case: CaseResult, found: StoredEntry | None, request: Request) -> Accepted:
    """Returns the new entry for `case`, whose stored one is `found`; writes nothing. Raises UsageError if the run, the
    verdict or the figures do not allow that."""
    require_run(run)
    try:
        return (
            _accept_policy(run, case, found, request)
            if request.policy
            else _accept_by_samples(run, case, found, request)
        )
    except IMPOSSIBLE as error:
        why = str(error).partition("\n")[0][:200]
        raise UsageError(f"{case.key}: its figures in the file are invalid ({why}); measure the case again") from error


def _accept_by_samples(run: RunResult, case: CaseResult, found: StoredEntry | None, request: Request) -> Accepted:
    require_acceptable(run, case, found)
    case = recompute_case(run, case, found)
    if found is None:
        return _accept_first_entry(run, case, request)
    if run.mode in RECORDINGS and is_already_stored(case, found.entry):
        return _acknowledge_recording(run, case, found, request)
    require_same_entry(run, case, found.entry)
    new = _entry_from_processes(run, case, found) or _entry_from_pairs(run, case, found)
    if new is None:
        return _keep_time(run, case, found, request)
    anchor = next_anchor(found.entry, new.entry, {}, new.fingerprint, request.reason)
    new = replace(new, entry=replace(new.entry, anchor=anchor), changes=_list_run_changes(case, found.entry))
    return _add_acceptance(run, request, found, new, _list_policy_notes(case, found))


@dataclass(frozen=True)
class _New:
    """An entry to be stored, where it was measured, what its time is based on, and what changed besides its time."""

    entry: Entry
    fingerprint: Fingerprint
    canary: Mapping[str, tuple[ProcessSummary, ...]]
    how: str
    changes: tuple[str, ...] = ()


def _add_acceptance(
    run: RunResult,
    request: Request,
    found: StoredEntry,
    new: _New,
    notes: tuple[str, ...] = (),
    before: Anchor | None = None,
) -> Accepted:
    """Returns the new entry with an acceptance appended. It states the old time: of the stored entry or, if given, of
    the anchor `before`."""
    before = before or anchor_of(found.entry)
    acceptance = Acceptance(
        reason=request.reason,
        author=request.author,
        date=request.date,
        how=new.how,
        after_us=anchor_of(new.entry).median_us,
        before_us=before.median_us,
        commit=run.commit,
        changes=tuple(map(_make_printable, new.changes[:CHANGES_KEPT])),
        old_commit=before.commit,
        old_recorded=before.recorded,
    )
    entry = replace(new.entry, accepted=(*found.entry.accepted, acceptance), note=found.entry.note)
    return Accepted(Replacement(found.entry, entry, new.fingerprint, found.policy, new.canary), acceptance, notes)


def _make_printable(change: str) -> str:
    """Returns a change as one printable line of at most CHANGE_MAX characters; names of kernels may be anything."""
    text = "".join(character if character.isprintable() else "?" for character in change)
    return text if len(text) <= CHANGE_MAX else f"{text[: CHANGE_MAX - 3]}..."


def _accept_first_entry(run: RunResult, case: CaseResult, request: Request) -> Accepted:
    """Returns the first entry of a case. Raises UsageError unless it is of a recording of enough processes: a gating
    run measures too little."""
    new = _entry_from_processes(run, case, None) if run.mode in RECORDINGS else None
    if new is None:
        where = "; the run had one: name its folder by --baselines DIR" if case.stored_us else ""
        raise UsageError(
            f"{case.key} has no entry to change{where}, and these results are not a recording of at least "
            f"{BASELINE_PROCESSES_MIN} processes; store a first one with: "
            f"pytest --update-baselines {quote_nodeid(case.nodeid)}"
        )
    anchor = next_anchor(None, new.entry, {}, new.fingerprint, request.reason)
    acceptance = Acceptance(request.reason, request.author, request.date, new.how, anchor.median_us, commit=run.commit)
    entry = replace(new.entry, anchor=anchor, accepted=(acceptance,))
    return Accepted(
        Replacement(None, entry, new.fingerprint, parse_policy(case.policy).to_record(), new.canary), acceptance
    )


def _acknowledge_recording(run: RunResult, case: CaseResult, found: StoredEntry, request: Request) -> Accepted:
    """Returns the entry with its anchor (the time that creep is measured from) set to its own, slower time. Raises
    UsageError if it is not slower."""
    before = found.entry.anchor or anchor_of(found.entry)
    anchor = next_anchor(found.entry, found.entry, {}, found.fingerprint, request.reason)
    if before.median_us >= anchor.median_us:
        raise UsageError(
            f"{case.key}: this recording is the stored entry, which is not slower than its anchor "
            f"({format_time(before.median_us)}, {before.recorded}): there is nothing to accept"
        )
    entry = replace(found.entry, anchor=anchor)
    new = _New(entry, found.fingerprint, found.canary, _format_count(len(entry.processes), "processes"))
    return _add_acceptance(run, request, found, new, before=before)


def _entry_from_processes(run: RunResult, case: CaseResult, found: StoredEntry | None) -> _New | None:
    """Returns a new entry from the processes of a recording or of a second look; None if there are too few."""
    recording = run.mode in RECORDINGS
    processes = case.first if recording else case.second
    if len(processes) < BASELINE_PROCESSES_MIN:
        return None
    assert case.fingerprint is not None
    assert case.figures is not None
    if found is not None:
        require_same_machine(case, found)
    whole = recording and len(case.checks) == len(processes)
    proven = Measurement(processes, case.checks, case.peak_memory_bytes) if whole else make_measurement(case, processes)
    record = NewEntry(
        measurement=proven,
        workload=case.figures.definition,
        fingerprint=case.fingerprint,
        policy=parse_policy(case.policy).to_record() if found is None else found.policy,
        recorded=require_day(run),
        harness_version=run.version,
        commit=run.commit,
        config=case.config,
        launches=case.launches,
        bound=case.floor_bound,
        canary=case.canary,
        source_id=case.source_id,
        cost_limits=case.cost_limits,
    )
    how = _format_count(len(processes), "processes")
    return _New(entry_from(record), case.fingerprint, case.canary, how)


def _entry_from_pairs(run: RunResult, case: CaseResult, found: StoredEntry) -> _New | None:
    """Returns the entry with its stored times multiplied by the pairs' ratio new / base. None in a recording, and if
    there are too few pairs."""
    if run.mode in RECORDINGS or len(case.pairs) < BASELINE_PROCESSES_MIN:
        return None
    ratio = centre_ratio(case.pairs)
    require_base_of_entry(case, found, ratio)
    entry = replace(
        found.entry,
        processes=tuple(_scale_process(process, ratio) for process in found.entry.processes),
        check=find_worst_check(case.checks),
        recorded=require_day(run),
        harness_version=run.version,
        commit=run.commit,
        peak_memory_bytes=case.peak_memory_bytes,
        config=case.config,
        launches=case.launches,
        source_id=case.source_id,
    )
    how = f"{_format_count(len(case.pairs), 'pairs')}, stored processes scaled by {ratio:.4g}"
    return _New(entry, found.fingerprint, found.canary, how)


def _scale_process(process: ProcessSummary, ratio: float) -> ProcessSummary:
    """Returns a stored process with its times multiplied by `ratio`. Keeps the stored clock: none was measured."""
    median_us, min_us, mean_us, *block_us = (
        float(f"{us * ratio:.{STORED_DIGITS}g}")
        for us in (process.median_us, process.min_us, process.mean_us, *process.block_us)
    )
    return replace(process, median_us=median_us, min_us=min_us, mean_us=mean_us, block_us=tuple(block_us))


def _keep_time(run: RunResult, case: CaseResult, found: StoredEntry, request: Request) -> Accepted:
    """Accepts changed launches, configuration and creep, and keeps the stored time. Raises UsageError if the new time
    differs from it, or nothing has changed."""
    entry, changes = found.entry, _list_run_changes(case, found.entry)
    stored = parse_policy(found.policy)
    tolerated = tolerated_ratio(stored, anchor_of(entry).median_us)
    if case.ratio is None or not 1 / tolerated <= case.ratio <= tolerated:
        raise UsageError(_describe_shortage(case, run))
    # The guard counted by the run's policy; accepting counts by the one that finds more.
    strict = replace(stored, creep_percent=min(stored.creep_percent, parse_policy(case.policy).creep_percent))
    creep = find_creep(entry, case.ratio, strict, case.nodeid, case.threshold)
    if not changes and not creep:
        raise UsageError(
            f"{case.key} is {case.verdict.value}: its time, launches and configuration equal its entry's, and it "
            "has not crept; there is nothing to accept"
        )
    before = entry.anchor or anchor_of(entry)
    anchor = next_anchor(entry, entry, {}, found.fingerprint, request.reason) if creep else before
    if changes:
        taken = replace(entry, launches=case.launches or entry.launches, config=case.config, commit=run.commit)
        entry = replace(taken, source_id=case.source_id)
    new = _New(
        replace(entry, anchor=anchor), found.fingerprint, found.canary, IDENTITY_ONLY if changes else TIME_KEPT, changes
    )
    told = (
        f"the anchor moves from {format_time(before.median_us)}, {before.recorded}, to {format_time(anchor.median_us)}"
    )
    return _add_acceptance(run, request, found, new, (*([told] if creep else []), *_list_policy_notes(case, found)))


def _accept_policy(run: RunResult, case: CaseResult, found: StoredEntry | None, request: Request) -> Accepted:
    """Replaces the stored settings by those of the run's case, whatever its time. Raises UsageError if they are equal,
    there is no entry, or the verdict is in NEVER."""
    if case.verdict in NEVER:
        raise UsageError(f"{case.key} is {case.verdict.value}: {NEVER[case.verdict]}; settings do not change that")
    if found is None:
        raise UsageError(
            f"{case.key} has no entry; store one with: pytest --update-baselines {quote_nodeid(case.nodeid)}"
        )
    policy = parse_policy(case.policy)
    changes = _list_policy_changes(policy, found)
    if not changes:
        raise UsageError(f"{case.key} was judged by the policy that is stored with its entry: nothing to accept")
    entry = replace(found.entry, policy=content_id(policy.to_record()))
    accepted = _add_acceptance(
        run, request, found, _New(entry, found.fingerprint, found.canary, POLICY_ONLY, changes),
        tuple(f"looser: {text}" for text in policy.list_loosened(found.policy)),
    )  # fmt: skip
    return replace(accepted, replacement=replace(accepted.replacement, policy=policy.to_record()))


def _list_policy_changes(policy: Policy, found: StoredEntry) -> tuple[str, ...]:
    ours, stored = to_plain(policy.to_record()), found.policy
    return tuple(
        f"{name} {_format_setting(stored.get(name, 'absent'))} -> {_format_setting(ours.get(name, 'absent'))}"
        for name in sorted(ours.keys() | stored.keys())
        if ours.get(name) != stored.get(name)
    )


def _format_setting(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _list_policy_notes(case: CaseResult, found: StoredEntry) -> tuple[str, ...]:
    changes = _list_policy_changes(parse_policy(case.policy), found)
    return (f"its policy stays as stored; --policy accepts: {', '.join(changes)}",) if changes else ()


def _list_run_changes(case: CaseResult, entry: Entry) -> tuple[str, ...]:
    """Returns how the case's launches and configuration differ from the entry's, as texts; () if equal."""
    launches = list_differences(case.launches, entry.launches) if case.launches and entry.launches else []
    return (*launches, *list_config_changes(entry.config, case.config))


def _describe_shortage(case: CaseResult, run: RunResult) -> str:
    """Returns the error text on how many processes and pairs the case has, and how to get enough for a new time."""
    if run.mode in RECORDINGS:
        there = _format_count(len(case.first), "processes")
    else:
        looks = (_format_count(len(case.second), "processes"), _format_count(len(case.pairs), "pairs"))
        there = f"{looks[0]} in its second look and {looks[1]}"
    change = "" if case.ratio is None else f" ({100 * (case.ratio - 1):+.1f} %)"
    return (
        f"{case.key} is {case.verdict.value}{change}, and a new time needs at least {BASELINE_PROCESSES_MIN} processes "
        f"or pairs: there are {there}. Run again with --attnperf-second-look={BASELINE_PROCESSES_MIN}, or with "
        f"--attnperf-against=REV --attnperf-pairs={PAIRS_ASKED}, and accept from that; or record it: "
        f"pytest --update-baselines {quote_nodeid(case.nodeid)}"
    )


def _format_count(count: int, what: str) -> str:
    one = {"processes": "process", "pairs": "pair"}[what]
    return f"{count} {one if count == 1 else what}"
