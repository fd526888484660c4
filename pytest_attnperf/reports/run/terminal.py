"""Text of a run for the terminal: why a test failed, and the closing lines."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_attnperf.errors import quote_nodeid
from pytest_attnperf.records import ErrorFigures, ProcessSummary, Tolerance, Verdict
from pytest_attnperf.records.time_units import choose_time_unit, format_time, format_times
from pytest_attnperf.reports.run.code_objects import code_line
from pytest_attnperf.reports.run.overview import (
    is_new,
    list_compared,
    median_detection_limit,
    only_new,
    quarantined_lines,
    rank_verdict,
    verdict_line,
)
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.commands import format_repeat_command, format_typed_command
from pytest_attnperf.reports.text.figures import (
    format_around,
    format_change,
    format_interval,
    format_tolerance,
    one_line,
    safe_lines,
)
from pytest_attnperf.results import CaseResult, RunResult

LOG_LINES = 40
PROBLEM_LINES = 12
QUARANTINED_LINES = 10
REASON_LINES = 5
SKIPPED_SHOWN = 5
KEYS_SHOWN = 5
TIMING_MODES = ("gate", "update")
TEXT_LIMIT = 2000

OUTLIER_SHARE, OUTLIER_TIMES = 0.05, 3.0
"""Of seven processes of unchanged code on an H200 one was 34 % off, six within 0.7 %: it had timed single calls."""


def closing_lines(run: RunResult, results_path: str = "", *, ink: Ink = PLAIN) -> list[str]:
    """Returns the last lines of a run: counts and slowest case, detectable slowdown, cases not timed, findings,
    files."""
    lines = []
    if run.cases or not run.code:
        lines.append(
            ink.paint_verdict(
                one_line(verdict_line(run), TEXT_LIMIT), _find_worst_verdict(_list_counted_verdicts(run.cases))
            )
        )
    if run.code:
        lines.append(ink.paint_verdict(code_line(run.code), _find_worst_verdict(result.verdict for result in run.code)))
    lines += limit_lines(run.cases)
    lines += [*_not_timed_lines(run), *_quarantine_lines(run.cases), *_new_lines(run), *_skipped_lines(run.cases)]
    lines += _outlier_lines(run.cases)
    if run.mode == "gate" and run.gated == 0 and not only_new(run):
        undecided = sum(case.verdict is Verdict.UNDECIDED and case.ratio is not None for case in run.cases)
        why = f"{undecided} compared, but undecided" if undecided else "nothing was compared with a baseline"
        lines.append(f"gated 0 of {run.selected}: {why}")
    if not run.complete:
        lines.append(f"incomplete: {len(run.cases) + len(run.code)} of {run.selected} selected cases have a result")
    lines += [f"finding: {one_line(finding, TEXT_LIMIT)}" for finding in run.findings]
    lines += [f"baseline written: {one_line(path, TEXT_LIMIT)}" for path in run.baseline_paths]
    if results_path:
        lines.append(f"results: {one_line(results_path, TEXT_LIMIT)}")
    return lines


def missing_lines(cases: Sequence[CaseResult], device: str, command: str = "", instead: str = "") -> list[str]:
    """Returns the keys of cases without a baseline, the first KEYS_SHOWN, and one command that stores all of them.

    device    of the run, '' if it is not known
    command   the command to show; '' makes one of the cases' node ids
    instead   shown in place of a command, where none can store them
    """
    if not cases:
        return []
    count = f"{len(cases)} case{'s have' if len(cases) != 1 else ' has'} no baseline"
    lines = [f"{Verdict.NO_BASELINE.value}: {count}{f' on {one_line(device)}' if device else ''}"]
    lines += [f"  {one_line(str(case.key), TEXT_LIMIT)}" for case in cases[:KEYS_SHOWN]]
    if len(cases) > KEYS_SHOWN:
        lines.append(f"  and {len(cases) - KEYS_SHOWN} more")
    nodeids = " ".join(quote_nodeid(one_line(case.nodeid, TEXT_LIMIT)) for case in cases)
    return [*lines, *([instead] if instead else ["store with:", command or f"pytest --update-baselines {nodeids}"])]


def _not_timed_lines(run: RunResult) -> list[str]:
    """Returns lines on cases without a time: unchanged ones, those only proven and why, those left to nightly runs."""
    unchanged, left = sum(case.unchanged for case in run.cases), len(run.left_to_nightly)
    lines = [f"{max(0, run.gated - unchanged)} gated, {unchanged} unchanged (not timed)"] if unchanged else []
    if run.mode in TIMING_MODES:
        why = Counter(case.summary for case in run.cases if case.verdict is Verdict.RIGHT and not case.unchanged)
        lines += [f"{count} right, {one_line(text, TEXT_LIMIT)}" for text, count in why.most_common(REASON_LINES)]
    nightly = f"{left} case{'s' if left != 1 else ''} left to nightly runs (--attnperf-tier=nightly)"
    return [*lines, nightly] if left else lines


def _new_lines(run: RunResult) -> list[str]:
    """Returns one line on how many cases the base side lacks, which were thus not compared; [] for none."""
    found = [case for case in run.cases if is_new(case)]
    if not found:
        return []
    sides = ", ".join(dict.fromkeys(case.against for case in found))
    gated = f"gated 0 of {run.selected}, because all that were timed are" if only_new(run) else f"{len(found)}"
    said = f"{gated} new in this revision: not in {sides}, so proven and timed, and compared with nothing"
    return [one_line(said, TEXT_LIMIT)]


def _skipped_lines(cases: Sequence[CaseResult]) -> list[str]:
    """Returns a line per reason with the cases that a mark, a fixture or the test itself skipped."""
    by_reason: dict[str, list[str]] = {}
    for case in cases:
        if case.skipped:
            by_reason.setdefault(case.skipped, []).append(str(case.key))
    return [
        one_line(f"skipped by a mark, a fixture or the test itself ({reason}): {_join_first_names(names)}", TEXT_LIMIT)
        for reason, names in by_reason.items()
    ]


def _outlier_lines(cases: Sequence[CaseResult]) -> list[str]:
    """Returns a line with the cases that were recorded with one process far from the others; [] for none."""
    found = {str(case.key): find_outlier(case.first) for case in cases if case.verdict is Verdict.RECORDED}
    said = [f"{key} ({format_time(outlier.median_us)})" for key, outlier in found.items() if outlier is not None]
    if not said:
        return []
    text = "recorded with one process far from the others, which hides slowdowns; record again: "
    return [one_line(text + _join_first_names(said), TEXT_LIMIT)]


def find_outlier(processes: Sequence[ProcessSummary]) -> ProcessSummary | None:
    """Returns the one process whose median is far from all others': by more than OUTLIER_SHARE of theirs, and more than
    OUTLIER_TIMES their range. None if there is none, or fewer than four processes."""
    if len(processes) < 4:
        return None
    middle = statistics.median(process.median_us for process in processes)
    far = max(processes, key=lambda process: abs(process.median_us - middle))
    others = [process.median_us for process in processes if process is not far]
    apart = min(abs(far.median_us - us) for us in others)
    least = max(OUTLIER_SHARE * min(others), OUTLIER_TIMES * (max(others) - min(others)))
    return far if apart > least else None


def _join_first_names(names: Sequence[str]) -> str:
    more = len(names) - SKIPPED_SHOWN
    return ", ".join([*names[:SKIPPED_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _quarantine_lines(cases: Sequence[CaseResult]) -> list[str]:
    """Returns a line per quarantined case, with verdict and link, at most QUARANTINED_LINES; then counts the others."""
    lines = [one_line(line, TEXT_LIMIT) for line in quarantined_lines(cases)]
    left_out = len(lines) - QUARANTINED_LINES
    return [*lines[:QUARANTINED_LINES], f"and {left_out} more quarantined cases"] if left_out > 0 else lines


def limit_lines(cases: Sequence[CaseResult]) -> list[str]:
    """Returns one line: the slowdown that half of the comparisons could detect; [] without comparisons."""
    limit = median_detection_limit(cases)
    if limit is None:
        return []
    which = "half of the compared cases" if len(list_compared(cases)) > 1 else "the one compared case"
    return [f"{which} could detect a slowdown of {format_change(1 + limit).removeprefix('+')}"]


def _list_counted_verdicts(cases: Iterable[CaseResult]) -> Iterable[Verdict]:
    """Returns the verdicts of the cases that are neither quarantined nor new; the closing line's colour follows
    them."""
    return (case.verdict for case in cases if not case.quarantined and not is_new(case))


def _find_worst_verdict(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Returns the worst verdict that failed or is unresolved; None if there is none."""
    worst = min(verdicts, key=rank_verdict, default=None)
    return worst if worst is not None and rank_verdict(worst) <= rank_verdict(Verdict.NO_BASELINE) else None


def failure_text(case: CaseResult, *, own: bool = False, results: str | None = "") -> str:
    """Returns the text of a case's failing test: verdict, changes, reasons, notes, log, and a command to repeat it.

    own       the case was judged in this process, so its command may hold everything that the user typed
    results   the file that `attnperf explain` is to read; '' for the usual one, None if there will be none
    """
    lines = [f"{case.verdict.value}: {one_line(str(case.key))}", one_line(case.summary, TEXT_LIMIT)]
    lines += _fault_lines(case)
    lines += _change_lines(case)
    lines += _reason_lines(case)
    if case.verdict is Verdict.INCORRECT:
        lines += _problem_lines(case)
    lines += [f"  note: {one_line(note, TEXT_LIMIT)}" for note in case.notes]
    if case.log:
        lines += ["end of the worker's log:", *(f"  | {line}" for line in safe_lines(case.log, LOG_LINES))]
    if repeat := format_typed_command(case.reproduce) if own else format_repeat_command(case.reproduce, case.nodeid):
        lines += ["reproduce with:", repeat]
        where = f" --results {shlex.quote(results)}" if results else ""
        explain = f"explained by: attnperf explain {one_line(shlex.quote(str(case.key)), TEXT_LIMIT)}{where}"
        lines += [explain] if results is not None else []
    return "\n".join(lines)


def _fault_lines(case: CaseResult) -> list[str]:
    """Returns one line on what broke the process or device, in which kernel, and how that is known; [] if it is not."""
    if case.fault is None or not case.fault.how:
        return []
    kernel = f"kernel {case.fault.kernel}" if case.fault.kernel else "no kernel named"
    return [f"  {one_line(f'{case.fault.kind}: {kernel} ({case.fault.how})', TEXT_LIMIT)}"]


def _change_lines(case: CaseResult) -> list[str]:
    lines = []
    if case.baseline_us is not None and case.median_us is not None:
        interval = format_interval(case.interval)
        allowed = f", allowed {format_change(case.threshold)}" if case.threshold is not None else ""
        lines.append(
            f"  {format_times([case.baseline_us, case.median_us])} per call, "
            f"{format_change(case.ratio)}{f' ({interval})' if interval else ''}{allowed}"
        )
    looks = (("first look", case.first), ("second look", case.second))
    lines += [_look_line(name, processes) for name, processes in looks if processes]
    return [*lines, _pairs_line(case)] if case.pairs else lines


def _reason_lines(case: CaseResult) -> list[str]:
    """Returns the lines of the reasons, which may hold a traceback, without those that equal the summary."""
    lines = []
    for reason in case.reasons:
        first, _, rest = reason.partition("\n")
        unsaid = rest if first == case.summary else reason
        lines += [f"  {line}" for line in safe_lines(unsaid, LOG_LINES, TEXT_LIMIT) if line]
    return lines


def _look_line(name: str, processes: Sequence[ProcessSummary]) -> str:
    medians = [process.median_us for process in processes]
    unit = choose_time_unit(medians)
    centre, least, most = map(unit.format_number, (statistics.median(medians), min(medians), max(medians)))
    count = f"{len(medians)} process{'' if len(medians) == 1 else 'es'}"
    spread = f" ({least} .. {most})" if len(medians) > 1 else ""
    return f"  {name}: {centre} {unit.name}{spread}, {count}, {processes[0].timer} timer"


def _pairs_line(case: CaseResult) -> str:
    """Returns one line on a comparison by pairs of processes: base side, range of the ratios, their number, seconds."""
    ratios = [pair.ratio for pair in case.pairs]
    seconds = sum(pair.seconds for pair in case.pairs)
    return (
        f"  interleaved against {one_line(case.against)}: {format_change(min(ratios))} .. {format_change(max(ratios))} "
        f"in {len(ratios)} pairs of fresh processes, {case.pairs[0].quads} quads each, {seconds:.1f} s of turns"
    )


def _problem_lines(case: CaseResult) -> list[str]:
    """Returns lines on wrong outputs: problems that are not among the reasons, figures beyond budget, the tolerance."""
    said = {case.summary, *case.reasons}
    problems = list(dict.fromkeys(p for check in case.checks for p in check.problems if p not in said))
    lines = [f"  {one_line(problem, TEXT_LIMIT)}" for problem in problems]
    beyond = [figures for check in case.checks for figures in check.figures if _is_beyond_budget(figures)]
    everything = [*said, *problems]
    lines += [_figures_line(figures) for figures in beyond if not _is_said(figures, everything)]
    left_out = len(lines) - PROBLEM_LINES
    shown = [*lines[:PROBLEM_LINES], f"  ... and {left_out} more"] if left_out > 0 else lines
    tolerances = dict.fromkeys(check.tolerance for check in case.checks if check.tolerance.source or beyond)
    return shown + [_tolerance_line(tolerance) for tolerance in tolerances]


def _is_beyond_budget(figures: ErrorFigures) -> bool:
    """Returns whether a finite output exceeds a budget; False with NaN or Inf, which have no error to print."""
    finite = figures.nan_count == figures.inf_count == figures.finite_count == 0
    return finite and not all(error <= budget for error, budget in figures.budgets)


def _is_said(figures: ErrorFigures, problems: Sequence[str]) -> bool:
    """Returns whether one of `problems` names this check and output, as texts of the check do at their beginning."""
    return any(f"{figures.check}: {figures.output!r} " in problem for problem in problems)


def _figures_line(figures: ErrorFigures) -> str:
    where = f"{figures.output}{list(figures.worst_index)}" if figures.worst_index else figures.output
    around = format_around(figures)
    return one_line(
        f"  {figures.check}: {where} is {figures.worst_got:.6g}, expected {figures.worst_expected:.6g}; max error "
        f"{figures.max_error:.3g} (allowed {figures.max_budget:.3g}), rms {figures.rms_error:.3g} (allowed "
        f"{figures.rms_budget:.3g}){_line_text(figures)}{f'; around it: {around}' if around else ''}",
        TEXT_LIMIT,
    )


def _line_text(figures: ErrorFigures) -> str:
    if not figures.line:
        return ""
    return f", rms of {figures.line} {figures.line_error:.3g} (allowed {figures.line_budget:.3g})"


def _tolerance_line(tolerance: Tolerance) -> str:
    return one_line(f"  {format_tolerance(tolerance)}", TEXT_LIMIT)
