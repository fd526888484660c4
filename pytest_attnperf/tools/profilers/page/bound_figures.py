"""What binds kernels as charts: the share that each reaches of its own roof, and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import round_figure
from pytest_attnperf.reports.html.roofline import ceiling_lines
from pytest_attnperf.reports.html.sections import Figure
from pytest_attnperf.reports.html.share_bars import LEGEND, ShareBar, build_share_bars
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_percent
from pytest_attnperf.reports.text.figures import format_rate, one_line

CLASS_COLOURS = dict(
    zip(BoundClass, (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[6]), strict=True)
)
CLASS_SHAPES = dict(
    zip(BoundClass, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"), strict=True)
)
NAME_LIMIT = 50
TERA = 1e12
MOST_SHOWN = 60


@dataclass(frozen=True)
class BoundWork:
    """Kernels or a case, by name, and what binds them; None if that is not known."""

    name: str
    verdict: BoundVerdict | None


def build_bound_bars(works: Sequence[BoundWork]) -> Figure | None:
    """Returns bars of the share that each work reaches of its own roof, coloured by what binds it; None if no share is
    known."""
    bars = []
    for number, work in enumerate(works[:MOST_SHOWN], 1):
        point = work.verdict.point if work.verdict is not None else None
        if work.verdict is None or point is None or point.share is None:
            continue
        bound = work.verdict.bound
        more = (
            ("bound by", bound.value),
            ("of its roof", format_percent(point.share)),
            ("roof", one_line(point.roof)),
            ("time", format_time(point.time_us)),
        )
        label = f"{format_percent(point.share)}, {_name_class(bound)}"
        bars.append(ShareBar(_number_name(number, work.name), point.share, label, CLASS_COLOURS[bound], more))
    longest = max((bar.share for bar in bars), default=0.0)
    caption = "Share of the roof: the least time by useful FLOPs and compulsory bytes over the time."
    return build_share_bars("Share that each reaches of its own roof", bars, caption, max(1.0, longest) * 1.45)


def build_roofline(works: Sequence[BoundWork]) -> Figure | None:
    """Returns the roofline with a numbered point per work; None if none has FLOPs, bytes and a time."""
    points, ceilings, xs = [], dict[Ceiling, None](), []
    for number, work in enumerate(works[:MOST_SHOWN], 1):
        point = work.verdict.point if work.verdict is not None else None
        if work.verdict is None or point is None or not point.intensity or not point.flops_per_s:
            continue
        xs.append(point.intensity)
        ceilings |= dict.fromkeys(point.ceilings)
        points.append(
            {
                "x": round_figure(point.intensity),
                "y": round_figure(point.flops_per_s / TERA),
                "number": f"{number}",
                "name": cut_middle(one_line(work.name), NAME_LIMIT),
                "class": _name_class(work.verdict.bound),
                "rate": f"{format_rate(point.flops_per_s / TERA)} TFLOP/s",
                "of_roof": format_percent(point.share),
            }
        )
    if not points:
        return None
    found = ceiling_lines({"": tuple(ceilings)}, {"": xs}).get("", [])
    words = "; ".join(text for point in found for text in point["label"].split("\n") if text)
    lines = [point for point in found if not point["label"]]
    title = "Roofline"
    caption = "The numbers are those of the bars. Solid lines: measured ceilings; dashed: peaks of the data sheet."
    caption += f" {words}." if words else ""
    present = [bound for bound in BoundClass if any(point["class"] == _name_class(bound) for point in points)]
    return Figure(title, _make_spec(title, present), {"points": points, "ceilings": lines}, caption)


def _number_name(number: int, name: str) -> str:
    return f"{number}  {cut_middle(one_line(name), NAME_LIMIT)}"


def _name_class(bound: BoundClass) -> str:
    return "not decidable" if bound is BoundClass.UNDECIDED else bound.value


def _make_spec(title: str, classes: Sequence[BoundClass]) -> Spec:
    log = {"type": "log", "nice": False, "padding": 14}
    axis = {"grid": False, "format": "~g", "tickCount": 5}
    x = {"field": "x", "type": "quantitative", "title": "useful FLOP per compulsory byte", "scale": log, "axis": axis}
    y = {"field": "y", "type": "quantitative", "title": "useful TFLOP/s", "scale": log, "axis": axis}
    names = [_name_class(bound) for bound in classes]
    own = {"field": "class", "type": "nominal", "legend": LEGEND}
    colour = {**own, "scale": {"domain": names, "range": [CLASS_COLOURS[bound] for bound in classes]}}
    shape = {**own, "scale": {"domain": names, "range": [CLASS_SHAPES[bound] for bound in classes]}}
    headings = (("name", "kernels"), ("class", "bound by"), ("rate", "rate"), ("of_roof", "of its roof"))
    tooltip = [{"field": field, "type": "nominal", "title": heading} for field, heading in headings]
    dash: Spec = {"field": "kind", "type": "nominal", "legend": None}
    dash |= {"scale": {"domain": ["measured", "peak"], "range": [[1, 0], [6, 4]]}}
    line = {"type": "line", "color": "#888888", "strokeWidth": 1.25, "aria": False}
    text = {"type": "text", "align": "left", "aria": False}
    layers: list[Spec] = [
        {
            "data": {"name": "ceilings"},
            "mark": line,
            "encoding": {"x": x, "y": y, "detail": {"field": "name"}, "strokeDash": dash},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "size": 90},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip},
        },
        {
            "data": {"name": "points"},
            "mark": {**text, "dx": 9, "dy": -8, "fontWeight": "bold"},
            "encoding": {"x": x, "y": y, "text": {"field": "number"}},
        },
    ]
    return make_base(title, layer=layers)
