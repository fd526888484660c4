"""Pools recordings of several machines: one entry for each case, with the processes of all of them. Measures nothing.

A baseline of one card leaves the variance between cards in the limit of every gate on another card, and
`--update-baselines` sees the cards of its machine only.

Each part must be a recording that could be stored by itself if it had enough processes. All parts must agree in
everything that an entry stores once: only then are their processes of one thing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.baselines.writing import NewEntry, new_entry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.comparable import BASELINE_PROCESSES_MIN
from pytest_attnperf.records import CaseKey, Measurement, ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind, filter_notes
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.accept.acceptable import (
    RECORDINGS,
    parse_policy,
    recompute_case,
    require_acceptable,
    require_day,
    require_run,
)
from pytest_attnperf.session.accept.accepting import IMPOSSIBLE
from pytest_attnperf.session.accept.agreeing import list_disagreements
from pytest_attnperf.session.case_records import list_case_differences, median_us_of, with_replaced_entry
from pytest_attnperf.session.consistent import find_shared_process
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.tree_state import DIRTY, UNKNOWN

REASONS_MAX = 3
"""Most differences that a reason names."""


@dataclass(frozen=True)
class NamedRun:
    """One machine's recording, and the name of its file for messages."""

    name: str
    run: RunResult


@dataclass(frozen=True)
class PooledCase:
    """A case with the processes of all its recordings: as a RECORDED result, and as it is stored."""

    result: CaseResult
    record: NewEntry
    recordings: int

    @property
    def cards(self) -> int:
        """Number of cards that its processes name; 0 on a CPU."""
        return len({process.device_id for process in self.result.first if process.device_id})


class PartRefusedError(UsageError):
    """One recording's result of a case cannot be stored; the text names both."""


@dataclass(frozen=True)
class NotPooled:
    """A case that is not stored, and why. `names_case` says that the reason has the case's name in it."""

    key: CaseKey
    reason: str
    names_case: bool = False


@dataclass(frozen=True)
class Pooled:
    """What some recordings give: cases to store, those that are not, and how many none of the recordings timed."""

    cases: tuple[PooledCase, ...]
    refused: tuple[NotPooled, ...]
    untimed: int


def pool_recordings(recordings: Sequence[NamedRun]) -> Pooled:
    """Returns the cases of all recordings, each with the processes of all that have it. Writes nothing.

    Raises UsageError if these are not at least two complete recordings of one clean commit on one product by one
    version, and where one run or one process stands in two of them.
    """
    _require_recordings(recordings)
    held = _collect_cases(recordings)
    for parts in held.values():
        _require_own_processes(parts)
    cases, refused, untimed = list[PooledCase](), list[NotPooled](), 0
    for _, parts in sorted(held.items()):
        if all(_is_untimed(case) for _, case in parts):
            untimed += 1
            continue
        try:
            cases.append(_pool_case(parts))
        except UsageError as error:
            refused.append(NotPooled(parts[0][1].key, str(error), isinstance(error, PartRefusedError)))
    return Pooled(tuple(cases), tuple(refused), untimed)


def list_ambiguous_cards(recordings: Sequence[NamedRun]) -> list[str]:
    """Returns ids that name another card in one recording than in another, sorted. An AMD card's id is its PCI address,
    which a card of another machine may have, too; entries count both as one."""
    known = {(gpu.device_id, gpu.uuid) for recording in recordings for gpu in recording.run.gpus if gpu.uuid}
    counts = Counter(device_id for device_id, _ in known)
    return sorted(device_id for device_id, cards in counts.items() if cards > 1)


def find_creep_since(pooled: PooledCase, found: StoredEntry | None) -> list[Note]:
    """Returns a note if the pooled time has crept from the anchor of the entry that it replaces, as a recording's run
    says it; [] without an entry, or with one that it cannot be compared with."""
    result = pooled.result
    differences = [] if found is None else list_case_differences(result, found)
    case = Case(result.key, result.nodeid, parse_policy(result.policy))
    replaced = with_replaced_entry(result, case, found, differences, accepted=False)
    return filter_notes(replaced.notes, NoteKind.CREPT)


Part = tuple[NamedRun, CaseResult]
"""A recording, and its result of the case in question."""


def _require_recordings(recordings: Sequence[NamedRun]) -> None:
    if len(recordings) < 2:
        raise UsageError(
            "only one results file was given; pooling needs those of at least two recordings. One alone is stored "
            "where it is measured: pytest --update-baselines"
        )
    for recording in recordings:
        _require_recording(recording)
    for one, other in combinations(recordings, 2):
        _require_one_origin(one, other)


def _require_recording(recording: NamedRun) -> None:
    """Raises UsageError, naming the file, unless it is a complete recording of a commit that git has."""
    name, run = recording.name, recording.run
    if run.mode not in RECORDINGS:
        raise UsageError(
            f"{name}: a run of mode {run.mode[:40]!r} is no recording; each machine runs "
            "pytest --attnperf-calibrate=4 suites (or --update-baselines)"
        )
    try:
        require_run(run)
        require_day(run)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    if run.commit in ("", UNKNOWN) or run.commit.endswith(DIRTY):
        raise UsageError(
            f"{name}: its commit is {run.commit!r}, so that nobody could tell later what was recorded; commit all "
            "changes, and record from a clean clone"
        )
    if not run.run_id:
        raise UsageError(f"{name}: it does not say which run it is of, so that it could count twice; record again")


def _require_one_origin(one: NamedRun, other: NamedRun) -> None:
    """Raises UsageError if both are of the same run, or differ in commit, version or product."""
    if one.run.run_id == other.run.run_id:
        raise UsageError(
            f"{one.name} and {other.name} are results of the same run, whose processes would count twice; name each "
            "run once"
        )
    for what, here, there in zip(("product", "commit", "version"), _origin_of(one), _origin_of(other), strict=True):
        if here != there:
            raise UsageError(
                f"{one.name} and {other.name} are not of one {what}: {here[:100]!r} and {there[:100]!r}; pool "
                "recordings of one commit on machines of one product"
            )


def _origin_of(recording: NamedRun) -> tuple[str, str, str]:
    device = recording.run.device
    assert device is not None
    return f"{device.arch}/{device.product}", recording.run.commit, recording.run.version


def _collect_cases(recordings: Sequence[NamedRun]) -> dict[str, list[Part]]:
    """Returns each case's results, in the order of the recordings, by the name under which it is stored. Raises
    UsageError if one recording has a name twice."""
    held: dict[str, list[Part]] = {}
    for recording in recordings:
        for case in recording.run.cases:
            parts = held.setdefault(str(case.key), [])
            if parts and parts[-1][0] is recording:
                raise UsageError(f"{recording.name}: it holds {str(case.key)[:300]!r} twice; use an unchanged file")
            parts.append((recording, case))
    return held


def _require_own_processes(parts: Iterable[Part]) -> None:
    """Raises UsageError if one process of a case stands in two recordings: the second one was not measured."""
    for (one, ours), (other, theirs) in combinations(parts, 2):
        shared = find_shared_process(ours.first, theirs.first)
        if shared is not None:
            raise UsageError(
                f"{ours.key}: the same process stands in both {one.name} and {other.name}, block for block "
                f"({shared.process[:40] or 'unnamed'!r}): one of them is a copy; name recordings that were measured"
            )


def _is_untimed(case: CaseResult) -> bool:
    return case.verdict is Verdict.UNSUPPORTED or (case.verdict is Verdict.RIGHT and not case.first)


def _pool_case(parts: Sequence[Part]) -> PooledCase:
    """Returns one case with the processes of all parts. Raises UsageError if a part could not be stored, if two parts
    disagree, or if there are too few processes."""
    proven = [(recording, _require_storable(recording, case)) for recording, case in parts]
    (first, base), *others = proven
    for other, case in others:
        if found := list_disagreements(base, case):
            more = f"; and {len(found) - REASONS_MAX} more" if len(found) > REASONS_MAX else ""
            raise UsageError(
                f"{first.name} (here) and {other.name} (there) differ: {'; '.join(found[:REASONS_MAX])}{more}"
            )
    cases = [case for _, case in proven]
    processes = tuple(process for case in cases for process in case.first)
    if len(processes) < BASELINE_PROCESSES_MIN:
        raise UsageError(
            f"{len(processes)} processes in {len(parts)} of the recordings, at least {BASELINE_PROCESSES_MIN} needed; "
            "add recordings, or record more by --attnperf-calibrate=N"
        )
    peaks = [case.peak_memory_bytes for case in cases if case.peak_memory_bytes is not None]
    result = replace(
        base,
        verdict=Verdict.RECORDED,
        first=processes,
        median_us=median_us_of(processes),
        checks=tuple(check for case in cases for check in case.checks),
        canary=_join_canaries(cases),
        peak_memory_bytes=max(peaks, default=None),
    )
    run = first.run
    record = replace(
        new_entry(result, run.commit),
        recorded=max(require_day(recording.run) for recording, _ in parts),
        harness_version=run.version,
    )
    return PooledCase(result, record, len(parts))


def _require_storable(recording: NamedRun, case: CaseResult) -> CaseResult:
    """Returns the case with figures recomputed from its samples. Raises PartRefusedError, naming recording and case,
    unless it was timed and proven right in each process."""
    try:
        require_acceptable(recording.run, case, None)
        Measurement(case.first, case.checks)  # one passed check of every process
        return replace(recompute_case(recording.run, case, None), policy=_read_policy(case))
    except UsageError as error:
        raise PartRefusedError(f"in {recording.name}: {error}") from error
    except IMPOSSIBLE as error:
        why = str(error).partition("\n")[0][:200]
        raise PartRefusedError(f"in {recording.name}: {case.key}: its figures are invalid ({why})") from error


def _read_policy(case: CaseResult) -> dict[str, Any]:
    try:
        return parse_policy(case.policy).to_record()
    except UsageError as error:
        raise UsageError(f"{case.key}: {error}") from error


def _join_canaries(cases: Sequence[CaseResult]) -> dict[str, tuple[ProcessSummary, ...]]:
    names = sorted({name for case in cases for name in case.canary})
    return {name: tuple(process for case in cases for process in case.canary.get(name, ())) for name in names}
