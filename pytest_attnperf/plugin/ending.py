"""The end of a run: baselines are merged, findings about the whole run made, results.json written, failures told."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import NewEntry, merge_entries, new_entry
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.gate.policy import CPU, NIGHTLY, Policy
from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.features.base import Feature
from pytest_attnperf.plugin.selection import find_lost_suites, is_unfiltered, run_tier
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.overview import UNRESOLVED, is_new, is_unresolved, only_new
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.case_records import note_loosened as loosened_note
from pytest_attnperf.session.interleaved import Against

if TYPE_CHECKING:
    from pytest_attnperf.baselines.code_store import CodeStore, NewKernel
    from pytest_attnperf.plugin.cases import CaseCollector
    from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
    from pytest_attnperf.plugin.features.on import FeatureContext


@dataclass(frozen=True)
class Ended:
    """A run as it was written, with its findings.

    failed_by   why it fails as a whole; empty where it does not, or only by its cases
    results     where its results are, as it is shown; '' where they could not be written
    roots       folders of baselines
    """

    run: RunResult
    failed_by: tuple[str, ...]
    results: str
    roots: Sequence[Path]


def end_run(
    config: pytest.Config, run: RunResult, store: BaselineStore, hidden: Sequence[str], *, interrupted: bool
) -> Ended:
    """Write everything that a run leaves; what fails at that fails the run, and keeps nothing else from being written.

    hidden   cases that fail although their test does not
    """
    asked = run_config(config)
    collector: CaseCollector | None = config.pluginmanager.get_plugin("attnperf-cases")
    run = replace(run, tier=run_tier(config), left_to_nightly=collector.left_to_nightly if collector else ())
    findings, problems, merged = (
        [*run.findings, *find_loosened_policies(run), *find_creep(run)],
        list[str](),
        list[Path](),
    )
    if run.mode == "update" and interrupted:
        findings.append("interrupted: no baseline was written")
    elif run.mode == "update":
        merged, problems = merge_recorded(run, store, asked.accept)
        findings += problems
    elif run.mode == "gate":
        findings += _gate_findings(config, run, store)
    paths = tuple(str(shown_path(asked, path)) for path in merged)
    run = replace(run, findings=tuple(findings), baseline_paths=paths)
    unwritten = _write_results(run, asked)
    failed_by = list_failure_reasons(run, [*problems, *unwritten], hidden, strict=asked.strict)
    return Ended(run, failed_by, "" if unwritten else str(shown_path(asked, results_path(asked))), store.roots)


def results_path(asked: RunConfig) -> Path:
    """Where a run's results go."""
    return asked.root / asked.results


def shown_path(asked: RunConfig, path: Path) -> Path:
    """A path as it is shown and stored: relative to the tree where it lies inside."""
    return path.relative_to(asked.root) if path.is_relative_to(asked.root) else path


def has_profiles(run: RunResult) -> bool:
    """Whether a case was profiled."""
    return any(case.profile is not None for case in run.cases)


def _gate_findings(config: pytest.Config, run: RunResult, store: BaselineStore) -> list[str]:
    """Exemptions that are new; of a run of everything, stored entries that nothing belongs to any more."""
    findings = find_new_quarantines(run, store)
    whole = is_unfiltered(config) and run.complete
    findings += find_unused_entries(run, store, partial(find_lost_suites, config)) if whole else []
    if not run.code:
        return findings
    from pytest_attnperf.baselines.code_store import CodeStore
    from pytest_attnperf.plugin.features.code_objects.code_run import find_not_compiled, find_unused_code

    collector: CodeCollector | Any = config.pluginmanager.get_plugin("attnperf-code")
    registered = [kernel.name for kernel in collector.registry] if collector else []
    kernels, left = CodeStore(*store.roots), collector.left_to_nightly if collector else 0
    findings += find_not_compiled(run, kernels)
    return findings + (find_unused_code(run, kernels, registered) if whole and not left else [])


def _write_results(run: RunResult, asked: RunConfig) -> list[str]:
    """Write results.json where the run leaves any; why it could not be written, which costs nothing that is printed."""
    if run.mode == "check" and not has_profiles(run):
        return []
    path = results_path(asked)
    try:
        json_results.write(path, run)
    except OSError as error:
        return [
            f"{shown_path(asked, path)} was not written ({error.strerror or error}), and is as it was "
            "before: all that is left of the run is printed here; make room, or name another file with "
            "--attnperf-results"
        ]
    return []


def list_failure_reasons(
    run: RunResult, problems: Sequence[str], hidden: Sequence[str], *, strict: bool
) -> tuple[str, ...]:
    """A line for each reason; none where the run does not fail, or only by its tests.

    problems   what could not be written
    hidden     cases that fail although their test does not
    """
    reasons = [*problems, *(hidden if run.mode != "check" else ())]
    return tuple(reasons + (_strict_reasons(run) if strict and run.mode == "gate" else []))


def _strict_reasons(run: RunResult) -> list[str]:
    unresolved = [case.verdict for case in run.cases if is_unresolved(case)]
    unresolved += [result.verdict for result in run.code if result.verdict in UNRESOLVED]
    reasons = []
    if unresolved:
        kinds = sorted({verdict.value for verdict in unresolved})
        reasons.append(f"strict: {len(unresolved)} cases are {', '.join(kinds)}")
    if run.findings:
        reasons.append(f"strict: {len(run.findings)} findings")
    judged = len(run.cases) + len(run.code)
    if run.complete and judged < run.selected:
        reasons.append(f"strict: {run.selected - judged} of {run.selected} selected cases have no verdict")
    if run.gated == 0 and not only_new(run):
        reasons.append(f"strict: gated 0 of {run.selected}")
    return reasons


def merge_recorded(run: RunResult, store: BaselineStore, accepted: str) -> tuple[list[Path], list[str]]:
    """Merge cases and kernels; (paths written, problems).

    accepted   why a slowdown since the creep guard's anchor is wanted; '' leaves the anchors where they are
    """
    written, problems = _merge_cases(run, store, accepted)
    if run.code:
        from pytest_attnperf.baselines.code_store import CodeStore

        more_written, more_problems = merge_code(run, CodeStore(*store.roots))
        return [*written, *more_written], [*problems, *more_problems]
    return written, problems


def _merge_cases(run: RunResult, store: BaselineStore, accepted: str) -> tuple[list[Path], list[str]]:
    groups: dict[tuple[str, str, str], dict[str, NewEntry]] = defaultdict(dict)
    for case in run.cases:
        if case.verdict is Verdict.RECORDED and case.fingerprint is not None:
            must = case.fingerprint.must_match
            groups[must["arch"], must["product"], case.key.suite][case.key.entry] = new_entry(
                case, run.commit, accepted
            )
    paths: list[Path] = []
    problems: list[str] = []
    for (arch, product, suite), entries in sorted(groups.items()):
        with collect_errors_in(problems):
            paths.append(merge_entries(store, store.roots[0], arch, product, suite, entries))
    return paths, problems


def merge_code(run: RunResult, store: CodeStore) -> tuple[list[Path], list[str]]:
    """Merge every RECORDED kernel into its architecture's file; (paths written, problems)."""
    from pytest_attnperf.baselines.code_schema import entry_of
    from pytest_attnperf.session.code_session import new_kernel

    groups: dict[str, dict[str, NewKernel]] = defaultdict(dict)
    for result in run.code:
        if result.verdict is Verdict.RECORDED:
            groups[result.key.label][entry_of(result.key)] = new_kernel(result, run.commit)
    paths: list[Path] = []
    problems: list[str] = []
    for arch, entries in sorted(groups.items()):
        with collect_errors_in(problems):
            paths.append(store.merge(store.roots[0], arch, entries))
    return paths, problems


@contextlib.contextmanager
def collect_errors_in(problems: list[str]) -> Iterator[None]:
    """One file that cannot be read or written must not keep the others from being written."""
    try:
        yield
    except (BaselineError, OSError) as error:
        problems.append(str(error))


def find_loosened_policies(run: RunResult) -> list[str]:
    """Findings about policies that let more through than what the baseline was stored with."""
    noted = [(case.key, case.notes) for case in run.cases] + [(result.key, result.notes) for result in run.code]
    return [f"{key}: {note}" for key, notes in noted for note in filter_notes(notes, NoteKind.LOOSENED)]


def find_creep(run: RunResult) -> list[str]:
    """Findings about cases that have become slower step by step."""
    return [f"{case.key}: {note}" for case in run.cases for note in filter_notes(case.notes, NoteKind.CREPT)]


def find_new_quarantines(run: RunResult, store: BaselineStore) -> list[str]:
    """Findings about quarantines that let more through than the stored entry's, of cases that were not held against it.

    What is compared with an entry has a note (`loosened`). A case that is quarantined and INCOMPARABLE never was, and
    a change that makes it both must not be heard of less than one that makes it slower.
    """
    unsaid = [case for case in run.cases if case.quarantined and not filter_notes(case.notes, NoteKind.LOOSENED)]
    return [f"{case.key}: {text}" for case in unsaid for text in _find_loosened_since(case, run, store)]


def _find_loosened_since(case: CaseResult, run: RunResult, store: BaselineStore) -> list[str]:
    if run.device is None:
        return []
    policy = Policy.from_record(case.policy)
    try:
        found = store.find(run.device.arch, run.device.product, case.key.suite, case.key.entry)
        return [] if found is None else [loosened_note(what) for what in policy.list_loosened(found.policy)]
    except BaselineError as error:
        return [str(error)]


def find_unused_entries(
    run: RunResult, store: BaselineStore, asked: Callable[[Sequence[str]], Sequence[str]]
) -> list[str]:
    """Findings about stored entries that no case of an unfiltered run belongs to: a case cannot vanish silently.

    What is left to nightly runs is there, and is a finding where it was stored for every run.

    asked   which of stored suites without a case this run should have had cases of
    """
    if run.device is None:
        return []
    found = []
    keys, left = {case.key for case in run.cases}, frozenset(run.left_to_nightly)
    seen = {key.suite for key in keys | left}
    stored_suites = [suite for suite in store.list_suites(run.device.arch, run.device.product) if suite not in seen]
    for suite in sorted(seen.union(asked(stored_suites))):
        judged = {key.entry for key in keys | left if key.suite == suite}
        try:
            stored = store.load(run.device.arch, run.device.product, suite)
        except BaselineError as error:
            found.append(str(error))
            continue
        found += [
            f"{suite}/{entry} has a baseline but no case: it was removed, renamed or deselected"
            for entry in stored
            if entry not in judged
        ]
        moved = sorted(key.entry for key in left if key.suite == suite and key.entry in stored)
        found += [
            loosened_note(f"{suite}/{entry} is left to nightly runs, and was stored for every run")
            for entry in moved
            if stored[entry].policy.get("tier") not in (CPU, NIGHTLY)
        ]
    return found


class BaseSideFindings(Feature):
    """Of a run against a base side; in a controller of xdist nobody knows that side."""

    def __init__(self, config: pytest.Config, against: Against | None) -> None:
        self._config, self._against = config, against

    def collect_findings(self, cases: Mapping[CaseKey, CaseResult]) -> Sequence[str]:
        """What has gone since the base."""
        return find_only_on_base(self._config, self._against, cases)

    def collect_notes(self, cases: Iterable[CaseResult]) -> Sequence[str]:
        """What may have gone unseen."""
        return note_unseen_renames(self._config, self._against, cases)


def make_feature(given: FeatureContext) -> BaseSideFindings:
    """Of a run against a base side."""
    return BaseSideFindings(given.config, given.session.bench.against)


def find_only_on_base(
    config: pytest.Config, against: Against | None, here: Mapping[CaseKey, object]
) -> tuple[str, ...]:
    """Findings about files and cases that the base side has and this tree has lost, where everything was selected."""
    if against is None or not is_unfiltered(config):
        return ()
    files = (
        f"{name} exists on {against.name} and not here: its cases were removed or renamed" for name in against.vanished
    )
    left = getattr(config.pluginmanager.get_plugin("attnperf-cases"), "left_to_nightly", ())
    gone = (key for key in against.list_only_there(here) if key not in left)
    return (*files, *(f"{key} exists on {against.name} and not here: it was removed or renamed" for key in gone))


def note_unseen_renames(config: pytest.Config, against: Against | None, cases: Iterable[CaseResult]) -> tuple[str, ...]:
    """A note where new cases may be renamed ones, and this run could not see which the base side has besides."""
    if not any(map(is_new, cases)) or (against is not None and is_unfiltered(config)):
        return ()
    why = "workers of xdist ran the cases" if against is None else "only some cases were selected"
    return (f"whether a new case is an old one renamed was not looked at, because {why}: run whole suites, without -n",)
