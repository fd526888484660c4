"""Draws a roofline diagram as SVG or PNG: ceilings as lines, calls as numbered points, and a key with their names.

tools/plotting.py says what it needs, and why equal points give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.rooflines import BoundClass, Ceiling, RooflinePoint
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.text.figures import format_share
from pytest_attnperf.tools.plotting import (
    DPI,
    Box,
    LabelPlace,
    Pixel,
    Slant,
    choose_plot_form,
    find_free_start,
    foreign_text,
    place_labels,
    render_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Named = tuple[str, RooflinePoint, BoundClass]

STYLES: dict[BoundClass, tuple[str, str]] = {
    BoundClass.MEMORY: ("o", "#0072B2"),
    BoundClass.COMPUTE: ("s", "#D55E00"),
    BoundClass.LATENCY: ("^", "#009E73"),
    BoundClass.OCCUPANCY: ("D", "#AA4499"),
    BoundClass.CACHE: ("v", "#E69F00"),
    BoundClass.UNDECIDED: ("X", "#666666"),
}
"""Class -> marker and colour. The colours of Okabe and Ito are distinct for colour-blind readers, too."""

WIDTH_IN, DIAGRAM_IN, LINE_IN, MARGIN_IN = 10.0, 6.0, 0.19, 0.5
KEY_FONT = 8.5
CEILING_LABEL: dict[str, Any] = {
    "fontsize": 8,
    "color": "#333333",
    "zorder": 1.4,
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3},
}
TEXT_CHARACTER, TEXT_HEIGHT = 6.2, 13.0
"""Width of a character and height of a line in a ceiling's label, in pixels."""

NAME_LIMIT = 84
TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True)
class _Dot:
    """A point that can be drawn."""

    number: int
    name: str
    point: RooflinePoint
    bound: BoundClass
    x: float
    y: float


def write_plot(path: Path, points: Sequence[Named], title: str) -> None:
    """Writes a roofline diagram of (name, point, class) to a .svg or .png file.

    Points without FLOPs, bytes or time cannot be drawn; the key counts them. Raises UsageError for another suffix, if
    no point can be drawn, or if matplotlib is missing."""
    form = choose_plot_form(path)
    dots = _make_dots(points)
    if not dots:
        raise UsageError(
            f"none of {len(points)} points has FLOPs, bytes and a time, so there is nothing to plot; give workloads of "
            "which both FLOPs and bytes are known"
        )
    write_atomically(path, render_figure(lambda: _draw_figure(dots, len(points) - len(dots), title), form))


def _make_dots(points: Sequence[Named]) -> list[_Dot]:
    drawable = [
        (name, point, bound, point.intensity, point.flops_per_s)
        for name, point, bound in points
        if point.intensity and point.flops_per_s
    ]
    return [
        _Dot(number, foreign_text(name, NAME_LIMIT), point, bound, intensity, rate / TERA)
        for number, (name, point, bound, intensity, rate) in enumerate(drawable, start=1)
        if intensity is not None and rate is not None
    ]


def _draw_figure(dots: Sequence[_Dot], left_out: int, title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = len(dots) + bool(left_out)
    height = DIAGRAM_IN + MARGIN_IN + lines * LINE_IN
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI)
    # The default canvas can measure text before it is saved, and needs no window system.
    FigureCanvasAgg(figure)
    bottom = (MARGIN_IN + lines * LINE_IN) / height
    axes = figure.add_axes((0.075, bottom + 0.55 / height, 0.9, (DIAGRAM_IN - 1.0) / height))
    ceilings = _collect_ceilings(dots)
    _set_up(axes, dots, ceilings, foreign_text(title, NAME_LIMIT))
    labels = _draw_ceilings(axes, ceilings, dots)
    _draw_dots(axes, dots, labels)
    _draw_key(figure, dots, left_out, height)
    return figure


def _collect_ceilings(dots: Sequence[_Dot]) -> list[Ceiling]:
    """Returns the ceilings of all points, each once, sorted by unit, name, kind and rate."""
    found = {
        (ceiling.unit, ceiling.what, ceiling.kind, ceiling.rate): ceiling
        for dot in dots
        for ceiling in dot.point.ceilings
    }
    return [found[key] for key in sorted(found)]


def _set_up(axes: Axes, dots: Sequence[_Dot], ceilings: Sequence[Ceiling], title: str) -> None:
    """Sets the axes' scales (logarithmic), limits, grid, labels and title. x: FLOP per byte, y: TFLOP/s."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    flat, slanted = _split_ceilings(ceilings)
    ridges = [roof.rate / way.rate for roof in flat for way in slanted]
    xs, ys = [dot.x for dot in dots] + ridges, [dot.y for dot in dots] + [roof.rate / TERA for roof in flat]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(xs) / 4, max(xs) * 6)
    axes.set_ylim(min(ys) / 4, max(ys) * 3)
    for axis in (axes.xaxis, axes.yaxis):
        # The default labels are formulas in mathtext.
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("useful FLOP per compulsory byte")
    axes.set_ylabel("useful TFLOP/s")
    axes.set_title(title, fontsize=11)


def _split_ceilings(ceilings: Sequence[Ceiling]) -> tuple[list[Ceiling], list[Ceiling]]:
    flat = [ceiling for ceiling in ceilings if ceiling.unit == "FLOP/s"]
    return flat, [ceiling for ceiling in ceilings if ceiling.unit != "FLOP/s"]


def _draw_ceilings(axes: Axes, ceilings: Sequence[Ceiling], dots: Sequence[_Dot]) -> list[Box]:
    """Draws peaks dashed, measured ceilings solid, a label for each group; returns the labels' boxes in pixels."""
    flat, slanted = _split_ceilings(ceilings)
    (left, right), top = axes.get_xlim(), axes.get_ylim()[1]
    end = max((roof.rate / TERA for roof in flat), default=top)
    fastest = max((way.rate for way in slanted), default=None)
    for roof in flat:
        start = left if fastest is None else max(left, roof.rate / fastest)
        axes.plot((start, right), (roof.rate / TERA,) * 2, **_line_style(roof))
    for way in slanted:
        stop = min(right, end * TERA / way.rate)
        axes.plot((left, stop), (left * way.rate / TERA, stop * way.rate / TERA), **_line_style(way))
    ridge = _compute_pixel(axes, left if fastest is None else max(left, end * TERA / fastest), end)[0]
    return _label_flat(axes, _group_ceilings(flat), dots, ridge) + _label_slanted(
        axes, _group_ceilings(slanted), end, dots
    )


def _group_ceilings(ceilings: Sequence[Ceiling]) -> list[list[Ceiling]]:
    """Groups ceilings by what they bound (e.g. 'f16 matrix'); the highest comes first, in and among groups."""
    found: dict[str, list[Ceiling]] = {}
    for ceiling in sorted(ceilings, key=lambda ceiling: -ceiling.rate):
        found.setdefault(ceiling.what, []).append(ceiling)
    return list(found.values())


def _line_style(ceiling: Ceiling) -> dict[str, Any]:
    measured = ceiling.kind == "measured"
    return {
        "linestyle": "-" if measured else "--",
        "linewidth": 1.4 if measured else 1.0,
        "color": "#333333" if measured else "#777777",
        "zorder": 1.5,
    }


def _format_ceilings(group: Sequence[Ceiling]) -> str:
    """Formats the label of one group of ceilings: 'f16 matrix: peak 1,071, measured 760 TFLOP/s'."""
    scale, unit = (TERA, "TFLOP/s") if group[0].unit == "FLOP/s" else (GIGA, "GB/s")
    figures = ", ".join(f"{ceiling.kind} {ceiling.rate / scale:,.4g}" for ceiling in group)
    return foreign_text(f"{group[0].what}: {figures} {unit}", NAME_LIMIT)


def _label_flat(axes: Axes, groups: Sequence[Sequence[Ceiling]], dots: Sequence[_Dot], ridge: float) -> list[Box]:
    """Labels each group of horizontal ceilings above its highest line, from the right end to pixel `ridge`, beside
    points; moves down where a label is. Returns the labels' boxes in pixels."""
    boxes: list[Box] = []
    inside, points = axes.get_window_extent(), [_compute_pixel(axes, dot.x, dot.y) for dot in dots]
    for group in groups:
        text = _format_ceilings(group)
        foot = _compute_pixel(axes, 1.0, group[0].rate / TERA)[1] + 2.0
        while any(abs(foot - box[1]) < TEXT_HEIGHT for box in boxes):
            foot -= 1.0
        # The line runs to the left, so text "below" it is upright above `foot`.
        row, width = Slant(inside.x1, foot, math.pi, inside.x1 - ridge), len(text) * TEXT_CHARACTER
        right = row.pixel_at(find_free_start(row, width, False, points))[0]
        boxes.append((right - width, foot, right, foot + TEXT_HEIGHT))
        x, y = axes.transData.inverted().transform((right, foot))
        axes.text(x, y, text, ha="right", va="bottom", **CEILING_LABEL)
    return boxes


def _label_slanted(axes: Axes, groups: Sequence[Sequence[Ceiling]], end: float, dots: Sequence[_Dot]) -> list[Box]:
    """Labels each group of slanted ceilings along its line, where no point is if possible: the highest above its line,
    the others below. Returns the labels' boxes in pixels."""
    boxes: list[Box] = []
    points = [_compute_pixel(axes, dot.x, dot.y) for dot in dots]
    for index, group in enumerate(groups):
        way, above = (group[-1], False) if index else (group[0], True)
        slant, text = _make_slant(axes, way, end), _format_ceilings(group)
        start = find_free_start(slant, len(text) * TEXT_CHARACTER, above, points)
        boxes += slant.list_boxes(start, len(text) * TEXT_CHARACTER, above)
        x, y = axes.transData.inverted().transform(slant.pixel_at(start))
        side, degrees = "bottom" if above else "top", math.degrees(slant.angle)
        axes.text(x, y, text, rotation=degrees, rotation_mode="anchor", va=side, **CEILING_LABEL)
    return boxes


def _make_slant(axes: Axes, way: Ceiling, end: float) -> Slant:
    """Returns the visible part of a memory ceiling's line in pixels, up to `end` TFLOP/s."""
    (left, right), low = axes.get_xlim(), axes.get_ylim()[0]
    first = max(left, low * TERA / way.rate)
    last = max(first * 1.01, min(right, end * TERA / way.rate))
    return Slant.from_pixels(*(_compute_pixel(axes, x, x * way.rate / TERA) for x in (first, last)))


def _compute_pixel(axes: Axes, x: float, y: float) -> Pixel:
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def _draw_dots(axes: Axes, dots: Sequence[_Dot], taken: Sequence[Box]) -> None:
    for bound in BoundClass:
        own = [dot for dot in dots if dot.bound is bound]
        if own:
            marker, colour = STYLES[bound]
            xs, ys = [dot.x for dot in own], [dot.y for dot in own]
            axes.scatter(xs, ys, s=46, marker=marker, color=colour, edgecolors="white", linewidths=0.6, zorder=3)
    pixels = [_compute_pixel(axes, dot.x, dot.y) for dot in dots]
    box = axes.get_window_extent()
    places = place_labels(pixels, [str(dot.number) for dot in dots], (box.x0, box.y0, box.x1, box.y1), taken)
    for dot, place in zip(dots, places, strict=True):
        _draw_number(axes, dot, place)


def _draw_number(axes: Axes, dot: _Dot, place: LabelPlace) -> None:
    axes.annotate(
        str(dot.number),
        (dot.x, dot.y),
        xytext=(place.dx * 72 / DPI, place.dy * 72 / DPI),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=8,
        zorder=4,
        arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6} if place.far else None,
    )


def _draw_key(figure: Figure, dots: Sequence[_Dot], left_out: int, height: float) -> None:
    """Draws a text line per point below the diagram: marker, number, name, class, share of its own roof, time.
    `left_out` is the number of points that cannot be drawn; a last line says it."""
    from matplotlib.lines import Line2D

    lines = [(dot, _key_line(dot)) for dot in dots]
    for index, (dot, (name, said)) in enumerate(lines):
        y = (MARGIN_IN / 2 + (len(lines) + bool(left_out) - 1 - index + 0.5) * LINE_IN) / height
        marker, colour = STYLES[dot.bound]
        figure.add_artist(Line2D([0.03], [y], marker=marker, color=colour, linestyle="none", markersize=6))
        columns = ((0.06, "right", str(dot.number)), (0.07, "left", name), (0.985, "right", said))
        for x, side, text in columns:
            figure.text(x, y, text, ha=side, va="center", fontsize=KEY_FONT)
    if left_out:
        text = f"{left_out} without FLOPs, bytes or a time cannot be drawn"
        figure.text(0.07, (MARGIN_IN / 2 + 0.5 * LINE_IN) / height, text, va="center", fontsize=KEY_FONT)


def _key_line(dot: _Dot) -> tuple[str, str]:
    short = "undecided" if dot.bound is BoundClass.UNDECIDED else dot.bound.value
    part = dot.point.share
    share = "" if part is None else f", {format_share(part) if part > 0.1 else f'{part * 100:.2g} %'} of its roof"
    return dot.name, f"{short}{share}, {format_time(dot.point.time_us)}"
