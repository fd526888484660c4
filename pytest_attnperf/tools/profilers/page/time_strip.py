"""The time line of the first passes as a chart, and the passes as a table."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_attnperf.records.time_units import UNITS, TimeUnit, format_ns
from pytest_attnperf.reports.html.charts import Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.sections import Figure, PageTable, TableHead
from pytest_attnperf.reports.html.share_bars import LEGEND
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_percent, short_name
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile, PassSpan
from pytest_attnperf.tools.profilers.dispatches import compute_timeline
from pytest_attnperf.tools.profilers.kernel_columns import NAMELESS
from pytest_attnperf.tools.profilers.page.family_colours import FamilyColours
from pytest_attnperf.tools.profilers.page.time_lanes import TimeWindow

LANE_PIXELS = 30
NAME_LIMIT, LANE_LIMIT = 110, 24
NS_PER_US = 1e3
SHOWN_PASSES = 200
"""Most rows of the table of passes."""


def build_time_strip(analysed: AnalysedProfile, window: TimeWindow, colours: FamilyColours) -> Figure:
    """Returns a chart of the window: a row per stream, bars coloured by family, and where passes begin."""
    unit = _choose_axis_unit(window)
    families = analysed.find_families()
    bars = list(_list_bars(analysed, window, families, colours, unit))
    used = [group for group in colours.groups if any(bar["group"] == group for bar in bars)]
    passes = [
        {"x": _scale(one.start_ns - window.start_ns, unit), "label": f"pass {one.number}"} for one in window.passes
    ]
    title = _describe_window(window)
    lanes = [_name_lane(lane.name) for lane in window.lanes]
    span = _scale(window.end_ns - window.start_ns, unit)
    spec = _make_spec(title, lanes, [(group, colours.colour_of(group)) for group in used], span, unit)
    return Figure(title, spec, {"bars": bars, "passes": passes}, _describe_bars(window, len(bars)))


def _choose_axis_unit(window: TimeWindow) -> TimeUnit:
    """Returns the longest unit in which the window is at least 2 long."""
    span_us = (window.end_ns - window.start_ns) / NS_PER_US
    return next((unit for unit in reversed(UNITS) if span_us >= 2 * unit.us), UNITS[0])


def _describe_window(window: TimeWindow) -> str:
    if not window.passes:
        whole = _count_calls(window) == window.of_calls
        return "All dispatches over time" if whole else "The stretch with the most work over time"
    shown, every = len(window.passes), window.of_passes
    which = "The pass" if every == 1 else f"All {every} passes" if shown == every else f"Passes 1 to {shown} of {every}"
    return f"{which} over time"


def _describe_bars(window: TimeWindow, bars: int) -> str:
    calls = _count_calls(window)
    text = f"{calls:,} dispatches" if calls == window.of_calls else f"{calls:,} of {window.of_calls:,} dispatches"
    if bars < calls:
        text += f" as {bars:,} bars: those within {format_ns(window.cell_ns)}, a pixel, are one, coloured by most time"
    if window.left_out:
        text += f"; {window.left_out} streams with less work are left out"
    return f"{text}. White space: nothing ran there."


def _count_calls(window: TimeWindow) -> int:
    return sum(lane.calls for lane in window.lanes)


def _name_lane(name: str) -> str:
    return cut_middle(one_line(name), LANE_LIMIT)


def _scale(ns: float, unit: TimeUnit) -> float:
    return round_figure(ns / NS_PER_US / unit.us, 9) or 0.0


def _list_bars(
    analysed: AnalysedProfile, window: TimeWindow, families: list[str], colours: FamilyColours, unit: TimeUnit
) -> Iterator[dict[str, Json]]:
    shapes = analysed.profile.dispatches.shapes
    used = {bar.shape for lane in window.lanes for bar in lane.bars}
    names = {index: short_name(shapes[index].name, NAME_LIMIT) or NAMELESS for index in used}
    for lane in window.lanes:
        for bar in lane.bars:
            more = f" and {bar.calls - 1:,} more" if bar.calls > 1 else ""
            yield {
                "x": _scale(bar.start_ns - window.start_ns, unit),
                "x2": _scale(bar.end_ns - window.start_ns, unit),
                "lane": _name_lane(lane.name),
                "group": colours.group_of(families[bar.shape]),
                "name": f"{names[bar.shape]}{more}",
                "time": format_ns(bar.end_ns - bar.start_ns),
            }


def _make_spec(title: str, lanes: list[str], groups: list[tuple[str, str]], span: float, unit: TimeUnit) -> Spec:
    x: Spec = {"field": "x", "type": "quantitative", "title": f"{unit.name} since the first of them"}
    x |= {"scale": {"domain": [0, span], "nice": False}, "axis": {"grid": False, "tickCount": 6}}
    y: Spec = {"field": "lane", "type": "nominal", "title": None, "sort": None}
    y |= {"scale": {"domain": lanes, "paddingInner": 0.25}, "axis": {"ticks": False, "domain": False}}
    names, colours = [group for group, _ in groups], [colour for _, colour in groups]
    colour: Spec = {"field": "group", "type": "nominal", "scale": {"domain": names, "range": colours}}
    colour |= {"legend": {**LEGEND, "symbolType": "square"}}
    tooltip = [
        {"field": field, "type": "nominal", "title": heading}
        for field, heading in (("name", "kernel"), ("group", "family"), ("time", "duration"), ("lane", "on"))
    ]
    at = {"x": x, "x2": {"field": "x2"}, "y": y, "color": colour, "tooltip": tooltip}
    layers: list[Spec] = [
        {"data": {"name": "bars"}, "mark": {"type": "bar", "aria": False}, "encoding": at},
        {
            "data": {"name": "passes"},
            "mark": {"type": "rule", "strokeDash": [4, 3], "aria": False},
            "encoding": {"x": x},
        },
        {
            "data": {"name": "passes"},
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 2, "y": -3, "aria": False},
            "encoding": {"x": x, "text": {"field": "label"}},
        },
    ]
    return make_base(title, height=LANE_PIXELS * len(lanes), layer=layers)


def build_pass_table(analysed: AnalysedProfile) -> PageTable | None:
    """Returns a table with a row per pass: start, span, how long nothing ran; None without passes."""
    passes = analysed.list_passes()
    if not passes:
        return None
    heads = (TableHead("pass"), *(TableHead(text, True) for text in ("starts at", "span", "nothing ran", "dispatches")))
    first = passes[0].start_ns
    rows = tuple(_make_pass_row(analysed, one, first) for one in passes[:SHOWN_PASSES])
    more = f", the first {SHOWN_PASSES} of {len(passes):,}" if len(passes) > SHOWN_PASSES else ""
    return PageTable(f"every pass{more}; starts are since the first", heads, rows)


def _make_pass_row(analysed: AnalysedProfile, one: PassSpan, first: int) -> tuple[str, ...]:
    timeline = compute_timeline(analysed.profile.dispatches.select_range(one.begin, one.end))
    idle = format_percent(timeline.idle_share) if timeline is not None else ""
    times = (format_ns(one.start_ns - first), format_ns(one.end_ns - one.start_ns))
    return (f"{one.number}", *times, idle, f"{one.end - one.begin:,}")


def build_lane_table(window: TimeWindow) -> PageTable:
    """Returns a table with a row per stream of the window: its dispatches and their time."""
    heads = (
        TableHead("stream"),
        TableHead("dispatches", True),
        TableHead("time", True),
        TableHead("of the window", True),
    )
    span = window.end_ns - window.start_ns
    rows = tuple(
        (
            one_line(lane.name),
            f"{lane.calls:,}",
            format_ns(lane.total_ns),
            format_percent(lane.total_ns / span) if span else "",
        )
        for lane in window.lanes
    )
    return PageTable(f"streams in {format_ns(span)}", heads, rows)
