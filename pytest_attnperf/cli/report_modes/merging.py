"""`attnperf report --out`: joins results of several machines into one file and one exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.cli.output import asked_forms, open_page, write_forms
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    from pytest_attnperf.records.notes import NoteKind
    from pytest_attnperf.reports.files.merged import MergedRuns
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.results import RunResult

LINE_LIMIT = 1000


def merge_results(options: argparse.Namespace) -> int:
    """Merges results, writes --out, --seconds and reports, and prints a line per run. Returns 1 if they fail, 2 if a
    report could not be made, else 0. Raises UsageError for invalid options, ResultsFileError for an invalid file."""
    from pytest_attnperf.baselines.case_seconds import write_case_seconds
    from pytest_attnperf.environment.provenance import is_ci
    from pytest_attnperf.records.atomic_file import write_atomically
    from pytest_attnperf.reports.files.merged import encode_merged, merge_runs
    from pytest_attnperf.reports.run.joined import join_runs

    found = _read_runs(options)
    merged = merge_runs(found)
    strict = is_ci() if options.strict is None else options.strict
    reasons = _list_failure_reasons(merged, options, strict=strict)
    runs = [_add_findings(one, merged, options) for _, one in merged.runs]
    write_atomically(options.out, encode_merged(runs))
    if options.seconds is not None:
        write_case_seconds(options.seconds, runs)
    names = [name for name, _ in merged.runs]
    has_gaps = _write_reports(join_runs(list(zip(names, runs, strict=True))), reasons, options)
    lines = [*merged.notes, *_list_lines(merged, options, strict=strict), f"written: {options.out}"]
    lines += [f"written: {options.seconds}"] if options.seconds is not None else []
    stream = sys.stderr if "-" in asked_forms(options).values() else sys.stdout
    stream.write(
        "".join(f"{line}\n" for line in map(_make_safe, [*lines, *(f"exit status 1: {why}" for why in reasons)]))
    )
    if options.open and not has_gaps:
        open_page(options.report)
    return 2 if has_gaps else 1 if reasons else 0


def _read_runs(options: argparse.Namespace) -> list[tuple[str, RunResult]]:
    """Returns (source, run) of every run in the files. Raises UsageError for baselines, an output that is also an
    input, and an invalid --expect."""
    from pytest_attnperf.plugin.report_inputs import read_named
    from pytest_attnperf.records.regular_file import propose_path
    from pytest_attnperf.reports.run.overview import STORED

    if options.expect is not None and options.expect < 1:
        raise UsageError(f"--expect is {options.expect}, must be 1 or more: how many runs the files should hold")
    if any(path.resolve() == options.out.resolve() for path in options.results):
        raise UsageError(f"--out {options.out} is one of the files to be merged; name another")
    if options.seconds is not None and options.seconds.resolve() in {
        path.resolve() for path in (*options.results, options.out)
    }:
        raise UsageError(f"--seconds {options.seconds} is a file of results; name another")
    for path in options.results:
        if not path.is_file():
            raise UsageError(
                f"{path} is no file{propose_path(path)}; --out takes what pytest --attnperf wrote, "
                ".attnperf/results.json"
            )
    found = [named for path in options.results for named in read_named(path)]
    for source, one in found:
        if one.mode == STORED:
            raise UsageError(f"{source} holds stored baselines; give results of runs, such as .attnperf/results.json")
    return found


def _list_failure_reasons(merged: MergedRuns, options: argparse.Namespace, *, strict: bool) -> list[str]:
    """Returns why the merged results fail: missing or mixed shards, and failures of each run; empty if they pass."""
    from pytest_attnperf.reports.files.merged import list_failure_reasons

    reasons = _list_shard_problems(merged, options)
    for source, one in merged.runs:
        reasons += [
            f"{source}: {why}" for why in list_failure_reasons(one, strict=strict, fatal=_list_fatal_kinds(options))
        ]
    return reasons


def _list_shard_problems(merged: MergedRuns, options: argparse.Namespace) -> list[str]:
    """Returns what is wrong with parts of --attnperf-shard, how shards differ, unless --allow-commits, and how many of
    --expect are missing."""
    from pytest_attnperf.records.notes import Note, NoteKind

    found = [*merged.faults, *(() if options.allow_commits else merged.mixed)]
    there = sum(merged.shards)
    if options.expect is not None and there < options.expect:
        said = f"shards missing: {there} of {options.expect} runs are there"
        found.append(Note(NoteKind.MISSING_SHARDS, said))
    return found


def _list_fatal_kinds(options: argparse.Namespace) -> tuple[NoteKind, ...]:
    """Returns the kinds of findings that fail a run even without --strict: missing or mixed shards, other commits."""
    from pytest_attnperf.records.notes import NoteKind

    mixed = () if options.allow_commits else (NoteKind.MIXED_SHARDS,)
    return (NoteKind.MISSING_SHARDS, NoteKind.OTHER_COMMIT, *mixed)


def _add_findings(one: RunResult, merged: MergedRuns, options: argparse.Namespace) -> RunResult:
    """Returns the run with shard problems as findings; with --allow-commits, differences become notes."""
    from dataclasses import replace

    allowed = merged.mixed if options.allow_commits else ()
    findings = dict.fromkeys((*one.findings, *_list_shard_problems(merged, options)))
    return replace(one, notes=(*one.notes, *allowed), findings=tuple(findings))


def _list_lines(merged: MergedRuns, options: argparse.Namespace, *, strict: bool) -> list[str]:
    """Returns a line per run: counts of its verdicts, then why it fails or 'passed'."""
    from pytest_attnperf.reports.files.merged import list_failure_reasons
    from pytest_attnperf.reports.run.run_text import format_run_line

    lines = []
    for (source, one), shards in zip(merged.runs, merged.shards, strict=True):
        of = f" ({shards} shards)" if shards > 1 else ""
        why = "; ".join(list_failure_reasons(one, strict=strict, fatal=_list_fatal_kinds(options))) or "passed"
        lines.append(f"{format_run_line(one, source + of)}: {why}")
    return lines


def _write_reports(joined: Joined, reasons: Sequence[str], options: argparse.Namespace) -> bool:
    """Writes the reports that options ask for. Returns True if a folder was asked for and lacks one."""
    from dataclasses import replace

    from pytest_attnperf.reports.files.folder import has_gaps

    joined = replace(joined, failed_by=tuple(reasons))
    for line in write_forms(joined, options.report, asked_forms(options)):
        sys.stderr.write(f"{_make_safe(line)}\n")
    return options.report is not None and has_gaps(options.report)


def _make_safe(line: str) -> str:
    from pytest_attnperf.reports.text.figures import one_line

    return one_line(line, LINE_LIMIT)
