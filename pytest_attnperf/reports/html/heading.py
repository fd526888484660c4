"""The part above the table: facts of each run, a line per suite, the worst cases, compiled kernels, and changes in
history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.time_units import format_times
from pytest_attnperf.reports.html.page_charts import MARKS
from pytest_attnperf.reports.html.panel import TEXT_LIMIT, code_cells, code_head
from pytest_attnperf.reports.html.picture import name_suite
from pytest_attnperf.reports.html.rows import CaseRow, CaseTable
from pytest_attnperf.reports.html.samples import list_change_points
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import (
    ORDER,
    QUARANTINED,
    UNCHANGED,
    format_comparison_base,
    format_result_counts,
    format_result_word,
    format_verdict_word,
    is_reported,
    median_detection_limit,
    quarantined_lines,
    rank_verdict,
    verdict_line,
)
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import format_change, format_interval, one_line
from pytest_attnperf.results import EXPIRED, CaseResult, RunResult

MOST_CARDS = 24
MOST_LINES = 50
MOST_KERNELS = 500
MOST_CHANGES = 200
NAME_LIMIT = 200
MOST_TITLES = 3
LINKS = ("https://", "http://")
SECONDS_PER_MINUTE = 60
STRIP_WIDTH, STRIP_HEIGHT = 240, 18
MARGIN = 6
LEAST_PERCENT = 5.0
MOST_PERCENT = 25.0
"""Ends of a strip's axis: a larger change stands at its end."""

MOST_SUITES = 100

GATE = "gate"
EXECUTED = "executed"
"""Column of what an interpreter of machine code showed."""


@dataclass(frozen=True)
class CaseCard:
    """A case that needs attention: `index` is its row, `key` its name in links."""

    index: int
    key: str
    verdict: str
    fails: bool
    figures: str
    summary: str
    reproduce: str


@dataclass(frozen=True)
class StripDots:
    """Dots of one colour in a strip. `tone` is 'bad', 'open', 'good' or 'quiet'; `path` is that of an SVG element."""

    tone: str
    path: str


@dataclass(frozen=True)
class SuiteLine:
    """A suite of a page.

    name, suite, device   what it is called, and the values of the table's filters that show it alone
    counts                (verdict, number of cases, word), worst first
    strip                 dots by change, those that fail last and so on top; empty if no change is known
    changes               the smallest and the largest change as a text, '' if none is known
    fails                 whether a case of it fails
    """

    name: str
    suite: str
    device: str
    counts: tuple[tuple[str, int, str], ...]
    strip: tuple[StripDots, ...]
    changes: str
    fails: bool


@dataclass(frozen=True)
class SuiteList:
    """The lines of a page's suites, and the axis of their strips: `zero` and the `band` (start, width) in its units,
    `percent` at both ends. `more` suites are left out."""

    lines: tuple[SuiteLine, ...] = ()
    percent: float = LEAST_PERCENT
    zero: float = STRIP_WIDTH / 2
    band: tuple[float, float] = (0.0, 0.0)
    more: int = 0


def run_heads(joined: Joined) -> list[dict[str, object]]:
    """Returns a dict per run for the template: title, verdict line, facts as (name, text, link), findings and notes."""
    return [_run_head(run, source) for run, source in zip(joined.runs, joined.sources, strict=True)]


def make_cards(table: CaseTable) -> tuple[list[CaseCard], int]:
    """Returns (cards of failing, unresolved and excused cases, worst first, at most MOST_CARDS; number of others)."""
    found = [index for index, row in enumerate(table.rows) if row.shown.case.fails or is_reported(row.shown.case)]
    return [_make_card(table, index) for index in found[:MOST_CARDS]], max(0, len(found) - MOST_CARDS)


def verdict_counts(table: CaseTable) -> list[dict[str, object]]:
    """Returns {'verdict', 'word', 'count', 'fails'} per verdict, worst first, then quarantined and unchanged ones."""
    counted = Counter(format_result_word(row.shown.case) for row in table.rows)
    failing = {format_result_word(row.shown.case) for row in table.rows if row.shown.case.fails}
    shown = [(EXPIRED.upper(), EXPIRED), *((verdict.value, format_verdict_word(verdict)) for verdict in ORDER)]
    shown += [(name.upper(), name) for name in (QUARANTINED, UNCHANGED)]
    return [
        {"verdict": verdict, "word": name, "count": counted[name], "fails": name in failing}
        for verdict, name in shown
        if counted[name]
    ]


def list_suites(table: CaseTable) -> SuiteList:
    """Returns a line per device and suite, failing ones first; none if there is only one suite, or no change known."""
    groups: dict[tuple[str, str], list[CaseRow]] = {}
    for row in table.rows:
        groups.setdefault((row.shown.device, row.shown.case.key.suite), []).append(row)
    changes = [abs(row.shown.case.ratio - 1) * 100 for row in table.rows if row.shown.case.ratio is not None]
    if len(groups) < 2 or not changes:
        return SuiteList()
    percent = min(MOST_PERCENT, max(LEAST_PERCENT, *changes))
    with_device = len({device for device, _ in groups}) > 1
    lines = [_make_line(rows, percent, with_device) for rows in groups.values()]
    lines.sort(key=lambda line: not line.fails)
    limits = sorted(row.shown.case.threshold for row in table.rows if row.shown.case.threshold is not None)
    limit = limits[len(limits) // 2] if limits else 1.0
    start, end = _place(1 / limit if limit > 0 else 1.0, percent), _place(limit, percent)
    band = (start, round(end - start, 1))
    return SuiteList(tuple(lines[:MOST_SUITES]), percent, STRIP_WIDTH / 2, band, max(0, len(lines) - MOST_SUITES))


def build_kernel_table(code: Sequence[CodeResult]) -> dict[str, object]:
    """Returns {'head', 'rows', 'more'} of compiled kernels, worst first; 'more' counts those beyond MOST_KERNELS."""
    ordered = sorted(code, key=lambda result: (not result.fails, rank_verdict(result.verdict), str(result.key)))
    kept = ordered[:MOST_KERNELS]
    head = (EXECUTED, *code_head())
    found = [
        [result.executed.outcome if result.executed else "", *code_cells(result.code, result.occupancy)]
        for result in kept
    ]
    columns = [index for index in range(len(head)) if any(cells[index] for cells in found)]
    rows = [
        {
            "name": one_line(str(result.key), NAME_LIMIT),
            "verdict": result.verdict.value,
            "fails": result.fails,
            "cells": [cells[index] for index in columns],
            "summary": one_line(result.summary, TEXT_LIMIT),
            "findings": [one_line(finding.text, TEXT_LIMIT) for finding in result.findings[:MOST_LINES]],
        }
        for result, cells in zip(kept, found, strict=True)
    ]
    return {"head": [head[index] for index in columns], "rows": rows, "more": len(ordered) - len(kept)}


def list_changes(histories: Sequence[CaseHistory], indices: Mapping[tuple[str, str], int]) -> list[dict[str, object]]:
    """Returns the histories' change points, latest first, at most MOST_CHANGES. 'index' is the case's row, or None."""
    found = []
    for history in histories:
        device = f"{history.arch}/{history.product}"
        for change in list_change_points(history):
            entry = {"case": one_line(f"{device} {history.case}", 2 * NAME_LIMIT), **change}
            found.append(entry | {"index": indices.get((device, history.case))})
    found.sort(key=lambda entry: (-(entry["at"] or 0), entry["case"]))
    return found[:MOST_CHANGES]


def sanitize_link(url: str) -> str:
    """Returns the address if it is a short http(s) one; '' for anything that a click could run."""
    clean = url.strip()
    safe = clean.lower().startswith(LINKS) and len(clean) <= TEXT_LIMIT and one_line(clean, TEXT_LIMIT) == clean
    return clean if safe else ""


def format_summary(case: CaseResult) -> str:
    """Returns the case's summary in one line without control characters, cut to TEXT_LIMIT."""
    return one_line(case.summary, TEXT_LIMIT)


def _run_head(run: RunResult, source: str) -> dict[str, object]:
    facts = [(name, one_line(text, TEXT_LIMIT), address) for name, text, address in _list_facts(run, source) if text]
    noted = (*run.notes, *(run.device_state.notes if run.device_state else ()))
    suites = list(dict.fromkeys(case.key.suite for case in run.cases))
    named = ", ".join(suites[:MOST_TITLES]) + (" ..." if len(suites) > MOST_TITLES else "")
    return {
        "title": one_line(" ".join(part for part in (named, source and f"({source})") if part), NAME_LIMIT) or "a run",
        "line": one_line(verdict_line(run), TEXT_LIMIT),
        "where": one_line(verdict_line(run).removeprefix(format_result_counts(run.cases)).strip(), TEXT_LIMIT),
        "facts": facts,
        "findings": _cap_lines(run.findings),
        "quarantined": _cap_lines(quarantined_lines(run.cases)),
        "notes": _cap_lines(noted),
        "complete": run.complete,
    }


def _list_facts(run: RunResult, source: str) -> list[tuple[str, str, str]]:
    limit, address = median_detection_limit(run.cases), run.provenance.get("ci_url", "")
    throttled = run.device_state.throttled_s if run.device_state else {}
    return [
        ("device", _describe_device(run), ""),
        ("software", _join_pairs(run.fingerprint.named if run.fingerprint else {}), ""),
        ("commit", run.commit, ""),
        ("compared with", format_comparison_base(run), ""),
        ("median look detects", f"{format_change(1 + limit)} or more" if limit is not None else "", ""),
        ("started", run.started, ""),
        ("took", _format_duration(run.seconds) if run.seconds else "", ""),
        ("mode", f"{run.mode}, {run.gated} of {run.selected} gated" if run.mode == GATE else run.mode, ""),
        ("command", run.command, ""),
        ("branch", run.provenance.get("branch", ""), ""),
        ("pull request", run.provenance.get("pull_request", ""), ""),
        ("CI", f"{run.provenance.get('ci', '')} {address}".strip(), sanitize_link(address)),
        ("device throttled", _join_pairs({reason: f"{seconds:.2f} s" for reason, seconds in throttled.items()}), ""),
        ("other processes", ", ".join(run.device_state.other_processes) if run.device_state else "", ""),
        ("baselines", ", ".join(run.baseline_paths), ""),
        ("file", source, ""),
        ("made by", f"pytest-attnperf {run.version}", ""),
    ]


def _describe_device(run: RunResult) -> str:
    if run.device is None:
        return "none: nothing was measured"
    name = f"{run.device.name}, " if run.device.name else ""
    return f"{name}{run.device.arch}/{run.device.product}"


def _join_pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), SECONDS_PER_MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _cap_lines(lines: Sequence[str]) -> list[str]:
    shown = [one_line(line, TEXT_LIMIT) for line in lines[:MOST_LINES]]
    return [*shown, f"... {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else shown


def _make_line(rows: Sequence[CaseRow], percent: float, with_device: bool) -> SuiteLine:
    ratios = [row.shown.case.ratio for row in rows if row.shown.case.ratio is not None]
    counted = Counter((row.shown.case.verdict, format_result_word(row.shown.case)) for row in rows)
    counts = sorted(counted.items(), key=lambda entry: rank_verdict(entry[0][0]))
    return SuiteLine(
        name=name_suite(rows[0], with_device),
        suite=one_line(rows[0].shown.case.key.suite, NAME_LIMIT),
        device=one_line(rows[0].shown.device, NAME_LIMIT),
        counts=tuple((verdict.value, number, word) for (verdict, word), number in counts),
        strip=_draw_strip(rows, percent),
        changes=f"{format_change(min(ratios))} .. {format_change(max(ratios))}" if ratios else "",
        fails=any(row.shown.case.fails for row in rows),
    )


def _draw_strip(rows: Sequence[CaseRow], percent: float) -> tuple[StripDots, ...]:
    """Returns the dots of each tone; cases at the same place are one dot."""
    places: dict[str, set[float]] = {}
    for row in rows:
        case = row.shown.case
        if case.ratio is not None:
            tone = "open" if case.quarantined else _name_tone(case.verdict)
            places.setdefault(tone, set()).add(_place(case.ratio, percent))
    order = [tone for tone in ("quiet", "good", "open", "bad") if tone in places]
    middle = STRIP_HEIGHT // 2
    return tuple(StripDots(tone, "".join(f"M{x:g} {middle}h0" for x in sorted(places[tone]))) for tone in order)


def _name_tone(verdict: Verdict) -> str:
    return MARKS[verdict][0].removeprefix("var(--").removesuffix(")")


def _place(ratio: float, percent: float) -> float:
    """Returns the place of a change in a strip, in its units; one beyond the axis is at its end."""
    change = (ratio - 1) * 100
    share = min(1.0, max(-1.0, change / percent)) if change == change else 0.0
    return round(STRIP_WIDTH / 2 + share * (STRIP_WIDTH / 2 - MARGIN), 1)


def _make_card(table: CaseTable, index: int) -> CaseCard:
    case = table.rows[index].shown.case
    change = format_change(case.ratio) if case.ratio is not None else ""
    timed = case.baseline_us is not None and case.median_us is not None
    times = format_times([case.baseline_us, case.median_us]) if timed else ""
    return CaseCard(
        index=index,
        key=table.keys[index],
        verdict=case.verdict.value,
        fails=case.fails,
        figures=", ".join(part for part in (change, format_interval(case.interval), times) if part),
        summary=format_summary(case),
        reproduce=format_repeat_command(case.reproduce, case.nodeid),
    )
