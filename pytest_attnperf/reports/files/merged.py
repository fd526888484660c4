"""Joins shards of one suite from several machines into one run; keeps runs of other devices beside it. Such a file is
{"schema": 4, "merged": [run, run, ...]}, each run as `json_results` writes it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.gpus import GpuRecord
from pytest_attnperf.records.notes import Note, NoteKind, filter_notes
from pytest_attnperf.records.unique_keys import require_unique_keys
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.files.json_results import TWICE, ResultsFileError
from pytest_attnperf.reports.files.shards import find_shard_faults, is_empty_shard
from pytest_attnperf.reports.run.joined import Joined, join_runs
from pytest_attnperf.reports.run.overview import (
    FAILS_BY_ITSELF,
    UNKNOWN,
    UNRESOLVED,
    format_device,
    format_result_counts,
    is_unresolved,
    only_new,
)
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import GATED, RESULTS_SCHEMA, CaseResult, RunResult

Named = tuple[str, RunResult]

FATAL = (NoteKind.MIXED_SHARDS, NoteKind.MISSING_SHARDS)
"""Findings about shards that differ or are missing. They fail the whole, strict or not, also after another merge."""

NAMES_LIMIT = 600
SOURCES_SHOWN = 8
"""Files and commands of shards that a joined run names."""

RUN_IDS = "merged_run_ids"
SHOWN_COMMIT = 12

RUNS_MAX = 1000
"""Most runs in a merged file."""


@dataclass(frozen=True)
class MergedRuns:
    """Runs with the names of their files, one per device, mode and fingerprint.

    shards   number of files that each run was made from
    notes    what was left out, a line each
    mixed    differences between shards that should agree, a line each
    faults   what is wrong with the parts of a run of --attnperf-shard, a line each
    """

    runs: tuple[Named, ...]
    shards: tuple[int, ...]
    notes: tuple[str, ...]
    mixed: tuple[str, ...]
    faults: tuple[str, ...] = ()


def merge_runs(found: Sequence[Named]) -> MergedRuns:
    """Returns the runs, with shards (parts) of one device, mode and fingerprint joined into one run.

    Counts a duplicate run once. Of a case that occurs twice it keeps the worse verdict. A note reports both.
    """
    once, notes = _drop_duplicates(found)
    groups: dict[tuple[str, ...], list[Named]] = {}
    homes = _find_homes(once)
    for source, run in once:
        key = homes[run.shards[0].manifest] if is_empty_shard(run) else _build_group_key(run)
        groups.setdefault(key, []).append((source, run))
    runs = [_join_shards(group) for group in groups.values()]
    devices = Counter((format_device(run), run.mode) for _, run in runs)
    for (device, mode), count in devices.items():
        if count > 1:
            notes.append(f"{count} runs of {device or 'no device'} ({mode}) stay separate: their fingerprints differ")
    return MergedRuns(
        tuple(runs),
        tuple(len(group) for group in groups.values()),
        tuple(notes),
        tuple(_list_mixed_facts(once)),
        tuple(find_shard_faults(once)),
    )


def _find_homes(runs: Sequence[Named]) -> dict[str, tuple[str, ...]]:
    """Returns, by manifest, the group that its empty shards join: that of its first shard with cases, else their
    own."""
    sharded = [run for _, run in runs if run.shards]
    homes: dict[str, tuple[str, ...]] = {}
    for run in sorted(sharded, key=is_empty_shard):
        homes.setdefault(run.shards[0].manifest, _build_group_key(run))
    return homes


def list_failure_reasons(run: RunResult, *, strict: bool, fatal: Sequence[NoteKind] = FATAL) -> list[str]:
    """Returns why a run fails on its own; empty if it passes. A finding of a kind in `fatal` fails it, strict or not.
    So does what no run writes: a lost case, or a wrong case marked as passed."""
    failing: list[CaseResult | CodeResult] = [
        *(case for case in run.cases if case.fails or _should_fail(case)),
        *(result for result in run.code if result.fails),
    ]
    reasons = [f"failed: {format_result_counts(failing)}"] if failing else []
    judged = len(run.cases) + len(run.code)
    if not run.complete:
        reasons.append("incomplete: a shard ended before all of its cases were judged")
    elif judged < run.selected:
        reasons.append(
            f"incomplete: {judged} of {run.selected} results are in the file, although it is marked complete"
        )
    reasons += filter_notes(run.findings, *fatal)
    if not strict or run.mode != "gate":
        return reasons
    open_ones = [case.verdict.value for case in run.cases if is_unresolved(case)]
    open_ones += [result.verdict.value for result in run.code if result.verdict in UNRESOLVED]
    reasons += [f"strict: {len(open_ones)} cases are {', '.join(sorted(set(open_ones)))}"] if open_ones else []
    reasons += [f"strict: {len(run.findings)} findings"] if run.findings else []
    some = run.gated or only_new(run) or is_empty_shard(run)
    return [*reasons, *([] if some else [f"strict: gated 0 of {run.selected}"])]


def _should_fail(case: CaseResult) -> bool:
    """Returns whether a case is to fail its test, by verdict and stored policy, which GREW does not depend on. A
    quarantine excuses only SLOWER and GREW."""
    excused = case.quarantined and case.verdict in (Verdict.SLOWER, Verdict.GREW)
    if case.verdict not in FAILS_BY_ITSELF or excused:
        return False
    if case.verdict is Verdict.GREW:
        return True
    by_policy = case.policy.get("fail_on")
    return not isinstance(by_policy, list) or case.verdict.value in by_policy


def _drop_duplicates(found: Sequence[Named]) -> tuple[list[Named], list[str]]:
    """Returns (runs sorted by start, each once; notes). Keeps a run that has another one's id but different content."""
    kept: dict[str, Named] = {}
    notes: list[str] = []
    for number, (source, run) in enumerate(found):
        name = run.run_id or f"no id {number}"
        if name not in kept:
            kept[name] = (source, run)
        elif kept[name][1] == run:
            notes.append(one_line(f"{source} is the same run as {kept[name][0]}: it counts once", NAMES_LIMIT))
        else:
            said = f"{source} has the id of {kept[name][0]}, but another content: both count"
            notes.append(one_line(said, NAMES_LIMIT))
            kept[f"{name} {number}"] = (source, run)
    return sorted(kept.values(), key=lambda named: named[1].started), notes


def _build_group_key(run: RunResult) -> tuple[str, ...]:
    must = {} if run.fingerprint is None else run.fingerprint.must_match
    return (format_device(run), run.mode, *(f"{name}={value}" for name, value in sorted(must.items())))


def _list_mixed_facts(runs: Sequence[Named]) -> list[str]:
    """Returns a MIXED_SHARDS note if the runs differ in commit, and one if they differ in version; else []."""
    found: list[str] = []
    fields: dict[str, Callable[[RunResult], str]] = {
        "commits": lambda run: run.commit[:SHOWN_COMMIT] or UNKNOWN,
        "versions of pytest-attnperf": lambda run: run.version,
    }
    for what, field in fields.items():
        by_value: dict[str, str] = {}
        for source, run in runs:
            by_value.setdefault(field(run), source)
        if len(by_value) > 1:
            said = ", ".join(f"{value} in {source}" for value, source in by_value.items())
            line = one_line(f"shards of different {what}: {said}", NAMES_LIMIT)
            found.append(Note(NoteKind.MIXED_SHARDS, line))
    return found


def _join_shards(group: Sequence[Named]) -> Named:
    """Returns (file names, run) of all shards joined into one run; a single shard is returned unchanged."""
    if len(group) == 1:
        return group[0]
    joined = join_runs(group)
    runs = joined.runs
    first = next((run for run in runs if run.device is not None), runs[0])  # an empty shard has none
    longest, sources = max(run.seconds for run in runs), _join_first(joined.sources, ", ")
    said = (
        f"merged from {len(runs)} shards: {sources}; the longest took {longest:.0f} s, all together "
        f"{sum(run.seconds for run in runs):.0f} s"
    )
    cases = tuple(shown.case for shown in joined.cases)
    ids = sorted(run.run_id for run in runs)
    return sources, replace(
        first,
        version=_choose_shared_text(runs, lambda run: run.version, first.version),
        command=_choose_shared_text(
            runs, lambda run: run.command, _join_first(list(dict.fromkeys(run.command for run in runs)), "; ")
        ),
        commit=_choose_shared_text(runs, lambda run: run.commit, UNKNOWN),
        cases=cases,
        code=joined.code,
        findings=tuple(dict.fromkeys(finding for run in runs for finding in run.findings)),
        gated=sum(run.gated for run in runs) - _count_gated_twice(joined, runs),
        selected=sum(run.selected for run in runs) - _count_repeated(joined, runs),
        complete=all(run.complete for run in runs),
        seconds=longest,
        baseline_paths=tuple(dict.fromkeys(path for run in runs for path in run.baseline_paths)),
        device_state=None,
        against=_choose_shared_text(
            runs, lambda run: run.against, ", ".join(dict.fromkeys(r.against for r in runs if r.against))
        ),
        notes=(one_line(said, NAMES_LIMIT), *joined.notes, *dict.fromkeys(note for run in runs for note in run.notes)),
        run_id=hashlib.sha256(" ".join(ids).encode()).hexdigest()[:32],
        provenance=_merge_provenance(runs),
        tier=_choose_shared_text(runs, lambda run: run.tier, ""),
        left_to_nightly=_collect_left_out(runs, cases),
        gpus=_merge_gpus(runs),
        shard_manifest=next((run.shard_manifest for run in runs if run.shard_manifest is not None), None),
        shards=tuple(sorted((record for run in runs for record in run.shards), key=lambda record: record.index)),
    )


def _join_first(texts: Sequence[str], between: str) -> str:
    """Returns the texts joined, of more than SOURCES_SHOWN the first ones and the number of the others."""
    more = len(texts) - SOURCES_SHOWN
    return between.join(texts) if more <= 0 else f"{between.join(texts[:SOURCES_SHOWN])} and {more} more"


def _choose_shared_text(runs: Sequence[RunResult], field: Callable[[RunResult], str], otherwise: str) -> str:
    values = {field(run) for run in runs}
    return values.pop() if len(values) == 1 else otherwise


def _count_repeated(joined: Joined, runs: Sequence[RunResult]) -> int:
    """Returns how many results of the runs do not count, because the same case or kernel is in another shard."""
    return sum(len(run.cases) + len(run.code) for run in runs) - len(joined.cases) - len(joined.code)


def _count_gated_twice(joined: Joined, runs: Sequence[RunResult]) -> int:
    """Returns how many gated results are dropped as repetitions, to be subtracted from the sum of gated results."""

    def count_gated(verdicts: Sequence[Verdict], unchanged: Sequence[CaseResult]) -> int:
        return sum(verdict in GATED for verdict in verdicts) + sum(case.unchanged for case in unchanged)

    every = [case for run in runs for case in run.cases]
    codes = [result.verdict for run in runs for result in run.code]
    shown = [one.case for one in joined.cases]
    before = count_gated([*(case.verdict for case in every), *codes], every)
    return before - count_gated([*(case.verdict for case in shown), *(one.verdict for one in joined.code)], shown)


def _merge_provenance(runs: Sequence[RunResult]) -> dict[str, str]:
    """Returns the provenance facts that are equal in all runs, and all run ids under RUN_IDS."""
    alike = set.intersection(*(set(run.provenance.items()) for run in runs))
    ids = ", ".join(run.run_id for run in runs if run.run_id)
    return {**dict(sorted(alike)), **({RUN_IDS: ids} if ids else {})}


def _collect_left_out(runs: Sequence[RunResult], cases: Sequence[CaseResult]) -> tuple[CaseKey, ...]:
    """Returns the keys of cases left to nightly runs that no shard measured, each once."""
    measured = {case.key for case in cases}
    return tuple(dict.fromkeys(key for run in runs for key in run.left_to_nightly if key not in measured))


def _merge_gpus(runs: Sequence[RunResult]) -> tuple[GpuRecord, ...]:
    found: dict[str, GpuRecord] = {}
    for run in runs:
        for gpu in run.gpus:
            before = found.get(gpu.device_id)
            found[gpu.device_id] = gpu if before is None else replace(before, cases=before.cases + gpu.cases)
    return tuple(found.values())


class _MergedFile(msgspec.Struct):
    """The whole file. Each run is decoded separately, so that an error names its run."""

    schema: Any = None
    merged: msgspec.Raw = msgspec.Raw()


def encode_merged(runs: Sequence[RunResult]) -> bytes:
    """Returns the bytes of one run's results file, or a merged file of several. Raises ResultsFileError for a value
    that cannot be stored, ValueError without runs."""
    if not runs:
        raise ValueError("a results file needs at least one run, got none")
    parts = [json_results.encode(run).rstrip(b"\n") for run in runs]
    if len(parts) == 1:
        return parts[0] + b"\n"
    return b'{"schema": %d, "merged": [\n' % RESULTS_SCHEMA + b",\n".join(parts) + b"\n]}\n"


def decode_merged(data: bytes, where: str) -> list[tuple[str, RunResult]] | None:
    """Returns the runs of a merged file, each named by the file and its number; None for any other file.

    Raises ResultsFileError for a list without runs, with anything else, or with more than RUNS_MAX.
    """
    try:
        head = msgspec.json.decode(data, type=_MergedFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # the reader of results reports why
    if not bytes(head.merged):
        return None
    require_unique_keys(data, where, ResultsFileError, TWICE)
    if isinstance(head.schema, bool) or head.schema not in range(1, RESULTS_SCHEMA + 1):
        raise ResultsFileError(f"{where}: field 'schema' is not one of 1 to {RESULTS_SCHEMA}, which this version reads")
    runs = _split_parts(head.merged)
    if not 0 < len(runs) <= RUNS_MAX:
        raise ResultsFileError(f"{where}: field 'merged' is not a list of 1 to {RUNS_MAX} runs; merge the files again")
    names = [f"{where} ({number} of {len(runs)})" for number in range(1, len(runs) + 1)]
    return [(name, json_results.decode(bytes(run), name)) for name, run in zip(names, runs, strict=True)]


def _split_parts(merged: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(merged, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
