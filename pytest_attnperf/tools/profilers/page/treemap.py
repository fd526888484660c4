"""A treemap of GPU time: a group of rectangles per family, one per kernel, each as large as its share.

Its rectangles are laid out here, once for wide and once for narrow windows; the chart shows what fits its width. The
algorithm is that of Bruls, Huizing and van Wijk, "Squarified treemaps" (2000): rows along the shorter side, each as
long as its worst aspect ratio improves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.profiles import KernelTime
from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.reports.html.charts import Spec, make_base
from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.html.sections import Figure
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_count, format_percent, short_name
from pytest_attnperf.tools.profilers.kernel_columns import NAMELESS
from pytest_attnperf.tools.profilers.page.family_colours import FamilyColours

HEIGHT = 420
"""Pixels of the chart; the width is that of its place."""

LAYOUTS = (1180, 330)
"""Widths in pixels for which rectangles are laid out: a wide and a narrow window."""

NARROW = 560
"""Pixels of width below which the narrow layout is shown."""

LEAST_SHARE = 0.0003
"""Share of all time from which a kernel has a rectangle of its own: 150 square pixels of the wide layout."""

MOST_KERNELS = 40
"""Most rectangles of a family; the last stands for all other kernels."""

NAME_LIMIT, LABEL_LIMIT = 160, 60
LINE, PADDING = 14, 5
CHARACTER = 7.0
"""Pixels of a letter, on average."""

BOLD_CHARACTER = 7.8
GAP = 1.5


@dataclass(frozen=True)
class TreemapArea:
    """A rectangle: its upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class TimeShare:
    """What one rectangle stands for: a kernel, or several short ones of a family."""

    name: str
    family: str
    group: str
    total_ns: int
    calls: int


def build_treemap(kernels: Sequence[KernelTime], colours: FamilyColours, title: str) -> Figure | None:
    """Returns the treemap of kernels' times; None if they have none. At most MOST_KERNELS rectangles for a family."""
    total = sum(kernel.spread.total_ns for kernel in kernels)
    if not total:
        return None
    groups = _group_shares(kernels, colours, total)
    tiles: list[Json] = []
    titles: list[Json] = []
    for layout, width in enumerate(LAYOUTS):
        areas = squarify([_sum_ns(shares) for shares in groups], TreemapArea(0, 0, width, HEIGHT))
        for shares, area in zip(groups, areas, strict=True):
            titles.append(_make_title(shares, area, layout, total, colours))
            tiles += _list_tiles(shares, area, layout, total, colours)
    count = len(tiles) // len(LAYOUTS)
    caption = f"Area: share of {format_ns(total)}. {count} rectangles; point at one for its name and time."
    return Figure(title, _make_spec(title), {"tiles": tiles, "titles": titles}, caption)


def _sum_ns(shares: Sequence[TimeShare]) -> int:
    return sum(share.total_ns for share in shares)


def _group_shares(kernels: Sequence[KernelTime], colours: FamilyColours, total: int) -> list[list[TimeShare]]:
    """Returns the shares of each group, the longest group and share first."""
    groups: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        if kernel.spread.total_ns:
            groups.setdefault(colours.group_of(kernel.family), []).append(kernel)
    shared = [_merge_short(group, members, total) for group, members in groups.items()]
    return sorted(shared, key=lambda shares: (-_sum_ns(shares), shares[0].group))


def _merge_short(group: str, kernels: Sequence[KernelTime], total: int) -> list[TimeShare]:
    """Returns a share per kernel, and one for all that are too short; the longest first."""
    ordered = sorted(kernels, key=lambda kernel: (-kernel.spread.total_ns, kernel.name))
    own = [kernel for kernel in ordered[: MOST_KERNELS - 1] if kernel.spread.total_ns >= LEAST_SHARE * total]
    rest = ordered[len(own) :]
    if len(rest) == 1:
        own, rest = ordered, []
    shares = [
        TimeShare(kernel.name, kernel.family, group, kernel.spread.total_ns, kernel.spread.calls) for kernel in own
    ]
    if rest:
        calls = sum(kernel.spread.calls for kernel in rest)
        time = sum(kernel.spread.total_ns for kernel in rest)
        shares.append(TimeShare(f"{len(rest)} more kernels", group, group, time, calls))
    return sorted(shares, key=lambda share: -share.total_ns)


def _make_title(
    shares: Sequence[TimeShare], area: TreemapArea, layout: int, total: int, colours: FamilyColours
) -> Json:
    group = shares[0].group
    share = format_percent(_sum_ns(shares) / total)
    return {**_make_place(area, layout), "group": group, "label": f"{group} {share}"}


def _list_tiles(
    shares: Sequence[TimeShare], area: TreemapArea, layout: int, total: int, colours: FamilyColours
) -> Iterator[Json]:
    for share, own in zip(shares, squarify([share.total_ns for share in shares], area), strict=True):
        at_top = own.y - area.y < 1
        yield {
            **_make_place(own, layout),
            "top": round(own.y + (LINE if at_top and area.height > 2 * LINE else 0), 1),
            "label": short_name(share.name, LABEL_LIMIT) or NAMELESS,
            "name": short_name(share.name, NAME_LIMIT) or NAMELESS,
            "family": cut_middle(share.family, LABEL_LIMIT),
            "share": format_percent(share.total_ns / total),
            "time": format_ns(share.total_ns),
            "calls": format_count(share.calls),
            "colour": colours.colour_of(share.group),
        }


def _make_place(area: TreemapArea, layout: int) -> dict[str, Json]:
    """Returns an area as shares of the width and pixels of the height."""
    width = LAYOUTS[layout]
    left, right = area.x / width, (area.x + area.width) / width
    places = {"x": left, "x2": right, "y": area.y, "y2": area.y + area.height}
    return {"layout": layout, **{name: round(value, 5) for name, value in places.items()}}


def _make_spec(title: str) -> Spec:
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1], "nice": False}}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None}
    y |= {"scale": {"domain": [0, HEIGHT], "reverse": True, "nice": False}}
    shown = {"filter": f"datum.layout == (width < {NARROW} ? 1 : 0)"}
    colour = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    tooltip = [
        {"field": field, "type": "nominal", "title": heading}
        for field, heading in (("name", "kernel"), ("family", "family"), ("share", "share"), ("time", "time"))
    ]
    tooltip.append({"field": "calls", "type": "nominal", "title": "calls"})
    tile: Spec = {
        "data": {"name": "tiles"},
        "transform": [shown],
        "mark": {"type": "rect", "x2Offset": -GAP, "y2Offset": -GAP, "aria": False},
        "encoding": {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"field": "y2"}, "color": colour, "tooltip": tooltip},
    }
    text: Spec = {"type": "text", "align": "left", "baseline": "top", "dx": PADDING, "dy": PADDING - 1, "aria": False}
    # The steps below count letters; where these are wider than usual, the limit keeps them inside.
    text["limit"] = {"expr": f"(datum.x2 - datum.x) * width - {2 * PADDING}"}
    label: Spec = {
        "name": "on_colour_labels",
        "data": {"name": "tiles"},
        "transform": [shown, *_fit_label()],
        "mark": {**text, "fontSize": 11, "lineHeight": 13, "tooltip": None},
        "encoding": {"x": x, "y": {**y, "field": "top"}, "text": {"field": "lines"}},
    }
    heading: Spec = {
        "name": "on_colour_titles",
        "data": {"name": "titles"},
        "transform": [shown, *_fit_title()],
        "mark": {**text, "fontSize": 12, "fontWeight": "bold", "tooltip": None},
        "encoding": {"x": x, "y": y, "text": {"field": "fitting"}},
    }
    return make_base(title, height=HEIGHT, layer=[tile, label, heading])


def _fit_title() -> list[Spec]:
    """Returns the steps that leave the share out of a group's title where it does not fit, and else the title."""
    room = f"floor(((datum.x2 - datum.x) * width - {2 * PADDING}) / {BOLD_CHARACTER})"
    short = "length(datum.group) <= datum.room ? datum.group : ''"
    return [
        {"filter": f"datum.y2 - datum.y >= {LINE + 2 * PADDING}"},
        {"calculate": room, "as": "room"},
        {"calculate": f"length(datum.label) <= datum.room ? datum.label : {short}", "as": "fitting"},
    ]


def _fit_label() -> list[Spec]:
    """Returns the steps that cut a name in its middle for the pixels of its rectangle, and drop it below ten letters;
    where there is room, its share stands below."""
    room = f"floor(((datum.x2 - datum.x) * width - {2 * PADDING}) / {CHARACTER})"
    high = "datum.y2 - datum.top"
    head, tail = "ceil((datum.room - 1) * 0.6)", "floor((datum.room - 1) * 0.4)"
    cut = f"slice(datum.label, 0, {head}) + '…' + slice(datum.label, length(datum.label) - {tail})"
    return [
        {"calculate": room, "as": "room"},
        {"filter": f"datum.room >= min(10, length(datum.label)) && {high} >= {LINE + PADDING}"},
        {"calculate": f"length(datum.label) <= datum.room ? datum.label : {cut}", "as": "cut"},
        {"calculate": f"{high} >= {2 * LINE + PADDING} ? [datum.cut, datum.share] : [datum.cut]", "as": "lines"},
    ]


def squarify(weights: Sequence[float], within: TreemapArea) -> list[TreemapArea]:
    """Returns a part of `within` for each weight, in their order, whose size is its share. Weights must be above zero
    and in descending order for good shapes."""
    total = sum(weights)
    sizes = [weight * (within.width * within.height / total) for weight in weights]
    placed: list[TreemapArea] = []
    left = within
    while len(placed) < len(sizes):
        row = _take_row(sizes[len(placed) :], min(left.width, left.height))
        areas, left = _place_row(row, left)
        placed += areas
    return placed


def _take_row(sizes: Sequence[float], side: float) -> Sequence[float]:
    """Returns the first sizes, as many as make the row's worst aspect ratio along `side` no worse."""
    count, worst = 1, _find_worst_ratio(sizes[:1], side)
    while count < len(sizes):
        longer = _find_worst_ratio(sizes[: count + 1], side)
        if longer > worst:
            break
        count, worst = count + 1, longer
    return sizes[:count]


def _find_worst_ratio(row: Sequence[float], side: float) -> float:
    if not side:
        return 1.0
    thick = sum(row) / side
    return max(max(thick * thick / size, size / (thick * thick)) for size in row)


def _place_row(row: Sequence[float], left: TreemapArea) -> tuple[list[TreemapArea], TreemapArea]:
    """Returns the row's rectangles along the shorter side of `left`, and what remains of it."""
    areas, across = [], left.width < left.height
    side = left.width if across else left.height
    thick = sum(row) / side if side else 0.0
    at = left.x if across else left.y
    for size in row:
        length = size / thick if thick else 0.0
        areas.append(TreemapArea(at, left.y, length, thick) if across else TreemapArea(left.x, at, thick, length))
        at += length
    if across:
        return areas, TreemapArea(left.x, left.y + thick, left.width, max(left.height - thick, 0.0))
    return areas, TreemapArea(left.x + thick, left.y, max(left.width - thick, 0.0), left.height)
