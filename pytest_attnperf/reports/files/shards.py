"""Whether the shards of a run are all there, of one run, and each with its own cases and no others.

A shard states which cases were selected and which part it had. These are statements of the file, as its samples are:
what one shard leaves out or invents contradicts the others, which state the same manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.shards import ShardManifest, name_in_manifest
from pytest_attnperf.reports.run.overview import format_device
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult

Named = tuple[str, RunResult]

FAULT_LIMIT = 600
NAMED_MOST = 3
"""Cases, files and shards that a line names."""


def is_empty_shard(run: RunResult) -> bool:
    """Returns whether the run is a shard that had no case to run, because there were fewer cases than shards."""
    manifest = run.shard_manifest
    if manifest is None or not run.shards or run.cases or run.code:
        return False
    return all(0 < record.index <= len(manifest.parts) and not manifest.parts[record.index - 1]
               for record in run.shards)  # fmt: skip


def find_shard_faults(runs: Sequence[Named]) -> list[str]:
    """Returns a note for whatever is wrong with the shards among `runs`, as files or already joined; [] without any.

    MISSING_SHARDS: a part that no run has, or cases that their shard did not run. MIXED_SHARDS: a part that two runs
    have, cases of another part or of none, another run, commit, number of parts or selection, or an edited manifest.
    """
    sharded = _list_once(runs)
    groups: dict[str, list[Named]] = {}
    faults: list[str] = []
    for source, run in sharded:
        wrong = _find_contradiction(run)
        if wrong:
            faults.append(_mixed(f"{source}: {wrong}"))
        assert run.shard_manifest is not None
        groups.setdefault(run.shard_manifest.compute_digest(), []).append((source, run))
    faults += _compare_groups(list(groups.values()))
    for group in groups.values():
        faults += _find_missing_parts(group)
        for source, run in group:
            faults += _compare_cases(source, run)
    return faults


def _list_once(runs: Sequence[Named]) -> list[Named]:
    """Returns the runs with a shard record, each once; one without a manifest gets an empty manifest."""
    found: list[Named] = []
    for source, run in runs:
        if not (run.shards or run.shard_manifest is not None):
            continue
        if all(run != other for _, other in found):
            found.append((source, _with_manifest(run)))
    return found


def _with_manifest(run: RunResult) -> RunResult:
    return run if run.shard_manifest is not None else replace(run, shard_manifest=ShardManifest("", "", ()))


def _find_contradiction(run: RunResult) -> str:
    """Returns how manifest, records and commit of a run contradict each other; '' if they do not."""
    manifest = run.shard_manifest
    assert manifest is not None
    digest, count = manifest.compute_digest(), len(manifest.parts)
    if not run.shards:
        return "has a manifest of shards, but does not say which of them it is"
    for record in run.shards:
        if record.manifest != digest:
            return (
                f"shard {record.index} is of manifest {record.manifest[:12]!r}, but the manifest hashes to "
                f"{digest[:12]!r}: it was edited, or shards of two runs were joined"
            )
        if record.count != count or not 1 <= record.index <= count:
            return f"is shard {record.index} of {record.count}, but its manifest has {count} parts"
    if manifest.commit != run.commit:
        return f"its manifest is of commit {manifest.commit[:20]!r}, its cases are of {run.commit[:20]!r}"
    twice = [name for name, times in Counter(name for part in manifest.parts for name in part).items() if times > 1]
    return f"its manifest has cases in two parts: {_join_some(twice)}" if twice else ""


@dataclass(frozen=True)
class _Facts:
    """What shards must have in common, as text, by name."""

    run: str
    commit: str
    parts: str
    cases: str

    @classmethod
    def from_manifest(cls, manifest: ShardManifest) -> _Facts:
        names = sorted(name for part in manifest.parts for name in part)
        selection = ShardManifest("", "", (tuple(names),)).compute_digest()[:12]
        return cls(manifest.run, manifest.commit, str(len(manifest.parts)), f"{manifest.selected} ({selection})")


def _compare_groups(groups: Sequence[Sequence[Named]]) -> list[str]:
    """Returns a note for each group of another manifest than the first one on the same device. Runs of two devices may
    have been sharded apart."""
    found: list[str] = []
    seen: list[tuple[set[str], Sequence[Named]]] = []
    for group in groups:
        devices = {format_device(run) for _, run in group} - {""}
        before = next((other for known, other in seen if known & devices or not (known and devices)), None)
        if before is None:
            seen.append((devices, group))
        else:
            found.append(_mixed(f"shards of different runs: {_describe_difference(before[0], group[0])}"))
    return found


def _describe_difference(first: Named, second: Named) -> str:
    said = []
    facts = []
    for _, run in (first, second):
        assert run.shard_manifest is not None
        facts.append(_Facts.from_manifest(run.shard_manifest))
    for what, label in (("run", "run id"), ("commit", "commit"), ("parts", "number of shards"), ("cases", "cases")):
        values = [getattr(one, what) for one in facts]
        if values[0] != values[1]:
            said.append(f"{label} {values[0][:40]!r} in {first[0]} and {values[1][:40]!r} in {second[0]}")
    return "; ".join(said) or f"{first[0]} and {second[0]} divided the same cases differently"


def _find_missing_parts(group: Sequence[Named]) -> list[str]:
    """Returns notes on parts of one manifest that no run has, with the cases that nobody ran, and on those that two
    have."""
    manifest = group[0][1].shard_manifest
    assert manifest is not None
    where: dict[int, list[str]] = {}
    for source, run in group:
        for record in run.shards:
            where.setdefault(record.index, []).append(source)
    count = len(manifest.parts)
    found: list[str] = []
    missing = [index for index in range(1, count + 1) if index not in where]
    if missing:
        lost = [name for index in missing for name in manifest.parts[index - 1]]
        said = f"shards missing: {_join_some(map(str, missing))} of {count}"
        nobody = f"; nobody ran {_count(lost)}: {_join_some(lost)}" if lost else ", which had no cases"
        found.append(Note(NoteKind.MISSING_SHARDS, one_line(said + nobody, FAULT_LIMIT)))
    found += [
        _mixed(f"shard {index} of {count} is there {len(sources)} times: {_join_some(sources)}")
        for index, sources in sorted(where.items())
        if len(sources) > 1
    ]
    return found


def _compare_cases(source: str, run: RunResult) -> list[str]:
    """Returns notes on cases of the run's parts without a result, and on results that belong to other parts or none."""
    manifest = run.shard_manifest
    assert manifest is not None
    owner = {name: index for index, part in enumerate(manifest.parts, start=1) for name in part}
    own = {record.index for record in run.shards}
    keys = [case.key for case in run.cases] + [result.key for result in run.code]
    ran = dict.fromkeys(map(name_in_manifest, keys))
    lacking = [name for name, index in owner.items() if index in own and name not in ran]
    foreign = [f"{name} (of shard {owner[name]})" for name in ran if name in owner and owner[name] not in own]
    unlisted = [name for name in ran if name not in owner]
    found: list[str] = []
    if lacking:
        said = f"{source} lacks {_count(lacking)} of its shard, which nobody ran: {_join_some(lacking)}"
        found.append(Note(NoteKind.MISSING_SHARDS, one_line(said, FAULT_LIMIT)))
    if foreign:
        found.append(_mixed(f"{source} ran {_count(foreign)} of other shards: {_join_some(foreign)}"))
    if unlisted:
        found.append(_mixed(f"{source} ran {_count(unlisted)} that its manifest lacks: {_join_some(unlisted)}"))
    return found


def _mixed(text: str) -> Note:
    return Note(NoteKind.MIXED_SHARDS, one_line(text, FAULT_LIMIT))


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} case{'s' * (len(names) != 1)}"


def _join_some(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - NAMED_MOST} more" if len(every) > NAMED_MOST else ""
    return f"{', '.join(name[:120] for name in every[:NAMED_MOST])}{more}"
