"""One self-contained HTML file of a report: it opens from a disk, uses no network, and stays below 3 MB.

The skeleton is a Jinja template with autoescape. Without scripts it shows the summary and the worst rows. The script
adds the table of all cases, panels and charts, which Vega draws as SVG. Vega's expressions are interpreted, not
compiled, so the page's content security policy allows only its own scripts and styles, and no evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html import heading
from pytest_attnperf.reports.html.charts import COLOURS, SHAPES, build_config, case_charts
from pytest_attnperf.reports.html.embedding import Json, pack_json, pack_lines, round_figure, script_json
from pytest_attnperf.reports.html.page_charts import page_charts
from pytest_attnperf.reports.html.panel import build_blocks
from pytest_attnperf.reports.html.picture import build_picture
from pytest_attnperf.reports.html.roofline import ceiling_lines
from pytest_attnperf.reports.html.rows import (
    PLAIN_ROWS,
    CaseTable,
    build_table,
    compute_intensity,
    list_cells,
    to_columnar_json,
)
from pytest_attnperf.reports.html.samples import collect_samples, histories_by_case
from pytest_attnperf.reports.html.sections import Section, list_chart_data
from pytest_attnperf.reports.html.skeleton import (
    build_content_policy,
    join_scripts,
    load_bundle,
    load_template,
    read_file,
    replace_surrogates,
)
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.run.overview import EXCUSED, UNRESOLVED, verdict_word
from pytest_attnperf.reports.run.published_times import HEADING, list_published, of_runs
from pytest_attnperf.reports.text.figures import format_change, one_line

BUDGET_BYTES = 2_900_000
MOST_THRESHOLDS = 4
SOMEBODYS = UNRESOLVED - {Verdict.NO_BASELINE} | EXCUSED
"""Verdicts that need attention although no test fails by them."""

REASON_LIMIT = 400
SCRIPTS = (
    *("state.js", "theme.js", "axes.js", "drawing.js", "table.js", "picture.js", "charts.js"),
    *("panel.js", "sections.js", "page.js"),
)
_NO_CEILINGS: Mapping[str, Sequence[Ceiling]] = MappingProxyType({})


@dataclass(frozen=True)
class _Details:
    """Packed lines of (row, 't' for words or 's' for samples, value), and the number of rows with each."""

    packed: str
    words: int
    samples: int


def render_page(
    joined: Joined,
    *,
    histories: Sequence[CaseHistory] = (),
    ceilings: Mapping[str, Sequence[Ceiling]] = _NO_CEILINGS,
    sections: Sequence[Section] = (),
    budget_bytes: int = BUDGET_BYTES,
) -> str:
    """Returns the whole HTML page of a report; the same input gives the same text.

    `sections` stand behind the cases. `ceilings` are those of each device ('sm_90/h200'). Details of cases are added
    until the page has `budget_bytes`, failing and unresolved cases first; the page says what is left out. Raises
    HtmlReportError if jinja2 or vl_convert is missing.
    """
    template, bundle = load_template("page.html"), load_bundle()
    table = build_table(joined, histories)
    style, script, picture = read_file("page.css"), join_scripts(SCRIPTS), build_picture(table, ceilings)
    context: dict[str, Any] = {
        "style": style,
        "script": script,
        "bundle": bundle,
        "data": script_json(_build_script_data(table, ceilings) | {"sections": list_chart_data(sections)}),
        "sections": sections,
        "rows": pack_json(to_columnar_json(table) | {"picture": picture}),
        "picture": picture["kind"] if picture else "",
        **_build_context(joined, table, histories),
    }
    context["policy"] = build_content_policy(style, context["script"], bundle)
    without = replace_surrogates(template.render(context, details=_Details("", 0, 0)))
    room = max(0, budget_bytes - len(without.encode()))
    return replace_surrogates(template.render(context, details=_pack_details(joined, table, histories, ceilings, room)))


def _build_script_data(table: CaseTable, ceilings: Mapping[str, Sequence[Ceiling]]) -> Json:
    """Returns the data that the page's script reads at once: charts, colours, shapes, ceilings and thresholds."""
    intensities: dict[str, list[float]] = {}
    for row in table.rows:
        if row.shown.case.median_us and (intensity := compute_intensity(row.shown)):
            intensities.setdefault(row.shown.device, []).append(intensity)
    names = [column.name for column in table.columns]
    return {
        "charts": page_charts(names, table.reference),
        "caseCharts": case_charts(),
        "config": build_config(),
        "colours": list(COLOURS),
        "shapes": list(SHAPES),
        "ceilings": ceiling_lines(ceilings, intensities),
        "thresholds": _list_thresholds(table),
    }


def _list_thresholds(table: CaseTable) -> Json:
    """Returns {'at': percent, 'label'} for each threshold that policies of the cases have, at most MOST_THRESHOLDS."""
    found = {row.shown.case.policy.get("threshold_percent") for row in table.rows if row.shown.case.detection_limit}
    numbers = sorted(value for value in found if isinstance(value, (int, float)))[:MOST_THRESHOLDS]
    return [{"at": round_figure(value), "label": f"policy: {format_change(1 + value / 100)}"} for value in numbers]


def _build_context(joined: Joined, table: CaseTable, histories: Sequence[CaseHistory]) -> dict[str, Any]:
    """Returns what the HTML template shows without a script: runs, counts, worst cases, first rows, kernels."""
    worst, more = heading.make_cards(table)
    first = table.rows[:PLAIN_ROWS]
    indices = {(row.shown.device, str(row.shown.case.key)): index for index, row in enumerate(table.rows)}
    return {
        "runs": heading.run_heads(joined),
        "notes": list(joined.notes[: heading.MOST_LINES]),
        "more_notes": max(0, len(joined.notes) - heading.MOST_LINES),
        "counts": heading.verdict_counts(table),
        "suites": heading.list_suites(table),
        "devices": [one_line(device) for device in joined.devices],
        "outcome": verdict_word(joined),
        "failed_by": [] if joined.has_failed else [one_line(reason, REASON_LIMIT) for reason in joined.failed_by],
        "cards": worst,
        "more_cards": more,
        "columns": table.shown_columns,
        "plain_rows": list(zip(list_cells(table, first), (row.shown.case.fails for row in first), strict=True)),
        "total": len(table.rows),
        "kernels": heading.build_kernel_table(joined.code),
        "published": _build_published(joined),
        "changes": heading.list_changes(histories, indices),
        "charts": page_charts([column.name for column in table.columns], table.reference),
        "reference": table.reference,
    }


def _build_published(joined: Joined) -> dict[str, Any]:
    """Returns the published figures of a report: heading, lines of the table and their sources by number."""
    lines, sources = list_published(of_runs(joined.runs))
    return {"heading": HEADING, "lines": lines, "sources": sources}


def _pack_details(
    joined: Joined,
    table: CaseTable,
    histories: Sequence[CaseHistory],
    ceilings: Mapping[str, Sequence[Ceiling]],
    room: int,
) -> _Details:
    """Returns the cases' texts and samples, compressed to at most `room` bytes: those of failing and unresolved cases
    first, then other texts, then other samples."""
    urgent: list[int] = []
    others: list[int] = []
    for index, row in enumerate(table.rows):
        needs_somebody = row.shown.case.fails or row.shown.case.verdict in SOMEBODYS
        (urgent if needs_somebody else others).append(index)
    order = [(index, kind) for index in urgent for kind in "ts"]
    order += [(index, kind) for kind in "ts" for index in others]
    text, held = pack_lines(_list_detail_lines(joined, table, histories, ceilings, order), room)
    kinds = [kind for _, kind in order[:held]]
    return _Details(text, kinds.count("t"), kinds.count("s"))


def _list_detail_lines(
    joined: Joined,
    table: CaseTable,
    histories: Sequence[CaseHistory],
    ceilings: Mapping[str, Sequence[Ceiling]],
    order: Sequence[tuple[int, str]],
) -> Iterator[list[Json]]:
    by_case = histories_by_case(histories)
    occupancies = {result.code.isa_hash: result.occupancy for result in joined.code if result.code and result.occupancy}
    for index, kind in order:
        row = table.rows[index]
        case, device = row.shown.case, row.shown.device
        if kind == "s":
            yield [index, kind, collect_samples(case, by_case.get((device, str(case.key))))]
            continue
        own = ceilings.get(device, ())
        said = build_blocks(row, reference=table.reference, ceilings=own, occupancies=occupancies)
        yield [index, kind, {"summary": heading.format_summary(case), "blocks": said}]
