"""What ran now beside what is stored of it, before and beyond the times: pure, every finding in words.

Whether both may be compared at all, which tolerances and references let more through, what was chosen otherwise, and
how far a case has crept from what it cost before any slowdown that was accepted by recording it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_attnperf.baselines.anchor import anchor_of
from pytest_attnperf.baselines.schema import Check, Entry, to_plain
from pytest_attnperf.correctness.budget import UNPLANTED
from pytest_attnperf.correctness.digest import INPUTS, Digest, are_apart
from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED
from pytest_attnperf.records import CheckReport, Fingerprint, Tolerance
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.workloads.adhoc_planting import UNHEEDED
from pytest_attnperf.workloads.defined import drop_unrecorded

COARSER = 2.0
"""How many times as far off the plain computation of the same inputs may be as when the baseline was stored."""

BASELINE_PROCESSES_MIN = 7
"""Fresh processes a baseline is made from: fewer leave its centre too uncertain for a 2 % threshold."""

PATH = "path"
"""Entry, or last part of an entry's name, that says which of several implementations a library's dispatcher took."""

PROVENANCE = frozenset({"config_arch", "config_source"})
"""Where values came from: other entries hold the values themselves. Looked for behind the last dot, for a part's
configuration has the part's name before it, as in `attention.config_source`."""

SAID_ELSEWHERE = frozenset({"autotuned", "built", "launches", "peak_memory", "pinned"})
"""Why something is not known, what was replayed, and what a library built before it ran: no part of what ran."""

UNKNOWN = "unknown"

ABSENT = "absent"

ADVICE = (
    "an autotuner chose otherwise, which may be all that changed: run again with --attnperf-pin-config to time the "
    "stored choice, or record the baseline again (--update-baselines) to keep the new one"
)


def reasons_not_comparable(
    entry: Entry,
    stored: Fingerprint,
    current: Fingerprint,
    *,
    timer: str,
    definition: Mapping[str, Any],
    settings: str = "",
    processes_min: int = BASELINE_PROCESSES_MIN,
    checks: Iterable[CheckReport] = (),
) -> list[str]:
    """Reasons why `entry`, recorded under `stored`, says nothing about a case measured now; empty when it does.

    Machine and method version are in the fingerprints' `must_match`. `timer` made the current number, `definition` is
    the current workload's. `settings` of torch are compared where both sides know them: entries that were stored before
    they were recorded do not. `processes_min` may be lowered for a local baseline that is not kept. `checks` say what
    the reference gives now; not asked where there are none.
    """
    reasons: list[str] = [Note(NoteKind.MACHINE, reason) for reason in current.list_mismatches(stored)]
    stored_timer = entry.processes[0].timer
    if stored_timer != timer and current.must_match.get("timer") == stored.must_match.get("timer"):
        reasons.append(Note(NoteKind.MACHINE, f"timer: {timer} here, {stored_timer} stored"))
    stored_settings = entry.processes[0].settings
    if settings and stored_settings and stored_settings != settings:
        reasons.append(Note(NoteKind.MACHINE, f"settings of torch: {settings} here, {stored_settings} stored"))
    ours = to_plain(definition)
    if ours != entry.workload:
        reasons += _list_definition_changes(drop_unrecorded(entry.workload, ours), entry.workload)
    reasons += [reason for check in checks for reason in list_truth_changes(check.truth, entry.check.truth)]
    if len(entry.processes) < processes_min:
        said = f"processes: {len(entry.processes)} stored, at least {processes_min} needed"
        reasons.append(Note(NoteKind.PROCESSES, said))
    return reasons


def list_truth_changes(now: Mapping[str, Digest], then: Mapping[str, Digest], other: str = "stored") -> list[Note]:
    """Why results that were proven now and `then` are not those of one problem; empty where one side does not know.

    Where inputs() makes other inputs, nothing is said of the reference, whose results follow from them.

    other   what the side of `then` is called
    """
    differ = [name for name in now if name in then and are_apart(now[name], then[name])]
    inputs = [name for name in differ if name.startswith(INPUTS)]
    return [Note(NoteKind.WORKLOAD, _describe_digests(name, now[name], then[name], other)) for name in inputs or differ]


def _describe_digests(name: str, ours: Digest, theirs: Digest, other: str) -> str:
    pairs = zip(("rms", "projection"), ours, theirs, strict=True)
    figures = "; ".join(f"{what} {here:.6g} here, {there:.6g} {other}" for what, here, there in pairs)
    if name.startswith(INPUTS):
        what = f"inputs() makes another {name.removeprefix(INPUTS)!r}"
        why = "; it was changed, or draws other numbers with this torch or on this device"
    else:
        what, why = f"the reference gives another {name!r}", ""
    said = f"{what} than when the baseline was recorded, for the same seed ({figures}){why}"
    return f"{said}; if that is meant, record it again"


def list_looser_tolerances(checks: Iterable[CheckReport], allowed: Tolerance) -> list[str]:
    """Tolerances above what the baseline was stored with, e.g. 'out 2 -> 20'."""
    found = []
    for check in checks:
        for name in dict.fromkeys(figures.output for figures in check.figures):
            now, before = check.tolerance.for_output(name), allowed.for_output(name)
            found += [f"{name} {before:g} -> {now:g}"] if now > before else []
    return list(dict.fromkeys(found))


def list_coarser_outputs(checks: Iterable[CheckReport], stored: Mapping[str, float]) -> list[str]:
    """Outputs whose yardstick is off by more than twice what is stored: 'out, off by 6e-08 of the result -> 0.0017'."""
    found = [
        f"{name}, off by {stored[name]:.2g} of the result -> {now:.2g}"
        for check in checks
        for name, now in check.coarseness.items()
        if name in stored and now > COARSER * stored[name]
    ]
    return list(dict.fromkeys(found))


def has_lost_planted_keys(checks: Iterable[CheckReport], stored: Check) -> bool:
    """Whether inputs() plants nothing any more, though it did when the baseline was stored.

    Inputs that we plant may bear it with one seed and not with another, and are no sign of a change.
    """
    return stored.planted and any(f"{UNPLANTED}{UNHEEDED}" in one.check for check in checks for one in check.figures)


def _list_definition_changes(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[Note]:
    """Fields of the workload definition that differ; both sides in the plain form JSON gives back."""
    absent = "absent"
    return [
        Note(NoteKind.WORKLOAD, f"workload {field}: {ours.get(field, absent)} here, {stored.get(field, absent)} stored")
        for field in sorted(ours.keys() | stored.keys())
        if ours.get(field, absent) != stored.get(field, absent)
    ]


def list_config_changes(stored: Mapping[str, str], now: Mapping[str, str], *, other: str = "stored") -> list[str]:
    """What differs, e.g. 'BLOCK_M: 64 here, 128 stored' or 'autotuned.forward: num_warps: 4 here, 8 stored'.

    Entries that only say where values come from, or why something is not known, are no change; neither are autotuners'
    choices where one side has none at all, as in a baseline stored before they were recorded. `other` is what the side
    of `stored` is called.
    """
    keys = _compared_keys(stored, now)
    found = []
    for key in sorted(keys):
        ours, theirs = now.get(key, ABSENT), stored.get(key, ABSENT)
        if ours == theirs or ours.startswith(UNKNOWN) or theirs.startswith(UNKNOWN):
            continue
        found.append(f"{key}: {_describe_difference(key, ours, theirs, other)}")
    return found


def list_path_changes(stored: Mapping[str, str], now: Mapping[str, str], *, other: str = "stored") -> list[str]:
    """Which dispatcher's choices differ, e.g. 'path: ck here, asm stored'; empty where one side does not know."""
    known = [key for key in sorted(stored.keys() & now.keys()) if key.rpartition(".")[2] == PATH]
    return list_config_changes({key: stored[key] for key in known}, {key: now[key] for key in known}, other=other)


def advise_on_changes(changes: Sequence[str]) -> str:
    """What to do about such changes, where an autotuner's choice is among them; '' otherwise."""
    return ADVICE if any(change.startswith(AUTOTUNED) for change in changes) else ""


def _compared_keys(stored: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    known = (stored.keys() | now.keys()) - SAID_ELSEWHERE
    keys = {key for key in known if key.rpartition(".")[2] not in PROVENANCE}
    recorded = all(any(key.startswith(AUTOTUNED) for key in side) for side in (stored, now))
    return {key for key in keys if recorded or not key.startswith(AUTOTUNED)}


def _describe_difference(key: str, ours: str, theirs: str, other: str) -> str:
    """The parts of an autotuner's choice that differ, or both values as they are."""
    here, there = _parse_choice(ours), _parse_choice(theirs)
    if key.startswith(AUTOTUNED) and here and here.keys() == there.keys():
        return "; ".join(
            f"{name}: {here[name]} here, {there[name]} {other}" for name in here if here[name] != there[name]
        )
    return f"{ours} here, {theirs} {other}"


def _parse_choice(text: str) -> dict[str, str]:
    """'BLOCK_M: 64, num_warps: 4' by name; empty where the text is made otherwise."""
    pairs = [part.partition(": ") for part in text.split(", ")]
    return {name: value for name, _, value in pairs} if all(colon for _, colon, _ in pairs) else {}


def find_creep(entry: Entry, ratio: float, policy: Policy, nodeid: str, limit: float | None = None) -> Note | None:
    """The finding, where a case is slower than the stored entry's anchor by more than `policy.creep_percent`; or None.

    `ratio` is that of the deciding look: against the entry itself or, interleaved, against the base revision that the
    entry stands for; a shift of the machine since the recording is not in the latter. `limit` is the ratio beyond which
    that look would have said SLOWER: what noise alone can do is no creep. An entry without an anchor is its own. The
    caller has made sure that both may be compared.
    """
    anchor = entry.anchor or anchor_of(entry)
    now_us = ratio * statistics.median(process.median_us for process in entry.processes)
    crept_percent = 100 * (now_us / anchor.median_us - 1)
    allowed_percent = max(policy.creep_percent, 100 * ((limit or 1.0) - 1))
    if crept_percent <= allowed_percent:
        return None
    commit = f", commit {anchor.commit}" if anchor.commit else ""
    return Note(
        NoteKind.CREPT,
        f"crept: {now_us:.4g} us against {anchor.median_us:.4g} us on {anchor.recorded}{commit}: "
        f"{crept_percent:+.1f} % since then, more than the {allowed_percent:.3g} % allowed, in steps that each "
        'passed or were recorded; if it is wanted: attnperf accept CASE --from RESULTS --reason "WHY" (nothing is '
        f'measured again), or pytest --update-baselines --attnperf-accept="WHY" {quote_nodeid(nodeid)}',
    )
