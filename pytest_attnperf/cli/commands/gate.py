"""`attnperf gate`: judges results of another machine here, against baselines that it cannot have changed."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.cli.option_groups import add_old_spelling
from pytest_attnperf.cli.output import add_forms, asked_forms, choose_ink, count_columns, write_forms
from pytest_attnperf.environment.provenance import is_ci
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.regular_file import propose_path, read_regular

if TYPE_CHECKING:
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.reports.run.joined import Joined
    from pytest_attnperf.results import CaseResult, RunResult
    from pytest_attnperf.session.rejudge.findings import Base
    from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings

GROUP = "in CI"
ORDER = 90
SUMMARY = "judge another machine's results against a revision's baselines"
DESCRIPTION = "Judges results files again, on a machine that needs neither the GPU nor the measured code."

WIDTH = 110
SHOWN = 10
"""Cases whose reasons are printed; the table and the files hold all."""

MODES = ("block", "warn", "shadow")
MODE_VARIABLE = "ATTNPERF_GATE"
BYTES_MAX = 200_000_000
USUAL_BASELINES = "baselines"

EPILOG = f"""Computes every verdict again from the samples and checks in the results files, with the policy stored in
the baselines of --against. It checks out and runs nothing of that tree, and uses results files as data only. It cannot
detect invented samples: code that runs in the measuring job can forge them.

--against names a revision (origin/main, main...HEAD), or a folder: a checkout or its baselines. Without it, the working
tree's baselines are used, which a change under review may have edited.

modes: block  fails if a case fails or, with --strict, the suite does (the default; {MODE_VARIABLE} sets another)
       warn   prints the same, and exits 0
       shadow prints one line, and exits 0

examples:
  attnperf gate --results results.json --against origin/main
  attnperf gate --results mi300x.json h200.json --against "$BASE_SHA" --markdown comment.md --junit junit.xml
  attnperf gate --results results.json --against origin/main --tier nightly
  attnperf gate --results results.json --against "$BASE_SHA" --commit "$HEAD_SHA" --device gfx942/mi300x --strict

exit status: 0 passed, or not blocking; 1 failed; 2 the command, a file or the base is invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf gate` to its parser."""
    parser.add_argument("--results", type=Path, nargs="+", required=True, metavar="FILE", help="results of pytest runs")
    against = parser.add_argument(
        "--against", default="", metavar="REV|DIR", help="tree with the baselines (default: this tree)"
    )
    add_old_spelling(parser, "--base", against)
    parser.add_argument(
        "--baselines", default=USUAL_BASELINES, metavar="NAME", help="its folder (default: %(default)s)"
    )
    parser.add_argument("--suite", nargs="+", default=[], metavar="NAME", help="suites that results must hold ("
                        "default: every suite that has a baseline on the device)")  # fmt: skip
    parser.add_argument(
        "--filtered", action="store_true", help="only a part was measured: accept baselines without a case"
    )
    parser.add_argument("--tier", choices=("pr", "nightly"), default="pr", help="pr: baselines stored as nightly "
                        "need no case; nightly: every baseline needs a case (default: pr)")  # fmt: skip
    _add_demands(parser)
    parser.add_argument("--mode", choices=MODES, help=f"effect of a failure (default: ${MODE_VARIABLE}, else block)")
    parser.add_argument("--strict", action=argparse.BooleanOptionalAction, help="also fail for unresolved cases and "
                        "findings (default: on if CI is set)")  # fmt: skip
    parser.add_argument("--threshold", type=float, metavar="P", help="threshold in percent, replaces the stored one")
    parser.add_argument("--floor-us", type=float, metavar="US", help="floor in microseconds, replaces the stored one")
    parser.add_argument(
        "--fail-on", metavar="VERDICTS", help="failing verdicts, comma-separated; replaces the stored ones"
    )
    add_forms(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the judged results; several go to FILE, "
                        "FILE-2, ...")  # fmt: skip
    parser.add_argument("--max-bytes", type=int, default=BYTES_MAX, metavar="N", help="most bytes of a results file")


def _add_demands(parser: argparse.ArgumentParser) -> None:
    """Adds --commit, --device and --arch: what the results must contain, because a results file may omit something."""
    parser.add_argument("--commit", nargs="+", default=[], metavar="SHA", help="full ids of the allowed commits; "
                        "results of another commit fail")  # fmt: skip
    parser.add_argument("--device", nargs="+", default=[], metavar="DEVICE", help="devices that must have been "
                        "measured, e.g. gfx942/mi300x; any: at least one device")  # fmt: skip
    parser.add_argument("--arch", default="", metavar="ARCHS", help="comma-separated architectures whose stored "
                        "kernels must be in the results; all: every one of --against")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Judges results against stored baselines, prints the outcome and writes files by option. Returns 1 if the gate
    fails in mode block, else 0. Raises UsageError for invalid options, ResultsFileError and BaselineError for an
    invalid file."""
    from pytest_attnperf.baselines.store import BaselineStore
    from pytest_attnperf.reports.run.joined import join_runs
    from pytest_attnperf.session.rejudge.findings import open_base
    from pytest_attnperf.session.rejudge.timed_cases import rejudge_all

    mode = _choose_mode(options.mode, os.environ.get(MODE_VARIABLE, ""))
    read = read_results(options.results, options.max_bytes)
    with open_base(options.against, options.baselines, Path.cwd()) as base:
        judged = rejudge_all(read, BaselineStore(base.folder), _parse_settings(options, base))
        label = base.label
    joined = join_runs(_add_shard_faults(judged, read))
    reasons = list_failures(joined, strict=is_ci() if options.strict is None else options.strict)
    joined = replace(joined, failed_by=tuple(reasons))
    for line in _write_asked_files(joined, options):
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(_render_text(joined, options, mode, label, reasons))
    return 1 if reasons and mode == "block" else 0


def read_results(paths: Sequence[Path], bytes_max: int) -> list[tuple[str, RunResult]]:
    """Reads results files; returns (file name, run) pairs, several for a merged file. Raises UsageError for a file that
    is not regular or exceeds `bytes_max`, ResultsFileError for another file."""
    from pytest_attnperf.reports.files import json_results
    from pytest_attnperf.reports.files.merged import decode_merged

    found: list[tuple[str, RunResult]] = []
    for path in paths:
        data = _read_content(path, bytes_max)
        merged = decode_merged(data, str(path))
        found += [(str(path), json_results.decode(data, str(path)))] if merged is None else merged
    return found


def list_failures(joined: Joined, *, strict: bool) -> list[str]:
    """Returns why the gate fails, a sentence each; empty if it passes. `strict` also counts unresolved cases, findings
    and files that gated nothing."""
    from pytest_attnperf.records.notes import NoteKind, filter_notes
    from pytest_attnperf.reports.run.overview import UNRESOLVED, format_result_counts, is_unresolved

    fatal = (NoteKind.OTHER_COMMIT, NoteKind.MISSING_SHARDS, NoteKind.MIXED_SHARDS)
    failing: list[CaseResult | CodeResult] = [shown.case for shown in joined.cases if shown.case.fails]
    failing += [result for result in joined.code if result.fails]
    reasons = [format_result_counts(failing)] if failing else []
    findings = [finding for run in joined.runs for finding in run.findings]
    reasons += dict.fromkeys(filter_notes(findings, *fatal))
    if not strict:
        return reasons
    verdicts = [shown.case.verdict for shown in joined.cases if is_unresolved(shown.case)]
    verdicts += [result.verdict for result in joined.code if result.verdict in UNRESOLVED]
    unresolved = Counter(verdict.value for verdict in verdicts)
    if unresolved:
        reasons.append(f"strict: {unresolved.total()} cases are {', '.join(sorted(unresolved))}")
    if findings:
        reasons.append(f"strict: {len(findings)} findings")
    return reasons + _list_without_gated(joined)


def _list_without_gated(joined: Joined) -> list[str]:
    """Returns a line for each file that gated nothing: it must not pass because another one holds results. Shards of
    one run count together."""
    by_manifest: Counter[str] = Counter()
    for run in joined.runs:
        for manifest in {record.manifest for record in run.shards}:
            by_manifest[manifest] += run.gated
    found = []
    for source, run in zip(joined.sources, joined.runs, strict=True):
        if not run.gated and not any(by_manifest[record.manifest] for record in run.shards):
            behind = f" in {source}" if len(joined.runs) > 1 else ""
            found.append(f"strict: gated 0 of {run.selected}{behind}")
    return found


def _add_shard_faults(
    judged: Sequence[tuple[str, RunResult]], read: Sequence[tuple[str, RunResult]]
) -> list[tuple[str, RunResult]]:
    """Returns the judged runs; the last one with findings on shards that are missing or mixed.

    Also with those that `attnperf report --out` stored: of shards that were joined, not all of it can be found again.
    """
    from pytest_attnperf.records.notes import NoteKind, filter_notes
    from pytest_attnperf.reports.files.shards import find_shard_faults

    stored = [finding for _, run in read for finding in run.findings]
    faults = [*filter_notes(stored, NoteKind.MISSING_SHARDS, NoteKind.MIXED_SHARDS), *find_shard_faults(read)]
    *others, (source, last) = judged
    return [*others, (source, replace(last, findings=(*last.findings, *dict.fromkeys(faults))))]


def _choose_mode(option: str | None, variable: str) -> str:
    """Returns 'block', 'warn' or 'shadow': of the option, else of the environment variable, else the default. Raises
    UsageError if the variable's is unknown."""
    mode = option or variable.strip().lower() or MODES[0]
    if mode not in MODES:
        raise UsageError(f"environment variable {MODE_VARIABLE} is {variable!r}; set it to one of: {', '.join(MODES)}")
    return mode


def _parse_settings(options: argparse.Namespace, base: Base) -> RejudgeSettings:
    """Returns the options as settings: what the results must contain, which settings replace stored ones. Raises
    UsageError if they contradict each other."""
    from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings

    words = None if options.fail_on is None else options.fail_on.split(",")
    return RejudgeSettings(
        threshold_percent=options.threshold,
        floor_us=options.floor_us,
        fail_on=None if words is None else tuple(word.strip().upper() for word in words if word.strip()),
        filtered=options.filtered,
        suites=tuple(options.suite),
        devices=tuple(options.device),
        archs=tuple(name.strip() for name in options.arch.split(",") if name.strip()),
        commits=tuple(options.commit),
        base_has=base.has,
        revisions=base.revisions,
        tier=options.tier,
    )


def _read_content(path: Path, bytes_max: int) -> bytes:
    if not path.is_file():
        raise UsageError(
            f"{path} is no file{propose_path(path)}; --results takes what pytest --attnperf wrote, "
            ".attnperf/results.json"
        )
    return read_regular(path, bytes_max, advice="; --max-bytes allows more")


def _render_text(joined: Joined, options: argparse.Namespace, mode: str, label: str, reasons: Sequence[str]) -> str:
    """Returns the text for standard output: in mode shadow one line, with --markdown - the Markdown summary, else
    tables, failures and the gate's line."""
    from pytest_attnperf.reports.files.markdown import render_summary
    from pytest_attnperf.reports.run.overview import format_result_counts
    from pytest_attnperf.reports.run.run_text import run_text
    from pytest_attnperf.reports.text.figures import one_line
    from pytest_attnperf.reports.text.text_width import wrap_text
    from pytest_attnperf.session.rejudge.timed_cases import ON_ITS_WORD

    why = one_line("; ".join(reasons))
    verdict = "passed" if not reasons else f"{'failed' if mode == 'block' else 'would fail'}: {why}"
    where = f"against the baselines of {one_line(label)}"
    if mode == "shadow":
        said = format_result_counts([*(shown.case for shown in joined.cases), *joined.code])
        return f"gate (shadow): {verdict}: {said}, {where}\n"
    closing = f"gate ({mode}) {where}: {verdict}\n"
    if options.markdown == "-":
        sys.stderr.write(closing)
        return render_summary(joined)
    width = count_columns(WIDTH)
    text = run_text(joined, width=width, ink=choose_ink(), verbosity=0)
    return "\n".join([text, *list_failing_lines(joined), *wrap_text(ON_ITS_WORD, width), closing])


def list_failing_lines(joined: Joined) -> list[str]:
    """Returns why cases do not pass, worst first, at most SHOWN of each kind: the whole text of failing cases, a line
    for unresolved ones."""
    from pytest_attnperf.records import Verdict
    from pytest_attnperf.reports.run.overview import is_reported, sort_worst_first
    from pytest_attnperf.reports.run.terminal import TEXT_LIMIT, failure_text, missing_lines
    from pytest_attnperf.reports.text.figures import one_line

    cases = sort_worst_first(shown.case for shown in joined.cases)
    failing = [failure_text(case) for case in cases if case.fails]
    failing += [one_line(f"{code.verdict.value}: {code.key}: {code.summary}", TEXT_LIMIT)
                for code in joined.code if code.fails]  # fmt: skip
    open_ones = [case for case in cases if is_reported(case) and not case.fails]
    known = [case for case in open_ones if case.verdict is not Verdict.NO_BASELINE]
    unresolved = [one_line(f"{case.verdict.value}: {case.key}: {case.summary}", TEXT_LIMIT) for case in known]
    lines: list[str] = []
    for name, texts in (("failing", failing), ("unresolved", unresolved)):
        lines += texts[:SHOWN]
        lines += [f"and {len(texts) - SHOWN} more {name} cases"] if len(texts) > SHOWN else []
    for device in dict.fromkeys(shown.device for shown in joined.cases):
        here = [shown.case for shown in joined.cases if shown.device == device]
        lines += missing_lines([case for case in here if case in open_ones and case not in known], device)
    return lines


def _write_asked_files(joined: Joined, options: argparse.Namespace) -> list[str]:
    """Writes the reports and judged results that options ask for, and returns 'written: FILE' for each."""
    from pytest_attnperf.reports.files import json_results

    asked = asked_forms(options)
    if options.markdown == "-":
        del asked["markdown"]  # printed in place of the text
    said = write_forms(joined, options.report, asked)
    if options.json is not None:
        path: Path = options.json
        names = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(joined.runs) + 1))]
        for name, run in zip(names, joined.runs, strict=True):
            json_results.write(name, run)
            said.append(f"written: {name}")
    return said
