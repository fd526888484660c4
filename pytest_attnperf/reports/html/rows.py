"""The table of all cases by column: formatted text, and a number to sort and draw by.

Rows are worst first. The rest of the page names a case by the index of its row.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.time_units import TimeUnit, choose_time_unit
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.samples import build_sparkline, compute_drift, histories_by_case
from pytest_attnperf.reports.run.error_shares import compute_error_share, format_error_share
from pytest_attnperf.reports.run.joined import Joined, Shown
from pytest_attnperf.reports.run.overview import rank_verdict, sort_worst_first, verdict_text
from pytest_attnperf.reports.run.tables import REFERENCE_BACKEND, compute_gb_s, compute_tflops, share_of_floor
from pytest_attnperf.reports.text.figures import (
    ABSENT,
    format_bytes,
    format_change,
    format_interval,
    format_rate,
    format_share,
    format_speedup,
    one_line,
)

NAME_LIMIT = 200
PLAIN_ROWS = 100
"""Rows that the page holds as HTML, for a browser without scripts."""

MAY_HIDE = {"device", "suite"}
"""Columns that are hidden if all rows agree; filters and charts still use them."""

MAKE_ROOM = frozenset({"finds", "gb_s"})
"""Columns that a column of histories takes the place of; the panel of a case has their figures."""

FAMILY = "family"
"""Column of the op family, which is hidden: charts show one family at a time."""

NATIVE = "native."
_LENGTHS = (re.compile(r"-kv(\d{1,12})(?=-|$)"), re.compile(r"-s(\d{1,12})(?=-|$)"))
_FAILING_RANKS = 100
_US_PER_MS = 1e3


@dataclass(frozen=True)
class CaseRow:
    """A case of the table. `speedup` is over the reference backend, None if that was not timed; `history` of earlier
    runs, None where none is given."""

    shown: Shown
    speedup: float | None = None
    history: CaseHistory | None = None


@dataclass(frozen=True)
class CaseColumn:
    """A column: its text for a case, the number to sort by (None: sort by text), and a sentence that explains it."""

    name: str
    heading: str
    text: Callable[[CaseRow], str]
    sort: Callable[[CaseRow], float | None] | None = None
    title: str = ""


@dataclass(frozen=True)
class CaseTable:
    """Rows, worst first, the columns that are not empty, and the name of each row in links.

    reference   the backend that speedups are over, '' without one
    hidden      names of columns that are not shown, because every row has the same word
    """

    rows: tuple[CaseRow, ...]
    columns: tuple[CaseColumn, ...]
    keys: tuple[str, ...]
    reference: str = ""
    hidden: frozenset[str] = frozenset()

    @property
    def shown_columns(self) -> tuple[CaseColumn, ...]:
        """The table's columns without those named in `hidden`."""
        return tuple(column for column in self.columns if column.name not in self.hidden)


def build_table(joined: Joined, histories: Sequence[CaseHistory] = ()) -> CaseTable:
    """Returns the table of a report's cases, worst first, without empty columns; hides some that never differ."""
    ordered = _sort_shown(joined.cases)
    reference = choose_reference(ordered)
    references = {
        _build_reference_key(shown): shown.case.median_us for shown in ordered if shown.case.key.backend == reference
    }
    by_case = histories_by_case(histories)
    rows = tuple(
        CaseRow(shown, _compute_speedup(shown, references), by_case.get((shown.device, str(shown.case.key))))
        for shown in ordered
    )
    columns = tuple(column for column in _make_columns(reference, _choose_unit(rows)) if _has_anything(column, rows))
    same = {column.name for column in columns if len({column.text(row) for row in rows}) == 1}
    crowded = MAKE_ROOM if any(column.name == "history" for column in columns) else frozenset()
    keys = tuple(format_key(row.shown) for row in rows)
    return CaseTable(
        rows, columns, keys, one_line(reference, NAME_LIMIT), frozenset(same & MAY_HIDE | {FAMILY} | crowded)
    )


def format_key(shown: Shown) -> str:
    """Returns 'device suite/backend/workload', the name of a case in links, without control characters and cut."""
    return one_line(f"{shown.device} {shown.case.key}".strip(), 2 * NAME_LIMIT)


def choose_reference(cases: Sequence[Shown]) -> str:
    """Returns the backend that speedups are over: eager float32, else the torch one with most timed cases, else ''."""
    timed = Counter(shown.case.key.backend for shown in cases if shown.case.median_us)
    if REFERENCE_BACKEND in timed:
        return REFERENCE_BACKEND
    native = [backend for backend in sorted(timed) if backend.startswith(NATIVE)]
    return max(native, key=lambda backend: timed[backend], default="")


def parse_length(workload: str) -> tuple[str, int] | None:
    """Splits a workload id into what it shares with other lengths, and its sequence length.

    'decode-b8-kv4096-h32' -> ('decode-b8-kv*-h32', 4096): the length of keys counts before that of queries. Returns
    None for an id without a length.
    """
    for pattern, name in zip(_LENGTHS, ("kv", "s"), strict=True):
        found = pattern.search(workload)
        if found:
            return f"{workload[: found.start()]}-{name}*{workload[found.end() :]}", int(found.group(1))
    return None


def to_columnar_json(table: CaseTable) -> Json:
    """Returns the table by column for the page's script: texts and numbers, keys, failures and groups."""
    groups = _list_groups(table.rows)
    numbers = {name: index for index, name in enumerate(groups)}
    lengths = [parse_length(row.shown.case.key.workload) for row in table.rows]
    sparklines = [build_sparkline(row.history) for row in table.rows]
    return {
        "columns": [_column_json(column, table) for column in table.columns],
        "keys": list(table.keys),
        "fails": [int(row.shown.case.fails) for row in table.rows],
        "length": [length[1] if length else None for length in lengths],
        "group": [numbers.get(_parse_group(row)) for row in table.rows],
        "groups": groups,
        "intensity": [round_figure(compute_intensity(row.shown)) for row in table.rows],
        "reference": table.reference,
        "sparklines": {index: line for index, line in enumerate(sparklines) if line},
    }


def list_cells(table: CaseTable, rows: Sequence[CaseRow]) -> list[list[str]]:
    """Returns for each of `rows` its texts in the order of `table.shown_columns`."""
    return [[column.text(row) for column in table.shown_columns] for row in rows]


def compute_intensity(shown: Shown) -> float | None:
    """Returns a case's useful FLOPs / compulsory bytes (each input and output once); None if either is not known."""
    figures = shown.case.figures
    if figures is None or not figures.flops or not figures.bytes_min:
        return None
    return figures.flops / figures.bytes_min


def _make_columns(reference: str, unit: TimeUnit) -> tuple[CaseColumn, ...]:
    over = f"times as fast as {one_line(reference, NAME_LIMIT)} on the same workload"
    return (
        CaseColumn(
            "verdict", "verdict", lambda row: verdict_text(row.shown.case), _verdict_rank, "failing cases first"
        ),
        CaseColumn("workload", "workload", _format_workload, None, "with its label, where it has one"),
        CaseColumn("backend", "backend", lambda row: one_line(row.shown.case.key.backend, NAME_LIMIT)),
        CaseColumn("suite", "suite", lambda row: one_line(row.shown.case.key.suite, NAME_LIMIT)),
        CaseColumn(FAMILY, "op family", _format_family),
        CaseColumn("device", "device", lambda row: one_line(row.shown.device, NAME_LIMIT) or ABSENT),
        CaseColumn(
            "ms",
            f"time {unit.name}",
            lambda row: unit.format_number(row.shown.case.median_us),
            _compute_ms,
            "time per call",
        ),
        _make_figure_column(
            "change", "change", lambda row: row.shown.case.ratio, format_change, "new time / stored time - 1"
        ),
        CaseColumn(
            "interval",
            "95 % interval",
            _format_interval_cell,
            _compute_interval_width,
            "of the change; sorted by its width",
        ),
        _make_figure_column(
            "history",
            "history",
            lambda row: compute_drift(row.history),
            format_change,
            "latest run / median of earlier",
        ),
        CaseColumn(
            "finds",
            "detectable",
            _format_detection_limit,
            _limit_percent,
            "smallest slowdown that this look detects 99 % of the time",
        ),
        *_make_rate_columns(),
        _make_figure_column("speedup", "speedup", lambda row: row.speedup, format_speedup, over),
        CaseColumn(
            "peak",
            "peak MiB",
            _format_peak_memory,
            lambda row: row.shown.case.peak_memory_bytes,
            "memory during a call",
        ),
    )


def _make_rate_columns() -> tuple[CaseColumn, ...]:
    """Returns the columns of rates, and of the shares of the floor and of the error budget."""
    return (
        _make_figure_column(
            "tflops", "TFLOP/s", lambda row: compute_tflops(row.shown.case), format_rate, "useful FLOPs / time"
        ),
        _make_figure_column(
            "gb_s",
            "GB/s",
            lambda row: compute_gb_s(row.shown.case),
            format_rate,
            "bytes that must be moved once / time",
        ),
        _make_figure_column(
            "floor", "floor", lambda row: share_of_floor(row.shown.case), format_share, "least possible time / time"
        ),
        _make_figure_column(
            "error",
            "error",
            lambda row: compute_error_share(row.shown.case),
            format_error_share,
            "largest error against the reference / what the tolerance allows",
        ),
    )


def _make_figure_column(
    name: str, heading: str, value: Callable[[CaseRow], float | None], form: Callable[[float | None], str], title: str
) -> CaseColumn:
    return CaseColumn(name, heading, lambda row: form(value(row)), value, title)


def _verdict_rank(row: CaseRow) -> float:
    case = row.shown.case
    return rank_verdict(case.verdict) + (0 if case.fails else _FAILING_RANKS)


def _format_workload(row: CaseRow) -> str:
    key = row.shown.case.key
    return one_line(f"{key.workload}/{key.label}" if key.label else key.workload, NAME_LIMIT)


def _format_family(row: CaseRow) -> str:
    """Returns the workload's op family; a function that is no workload of ours has its suite instead."""
    case = row.shown.case
    family = case.figures.definition.get("family") if case.figures else None
    return one_line(family if isinstance(family, str) and family else case.key.suite, NAME_LIMIT) or ABSENT


def _choose_unit(rows: Sequence[CaseRow]) -> TimeUnit:
    return choose_time_unit(row.shown.case.median_us for row in rows)


def _compute_ms(row: CaseRow) -> float | None:
    us = row.shown.case.median_us
    return None if us is None else us / _US_PER_MS


def _format_interval_cell(row: CaseRow) -> str:
    interval = row.shown.case.interval
    return format_interval(interval).partition(": ")[2] or ABSENT


def _compute_interval_width(row: CaseRow) -> float | None:
    interval = row.shown.case.interval
    return None if interval is None else interval[1] - interval[0]


def _format_detection_limit(row: CaseRow) -> str:
    limit = row.shown.case.detection_limit
    return ABSENT if limit is None else format_change(1 + limit)


def _limit_percent(row: CaseRow) -> float | None:
    limit = row.shown.case.detection_limit
    return None if limit is None else 100 * limit


def _format_peak_memory(row: CaseRow) -> str:
    return format_bytes(row.shown.case.peak_memory_bytes)


def _sort_shown(cases: Sequence[Shown]) -> list[Shown]:
    """Returns the cases in the order of `sort_worst_first`. One case object may be shown on several devices."""
    by_case: dict[int, list[Shown]] = defaultdict(list)
    for shown in cases:
        by_case[id(shown.case)].append(shown)
    return [by_case[id(case)].pop(0) for case in sort_worst_first(shown.case for shown in cases)]


def _build_reference_key(shown: Shown) -> tuple[str, str, str]:
    return shown.device, shown.case.key.workload, shown.case.key.label


def _compute_speedup(shown: Shown, references: dict[tuple[str, str, str], float | None]) -> float | None:
    reference, own = references.get(_build_reference_key(shown)), shown.case.median_us
    return reference / own if reference and own else None


def _has_anything(column: CaseColumn, rows: Sequence[CaseRow]) -> bool:
    return any(column.text(row) != ABSENT for row in rows)


def _parse_group(row: CaseRow) -> str:
    """Returns a name that cases share if they differ only in length or backend; '' without a time or length."""
    key, length = row.shown.case.key, parse_length(row.shown.case.key.workload)
    if length is None or not row.shown.case.median_us:
        return ""
    label = f"/{key.label}" if key.label else ""
    return one_line(f"{row.shown.device} {key.suite}/{length[0]}{label}".strip(), 2 * NAME_LIMIT)


def _list_groups(rows: Sequence[CaseRow]) -> list[str]:
    """Returns the sorted names (of `_parse_group`) with at least two lengths: only these have a curve over length."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        length = parse_length(row.shown.case.key.workload)
        if length is not None and (name := _parse_group(row)):
            lengths[name].add(length[1])
    return sorted(name for name, found in lengths.items() if len(found) > 1)


def _column_json(column: CaseColumn, table: CaseTable) -> Json:
    described: dict[str, Json] = {"name": column.name, "heading": column.heading}
    described["hidden"] = column.name in table.hidden
    texts = [column.text(row) for row in table.rows]
    words = list(dict.fromkeys(texts))
    codes = {word: code for code, word in enumerate(words)}
    described.update(words=words, codes=[codes[text] for text in texts])
    if column.sort is not None:
        described["sort"] = [round_figure(column.sort(row)) for row in table.rows]
    return described
