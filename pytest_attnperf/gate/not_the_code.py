"""Detects slowdowns against stored processes that the code did not cause: MOVED, DRIFT and STALE. Pure.

Equal machine code alone proves nothing: the same kernel takes longer with another loop count, which no launch shows. So
each verdict also requires equal sources, by the hash that `workers.source_tree` gives to whole folders:

MOVED   sources, configuration, machine code and launches equal the entry's: the machine has changed
DRIFT   sources equal the entry's, an autotuner chose differently, and with the stored choice the time is the stored one
STALE   sources equal the base revision's, and the entry was recorded with others

Where anything is not known the verdict of the times stays, and a reason says what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.baselines.schema import Entry
from pytest_attnperf.correctness.what_ran import compute_launch_identity, is_launch_unchanged
from pytest_attnperf.gate.comparable import list_config_changes
from pytest_attnperf.gate.limits import Decision, format_signed
from pytest_attnperf.measure.autotuners import PREFIX as AUTOTUNED
from pytest_attnperf.records import Launch, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.time_units import format_time

BY_WHAT_RAN = frozenset({Verdict.MOVED, Verdict.DRIFT})
"""Verdicts by what ran that still have a time to compare; a STALE entry is compared with nothing."""

IN_QUESTION = frozenset({Verdict.SLOWER, Verdict.UNDECIDED, Verdict.ENVIRONMENT})
"""Verdicts that MOVED, DRIFT or STALE may replace."""

MACHINE = "the machine changed (driver, clocks, card), not the code"

NO_HASH = (
    "its entry was recorded without the hash of its sources: other values passed to the same kernel cannot be "
    "distinguished from a changed machine; record it again (--update-baselines)"
)
NOT_READ = "this run does not know the hash of its sources: other values passed to a kernel cannot be excluded"
OTHER_SOURCES = "the sources differ from those of its entry: other values may be passed to the kernel"
OTHER_TUNED = "the sources differ from those of its entry: that may be why an autotuner chose differently"
UNKNOWN_CODE = (
    "sources and configuration equal its entry's, but the machine code of some kernel is not known: whether the "
    "machine changed cannot be decided"
)


@dataclass(frozen=True)
class Ran:
    """What one process ran of a case: `launches` with ISA hashes, and `source_id` of its tree, '' where not known."""

    launches: tuple[Launch, ...]
    config: Mapping[str, str]
    source_id: str


def can_be_explained(decision: Decision, toolchain_changes: Iterable[str]) -> bool:
    """Returns whether a look may become MOVED, DRIFT or STALE: it is SLOWER, UNDECIDED or ENVIRONMENT, it compared
    times, and no toolchain differs. Another toolchain may pass other values to kernels."""
    return decision.verdict in IN_QUESTION and decision.threshold is not None and not list(toolchain_changes)


def has_same_sources(entry: Entry, ran: Sequence[Ran]) -> bool:
    """Returns whether every process in `ran` is known to have run the sources that the entry was recorded with."""
    return bool(entry.source_id) and all(one.source_id == entry.source_id for one in ran)


def is_moved(entry: Entry, ran: Sequence[Ran]) -> bool:
    """Returns whether all processes in `ran` had the entry's sources, machine code and configuration, so that only the
    machine can make their times differ."""
    return has_same_sources(entry, ran) and _has_same_launches(entry, ran) and not list_changes(entry, ran)


def list_changes(entry: Entry, ran: Sequence[Ran]) -> list[str]:
    """Returns settings of processes in `ran` that differ from the entry's: 'BLOCK_M: 64 here, 128 stored'."""
    return list(dict.fromkeys(change for one in ran for change in list_config_changes(entry.config, one.config)))


def choices_apart(entry: Entry, ran: Sequence[Ran]) -> tuple[str, ...]:
    """Returns autotuners' choices of processes in `ran` that differ from the entry's, e.g. 'autotuned.f: num_warps: 4
    here, 8 stored'; empty if none does, or if another setting differs, too."""
    found = list_changes(entry, ran)
    return tuple(found) if all(change.startswith(AUTOTUNED) for change in found) else ()


def is_stale(stored: str, ran: Sequence[Ran], base: str) -> bool:
    """Returns whether all processes in `ran` had the base revision's sources, but the entry was recorded with others.

    The change under test then did not cause a slowdown, however large.

    stored, base   hashes of these sources; '' where they are not known. A library that was built next to them is in no
                   revision, so code that loaded one is not known to be the base revision's.
    """
    return bool(stored) and bool(base) and stored != base and all(one.source_id == base for one in ran)


def find_missing_evidence(entry: Entry, ran: Sequence[Ran]) -> Note | None:
    """Returns a SOURCES note if a case is not MOVED or DRIFT only because its sources or machine code differ from the
    entry's or are not known; else None."""
    choices, differ = choices_apart(entry, ran), list_changes(entry, ran)
    if not has_same_sources(entry, ran) and (choices or (not differ and _has_same_launches(entry, ran))):
        return Note(NoteKind.SOURCES, _about_sources(entry, ran, tuned=bool(choices)))
    known = compute_launch_identity(entry.launches) and all(compute_launch_identity(one.launches) for one in ran)
    if has_same_sources(entry, ran) and not differ and not known:
        return Note(NoteKind.SOURCES, UNKNOWN_CODE)
    return None


def as_moved(decision: Decision) -> Decision:
    """Returns the decision as MOVED; its summary says that code, configuration and sources are the stored ones."""
    said = f"{decision.measured}, with the machine code, configuration and sources of its baseline: {MACHINE}"
    return replace(decision, verdict=Verdict.MOVED, summary=said)


def as_moved_and_tuned(decision: Decision, pinned: Decision, choices: Sequence[str]) -> Decision:
    """Returns the decision as MOVED though an autotuner chose differently (`choices`): the case is slow with the stored
    choice, too, as the decision `pinned` says."""
    said = f"{decision.measured}, where an autotuner chose differently: {'; '.join(choices)}; {MACHINE}"
    return with_reason(replace(decision, verdict=Verdict.MOVED, summary=said), note_still_slow(pinned))


def as_drift(decision: Decision, pinned: Decision, pinned_us: float, choices: Sequence[str]) -> Decision:
    """Returns the look's decision with the verdict DRIFT: an autotuner's other choice explains the slowdown.

    decision    by the processes that chose by themselves
    pinned      by those that were given the stored choice, which took `pinned_us` microseconds per call
    """
    listed = "; ".join(choices)
    said = f"with the stored choice it takes {format_time(pinned_us)} ({format_signed(pinned.ratio - 1)})"
    summary = f"{decision.measured}, but an autotuner chose differently: {listed}; {said}"
    reasons = (Note(NoteKind.PINNED, f"{said}: as fast as stored", listed), *decision.reasons)
    return replace(decision, verdict=Verdict.DRIFT, summary=summary, reasons=reasons)


def as_stale(decision: Decision, entry: Entry, base: str, command: str) -> Decision:
    """Returns the look's decision as STALE: the entry was recorded with other sources than the base revision.

    base      the base revision's commit
    command   records the entry again
    """
    commit = f" ({entry.commit})" if entry.commit else ""
    said = f"not compared: its entry of {entry.recorded}{commit} was recorded with other sources than {base[:12]}"
    summary = f"{said}, the base revision, which this change shares; record it again there: {command}"
    seen = Note(NoteKind.SOURCES, f"compared with that entry, its looks measured {decision.measured}")
    return replace(decision, verdict=Verdict.STALE, summary=summary, reasons=(seen,))


def note_still_slow(pinned: Decision) -> Note:
    """Returns a PINNED note: the case is slow with the autotuner's stored choice, too, which thus explains nothing."""
    return Note(NoteKind.PINNED, f"with the autotuner's stored choice it is slower, too: {pinned.measured}")


def note_not_pinned(why: str) -> Note:
    """Returns a PINNED note: the autotuner's stored choice could not be timed (`why`), so its effect is unknown."""
    said = f"an autotuner chose differently, and its stored choice could not be timed: {why}"
    return Note(NoteKind.PINNED, said, why)


def with_reason(decision: Decision, reason: Note | None) -> Decision:
    """Returns the decision with `reason` in front of its other reasons; unchanged for None."""
    return decision if reason is None else replace(decision, reasons=(reason, *decision.reasons))


def _has_same_launches(entry: Entry, ran: Sequence[Ran]) -> bool:
    return all(is_launch_unchanged(one.launches, entry.launches) for one in ran)


def _about_sources(entry: Entry, ran: Sequence[Ran], *, tuned: bool) -> str:
    if not entry.source_id:
        return NO_HASH
    if not all(one.source_id for one in ran):
        return NOT_READ
    return OTHER_TUNED if tuned else OTHER_SOURCES
