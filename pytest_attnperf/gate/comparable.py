"""Compares what ran now with what is stored, apart from the times. Pure; every finding is text.

Whether both may be compared at all, which tolerances and references became looser, which choices differ, and how far a
case has crept from its time before slowdowns that were accepted by recording them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_attnperf.backends import TRAFFIC_BYTES
from pytest_attnperf.baselines.anchor import anchor_of
from pytest_attnperf.baselines.schema import Check, Entry, to_plain
from pytest_attnperf.correctness.budget import UNPLANTED
from pytest_attnperf.correctness.digest import INPUTS, Digest, are_apart
from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED
from pytest_attnperf.records import CheckReport, Fingerprint, Tolerance
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.workloads.adhoc_planting import UNHEEDED
from pytest_attnperf.workloads.defined import drop_unrecorded

COARSER = 2.0
"""Factor by which the plain computation's error may grow, on the same inputs, since the baseline was stored."""

BASELINE_PROCESSES_MIN = 7
"""Fewest fresh processes of a baseline: fewer leave its centre too uncertain for a 2 % threshold."""

PATH = "path"
"""Configuration key, or its last part, that names the implementation which a library's dispatcher took."""

PROVENANCE = frozenset({"config_arch", "config_source", TRAFFIC_BYTES})
"""Keys that say where values come from, or what follows from them; other keys hold the values. Compared with the part
after the last dot, because a part's configuration has its name before it, as in `attention.config_source`."""

SAID_ELSEWHERE = frozenset({"autotuned", "built", "launches", "peak_memory", "pinned"})
"""Keys about unknowns, replayed choices, and what a library built before it ran. They do not describe what ran."""

UNKNOWN = "unknown"

ABSENT = "absent"

ADVICE = (
    "an autotuner chose differently, which may be the only change: run again with --attnperf-pin-config to time the "
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
    """Returns why `entry`, recorded under `stored`, cannot be compared with a case measured now; empty when it can.

    Machine and method version are in the fingerprints' `must_match`. `timer` made the current number, `definition` is
    the current workload's. `settings` of torch are compared where both sides know them: older entries do not have them.
    `processes_min` may be lowered for a local baseline that is not kept. `checks` have the reference's results now; not
    compared where there are none.
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
    """Returns notes on inputs or reference results whose digests differ between `now` and `then`; ignores names that
    only one of them has.

    Where inputs differ, notes are about the inputs only: the reference's results follow from them.

    other   the name of the side of `then`
    """
    differ = [name for name in now if name in then and are_apart(now[name], then[name])]
    inputs = [name for name in differ if name.startswith(INPUTS)]
    return [Note(NoteKind.WORKLOAD, _describe_digests(name, now[name], then[name], other)) for name in inputs or differ]


def _describe_digests(name: str, ours: Digest, theirs: Digest, other: str) -> str:
    pairs = zip(("rms", "projection"), ours, theirs, strict=True)
    figures = "; ".join(f"{what} {here:.6g} here, {there:.6g} {other}" for what, here, there in pairs)
    if name.startswith(INPUTS):
        what = f"inputs() makes a different {name.removeprefix(INPUTS)!r}"
        why = "; it was changed, or draws other numbers with this torch or on this device"
    else:
        what, why = f"the reference gives a different {name!r}", ""
    said = f"{what} than when the baseline was recorded, for the same seed ({figures}){why}"
    return f"{said}; if that is intended, record it again"


def list_looser_tolerances(checks: Iterable[CheckReport], allowed: Tolerance) -> list[str]:
    """Returns outputs that may now err more than `allowed`, the baseline's tolerance: 'out 2 -> 20'."""
    found = []
    for check in checks:
        for name in dict.fromkeys(figures.output for figures in check.figures):
            now, before = check.tolerance.for_output(name), allowed.for_output(name)
            found += [f"{name} {before:g} -> {now:g}"] if now > before else []
    return list(dict.fromkeys(found))


def list_coarser_outputs(checks: Iterable[CheckReport], stored: Mapping[str, float]) -> list[str]:
    """Returns outputs whose check became coarser: the error of a plain low-precision computation, from which tolerances
    follow, grew by more than COARSER x: 'out, off by 6e-08 of the result -> 0.0017'. Ignores those not in `stored`."""
    found = [
        f"{name}, off by {stored[name]:.2g} of the result -> {now:.2g}"
        for check in checks
        for name, now in check.coarseness.items()
        if name in stored and now > COARSER * stored[name]
    ]
    return list(dict.fromkeys(found))


def has_lost_planted_keys(checks: Iterable[CheckReport], stored: Check) -> bool:
    """Returns whether the workload's own inputs() gives the same with planted=True (which asks for values that reveal
    hidden errors) as without, though it did not when the baseline was stored.

    Does not count planted inputs that this package makes: they may be possible with one seed and not with another.
    """
    return stored.planted and any(f"{UNPLANTED}{UNHEEDED}" in one.check for check in checks for one in check.figures)


def _list_definition_changes(ours: Mapping[str, Any], stored: Mapping[str, Any]) -> list[Note]:
    """Returns a note for each field of the workload definition that differs; both sides must be as read from JSON."""
    absent = "absent"
    return [
        Note(NoteKind.WORKLOAD, f"workload {field}: {ours.get(field, absent)} here, {stored.get(field, absent)} stored")
        for field in sorted(ours.keys() | stored.keys())
        if ours.get(field, absent) != stored.get(field, absent)
    ]


def list_config_changes(stored: Mapping[str, str], now: Mapping[str, str], *, other: str = "stored") -> list[str]:
    """Returns settings that differ: 'BLOCK_M: 64 here, 128 stored', 'autotuned.forward: num_warps: 4 here, 8 stored'.

    Ignores entries that only say where values come from, or why something is not known. Ignores autotuners' choices
    where one side has none, as in a baseline stored before they were recorded. `other` names the side of `stored`.
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
    """Returns code paths of libraries that differ, e.g. 'path: ck here, asm stored'; both sides must know them."""
    known = [key for key in sorted(stored.keys() & now.keys()) if key.rpartition(".")[2] == PATH]
    return list_config_changes({key: stored[key] for key in known}, {key: now[key] for key in known}, other=other)


def advise_on_changes(changes: Sequence[str]) -> str:
    """Returns what to do about it if one of the `changes` (of `list_config_changes`) is an autotuner's choice; else
    ''."""
    return ADVICE if any(change.startswith(AUTOTUNED) for change in changes) else ""


def _compared_keys(stored: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    known = (stored.keys() | now.keys()) - SAID_ELSEWHERE
    keys = {key for key in known if key.rpartition(".")[2] not in PROVENANCE}
    recorded = all(any(key.startswith(AUTOTUNED) for key in side) for side in (stored, now))
    return {key for key in keys if recorded or not key.startswith(AUTOTUNED)}


def _describe_difference(key: str, ours: str, theirs: str, other: str) -> str:
    """Returns 'NAME: 64 here, 128 stored' for each parameter of an autotuner's choice that differs; for another
    setting, or if the parameters are not the same ones, '... here, ... stored' with both whole values."""
    here, there = _parse_choice(ours), _parse_choice(theirs)
    if key.startswith(AUTOTUNED) and here and here.keys() == there.keys():
        return "; ".join(
            f"{name}: {here[name]} here, {there[name]} {other}" for name in here if here[name] != there[name]
        )
    return f"{ours} here, {theirs} {other}"


def _parse_choice(text: str) -> dict[str, str]:
    """Returns {'BLOCK_M': '64', ...} of an autotuner's choice, 'BLOCK_M: 64, ...'; {} if the text has another form."""
    pairs = [part.partition(": ") for part in text.split(", ")]
    return {name: value for name, _, value in pairs} if all(colon for _, colon, _ in pairs) else {}


def find_creep(entry: Entry, ratio: float, policy: Policy, nodeid: str, limit: float | None = None) -> Note | None:
    """Returns a note where a case is slower than its entry's anchor by more than `policy.creep_percent`; else None.

    The anchor is the case's time before slowdowns that were accepted by recording them.

    `ratio` is that of the deciding look: against the entry itself or, interleaved, against the base revision that the
    entry stands for; the latter does not contain a shift of the machine since the recording. `limit` is the ratio
    beyond which that look would be SLOWER: less may be noise and is no creep. An entry without an anchor is its own.
    The caller ensures that both may be compared.
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
        f"crept: {format_time(now_us)} against {format_time(anchor.median_us)} on {anchor.recorded}{commit}: "
        f"{crept_percent:+.1f} % since then, more than the {allowed_percent:.3g} % allowed, in steps that each "
        f'passed or were recorded; if it is intended: attnperf baselines accept {quote_nodeid(nodeid)} --reason "WHY" '
        f'(nothing is measured again), or pytest --update-baselines --attnperf-accept="WHY" {quote_nodeid(nodeid)}',
    )
