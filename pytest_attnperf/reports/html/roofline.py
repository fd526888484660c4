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

MARGIN = 4.0
MOST_WORDS = 9
LABEL_LIMIT = 70


def roof_share(case: CaseResult, ceilings: Sequence[Ceiling]) -> tuple[str, float | None]:
    """Returns (kind of ceilings used, least possible time / measured time); ('', None) if time or ceilings are unknown.
    The least time follows from the dtype's matrix rate and DRAM; kinds are tried in the order of KINDS."""
    figures = case.figures
    if figures is None or not case.median_us or not figures.flops:
        return "", None
    for kind in KINDS:
        own = [ceiling for ceiling in ceilings if ceiling.kind == kind]
        compute = _find_highest_rate(own, FLOPS, f"{figures.dtype} ")
        memory = _find_highest_rate(own, BYTES, "DRAM")
        if compute and memory:
            least = max(figures.flops / compute, (figures.bytes_min or 0.0) / memory)
            return kind, least * 1e6 / case.median_us
    return "", None


def ceiling_lines(
    ceilings: Mapping[str, Sequence[Ceiling]], intensities: Mapping[str, Iterable[float]]
) -> dict[str, Json]:
    """Returns device -> points of its ceiling lines, which span the `intensities` (FLOP per byte) of its cases.

    A point is {'x': FLOP per byte, 'y': TFLOP/s, 'name', 'kind', 'label'}. The first point of a device belongs to no
    line; its 'label' describes all ceilings, a line each.
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
    # No point can be above the roof, so there is room for text at its left end.
    found = [_make_point("words", "", left, top, label="\n".join(_describe_ceilings(flat, slanted)))]
    for roof in flat:
        start = left if fastest is None else max(left, roof.rate / fastest)
        found += [_make_point(_format_name(roof), roof.kind, x, roof.rate) for x in (start, right)]
    for way in slanted:
        found += [_make_point(_format_name(way), way.kind, x, x * way.rate) for x in (left, min(right, top / way.rate))]
    return found


def _describe_ceilings(flat: Sequence[Ceiling], slanted: Sequence[Ceiling]) -> list[str]:
    """Returns a line per kind of ceiling, from the top of the chart down: 'DRAM: peak 4814, measured 4398 GB/s'."""
    lines = []
    for ceilings, scale, unit in ((flat, TERA, "TFLOP/s"), (slanted, GIGA, "GB/s")):
        by_what: dict[str, list[Ceiling]] = {}
        for ceiling in sorted(ceilings, key=lambda ceiling: -ceiling.rate):
            by_what.setdefault(ceiling.what, []).append(ceiling)
        for what, group in by_what.items():
            figures = ", ".join(f"{ceiling.kind} {format_rate(ceiling.rate / scale)}" for ceiling in group)
            lines.append(one_line(f"{what}: {figures} {unit}", LABEL_LIMIT))
    more = [f"and {len(lines) - MOST_WORDS} more"] if len(lines) > MOST_WORDS else []
    return lines[:MOST_WORDS] + more


def _format_name(ceiling: Ceiling) -> str:
    return one_line(f"{ceiling.what}, {ceiling.kind}, {ceiling.unit}", LABEL_LIMIT)


def _make_point(name: str, kind: str, x: float, rate: float, *, label: str = "") -> Json:
    return {"x": round_figure(x), "y": round_figure(rate / TERA), "name": name, "kind": one_line(kind), "label": label}
