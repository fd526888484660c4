"""Slowdowns against stored processes that are not the code's: MOVED, DRIFT and STALE. Pure.

Equal machine code proves nothing alone: the same kernel takes longer with another loop count, which no launch shows.
So each of the three also asks for equal sources, by the name that `workers.source_tree` gives to whole folders:

MOVED   sources, configuration, machine code and launches are those of the entry: the machine is another one by now
DRIFT   sources are those of the entry, an autotuner chose otherwise, and with the stored choice the time is the stored
STALE   sources are those of the base revision, and the entry was recorded with others

Where anything is not known the verdict stays what the times made it, and a reason says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.correctness.what_ran import compute_launch_identity, is_launch_unchanged
from pytest_attnperf.gate.comparable import list_config_changes
from pytest_attnperf.gate.limits import Decision, format_microseconds, format_signed
from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED
from pytest_attnperf.records import Launch, Verdict
from pytest_attnperf.records.notes import Note, NoteKind

BY_WHAT_RAN = frozenset({Verdict.MOVED, Verdict.DRIFT})
"""Verdicts that a time has beside its own figures; a STALE entry is compared with nothing."""

IN_QUESTION = frozenset({Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT})
"""Verdicts that they may take the place of."""

MACHINE = "the machine moved (driver, clocks, card), not the code"

NO_HASH = (
    "its entry was recorded without the hash of its sources, so that other values passed to the same kernel cannot be "
    "told from a machine that moved; record it again (--update-baselines)"
)
NOT_READ = "this run does not know the hash of its sources, so that other values passed to a kernel cannot be excluded"
OTHER_SOURCES = "the sources are not those that its entry was recorded with: other values may be passed to the kernel"
OTHER_TUNED = "the sources are not those that its entry was recorded with: they may be why an autotuner chose otherwise"
UNKNOWN_CODE = (
    "sources and configuration are those of its entry, but the machine code of some kernel is not known: whether the "
    "machine moved cannot be told"
)


@dataclass(frozen=True)
class Ran:
    """What one process ran of a case: `launches` with ISA hashes, and `source_id` of its tree, '' where not known."""

    launches: tuple[Launch, ...]
    config: Mapping[str, str]
    source_id: str


def can_be_explained(decision: Decision, toolchain_changes: Iterable[str]) -> bool:
    """Whether a look is slower than allowed under the toolchain of its entry: another one may pass other values."""
    return decision.verdict in IN_QUESTION and decision.threshold is not None and not list(toolchain_changes)


def has_same_sources(entry: Entry, ran: Sequence[Ran]) -> bool:
    """Whether all of these are known to have run the sources that the entry was recorded with."""
    return bool(entry.source_id) and all(one.source_id == entry.source_id for one in ran)


def is_moved(entry: Entry, ran: Sequence[Ran]) -> bool:
    """Whether all of these ran what the entry ran, so that their times differ by the machine alone."""
    return has_same_sources(entry, ran) and _has_same_launches(entry, ran) and not list_changes(entry, ran)


def list_changes(entry: Entry, ran: Sequence[Ran]) -> list[str]:
    """What any of these chose otherwise than the entry says, in words."""
    return list(dict.fromkeys(change for one in ran for change in list_config_changes(entry.config, one.config)))


def choices_apart(entry: Entry, ran: Sequence[Ran]) -> tuple[str, ...]:
    """Autotuners' choices that differ from the stored, in words; empty where something else of a configuration does."""
    found = list_changes(entry, ran)
    return tuple(found) if all(change.startswith(AUTOTUNED) for change in found) else ()


def is_stale(stored: str, ran: Sequence[Ran], base: str) -> bool:
    """Whether all of these ran the base revision's sources, and the entry was recorded with others: a slowdown is not
    this change's doing, however large.

    stored, base   names of these sources; '' where they are not known. A library that was built beside them is in no
                   revision, so that what has loaded one is not known to be the base revision's.
    """
    return bool(stored) and bool(base) and stored != base and all(one.source_id == base for one in ran)


def find_missing_evidence(entry: Entry, ran: Sequence[Ran]) -> Note | None:
    """What alone keeps a slowdown from being MOVED or DRIFT; None where the times or what ran say enough."""
    choices, differ = choices_apart(entry, ran), list_changes(entry, ran)
    if not has_same_sources(entry, ran) and (choices or (not differ and _has_same_launches(entry, ran))):
        return Note(NoteKind.SOURCES, _about_sources(entry, ran, tuned=bool(choices)))
    known = compute_launch_identity(entry.launches) and all(compute_launch_identity(one.launches) for one in ran)
    if has_same_sources(entry, ran) and not differ and not known:
        return Note(NoteKind.SOURCES, UNKNOWN_CODE)
    return None


def as_moved(decision: Decision) -> Decision:
    """The look as MOVED."""
    said = f"{decision.measured}, by the machine code, configuration and sources of its baseline: {MACHINE}"
    return replace(decision, verdict=Verdict.MOVED, summary=said)


def as_moved_and_tuned(decision: Decision, pinned: Decision, choices: Sequence[str]) -> Decision:
    """The look as MOVED where an autotuner chose otherwise, too: `pinned` looks had the stored choice, and its code."""
    said = f"{decision.measured}, where an autotuner chose otherwise: {'; '.join(choices)}; {MACHINE}"
    return with_reason(replace(decision, verdict=Verdict.MOVED, summary=said), note_still_slow(pinned))


def as_drift(decision: Decision, pinned: Decision, pinned_us: float, choices: Sequence[str]) -> Decision:
    """The look as DRIFT.

    decision    of the processes that chose by themselves
    pinned      of those that were given the stored choice, which took `pinned_us` microseconds per call
    """
    listed = "; ".join(choices)
    said = f"with the stored choice it takes {format_microseconds(pinned_us)} us ({format_signed(pinned.ratio - 1)})"
    summary = f"{decision.measured}, but an autotuner chose otherwise: {listed}; {said}"
    reasons = (Note(NoteKind.PINNED, f"{said}: as fast as stored", listed), *decision.reasons)
    return replace(decision, verdict=Verdict.DRIFT, summary=summary, reasons=reasons)


def as_stale(decision: Decision, entry: Entry, base: str, command: str) -> Decision:
    """The look as STALE.

    base      the base revision's commit
    command   what records the entry again
    """
    commit = f" ({entry.commit})" if entry.commit else ""
    said = f"not compared: its entry of {entry.recorded}{commit} was recorded with other sources than {base[:12]} has"
    summary = f"{said}, and this change has the same as that base revision; record it again there: {command}"
    seen = Note(NoteKind.SOURCES, f"against that entry its looks saw {decision.measured}")
    return replace(decision, verdict=Verdict.STALE, summary=summary, reasons=(seen,))


def note_still_slow(pinned: Decision) -> Note:
    """The reason that the choice of an autotuner does not explain."""
    return Note(NoteKind.PINNED, f"with the autotuner's stored choice it is slower, too: {pinned.measured}")


def note_not_pinned(why: str) -> Note:
    """The reason that nobody knows whether the choice of an autotuner explains."""
    said = f"an autotuner chose otherwise, and its stored choice could not be timed: {why}"
    return Note(NoteKind.PINNED, said, why)


def with_reason(decision: Decision, reason: Note | None) -> Decision:
    """The look with one reason more, in front."""
    return decision if reason is None else replace(decision, reasons=(reason, *decision.reasons))


def _has_same_launches(entry: Entry, ran: Sequence[Ran]) -> bool:
    return all(is_launch_unchanged(one.launches, entry.launches) for one in ran)


def _about_sources(entry: Entry, ran: Sequence[Ran], *, tuned: bool) -> str:
    if not entry.source_id:
        return NO_HASH
    if not all(one.source_id for one in ran):
        return NOT_READ
    return OTHER_TUNED if tuned else OTHER_SOURCES
