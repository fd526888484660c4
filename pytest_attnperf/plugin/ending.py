"""The end of a run: merges baselines, collects findings about the whole run, and writes results.json."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.published import FOLDER, collect_published
from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import NewEntry, merge_entries, new_entry
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.gate.policy import CPU, NIGHTLY, Policy
from pytest_attnperf.plugin.config import RunConfig, find_sharding, run_config
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.recorded_tree import mark_uncommitted, name_recorded_tree
from pytest_attnperf.plugin.selection import count_cases, find_lost_suites, is_unfiltered, run_tier
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.overview import UNRESOLVED, is_new, is_unresolved, only_new
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.case_records import list_shared_notes
from pytest_attnperf.session.case_records import note_loosened as loosened_note
from pytest_attnperf.session.interleaved import Against

if TYPE_CHECKING:
    from pytest_attnperf.baselines.code_store import CodeStore, NewKernel
    from pytest_attnperf.plugin.cases import CaseCollector
    from pytest_attnperf.plugin.features.code_objects.code_items import CodeCollector
    from pytest_attnperf.plugin.features.on import FeatureContext


@dataclass(frozen=True)
class Ended:
    """A finished run as it was written, with its findings.

    failed_by   reasons why the run fails as a whole; empty if it does not fail, or only by its cases
    results     path of results.json as messages show it; '' if it could not be written
    roots       folders of baselines
    """

    run: RunResult
    failed_by: tuple[str, ...]
    results: str
    roots: Sequence[Path]


def end_run(
    config: pytest.Config, run: RunResult, store: BaselineStore, hidden: Sequence[str], *, interrupted: bool
) -> Ended:
    """Writes a run's baselines and results.json, and returns the run with its findings and reasons to fail. A file that
    cannot be written fails the run; the others are still written. After an interruption no baseline is written.

    hidden   a line for each case that fails although its test does not
    """
    asked = run_config(config)
    collector: CaseCollector | None = config.pluginmanager.get_plugin("attnperf-cases")
    run = replace(run, tier=run_tier(config), left_to_nightly=collector.left_to_nightly if collector else ())
    if (sharding := find_sharding(config)) is not None:
        run = sharding.complete_record(run)
    findings, problems, merged = (
        [*run.findings, *find_loosened_policies(run), *find_creep(run)],
        list[str](),
        list[Path](),
    )
    if run.mode == "update" and interrupted:
        findings.append("interrupted: no baseline was written")
    elif run.mode == "update":
        run, refused = name_recorded_tree(run, asked)
        merged, problems = ([], [refused]) if refused else merge_recorded(run, store, asked.accept)
        findings += problems
    elif run.mode == "calibrate":
        run = mark_uncommitted(run, asked)
    elif run.mode == "gate":
        findings += _gate_findings(config, run, store)
    paths = tuple(str(shown_path(asked, path)) for path in merged)
    run = _with_published(replace(run, findings=tuple(findings), baseline_paths=paths), asked)
    unwritten = _write_results(run, asked)
    failed_by = list_failure_reasons(run, [*problems, *unwritten], hidden, strict=asked.strict)
    return Ended(run, failed_by, "" if unwritten else str(shown_path(asked, results_path(asked))), store.roots)


def _with_published(run: RunResult, asked: RunConfig) -> RunResult:
    """Returns a run with the published figures for its workloads; with a note where a file of them is invalid."""
    folder, workloads = asked.root / asked.baselines / FOLDER, (case.key.workload for case in run.cases)
    try:
        return replace(run, published=collect_published(folder, workloads, run.device))
    except BaselineError as error:
        return replace(run, notes=(*run.notes, str(error)))


def results_path(asked: RunConfig) -> Path:
    """Returns the path of results.json: `--attnperf-results`, relative to rootdir."""
    return asked.root / asked.results


def shown_path(asked: RunConfig, path: Path) -> Path:
    """Returns a path as messages show it and files store it: relative to rootdir if it is inside, else unchanged."""
    return path.relative_to(asked.root) if path.is_relative_to(asked.root) else path


def has_profiles(run: RunResult) -> bool:
    """Returns whether any case was profiled."""
    return any(case.profile is not None for case in run.cases)


def _gate_findings(config: pytest.Config, run: RunResult, store: BaselineStore) -> list[str]:
    """Returns findings on quarantines, kernels not compiled and, if no filter is set, stored entries without a case."""
    findings = find_new_quarantines(run, store)
    whole = is_unfiltered(config) and run.complete
    elsewhere = _list_elsewhere(config)
    findings += find_unused_entries(run, store, partial(find_lost_suites, config), elsewhere) if whole else []
    if not run.code:
        return findings
    from pytest_attnperf.baselines.code_store import CodeStore
    from pytest_attnperf.plugin.features.code_objects.code_run import find_not_compiled, find_unused_code

    collector: CodeCollector | Any = config.pluginmanager.get_plugin("attnperf-code")
    registered = [kernel.name for kernel in collector.registry] if collector else []
    kernels, left = CodeStore(*store.roots), collector.left_to_nightly if collector else 0
    findings += find_not_compiled(run, kernels)
    return findings + (find_unused_code(run, kernels, registered, elsewhere) if whole and not left else [])


def _list_elsewhere(config: pytest.Config) -> tuple[CaseKey, ...]:
    """Returns the cases and kernels that other parts of the run have; () without --attnperf-shard."""
    elsewhere: tuple[CaseKey, ...] = getattr(find_sharding(config), "elsewhere", ())
    return elsewhere


def _write_results(run: RunResult, asked: RunConfig) -> list[str]:
    """Writes results.json, except for a check without profiles; returns [] or [why it could not be written]."""
    if run.mode == "check" and not has_profiles(run):
        return []
    path = results_path(asked)
    try:
        json_results.write(path, run)
    except OSError as error:
        return [
            f"{shown_path(asked, path)} was not written ({error.strerror or error}) and is unchanged: "
            "the results of this run are only in the output; make room, or name another file with --attnperf-results"
        ]
    return []


def list_failure_reasons(
    run: RunResult, problems: Sequence[str], hidden: Sequence[str], *, strict: bool
) -> tuple[str, ...]:
    """Returns a line for each reason why the run as a whole fails; `strict` adds unresolved cases, findings and missing
    verdicts of a gating run.

    problems   what could not be written
    hidden     a line for each case that fails although its test does not
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
    if judged < run.selected:
        reasons.append(f"strict: {run.selected - judged} of {run.selected} selected cases have no verdict")
    # Whether several shards gated anything is a question to all of them, which the command that joins them answers.
    is_part = any(record.count > 1 for record in run.shards)
    if run.gated == 0 and not only_new(run) and not is_part:
        reasons.append(f"strict: gated 0 of {run.selected}")
    return reasons


def merge_recorded(run: RunResult, store: BaselineStore, accepted: str) -> tuple[list[Path], list[str]]:
    """Merges RECORDED cases and kernels into baseline files. Returns (paths written, errors of files not written).

    accepted   why slowdowns since the creep guard's anchor are accepted; '' does not move the anchors
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
    """Merges RECORDED kernels into one file per architecture. Returns (paths written, errors of files not written)."""
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
    """Catches a BaselineError or OSError of the block and appends its text to `problems`, so that the run goes on."""
    try:
        yield
    except (BaselineError, OSError) as error:
        problems.append(str(error))


def find_loosened_policies(run: RunResult) -> list[str]:
    """Returns a finding per setting whose policy is looser than the one stored with the baselines: the case or kernel,
    or the number of them and the first ones."""
    noted = [(case.key, case.notes) for case in run.cases] + [(result.key, result.notes) for result in run.code]
    return list_shared_notes(noted, NoteKind.LOOSENED)


def find_creep(run: RunResult) -> list[str]:
    """Returns findings on cases that became slower step by step since their anchor (the accepted reference time)."""
    return [f"{case.key}: {note}" for case in run.cases for note in filter_notes(case.notes, NoteKind.CREPT)]


def find_new_quarantines(run: RunResult, store: BaselineStore) -> list[str]:
    """Returns findings on quarantined cases whose policy is looser than the stored one, but that were not compared.

    A compared case already has a note (NoteKind.LOOSENED). A quarantined case that is INCOMPARABLE has none, and a
    change that makes a case both must be reported as well.
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
    run: RunResult,
    store: BaselineStore,
    asked: Callable[[Sequence[str]], Sequence[str]],
    elsewhere: Iterable[CaseKey] = (),
) -> list[str]:
    """Returns findings on stored entries without a case in an unfiltered run: no case may disappear silently.

    A case left to nightly runs counts as present, but is a finding if it was stored for every run.

    asked      given suites without a case, returns those of which this run should have had cases
    elsewhere  cases that other shards of the run have
    """
    if run.device is None:
        return []
    found = []
    keys, left = {*(case.key for case in run.cases), *elsewhere}, frozenset(run.left_to_nightly)
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


class NoCase:
    """Plugin object of a session with `--attnperf`: fails a strict run that judges no case, if cases were collected, or
    baselines are stored for the selected files."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._said = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Sets exit status 1 in a strict run that judges no case, if one was collected, or selected test files have
        stored baselines."""
        config, asked = self._config, run_config(self._config)
        ended = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if ended or config.pluginmanager.has_plugin("attnperf-run") or not asked.strict:
            return
        folder, collector = config.rootpath / asked.baselines, config.pluginmanager.get_plugin("attnperf-cases")
        lost = find_lost_suites(config, sorted({path.stem for path in folder.glob("*/*/*.json")}))
        collected = int(getattr(collector, "collected", 0))
        if collected:
            self._said = (
                f"strict: gated 0 of {count_cases(collected)} collected: options, tiers (--attnperf-tier=nightly runs "
                "all) or a hook left none; select one, or drop --attnperf"
            )
        elif lost:
            self._said = (
                f"no case was collected, but baselines are stored for {', '.join(lost)}: their tests were skipped, "
                "ignored, removed or renamed"
            )
        if self._said:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints why `pytest_sessionfinish` failed the run, if it did."""
        if self._said:
            terminalreporter.write_line(f"exit status 1: {self._said}")


class BaseSideFindings(Feature):
    """Findings and notes of a run with a base side. `against` is None in xdist's controller, which does not know it."""

    def __init__(self, config: pytest.Config, against: Against | None) -> None:
        self._config, self._against = config, against

    def collect_findings(self, cases: Mapping[CaseKey, CaseResult]) -> Sequence[str]:
        """Returns findings on files and cases that only the base side has, i.e. removed or renamed here."""
        return find_only_on_base(self._config, self._against, cases)

    def collect_notes(self, cases: Iterable[CaseResult]) -> Sequence[str]:
        """Returns a note if this run could not check whether new cases are renamed old ones, else ()."""
        return note_unseen_renames(self._config, self._against, cases)


def make_feature(given: FeatureContext) -> BaseSideFindings:
    """Returns the feature that reports findings of a run with a base side."""
    return BaseSideFindings(given.config, given.session.bench.against)


def find_only_on_base(
    config: pytest.Config, against: Against | None, here: Mapping[CaseKey, object]
) -> tuple[str, ...]:
    """Returns findings on files and cases that only the base side has; none unless everything was selected."""
    if against is None or not is_unfiltered(config):
        return ()
    files = (
        f"{name} exists on {against.name} and not here: its cases were removed or renamed" for name in against.vanished
    )
    left = getattr(config.pluginmanager.get_plugin("attnperf-cases"), "left_to_nightly", ())
    selected = {*left, *_list_elsewhere(config)}
    gone = (key for key in against.list_only_there(here) if key not in selected)
    return (*files, *(f"{key} exists on {against.name} and not here: it was removed or renamed" for key in gone))


def note_unseen_renames(config: pytest.Config, against: Against | None, cases: Iterable[CaseResult]) -> tuple[str, ...]:
    """Returns a note if there are new cases and this run could not check whether they are renamed ones, else ()."""
    if not any(map(is_new, cases)) or (against is not None and is_unfiltered(config)):
        return ()
    why = "workers of xdist ran the cases" if against is None else "only some cases were selected"
    return (f"it was not checked whether new cases are renamed old ones, because {why}: run whole suites, without -n",)
