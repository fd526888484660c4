"""A device's ceilings as lines of the roofline chart, and the share of them that a case reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.text.figures import format_rate, one_line
from pytest_attnperf.results import CaseResult

FLOPS, BYTES = "FLOP/s", "B/s"
TERA, GIGA = 1e12, 1e9
KINDS = ("measured", "peak")
"""Kinds of ceilings. A share refers to the first kind that is known."""

MEMORY = "memory"
"""What binds a case whose time at the matrix rate is shorter than that of its bytes."""

MARGIN = 4.0
LABEL_LIMIT = 70


def roof_share(case: CaseResult, ceilings: Sequence[Ceiling]) -> tuple[str, float | None]:
    """Returns (kind of ceilings used, least possible time / measured time); ('', None) if time or ceilings are unknown.
    The least time follows from the dtype's matrix rate and DRAM, from DRAM alone where that binds the case; kinds are
    tried in the order of KINDS."""
    figures = case.figures
    if figures is None or not case.median_us or not (figures.flops or figures.bytes_min):
        return "", None
    for kind in KINDS:
        own = [ceiling for ceiling in ceilings if ceiling.kind == kind]
        compute = _find_highest_rate(own, FLOPS, f"{figures.dtype} ")
        memory = _find_highest_rate(own, BYTES, "DRAM")
        if memory and (compute or not figures.flops or case.floor_bound == MEMORY):
            compute_s = figures.flops / compute if figures.flops and compute else 0.0
            least_s = max(compute_s, (figures.bytes_min or 0.0) / memory)
            return kind, least_s * 1e6 / case.median_us
    return "", None


def ceiling_lines(
    ceilings: Mapping[str, Sequence[Ceiling]], intensities: Mapping[str, Iterable[float]]
) -> dict[str, Json]:
    """Returns device -> points of its ceiling lines, which span the `intensities` (FLOP per byte) of its cases.

    A point is {'x': FLOP per byte, 'y': TFLOP/s, 'name', 'kind', 'slanted', 'label'}: the first point of each line has
    the label. The highest ceilings come first.
    """
    lines = {
        device: _build_line_points(own, [x for x in intensities.get(device, ()) if x > 0])
        for device, own in ceilings.items()
    }
    return {one_line(device): found for device, found in lines.items() if found}


def _find_highest_rate(ceilings: Iterable[Ceiling], unit: str, what: str) -> float | None:
    rates = [ceiling.rate for ceiling in ceilings if ceiling.unit == unit and ceiling.what.startswith(what)]
    return max(rates, default=None)


def _build_line_points(ceilings: Sequence[Ceiling], xs: Sequence[float]) -> list[Json]:
    flat = [ceiling for ceiling in ceilings if ceiling.unit == FLOPS and ceiling.rate > 0]
    slanted = [ceiling for ceiling in ceilings if ceiling.unit == BYTES and ceiling.rate > 0]
    if not xs or not flat:
        return []
    top = max(roof.rate for roof in flat)
    ridges = [top / way.rate for way in slanted]
    left, right = min([*xs, *ridges]) / MARGIN, max([*xs, *ridges]) * MARGIN
    fastest = max((way.rate for way in slanted), default=None)
    found = []
    for roof in sorted(flat, key=lambda roof: -roof.rate):
        start = left if fastest is None else max(left, roof.rate / fastest)
        words = _describe(roof, TERA, "TFLOP/s")
        found += [_make_point(roof, start, roof.rate, words), _make_point(roof, right, roof.rate)]
    for way in sorted(slanted, key=lambda way: -way.rate):
        words, end = _describe(way, GIGA, "GB/s"), min(right, top / way.rate)
        found += [_make_point(way, left, left * way.rate, words), _make_point(way, end, end * way.rate)]
    return found


def _describe(ceiling: Ceiling, scale: float, unit: str) -> str:
    """Returns a ceiling's label: 'f16 matrix 989 TFLOP/s, peak'."""
    return one_line(f"{ceiling.what} {format_rate(ceiling.rate / scale)} {unit}, {ceiling.kind}", LABEL_LIMIT)


def _format_name(ceiling: Ceiling) -> str:
    return one_line(f"{ceiling.what}, {ceiling.kind}, {ceiling.unit}", LABEL_LIMIT)


def _make_point(ceiling: Ceiling, x: float, rate: float, label: str = "") -> Json:
    return {
        "x": round_figure(x),
        "y": round_figure(rate / TERA),
        "name": _format_name(ceiling),
        "kind": one_line(ceiling.kind),
        "label": label,
        "slanted": ceiling.unit == BYTES,
    }
