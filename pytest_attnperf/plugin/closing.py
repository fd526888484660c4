"""The end of a run: merge baselines, find what concerns the whole suite, write results, print."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.published import PublishedFigure, figures_for, load_published
from pytest_attnperf.baselines.record import new_entry
from pytest_attnperf.baselines.store import BaselineStore, NewEntry
from pytest_attnperf.correctness.what_ran import identity
from pytest_attnperf.errors import BaselineError
from pytest_attnperf.plugin import options
from pytest_attnperf.plugin.calibrating import calibration_lines
from pytest_attnperf.plugin.findings import crept, loosened, quarantined_anew, unused_entries
from pytest_attnperf.plugin.problems import noted
from pytest_attnperf.plugin.selection import asked_suites, is_unfiltered
from pytest_attnperf.plugin.tiers import run_tier
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CODE_SUITE, CodeResult
from pytest_attnperf.records.notes import NoteKind, of_kind
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.reports.run.code_objects import code_line, code_table, code_warning_lines
from pytest_attnperf.reports.run.conditions import condition_lines, interleaved_line
from pytest_attnperf.reports.run.joined import of_one
from pytest_attnperf.reports.run.overview import UNRESOLVED, is_unresolved, only_new
from pytest_attnperf.reports.run.profile_cases import case_lines
from pytest_attnperf.reports.run.proof import cost_line, determinism_lines
from pytest_attnperf.reports.run.run_text import is_long, one_line_of, section_title, suite_sections
from pytest_attnperf.reports.run.stages import stage_text
from pytest_attnperf.reports.run.tables import published_table, tolerance_notes
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT, closing_lines
from pytest_attnperf.reports.run.together import together_table
from pytest_attnperf.reports.run.worst import worst_table
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.card_spread import slow_card_lines
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.plausibility import CHANGED
from pytest_attnperf.session.settings import Mode
from pytest_attnperf.session.suite_findings import run_findings

LOG_WIDTH = 132
"""Columns of a table that is written to a file: every column of the table, and still readable."""

SHOWN_UNRESOLVED = 5


@dataclass(frozen=True)
class ShownRow:
    """A published figure as text."""

    config: str
    backend: str
    time: str
    source: str

    @classmethod
    def of(cls, figure: PublishedFigure) -> ShownRow:
        """The time as printed there; the report's title, date, device and method as source."""
        row, report = figure.row, figure.report
        source = ", ".join(part for part in (report.title, report.date, report.device, report.method) if part)
        return cls(row.workload, f"{row.backend} ({row.table})", f"{row.time_us:g} us", source)


class Closing:
    """What happens once, after the last case."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run: RunResult | None = None
        self._failed_for: list[str] = []
        self._hidden: list[str] = []
        self._results_path = config.rootpath / options.run_text(config, "results")
        self._unwritten = False

    def hear(self, result: CaseResult | CodeResult, report: pytest.TestReport) -> None:
        """Keep what fails while its test does not: a mark or a hook may say what pytest shows, not what a gate does."""
        if result.fails and not report.failed:
            way = "expected to fail" if hasattr(report, "wasxfail") else "reported otherwise"
            self._hidden.append(f"{result.key} is {result.verdict.value}, and its test is {way}: skip it, or mend it")

    def finish(self, run: RunResult, store: BaselineStore, *, interrupted: bool) -> int:
        """Write everything; 1 when the run as a whole must fail although every test passed."""
        run = self._with_tier(run)
        merged: tuple[str, ...] = ()
        findings = [*run.findings, *loosened(run), *crept(run)]
        if run.mode == "update":
            if interrupted:
                findings.append("interrupted: no baseline was written")
            else:
                written, problems = merge_baselines(run, store, options.run_text(self._config, "accept"))
                merge_kernels(run, store, written, problems)
                merged = tuple(str(self._relative(path)) for path in written)
                findings += problems
                self._failed_for += problems
        elif run.mode == "gate":
            findings += quarantined_anew(run, store)
            whole = is_unfiltered(self._config) and run.complete
            findings += unused_entries(run, store, partial(asked_suites, self._config)) if whole else []
            findings += self._kernel_findings(run, store, whole=whole) if run.code else []
        run = replace(run, findings=tuple(findings), baseline_paths=merged)
        self._run = run
        if run.mode != "check" or _has_profiles(run):
            self._write_results(run)
        self._failed_for += self._hidden if run.mode != "check" else []
        self._failed_for += self._strict_reasons(run)
        return 1 if self._failed_for else 0

    def _write_results(self, run: RunResult) -> None:
        """Write results.json. What keeps it from being written fails the run, and costs nothing that is printed."""
        try:
            json_results.write(self._results_path, run)
        except OSError as error:
            self._unwritten = True
            self._failed_for.append(
                f"{self._relative(self._results_path)} was not written ({error.strerror or error}), and is as it was "
                "before: all that is left of the run is printed here; make room, or name another file with "
                "--attnperf-results"
            )

    def _with_tier(self, run: RunResult) -> RunResult:
        """The run with the tier that was asked for, and the cases that were left out by it."""
        collector: Any = self._config.pluginmanager.get_plugin("attnperf-cases")
        left = collector.left_to_nightly if collector else ()
        return replace(run, tier=run_tier(self._config), left_to_nightly=left)

    def if_interrupted(self, mode: Mode) -> str:
        """What becomes of the results so far when the run is interrupted; '' where none are kept."""
        if mode in UNTIMED:
            return ""
        kept = f"results so far go to {self._relative(self._results_path)}"
        return f"{kept}, and no baseline is written" if mode is Mode.UPDATE else kept

    @property
    def final(self) -> RunResult | None:
        """The run as it was written, with its findings; None before `finish`."""
        return self._run

    @property
    def failed_by(self) -> tuple[str, ...]:
        """Why the run as a whole fails; empty where it does not, or only by its cases."""
        return tuple(self._failed_for)

    def show(self, reporter: Any) -> None:
        """Print what there is to say: everything, with -q what failed or is unresolved, with -qq one line."""
        run = self._run
        if run is None or not (run.cases or run.code):
            self._show_reasons(reporter)
            return
        verbosity = self._config.get_verbosity()
        if run.mode == "check":
            self._show_proof(reporter, run, verbosity)
            return
        ink = Ink(bool(reporter.hasmarkup))
        reporter.ensure_newline()
        if verbosity >= 0:
            self._show_tables(reporter, run, ink, verbose=verbosity > 0)
            _show_profiles(reporter, run)
            reporter.section("attnperf")
            said = [*unresolved_lines(run), *kernel_lines(run), *run.notes, *condition_lines(run)]
            said += timed_for_want_of_code(run) if self._config.getoption("attnperf_changed") else []
            said += slow_card_lines(run)
            said += [interleaved_line(run), *determinism_lines(run.cases), cost_line(run), *run_findings(run.cases)]
            said = [one_line(line, TEXT_LIMIT) for line in said]
        else:
            said = [worst_table(of_one(run), width=_width(), ink=ink)] if verbosity == -1 else []
        closing = closing_lines(run, self._results_shown, ink=ink)
        said += [*self._calibration(run), *closing] if verbosity >= -1 else [one_line_of(run)]
        for line in filter(None, said):
            reporter.write_line(line)
        self._show_reasons(reporter)

    def _show_tables(self, reporter: Any, run: RunResult, ink: Ink, *, verbose: bool) -> None:
        """What is worst of a long run, and a section per suite and for compiled kernels."""
        width, joined = _width(), of_one(run)
        worst = worst_table(joined, width=width, ink=ink) if is_long(joined) else ""
        if worst:
            reporter.section("attnperf: worst first")
            reporter.write_line(worst)
        for part in suite_sections(joined, width=width, ink=ink, verbose=verbose):
            reporter.section(f"attnperf: {section_title(part, several=False)}")
            reporter.write_line(part.text)
            published = self._published(sorted({case.key.workload for case in part.cases}), width, ink)
            for text in filter(None, (stage_text(part.cases, width), together_table(part.cases, width), published)):
                reporter.write_line("")
                reporter.write_line(text)
        if run.code:
            reporter.section(f"attnperf: {CODE_SUITE}")
            reporter.write_line(code_table(run.code, width=width, ink=ink))

    def _show_reasons(self, reporter: Any) -> None:
        """Why the run fails although every test passed."""
        for reason in self._failed_for:
            reporter.write_line(f"exit status 1: {one_line(reason, TEXT_LIMIT)}")

    def _calibration(self, run: RunResult) -> list[str]:
        if run.mode != "calibrate":
            return []
        second_look = int(options.run_number(self._config, "second-look", minimum=1, integer=True))
        return list(calibration_lines(run, second_look))

    def _show_proof(self, reporter: Any, run: RunResult, verbosity: int) -> None:
        """What a run that only checks has to say beside pytest's own report: often nothing."""
        if verbosity <= -2:
            for line in filter(None, [code_line(run.code)]):
                reporter.write_line(line)
            return
        _show_profiles(reporter, run)
        lines = [*tolerance_notes(run.cases), *determinism_lines(run.cases)]
        lines += [*kernel_lines(run), *filter(None, [code_line(run.code)])]
        if _has_profiles(run) and self._results_shown:
            lines.append(f"results: {self._results_shown}")
        if lines:
            reporter.section("attnperf")
        for line in lines:
            reporter.write_line(one_line(line, TEXT_LIMIT))

    def _published(self, workloads: list[str], width: int, ink: Ink) -> str:
        """What reports have printed of these workloads, for orientation; '' when nothing."""
        folder = self._config.rootpath / options.run_text(self._config, "baselines") / "published"
        try:
            reports = load_published(folder)
        except BaselineError as error:
            return str(error)
        figures = [figure for workload in workloads for figure in figures_for(reports, workload)]
        return published_table([ShownRow.of(figure) for figure in figures], width=width, ink=ink)

    @property
    def _results_shown(self) -> str:
        """Where the results are; '' where they could not be written."""
        return "" if self._unwritten else str(self._relative(self._results_path))

    def _relative(self, path: Path) -> Path:
        """A path as it is shown and stored: relative to the tree where it lies inside."""
        root = self._config.rootpath
        return path.relative_to(root) if path.is_relative_to(root) else path

    def _strict_reasons(self, run: RunResult) -> list[str]:
        if run.mode != "gate" or not is_strict(self._config):
            return []
        unresolved = [case.verdict for case in run.cases if is_unresolved(case)]
        unresolved += [result.verdict for result in run.code if result.verdict in UNRESOLVED]
        reasons = []
        if unresolved:
            kinds = sorted({verdict.value for verdict in unresolved})
            reasons.append(f"strict: {len(unresolved)} cases are {', '.join(kinds)}")
        if run.findings:
            reasons.append(f"strict: {len(run.findings)} findings")
        if run.gated == 0 and not only_new(run):
            reasons.append(f"strict: gated 0 of {run.selected}")
        return reasons

    def _kernel_findings(self, run: RunResult, store: BaselineStore, *, whole: bool) -> list[str]:
        """What became of stored kernels: not compiled here, or, of a run of everything, not compiled any more."""
        from pytest_attnperf.baselines.code_store import CodeStore
        from pytest_attnperf.plugin.code_closing import not_compiled, unused_code

        collector: Any = self._config.pluginmanager.get_plugin("attnperf-code")
        registered = [kernel.name for kernel in collector.registry] if collector else []
        kernels, left = CodeStore(*store.roots), collector.left_to_nightly if collector else 0
        return [*not_compiled(run, kernels), *(unused_code(run, kernels, registered) if whole and not left else [])]


def unresolved_lines(run: RunResult) -> list[str]:
    """What kept cases from being gated, the first few of each kind, each with what to do; and warnings."""
    lines: list[str] = []
    open_ones = [case for case in run.cases if is_unresolved(case)]
    for verdict in sorted({case.verdict for case in open_ones}):
        cases = [case for case in open_ones if case.verdict is verdict]
        lines += [f"{verdict.value}: {case.key}: {case.summary}" for case in cases[:SHOWN_UNRESOLVED]]
        if len(cases) > SHOWN_UNRESOLVED:
            lines.append(f"{verdict.value}: {len(cases) - SHOWN_UNRESOLVED} more")
    notes = [note for case in run.cases for note in case.notes]
    local = of_kind(notes, NoteKind.LOCAL, NoteKind.LOCAL_NEW)
    if local:
        fresh = len(of_kind(local, NoteKind.LOCAL_NEW))
        lines.append(
            f"{len(local)} cases were held against .attnperf/local, "
            f"{fresh} of them recorded in this run: it shows that code agrees with itself, not that it got no slower"
        )
    close = [f"warning: {line}" for line in _noted(run, NoteKind.NEAR_FLOOR)]
    needless = _noted(run, NoteKind.NEEDLESS)
    if len(needless) > SHOWN_UNRESOLVED:
        more = len(needless) - SHOWN_UNRESOLVED
        needless = [*needless[:SHOWN_UNRESOLVED], f"quarantined until a date, and not slower: {more} more"]
    changed = _noted(run, NoteKind.CHANGED, NoteKind.DRIFTED)
    if len(changed) > SHOWN_UNRESOLVED:
        changed = [*changed[:SHOWN_UNRESOLVED], f"{CHANGED} in {len(changed) - SHOWN_UNRESOLVED} more cases"]
    return lines + close + needless + changed + _without_stages(run)


def _noted(run: RunResult, *kinds: NoteKind) -> list[str]:
    """Notes of these kinds, each behind its case."""
    return [f"{case.key}: {note}" for case in run.cases for note in of_kind(case.notes, *kinds)]


def timed_for_want_of_code(run: RunResult) -> list[str]:
    """Of a run that times only what has changed: how many cases it timed because nobody can say whether they have."""
    unknown = sum(bool(case.first) and identity(case.launches) is None for case in run.cases)
    why = "the machine code is not known: a library's kernels, or operators on a CPU"
    return [f"{unknown} case{'s were' if unknown != 1 else ' was'} timed, because {why}"] if unknown else []


def _has_profiles(run: RunResult) -> bool:
    return any(case.profile is not None for case in run.cases)


def _show_profiles(reporter: Any, run: RunResult) -> None:
    """What binds each profiled case, and which cases have no profile, the first few, each with the reason."""
    lost = _noted(run, NoteKind.NOT_PROFILED)
    if len(lost) > SHOWN_UNRESOLVED:
        lost = [*lost[:SHOWN_UNRESOLVED], f"not profiled: {len(lost) - SHOWN_UNRESOLVED} more cases"]
    lines = [*case_lines(run, _width()), *(one_line(line, TEXT_LIMIT) for line in lost)]
    if lines:
        reporter.section("attnperf: profiles")
    for line in lines:
        reporter.write_line(line)


def _width() -> int:
    return shutil.get_terminal_size((LOG_WIDTH, 24)).columns


def _without_stages(run: RunResult) -> list[str]:
    """Cases whose stages were to be timed and could not be, the first few, each with the reason."""
    noted = [(case.key, note) for case in run.cases for note in of_kind(case.notes, NoteKind.NO_STAGES)]
    lost = [f"{key}: {note.about}" for key, note in noted]
    more = len(lost) - SHOWN_UNRESOLVED
    return [*lost[:SHOWN_UNRESOLVED], f"stages were not timed: of {more} more cases"] if more > 0 else lost


def merge_kernels(run: RunResult, store: BaselineStore, written: list[Path], problems: list[str]) -> None:
    """Merge recorded kernels, adding what was written and what went wrong."""
    if run.code:
        from pytest_attnperf.baselines.code_store import CodeStore
        from pytest_attnperf.plugin.code_closing import merge_code

        more_written, more_problems = merge_code(run, CodeStore(*store.roots))
        written += more_written
        problems += more_problems


def kernel_lines(run: RunResult) -> list[str]:
    """What kept compiled kernels from being gated, and what changed without failing; nothing without any."""
    if not run.code:
        return []
    from pytest_attnperf.plugin.code_closing import unresolved_code_lines

    return [*unresolved_code_lines(run), *code_warning_lines(run.code)]


def is_strict(config: pytest.Config) -> bool:
    """As the command line says; by default where CI is set."""
    from pytest_attnperf.plugin.run import is_ci

    asked = config.getoption("attnperf_strict")
    return is_ci() if asked is None else bool(asked)


def merge_baselines(run: RunResult, store: BaselineStore, accepted: str = "") -> tuple[list[Path], list[str]]:
    """Merge every RECORDED case into its file; (paths written, problems).

    accepted   why a slowdown since the creep guard's anchor is wanted; '' leaves the anchors where they are
    """
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
        with noted(problems):
            paths.append(store.merge(store.roots[0], arch, product, suite, entries))
    return paths, problems
