"""Parts of the Markdown report: tables and lists with as many rows as there is room for, and a count of the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.time_units import format_time, format_time_change
from pytest_attnperf.reports.files.markdown_text import (
    LINE_LIMIT,
    escape_cell,
    format_code,
    format_html_code,
    format_table_row,
)
from pytest_attnperf.reports.run.code_objects import code_warning_lines
from pytest_attnperf.reports.run.conditions import condition_lines, interleaved_line
from pytest_attnperf.reports.run.error_shares import compute_error_share, format_error_share
from pytest_attnperf.reports.run.joined import Joined, Shown
from pytest_attnperf.reports.run.overview import (
    EXCUSED,
    UNRESOLVED,
    format_comparison_base,
    format_device,
    format_result_counts,
    format_verdict_counts,
    quarantined_lines,
    rank_verdict,
    verdict_text,
)
from pytest_attnperf.reports.run.published_times import HEADING, list_published, of_runs
from pytest_attnperf.reports.run.tables import compute_gb_s, compute_tflops, share_of_floor, tolerance_notes
from pytest_attnperf.reports.text.figures import ABSENT, format_change, format_rate, format_share
from pytest_attnperf.reports.text.text_width import cut_before_command
from pytest_attnperf.results import CaseResult, RunResult

NAME_LIMIT = 120
SAID_LIMIT = 160
SOURCE_LIMIT = 4000
NO_BREAK = "\u00a0"
BY_TIME = frozenset({Verdict.SAME, Verdict.FASTER, Verdict.SLOWER})
"""Verdicts that the figures beside them already explain."""

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class MarkdownSection:
    """Rows under a head. With a title (which is HTML), the section is folded and opens by a click.

    rows   Markdown, a line or a part each, the most important first; made only as far as there is room
    count  of all rows, also of those that `rows` leaves out
    foot   lines that stand below the rows, however many there are
    unit   what a row is called where some are left out
    """

    title: str
    head: tuple[str, ...]
    rows: Iterable[str]
    count: int
    foot: tuple[str, ...] = ()
    unit: str = "row"

    def render_fitting(self, room: int, report: str) -> str:
        """Returns the section in at most `room` bytes, with a count of missing rows; '' if not even one row fits."""
        opening = f"<details>\n<summary>{self.title}</summary>\n\n" if self.title else ""
        opening += "".join(f"{line}\n" for line in self.head)
        foot = "".join(f"{line}\n" for line in self.foot)
        closing = "\n</details>\n\n" if self.title else "\n"
        room -= count_bytes(opening + foot + closing) + count_bytes(self._format_missing(self.count, report))
        shown: list[str] = []
        for line in self.rows:
            room -= count_bytes(line) + 1
            if room < 0:
                break
            shown.append(f"{line}\n")
        missing = self.count - len(shown)
        more = self._format_missing(missing, report) if missing else ""
        return f"{opening}{''.join(shown)}{foot}{more}{closing}" if shown else ""

    def _format_missing(self, count: int, report: str) -> str:
        return f"\n_{count} more {self.unit}{'s are' if count != 1 else ' is'} in the {report}_\n"


@dataclass(frozen=True)
class _MarkdownColumn:
    """A column of the case tables. It is left out if no case has a figure for it."""

    header: str
    text: Callable[[Shown], str]
    known: Callable[[CaseResult], object] = lambda case: True
    align: str = "--:"


VERDICT = _MarkdownColumn(
    "verdict", lambda shown: _format_verdict(verdict_text(shown.case), shown.case.fails), align=":--"
)
CASE = _MarkdownColumn("case", lambda shown: format_code(str(shown.case.key), NAME_LIMIT), align=":--")
DEVICE = _MarkdownColumn("device", lambda shown: format_code(shown.device, NAME_LIMIT), align=":--")
ENTRY = _MarkdownColumn("case", lambda shown: format_code(shown.case.key.entry, NAME_LIMIT), align=":--")
CHANGE = _MarkdownColumn("change (before → now)", lambda shown: _format_change_cell(shown.case))
TIME = _MarkdownColumn("time", lambda shown: _keep_together(format_time(shown.case.median_us)))
LIMITS = (
    _MarkdownColumn(
        "95 %", lambda shown: _format_interval_cell(shown.case.interval), lambda case: case.interval is not None
    ),
    _MarkdownColumn(
        "allowed", lambda shown: format_change(shown.case.threshold), lambda case: case.threshold is not None
    ),
)
FIGURES = (
    _MarkdownColumn(
        "detectable", lambda shown: _format_detection_limit(shown.case), lambda case: case.detection_limit is not None
    ),
    _MarkdownColumn(
        "TFLOP/s", lambda shown: format_rate(compute_tflops(shown.case)), lambda case: compute_tflops(case) is not None
    ),
    _MarkdownColumn(
        "GB/s", lambda shown: format_rate(compute_gb_s(shown.case)), lambda case: compute_gb_s(case) is not None
    ),
    _MarkdownColumn(
        "error / budget",
        lambda shown: format_error_share(compute_error_share(shown.case)),
        lambda case: compute_error_share(case) is not None,
    ),
    _MarkdownColumn("floor", lambda shown: format_share(share_of_floor(shown.case)), lambda case: share_of_floor(case)),
)
SAID = _MarkdownColumn(
    "why",
    lambda shown: _format_summary(shown.case),
    lambda case: case.verdict not in BY_TIME or bool(_format_summary(case)),
    align=":--",
)


def count_bytes(text: str) -> int:
    """Returns the length of the text in bytes of UTF-8."""
    return len(text.encode())


def sort_shown_worst_first(shown: Iterable[Shown]) -> list[Shown]:
    """Returns cases as `overview.sort_worst_first` sorts them; one case on several devices is sorted by device."""

    def sort_key(one: Shown) -> tuple[bool, int, float, str, str]:
        case = one.case
        return not case.fails, rank_verdict(case.verdict), -(case.ratio or 0.0), str(case.key), one.device

    return sorted(shown, key=sort_key)


def worst_section(joined: Joined) -> MarkdownSection | None:
    """Returns a table of cases and kernels that failed, are worse or unresolved, worst first; None without any."""
    cases = sort_shown_worst_first(one for one in joined.cases if is_open(one.case))
    kernels = sort_code_worst_first(one for one in joined.code if is_open(one))
    if not cases and not kernels:
        return None
    several = (DEVICE,) if len(joined.devices) > 1 else ()
    columns = [VERDICT, CASE, *several, *_list_known(cases, LIMITS, (SAID,))]
    if kernels and SAID not in columns:
        columns.append(SAID)
    return MarkdownSection("", _format_header(columns), _worst_rows(columns, cases, kernels), len(cases) + len(kernels))


def _worst_rows(
    columns: Sequence[_MarkdownColumn], cases: Sequence[Shown], kernels: Sequence[CodeResult]
) -> Iterator[str]:
    """Yields the table rows of results that failed, then those of the rest; cases before kernels."""
    for fails in (True, False):
        yield from (_format_row(columns, one) for one in cases if one.case.fails is fails)
        yield from (_code_row(columns, result) for result in kernels if result.fails is fails)


def case_sections(joined: Joined) -> list[MarkdownSection | None]:
    """Returns a table of cases per device and suite, that with the worst case first, then one of kernels (or None)."""
    ranked = sort_shown_worst_first(joined.cases)
    groups: dict[tuple[str, str], list[Shown]] = {}
    for one in ranked:
        groups.setdefault((one.device, one.case.key.suite), []).append(one)
    sections: list[MarkdownSection | None] = []
    for (device, suite), cases in groups.items():
        columns = [VERDICT, ENTRY, *_list_known(cases, LIMITS, FIGURES, (SAID,))]
        where = f" on {format_html_code(device)}" if device else ""
        title = f"{format_html_code(suite)}{where}: {format_result_counts(one.case for one in cases)}"
        # Not a generator expression: rows are made after the loop, with the columns of this section.
        rows = map(partial(_format_row, columns), cases)
        sections.append(MarkdownSection(title, _format_header(columns), rows, len(cases)))
    return [*sections, _code_section(joined.code)]


def _code_section(results: Sequence[CodeResult]) -> MarkdownSection | None:
    if not results:
        return None
    columns = (VERDICT, CASE, SAID)
    rows = (_code_row(columns, result) for result in sort_code_worst_first(results))
    title = f"compiled kernels: {format_verdict_counts(result.verdict for result in results)}"
    return MarkdownSection(title, _format_header(columns), rows, len(results))


def published_section(joined: Joined) -> MarkdownSection | None:
    """Returns a table of published figures for the cases' workloads, below their sources; None without any."""
    lines, sources = list_published(of_runs(joined.runs))
    if not lines:
        return None
    said = (f"{number}. {escape_cell(source, SOURCE_LIMIT)}" for number, source in enumerate(sources, 1))
    columns = {"workload": ":--", "backend": ":--", "time": "--:", "device": ":--", "source": "--:"}
    head = (*said, "", format_table_row(list(columns)), format_table_row(list(columns.values())))
    rows = (
        format_table_row(
            [
                format_code(line.workload, NAME_LIMIT),
                format_code(line.backend, NAME_LIMIT),
                line.time,
                escape_cell(line.device, NAME_LIMIT),
                str(line.number),
            ]
        )
        for line in lines
    )
    return MarkdownSection(HEADING, head, rows, len(lines))


def finding_section(joined: Joined) -> MarkdownSection | None:
    """Returns a list of suite findings, warnings on kernels, and notes on how runs were joined; None without any."""
    found = dict.fromkeys(finding for run in joined.runs for finding in run.findings)
    return _list_section("finding", [*found, *code_warning_lines(joined.code), *joined.notes])


def quarantine_section(joined: Joined) -> MarkdownSection | None:
    """Returns a list of the quarantined cases, each with its issue and date; None without any."""
    return _list_section("quarantined case", quarantined_lines(shown.case for shown in joined.cases))


def condition_section(joined: Joined) -> MarkdownSection | None:
    """Returns a list of where the figures come from and under which conditions, run by run; None without lines."""
    lines: list[str] = []
    for run in joined.runs:
        lines += _list_provenance(run)
        told = [*condition_lines(run), interleaved_line(run), *run.notes, *tolerance_notes(run.cases)]
        lines += [f"- {escape_cell(line, LINE_LIMIT)}" for line in dict.fromkeys(told) if line]
    return MarkdownSection("provenance and conditions", (), lines, len(lines)) if lines else None


def _list_provenance(run: RunResult) -> list[str]:
    device, base = format_device(run), format_comparison_base(run)
    commit = run.commit if _COMMIT.fullmatch(run.commit) else format_code(run.commit)
    named = {
        "device": format_code(device)
        + (f" ({escape_cell(run.device.name)})" if run.device and run.device.name else ""),
        # GitHub makes this a link: hex digits alone can only name a commit of this repository.
        "commit": commit,
        "against": format_code(base),
        "started": format_code(run.started),
        "by": format_code(f"pytest-attnperf {run.version}"),
        "mode": format_code(run.mode),
        "command": format_code(run.command, LINE_LIMIT),
        **{name: format_code(value, LINE_LIMIT) for name, value in sorted(run.provenance.items())},
    }
    told = [f"{escape_cell(name)} {value}" for name, value in named.items() if value]
    lines = [f"- {', '.join(told)}"]
    if run.fingerprint is not None:
        software = {**run.fingerprint.must_match, **run.fingerprint.named}
        lines.append(f"- {', '.join(escape_cell(f'{name} {value}') for name, value in sorted(software.items()))}")
    return lines


def _list_section(title: str, lines: Sequence[str]) -> MarkdownSection | None:
    rows = [f"- {escape_cell(line, LINE_LIMIT)}" for line in lines]
    return MarkdownSection(f"{len(rows)} {title}{'s' * (len(rows) != 1)}", (), rows, len(rows)) if rows else None


def _list_known(cases: Sequence[Shown], *groups: Sequence[_MarkdownColumn]) -> list[_MarkdownColumn]:
    """Returns the column of changes, or of times if nothing was compared, then those of `groups`, each only if some
    case has a figure for it."""
    compared = any(one.case.ratio is not None for one in cases)
    timed = any(one.case.median_us is not None for one in cases)
    first = [CHANGE] if compared else [TIME] if timed else []
    columns = (column for group in groups for column in group)
    return first + [column for column in columns if any(column.known(one.case) for one in cases)]


def _format_header(columns: Sequence[_MarkdownColumn]) -> tuple[str, str]:
    return format_table_row([column.header for column in columns]), format_table_row(
        [column.align for column in columns]
    )


def _format_row(columns: Sequence[_MarkdownColumn], shown: Shown) -> str:
    return format_table_row([column.text(shown) for column in columns])


def _code_row(columns: Sequence[_MarkdownColumn], result: CodeResult) -> str:
    said = "; ".join(finding.text for finding in result.findings) or result.summary
    cells = {
        VERDICT: _format_verdict(result.verdict.value, result.fails),
        CASE: format_code(str(result.key), NAME_LIMIT),
        DEVICE: format_code(result.key.label, NAME_LIMIT),
        SAID: escape_cell(cut_before_command(said, SAID_LIMIT), SAID_LIMIT),
    }
    return format_table_row([cells.get(column, ABSENT) for column in columns])


def is_open(result: CaseResult | CodeResult) -> bool:
    """Returns whether a result belongs in the table of the worst: it failed, is unresolved, MOVED, DRIFT, STALE, or
    SLOWER or worse. Returns False for a quarantined case, which has a section of its own."""
    if isinstance(result, CaseResult) and result.quarantined:
        return False
    return (
        result.fails
        or result.verdict in UNRESOLVED | EXCUSED
        or rank_verdict(result.verdict) <= rank_verdict(Verdict.GREW)
    )


def sort_code_worst_first(results: Iterable[CodeResult]) -> list[CodeResult]:
    """Returns compiled kernels sorted: those that failed, then by verdict, ties by name."""
    return sorted(results, key=lambda one: (not one.fails, rank_verdict(one.verdict), str(one.key)))


def _format_verdict(text: str, fails: bool) -> str:
    return f"**{escape_cell(text)}**" if fails else escape_cell(text)


def _format_change_cell(case: CaseResult) -> str:
    """Returns '+6.1 % (24.60 → 26.10 us)'; only the change without times, only the time of a case without a change."""
    if case.ratio is None:
        return _keep_together(format_time(case.median_us))
    times = format_time_change(case.baseline_us, case.median_us)
    return _keep_together(format_change(case.ratio)) + (f" {_keep_together(f'({times})')}" if times else "")


def _format_interval_cell(interval: tuple[float, float] | None) -> str:
    return ABSENT if interval is None else _keep_together(" .. ".join(map(format_change, interval)))


def _keep_together(text: str) -> str:
    """Returns a text that a narrow cell does not break: with spaces of fixed places, and an arrow in one piece."""
    return text.replace("->", "→").replace(" ", NO_BREAK)


def _format_detection_limit(case: CaseResult) -> str:
    """Returns the least slowdown that the case's measurement detects 99 % of the time: '+1.8 %'; '-' if not known."""
    return ABSENT if case.detection_limit is None else format_change(1 + case.detection_limit)


def _format_summary(case: CaseResult) -> str:
    """Returns the case's summary or quarantine; '' if its figures already explain the verdict. A test whose quarantine
    has expired keeps its summary, because no figure shows that."""
    if case.quarantined:
        return escape_cell(case.quarantined, SAID_LIMIT)
    expired = case.fails and "quarantine" in case.policy
    said = cut_before_command(case.summary, SAID_LIMIT)
    return "" if case.verdict in BY_TIME and not expired else escape_cell(said, SAID_LIMIT)
