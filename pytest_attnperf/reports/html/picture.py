"""The first picture of a run's page: every gated case by its change, or every timed case where nothing was gated.

The figures are lists with an entry per row of the table, for the script `picture.js`, which decides what fits the width
of the reader's window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.page_charts import make_changes_chart, make_times_chart
from pytest_attnperf.reports.html.roofline import roof_share
from pytest_attnperf.reports.html.rows import NAME_LIMIT, CaseRow, CaseTable
from pytest_attnperf.reports.run.tables import share_of_floor
from pytest_attnperf.reports.text.figures import one_line

DIGITS = 4
SHARE_MOST = 0.5
"""A figure is drawn if at least this share of the timed cases have it."""


def build_picture(table: CaseTable, ceilings: Mapping[str, Sequence[Ceiling]]) -> Json:
    """Returns the picture's 'kind', 'spec' and lists with an entry per row of the table; None if nothing was timed.

    'changes'   'change', 'low', 'high' and 'limit' in percent; null where a case has none
    'times'     'value', with its 'title', 'unit' and 'scale', in the rows 'row' of 'names'
    """
    if any(row.shown.case.ratio is not None for row in table.rows):
        return _build_changes(table)
    return _build_times(table, ceilings)


def _build_changes(table: CaseTable) -> Json:
    cases = [row.shown.case for row in table.rows]
    spans = [case.interval or (None, None) for case in cases]
    return {
        "kind": "changes",
        "spec": make_changes_chart(_list_columns(table)),
        "change": [_to_percent(case.ratio) for case in cases],
        "low": [_to_percent(low) for low, _ in spans],
        "high": [_to_percent(high) for _, high in spans],
        "limit": [_to_percent(case.threshold if case.ratio is not None else None) for case in cases],
    }


def _list_columns(table: CaseTable) -> list[str]:
    return [column.name for column in table.columns]


def _to_percent(ratio: float | None) -> float | None:
    return None if ratio is None else round_figure((ratio - 1) * 100, DIGITS)


def _build_times(table: CaseTable, ceilings: Mapping[str, Sequence[Ceiling]]) -> Json:
    timed = [row for row in table.rows if row.shown.case.median_us]
    if not timed:
        return None
    title, unit, read = _choose_figure(timed, table.reference, ceilings)
    by = _choose_rows(table)
    names = [by(row) for row in table.rows]
    order = list(dict.fromkeys(sorted(names)))
    return {
        "kind": "times",
        "spec": make_times_chart(_list_columns(table), title),
        "title": title,
        "unit": unit,
        "names": order,
        "row": [order.index(name) for name in names],
        "value": [round_figure(read(row), DIGITS) if row.shown.case.median_us else None for row in table.rows],
    }


def _choose_figure(
    timed: Sequence[CaseRow], reference: str, ceilings: Mapping[str, Sequence[Ceiling]]
) -> tuple[str, str, Callable[[CaseRow], float | None]]:
    """Returns (title, unit, reader) of the first figure that enough cases have; every timed case has a time."""

    def read_roof(row: CaseRow) -> float | None:
        share = roof_share(row.shown.case, ceilings.get(row.shown.device, ()))[1]
        return None if share is None else 100 * share

    def read_floor(row: CaseRow) -> float | None:
        share = share_of_floor(row.shown.case)
        return None if share is None else 100 * share

    over = f"times as fast as {reference}"
    for title, unit, read in (
        ("share of the roofline (%)", "%", read_roof),
        ("least possible time / time (%)", "%", read_floor),
        (over, "x", lambda row: row.speedup),
    ):
        if sum(read(row) is not None for row in timed) >= SHARE_MOST * len(timed):
            return title, unit, read
    return "time per call", "us", lambda row: row.shown.case.median_us


def _choose_rows(table: CaseTable) -> Callable[[CaseRow], str]:
    """Returns what names the row of a case: its device and suite where these differ, else its backend."""
    devices = {row.shown.device for row in table.rows}
    if len({row.shown.case.key.suite for row in table.rows}) > 1 or len(devices) > 1:
        return lambda row: name_suite(row, len(devices) > 1)
    return lambda row: one_line(row.shown.case.key.backend, NAME_LIMIT)


def name_suite(row: CaseRow, with_device: bool) -> str:
    """Returns the case's suite, behind its device where several are shown."""
    device = f"{row.shown.device} " if with_device else ""
    return one_line(f"{device}{row.shown.case.key.suite}".strip(), NAME_LIMIT)
