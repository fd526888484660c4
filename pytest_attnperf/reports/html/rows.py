"""The table of all cases, column by column: formatted text, and a number to sort and draw by.

Rows are worst first, and a row's index is what everything else on the page names a case by.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.html.embedding import Json, number
from pytest_attnperf.reports.run.joined import Joined, Shown
from pytest_attnperf.reports.run.overview import rank, verdict_text, worst_first
from pytest_attnperf.reports.run.tables import REFERENCE_BACKEND, gb_s, share_of_floor, tflops
from pytest_attnperf.reports.text.figures import (
    ABSENT,
    US_PER_MS,
    format_bytes,
    format_change,
    format_interval,
    format_ms,
    format_rate,
    format_share,
    format_speedup,
    one_line,
)

NAME_LIMIT = 200
PLAIN_ROWS = 100
"""Rows that stand in the page as HTML, for a browser that runs no script."""

MAY_HIDE = {"device", "suite"}
"""Columns that say nothing where all rows agree: filters and charts still know them."""

NATIVE = "native."
_LENGTHS = (re.compile(r"-kv(\d{1,12})(?=-|$)"), re.compile(r"-s(\d{1,12})(?=-|$)"))
_FAILING_RANKS = 100


@dataclass(frozen=True)
class Row:
    """A case of the table. speedup: over the reference backend, None where that was not timed."""

    shown: Shown
    speedup: float | None = None


@dataclass(frozen=True)
class Column:
    """What a column says of a case, what it is sorted by (None: by its text), and a sentence on what it means."""

    name: str
    heading: str
    text: Callable[[Row], str]
    sort: Callable[[Row], float | None] | None = None
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows, worst first, the columns that hold anything, and what a link names each row by.

    reference   the backend that speedups are over, '' without one
    hidden      names of columns that are not shown, because they hold the same word in every row
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    reference: str = ""
    hidden: frozenset[str] = frozenset()

    @property
    def shown(self) -> tuple[Column, ...]:
        """Columns that are shown."""
        return tuple(column for column in self.columns if column.name not in self.hidden)


def table_of(joined: Joined) -> Table:
    """All cases of a report."""
    ordered = _worst_first(joined.cases)
    reference = reference_of(ordered)
    references = {_twin(shown): shown.case.median_us for shown in ordered if shown.case.key.backend == reference}
    rows = tuple(Row(shown, _speedup(shown, references)) for shown in ordered)
    columns = tuple(column for column in _columns(reference) if _holds_anything(column, rows))
    same = {column.name for column in columns if len({column.text(row) for row in rows}) == 1}
    keys = tuple(key_of(row.shown) for row in rows)
    return Table(rows, columns, keys, one_line(reference, NAME_LIMIT), frozenset(same & MAY_HIDE))


def key_of(shown: Shown) -> str:
    """What a link names a case by: device and key, safe and cut."""
    return one_line(f"{shown.device} {shown.case.key}".strip(), 2 * NAME_LIMIT)


def reference_of(cases: Sequence[Shown]) -> str:
    """The backend that speedups are over: torch's own in float32, or the torch backend that was timed most often."""
    timed = Counter(shown.case.key.backend for shown in cases if shown.case.median_us)
    if REFERENCE_BACKEND in timed:
        return REFERENCE_BACKEND
    native = [backend for backend in sorted(timed) if backend.startswith(NATIVE)]
    return max(native, key=lambda backend: timed[backend], default="")


def length_of(workload: str) -> tuple[str, int] | None:
    """'decode-b8-kv4096-h32' -> ('decode-b8-kv*-h32', 4096): what it shares with others, and its sequence length.

    Where keys have a length of their own, it is that one. None for a workload without either.
    """
    for pattern, name in zip(_LENGTHS, ("kv", "s"), strict=True):
        found = pattern.search(workload)
        if found:
            return f"{workload[: found.start()]}-{name}*{workload[found.end() :]}", int(found.group(1))
    return None


def columnar(table: Table) -> Json:
    """The table as the page's script reads it: words and codes of texts, texts and numbers of figures."""
    groups = _groups(table.rows)
    numbers = {name: index for index, name in enumerate(groups)}
    lengths = [length_of(row.shown.case.key.workload) for row in table.rows]
    return {
        "columns": [_column_json(column, table) for column in table.columns],
        "keys": list(table.keys),
        "fails": [int(row.shown.case.fails) for row in table.rows],
        "length": [length[1] if length else None for length in lengths],
        "group": [numbers.get(_group(row)) for row in table.rows],
        "groups": groups,
        "intensity": [number(intensity_of(row.shown)) for row in table.rows],
        "reference": table.reference,
    }


def cells(table: Table, rows: Sequence[Row]) -> list[list[str]]:
    """The texts of some rows, in the order of the columns that are shown."""
    return [[column.text(row) for column in table.shown] for row in rows]


def intensity_of(shown: Shown) -> float | None:
    """Useful FLOP per compulsory byte; None where either is not known."""
    figures = shown.case.figures
    if figures is None or not figures.flops or not figures.bytes_min:
        return None
    return figures.flops / figures.bytes_min


def _columns(reference: str) -> tuple[Column, ...]:
    over = f"times as fast as {one_line(reference, NAME_LIMIT)} on the same workload"
    return (
        Column("verdict", "verdict", lambda row: verdict_text(row.shown.case), _verdict_rank, "failing cases first"),
        Column("workload", "workload", _workload, None, "with its label, where it has one"),
        Column("backend", "backend", lambda row: one_line(row.shown.case.key.backend, NAME_LIMIT)),
        Column("suite", "suite", lambda row: one_line(row.shown.case.key.suite, NAME_LIMIT)),
        Column("device", "device", lambda row: one_line(row.shown.device, NAME_LIMIT) or ABSENT),
        Column("ms", "ms", lambda row: format_ms(row.shown.case.median_us), _ms, "milliseconds per call"),
        _figure("change", "change", lambda row: row.shown.case.ratio, format_change, "new time / stored time - 1"),
        Column("interval", "95 % interval", _interval, _width, "of the change; sorted by its width"),
        Column("finds", "finds", _finds, _limit_percent, "smallest slowdown that this look finds 99 % of the time"),
        _figure("tflops", "TFLOP/s", lambda row: tflops(row.shown.case), format_rate, "useful FLOPs / time"),
        _figure("gb_s", "GB/s", lambda row: gb_s(row.shown.case), format_rate, "bytes that must be moved once / time"),
        _figure(
            "floor", "floor", lambda row: share_of_floor(row.shown.case), format_share, "least possible time / time"
        ),
        _figure("speedup", "speedup", lambda row: row.speedup, format_speedup, over),
        Column("peak", "peak MiB", _peak, lambda row: row.shown.case.peak_memory_bytes, "memory during a call"),
    )


def _figure(
    name: str, heading: str, value: Callable[[Row], float | None], form: Callable[[float | None], str], title: str
) -> Column:
    return Column(name, heading, lambda row: form(value(row)), value, title)


def _verdict_rank(row: Row) -> float:
    case = row.shown.case
    return rank(case.verdict) + (0 if case.fails else _FAILING_RANKS)


def _workload(row: Row) -> str:
    key = row.shown.case.key
    return one_line(f"{key.workload}/{key.label}" if key.label else key.workload, NAME_LIMIT)


def _ms(row: Row) -> float | None:
    us = row.shown.case.median_us
    return None if us is None else us / US_PER_MS


def _interval(row: Row) -> str:
    interval = row.shown.case.interval
    return format_interval(interval).partition(": ")[2] or ABSENT


def _width(row: Row) -> float | None:
    interval = row.shown.case.interval
    return None if interval is None else interval[1] - interval[0]


def _finds(row: Row) -> str:
    limit = row.shown.case.detection_limit
    return ABSENT if limit is None else format_change(1 + limit)


def _limit_percent(row: Row) -> float | None:
    limit = row.shown.case.detection_limit
    return None if limit is None else 100 * limit


def _peak(row: Row) -> str:
    return format_bytes(row.shown.case.peak_memory_bytes)


def _worst_first(cases: Sequence[Shown]) -> list[Shown]:
    """The same case object may be shown on several devices."""
    by_case: dict[int, list[Shown]] = defaultdict(list)
    for shown in cases:
        by_case[id(shown.case)].append(shown)
    return [by_case[id(case)].pop(0) for case in worst_first(shown.case for shown in cases)]


def _twin(shown: Shown) -> tuple[str, str, str]:
    return shown.device, shown.case.key.workload, shown.case.key.label


def _speedup(shown: Shown, references: dict[tuple[str, str, str], float | None]) -> float | None:
    reference, own = references.get(_twin(shown)), shown.case.median_us
    return reference / own if reference and own else None


def _holds_anything(column: Column, rows: Sequence[Row]) -> bool:
    return any(column.text(row) != ABSENT for row in rows)


def _group(row: Row) -> str:
    """What a case shares with those that differ only in sequence length or backend."""
    key, length = row.shown.case.key, length_of(row.shown.case.key.workload)
    if length is None or not row.shown.case.median_us:
        return ""
    label = f"/{key.label}" if key.label else ""
    return one_line(f"{row.shown.device} {key.suite}/{length[0]}{label}".strip(), 2 * NAME_LIMIT)


def _groups(rows: Sequence[Row]) -> list[str]:
    """Groups with at least two lengths, by name."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        length = length_of(row.shown.case.key.workload)
        if length is not None and (name := _group(row)):
            lengths[name].add(length[1])
    return sorted(name for name, found in lengths.items() if len(found) > 1)


def _column_json(column: Column, table: Table) -> Json:
    described: dict[str, Json] = {"name": column.name, "heading": column.heading}
    described["hidden"] = column.name in table.hidden
    texts = [column.text(row) for row in table.rows]
    words = list(dict.fromkeys(texts))
    codes = {word: code for code, word in enumerate(words)}
    described.update(words=words, codes=[codes[text] for text in texts])
    if column.sort is not None:
        described["sort"] = [number(column.sort(row)) for row in table.rows]
    return described
