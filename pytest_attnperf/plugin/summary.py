"""Prints the end of a run: everything; with -q only what failed or is unresolved; with -qq one line."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.correctness.what_ran import compute_launch_identity
from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.gate.suite_findings import list_run_findings
from pytest_attnperf.plugin.config import run_config
from pytest_attnperf.plugin.ending import Ended, has_profiles
from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.verdicts import explain_letters
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CODE_SUITE
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.run.code_objects import code_line, code_table, code_warning_lines
from pytest_attnperf.reports.run.conditions import (
    condition_lines,
    cost_line,
    determinism_lines,
    interleaved_line,
    trial_lines,
)
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.reports.run.overview import EXCUSED, format_device, is_reported
from pytest_attnperf.reports.run.profile_cases import case_lines
from pytest_attnperf.reports.run.published_times import hidden_line, only_workloads, published_table
from pytest_attnperf.reports.run.run_text import format_run_line, is_long, section_title, suite_sections, worst_table
from pytest_attnperf.reports.run.stage_tables import stage_text
from pytest_attnperf.reports.run.tables import together_table, tolerance_notes
from pytest_attnperf.reports.run.terminal import TEXT_LIMIT, closing_lines, missing_lines
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.session.card_spread import slow_card_lines
from pytest_attnperf.session.plausibility import CHANGED
from pytest_attnperf.session.settings import HOW_TO_STORE_TYPED, NEVER_STORED, STORED_IN

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

LOG_WIDTH = 132
"""Width in characters of tables that are written to a file: all columns fit and it is still readable."""

ONLY_GATES = ("--attnperf-budget", "--attnperf-changed", "--attnperf-isolate", "--attnperf-profile", "--attnperf-shard")
"""Options that a recording refuses."""

SHOWN_UNRESOLVED = 5


@dataclass(frozen=True)
class Summary:
    """Prints the end of one run.

    reporter   pytest's terminal reporter
    features   features whose sections and lines are printed, too
    """

    config: pytest.Config
    reporter: Any
    ended: Ended
    features: Sequence[Feature]

    def show(self) -> None:
        """Prints tables, notes and closing lines, as the mode and the verbosity of the run require."""
        run, verbosity = self.ended.run, self.config.get_verbosity()
        if not (run.cases or run.code):
            self._show_reasons()
        elif run.mode == "check":
            self._show_proof(verbosity)
        else:
            self._show_run(verbosity)
            self._show_reasons()

    def _show_run(self, verbosity: int) -> None:
        run, ink = self.ended.run, Ink(bool(self.reporter.hasmarkup))
        self.reporter.ensure_newline()
        said: list[str] = []
        if verbosity >= 0:
            self._show_tables(ink, verbose=verbosity > 0)
            self._show_sections()
            self.reporter.section("attnperf")
            said += [*unresolved_lines(run), *kernel_lines(run), *run.notes, *condition_lines(run)]
            said += timed_for_want_of_code(run) if run_config(self.config).changed else []
            said += slow_card_lines(run)
            if verbosity == 0:
                said += [hidden_line(run.published if run.device else ()), explain_letters(self.reporter.stats)]
            said += [
                interleaved_line(run),
                *determinism_lines(run.cases),
                *trial_lines(run.cases),
                cost_line(run),
                *list_run_findings(run.cases),
            ]
            said = [one_line(line, TEXT_LIMIT) for line in said]
        elif verbosity == -1:
            said.append(worst_table(join_single(run), width=_terminal_width(), ink=ink))
        if verbosity >= -1:
            said += [line for feature in self.features for line in feature.render_lines(run)]
            said += closing_lines(run, self.ended.results, ink=ink)
        else:
            said.append(format_run_line(run))
        self._write_lines(filter(None, said))

    def _show_tables(self, ink: Ink, *, verbose: bool) -> None:
        """Prints the worst cases of a long run, then a section per suite and one for compiled kernels."""
        run, reporter, width = self.ended.run, self.reporter, _terminal_width()
        joined = join_single(run)
        worst = worst_table(joined, width=width, ink=ink) if is_long(joined) else ""
        if worst:
            reporter.section("attnperf: worst first")
            reporter.write_line(worst)
        legend: list[str] = []
        for part in suite_sections(joined, width=width, ink=ink, verbose=verbose):
            legend += part.legend
            reporter.section(f"attnperf: {section_title(part, several=False)}")
            reporter.write_line(part.text)
            found = only_workloads(run.published, (case.key.workload for case in part.cases))
            shown = [report for report in found if verbose or run.device is None or report.same_device]
            published = published_table(shown, width=width, ink=ink)
            for text in filter(None, (stage_text(part.cases, width), together_table(part.cases, width), published)):
                reporter.write_line("")
                reporter.write_line(text)
        if run.code:
            reporter.section(f"attnperf: {CODE_SUITE}")
            reporter.write_line(code_table(run.code, width=width, ink=ink, legend=legend))
        if legend:
            reporter.write_line("")
            self._write_lines(ink.dim(line) for line in dict.fromkeys(legend))

    def _show_sections(self) -> None:
        """Prints the sections of features, e.g. profiles; those without lines are left out."""
        for title, lines in (feature.render_section(self.ended.run, _terminal_width()) for feature in self.features):
            if lines:
                self.reporter.section(title)
                self._write_lines(lines)

    def _show_reasons(self) -> None:
        """Prints a line 'exit status 1: ...' for each reason why the run fails as a whole."""
        self._write_lines(f"exit status 1: {one_line(reason, TEXT_LIMIT)}" for reason in self.ended.failed_by)

    def _show_proof(self, verbosity: int) -> None:
        """Prints notes of a run that only checks, below pytest's own report; often there are none."""
        run = self.ended.run
        if verbosity <= -2:
            self._write_lines(filter(None, [code_line(run.code)]))
            return
        self._show_sections()
        lines = [*tolerance_notes(run.cases), *determinism_lines(run.cases), *trial_lines(run.cases)]
        lines += [*kernel_lines(run), *filter(None, [code_line(run.code)])]
        if has_profiles(run) and self.ended.results:
            lines.append(f"results: {self.ended.results}")
        if lines:
            self.reporter.section("attnperf")
        self._write_lines(one_line(line, TEXT_LIMIT) for line in lines)

    def _write_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.reporter.write_line(line)


def _terminal_width() -> int:
    """Returns the width of the terminal in characters; LOG_WIDTH if output goes to a file."""
    return shutil.get_terminal_size((LOG_WIDTH, 24)).columns


def unresolved_lines(run: RunResult) -> list[str]:
    """Returns lines on cases that were not gated or are excused (SHOWN_UNRESOLVED per verdict, then the number of
    others), on comparisons with local baselines, and on warnings."""
    lines: list[str] = []
    open_ones = [case for case in run.cases if is_reported(case) and not (case.fails and case.verdict in EXCUSED)]
    for verdict in sorted({case.verdict for case in open_ones}):
        cases = [case for case in open_ones if case.verdict is verdict]
        if verdict is Verdict.NO_BASELINE:
            typed = any(word.startswith(NEVER_STORED) for word in shlex.split(run.command))
            instead = HOW_TO_STORE_TYPED if typed else ""
            lines += missing_lines(cases, format_device(run), _update_command(run, cases), instead)
            continue
        lines += [f"{verdict.value}: {case.key}: {case.summary}" for case in cases[:SHOWN_UNRESOLVED]]
        if len(cases) > SHOWN_UNRESOLVED:
            lines.append(f"{verdict.value}: {len(cases) - SHOWN_UNRESOLVED} more")
    notes = [note for case in run.cases for note in case.notes]
    lines += _describe_local(len(filter_notes(notes, NoteKind.LOCAL)), len(filter_notes(notes, NoteKind.LOCAL_NEW)))
    close = [f"warning: {line}" for line in list_notes(run, NoteKind.NEAR_FLOOR)]
    needless = list_notes(run, NoteKind.NEEDLESS)
    if len(needless) > SHOWN_UNRESOLVED:
        more = len(needless) - SHOWN_UNRESOLVED
        needless = [*needless[:SHOWN_UNRESOLVED], f"quarantined until a date, and not slower: {more} more"]
    changed = list_notes(run, NoteKind.CHANGED, NoteKind.DRIFTED)
    if len(changed) > SHOWN_UNRESOLVED:
        changed = [*changed[:SHOWN_UNRESOLVED], f"{CHANGED} in {len(changed) - SHOWN_UNRESOLVED} more cases"]
    return lines + close + needless + changed + _list_without_stages(run)


def _update_command(run: RunResult, missing: Sequence[CaseResult]) -> str:
    """Returns the command of this run with --update-baselines in place of --attnperf, without options that only a gate
    takes. If that would store more than what lacks a baseline, or compare with a base side, it names the cases."""
    words = [word for word in shlex.split(run.command) if not word.startswith(ONLY_GATES)]
    stored = any(case.stored_us for case in run.cases)
    if stored or run.against or "--attnperf" not in words:
        kept = [word for word in words if word.startswith(STORED_IN)]
        nodeids = [quote_nodeid(one_line(case.nodeid, TEXT_LIMIT)) for case in missing]
        return " ".join(["pytest --update-baselines", *map(shlex.quote, kept), *nodeids])
    return shlex.join("--update-baselines" if word == "--attnperf" else word for word in words)


def _describe_local(earlier: int, fresh: int) -> list[str]:
    """Returns a line per kind of local baseline: recorded in this run, or earlier; [] without any."""
    lines = []
    if fresh:
        lines.append(
            f"{_count_compared(fresh)} .attnperf/local, recorded in this run: that compares code with itself, and "
            "cannot show that it got slower"
        )
    if earlier:
        lines.append(
            f"{_count_compared(earlier)} .attnperf/local, recorded earlier on this machine: no other machine has these "
            "baselines"
        )
    return lines


def _count_compared(cases: int) -> str:
    return f"{cases} case{'s were' if cases != 1 else ' was'} compared with"


def list_notes(run: RunResult, *kinds: NoteKind) -> list[str]:
    """Returns the notes of these kinds, each with the key of its case in front."""
    return [f"{case.key}: {note}" for case in run.cases for note in filter_notes(case.notes, *kinds)]


def timed_for_want_of_code(run: RunResult) -> list[str]:
    """Returns [line on how many cases --attnperf-changed timed because it cannot see their machine code], or []."""
    unknown = sum(bool(case.first) and compute_launch_identity(case.launches) is None for case in run.cases)
    why = "the machine code is not known: a library's kernels, or operators on a CPU"
    return [f"{unknown} case{'s were' if unknown != 1 else ' was'} timed, because {why}"] if unknown else []


def _list_without_stages(run: RunResult) -> list[str]:
    """Returns lines on cases whose stages (steps of a call) could not be timed: some with the reason, then a count."""
    found = [(case.key, note) for case in run.cases for note in filter_notes(case.notes, NoteKind.NO_STAGES)]
    lost = [f"{key}: {note.about}" for key, note in found]
    more = len(lost) - SHOWN_UNRESOLVED
    return [*lost[:SHOWN_UNRESOLVED], f"stages were not timed: of {more} more cases"] if more > 0 else lost


def kernel_lines(run: RunResult) -> list[str]:
    """Returns lines on compiled kernels that were not gated, and on changes of their code that do not fail the run."""
    if not run.code:
        return []
    from pytest_attnperf.plugin.features.code_objects.code_run import unresolved_code_lines

    return [*unresolved_code_lines(run), *code_warning_lines(run.code)]


LOST_SHOWN = 5


class Profiles(Feature):
    """Prints the profiles of a run with --attnperf-profile."""

    def render_section(self, run: RunResult, width: int) -> tuple[str, Sequence[str]]:
        """Returns the table of what limits each profiled case, and lines on cases without a profile."""
        lost = list_notes(run, NoteKind.NOT_PROFILED)
        if len(lost) > LOST_SHOWN:
            lost = [*lost[:LOST_SHOWN], f"not profiled: {len(lost) - LOST_SHOWN} more cases"]
        return "attnperf: profiles", [*case_lines(run, width), *(one_line(line, TEXT_LIMIT) for line in lost)]


def make_feature(_given: FeatureContext) -> Profiles:
    """Returns the feature that prints profiles."""
    return Profiles()
