"""Two profiles as sections of a page: the time of families before and after, and the kernels that cause the change."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records.profile_changes import Change, ProfileComparison
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.sections import Figure, Section
from pytest_attnperf.reports.html.share_bars import LEGEND
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_signed_percent, tell_apart
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.profilers.page.profile_sections import make_notes_section
from pytest_attnperf.tools.profilers.profile_comparison import GONE, NEW, comparison_lines, comparison_tables

NAME_LIMIT, NOTE_LIMIT = 50, 120
LEAST_BAR = 0.003
"""Length of the longest bar from which another is drawn: three pixels of a wide window."""

MOST_FAMILIES, MOST_KERNELS, TABLE_KERNELS = 12, 20, 300
NS_PER_US = 1e3
BEFORE, AFTER = "before", "after"
SIDE_COLOURS = (COLOURS[6], COLOURS[0])
SLOWER, FASTER, CAME, WENT = "more time", "less time", "came", "went"
CHANGE_COLOURS = {SLOWER: COLOURS[1], FASTER: COLOURS[2], CAME: COLOURS[4], WENT: COLOURS[5]}


def build_comparison_sections(found: ProfileComparison, problems: Sequence[str] = ()) -> list[Section]:
    """Returns the sections of two profiles: families before and after, kernels by their change, notes and `problems` of
    reading them."""
    per = f"per {found.per}"
    tables = comparison_tables(found, shown=TABLE_KERNELS)
    families, kernels, *peaks = map(convert_table, tables)
    family_figure = _build_family_bars(found.families, per)
    kernel_figure = _build_change_bars(found.kernels, per)
    lead = tuple(comparison_lines(found))
    return [
        Section(
            "families", "Families before and after", lead, (family_figure,) if family_figure else (), (families, *peaks)
        ),
        Section(
            "kernel-changes",
            "Kernels that changed",
            _describe_came_and_went(found.kernels),
            (kernel_figure,) if kernel_figure else (),
            (kernels,),
            "Kernels",
        ),
        *make_notes_section(tables, problems),
    ]


def _describe_came_and_went(kernels: Sequence[Change]) -> tuple[str, ...]:
    """Returns sentences that count the kernels of one profile only, with the time that came and went."""
    lines = []
    for note, where, times in (
        (NEW, "only after", [change.after_ns for change in kernels if change.note == NEW]),
        (GONE, "only before", [change.before_ns for change in kernels if change.note == GONE]),
    ):
        if times:
            took = format_times([sum(times) / NS_PER_US])
            lines.append(f"{len(times)} {'kernel is' if len(times) == 1 else 'kernels are'} {note}: {where}, {took}.")
    return tuple(lines) or ("The same kernels run before and after.",)


def _build_family_bars(families: Sequence[Change], per: str) -> Figure | None:
    longest = max((max(change.before_ns, change.after_ns) for change in families), default=0.0)
    shown = [change for change in families if max(change.before_ns, change.after_ns) > LEAST_BAR * longest]
    shown = sorted(shown, key=lambda change: -max(change.before_ns, change.after_ns))[:MOST_FAMILIES]
    if not shown:
        return None
    names = _name_changes(shown)
    bars: list[Json] = []
    for change, name in zip(shown, names, strict=True):
        ratio = change.after_ns / change.before_ns if change.before_ns and change.after_ns else None
        text = format_signed_percent(ratio) if ratio is not None else change.note
        for side, ns in ((BEFORE, change.before_ns), (AFTER, change.after_ns)):
            label = format_time(ns / NS_PER_US) + (f", {text}" if side == AFTER and text else "")
            bars.append({"name": name, "side": side, "value": round_figure(ns / longest) or 0.0, "label": label})
    title = f"Time of families {per}"
    return Figure(title, _make_side_spec(title, names), {"bars": bars}, _count_left_out(families, shown))


def _count_left_out(every: Sequence[Change], shown: Sequence[Change]) -> str:
    """Returns a sentence on what a chart leaves out; '' if it shows all that `every` holds."""
    left_out = len(every) - len(shown)
    return f"The table has {left_out} more, with less of it." if left_out else ""


def _name_changes(changes: Sequence[Change]) -> list[str]:
    apart = tell_apart((change.name for change in changes), NAME_LIMIT)
    return [cut_middle(one_line(apart[change.name]), NAME_LIMIT) for change in changes]


def _make_side_spec(title: str, names: list[str]) -> Spec:
    x: Spec = {"field": "value", "type": "quantitative", "axis": None}
    x |= {"scale": {"domain": [0, 1.7], "nice": False}}
    y: Spec = {"field": "name", "type": "nominal", "axis": None, "sort": None}
    y |= {"scale": {"domain": names, "padding": 0}}
    sides = {"domain": [BEFORE, AFTER], "range": list(SIDE_COLOURS)}
    colour = {"field": "side", "type": "nominal", "scale": sides, "legend": {**LEGEND, "symbolType": "square"}}
    tooltip = [{"field": field, "type": "nominal", "title": field} for field in ("name", "side")]
    tooltip.append({"field": "label", "type": "nominal", "title": "time"})
    text = {"type": "text", "align": "left", "aria": False, "tooltip": None}
    layers: list[Spec] = [{"mark": {**text, "x": 0, "dy": -14}, "encoding": {"text": {"field": "name"}}}]
    for side, offset in ((BEFORE, 1), (AFTER, 15)):
        own = {"transform": [{"filter": {"field": "side", "equal": side}}]}
        bar = {"type": "bar", "height": 12, "yOffset": offset, "aria": False}
        layers.append({**own, "mark": bar, "encoding": {"x": x, "color": colour, "tooltip": tooltip}})
        label = {**text, "dx": 5, "dy": offset}
        layers.append({**own, "mark": label, "encoding": {"x": x, "text": {"field": "label"}}})
    return make_base(title, height=48 * len(names), data={"name": "bars"}, encoding={"y": y}, layer=layers)


def _build_change_bars(kernels: Sequence[Change], per: str) -> Figure | None:
    """Returns bars of the time that each kernel gained or lost, from a common middle; None without a difference."""
    largest = max((abs(_compute_change_ns(change)) for change in kernels), default=0.0)
    shown = [change for change in kernels if abs(_compute_change_ns(change)) > LEAST_BAR * largest][:MOST_KERNELS]
    if not shown:
        return None
    names = _name_changes(shown)
    bars = [_make_change_bar(change, name, largest) for change, name in zip(shown, names, strict=True)]
    title = f"Change of each kernel's time {per}"
    used = [kind for kind in CHANGE_COLOURS if any(bar["kind"] == kind for bar in bars)]
    ends = min(0.0, *(bar["value"] for bar in bars)), max(0.0, *(bar["value"] for bar in bars))
    caption = f"After minus before. {_count_left_out(kernels, shown)}".strip()
    return Figure(title, _make_change_spec(title, names, used, ends), {"bars": bars}, caption)


def _compute_change_ns(change: Change) -> float:
    return change.after_ns - change.before_ns


def _make_change_bar(change: Change, name: str, largest: float) -> dict[str, Json]:
    ns = _compute_change_ns(change)
    kind = {NEW: CAME, GONE: WENT}.get(change.note, SLOWER if ns > 0 else FASTER)
    return {
        "name": name,
        "value": round_figure(ns / largest) or 0.0,
        "kind": kind,
        "label": f"{'+' if ns > 0 else '-'}{format_time(abs(ns) / NS_PER_US)}",
        "times": format_times([change.before_ns / NS_PER_US, change.after_ns / NS_PER_US]),
        "note": "" if change.note in (NEW, GONE) else one_line(change.note, NOTE_LIMIT),
    }


def _make_change_spec(title: str, names: list[str], kinds: list[str], ends: tuple[float, float]) -> Spec:
    left, right = ends
    room = (right - left) * 0.4 or 1.0
    x: Spec = {"field": "value", "type": "quantitative", "axis": None}
    x |= {"scale": {"domain": [left, right + room], "nice": False}}
    y: Spec = {"field": "name", "type": "nominal", "axis": None, "sort": None}
    y |= {"scale": {"domain": names, "padding": 0}}
    colours = {"domain": kinds, "range": [CHANGE_COLOURS[kind] for kind in kinds]}
    colour = {"field": "kind", "type": "nominal", "scale": colours, "legend": {**LEGEND, "symbolType": "square"}}
    tooltip = [
        {"field": field, "type": "nominal", "title": heading}
        for field, heading in (
            ("name", "kernel"),
            ("kind", "change"),
            ("label", "by"),
            ("times", "time"),
            ("note", "note"),
        )
    ]
    text = {"type": "text", "align": "left", "aria": False, "tooltip": None}
    bar = {"type": "bar", "height": 11, "yOffset": 8, "aria": False}
    layers: list[Spec] = [
        {"mark": bar, "encoding": {"x": x, "x2": {"datum": 0}, "color": colour, "tooltip": tooltip}},
        {"mark": {**text, "x": 0, "dy": -5}, "encoding": {"text": {"field": "name"}}},
        {
            "transform": [{"calculate": "max(datum.value, 0)", "as": "end"}],
            "mark": {**text, "dx": 5, "dy": 8},
            "encoding": {"x": {**x, "field": "end"}, "text": {"field": "label"}},
        },
    ]
    return make_base(title, height=34 * len(names), data={"name": "bars"}, encoding={"y": y}, layer=layers)
