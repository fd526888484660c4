"""Cases that ran on all cards at once: what each does alone, and what of that is left while every card works.

Scaling is the calls per second of all cards at once, in units of what the median card does alone: at best their number.
Interference is by how much a card is slower at once than alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pytest_attnperf.records.gpus import Together, TogetherGpu, short_name
from pytest_attnperf.reports.text.figures import ABSENT, format_change, format_rate, format_us, one_line
from pytest_attnperf.reports.text.grid import Column, Group, Row, grid
from pytest_attnperf.reports.text.text_width import wrapped
from pytest_attnperf.results import CaseResult

WIDTH = 110
COLUMNS = (
    Column("alone us"),
    Column("at once us"),
    Column("scaling"),
    Column("worst"),
    Column("TFLOP/s", rank=1),
    Column("GB/s", rank=2),
    Column("of card", align="left", rank=3),
)
LEGEND = (
    "on all GPUs at once: alone, at once: medians over the cards; worst: how much slower the card with the most "
    "interference is than alone; rates: of all cards at once, in sum"
)


def together_table(cases: Sequence[CaseResult], width: int = WIDTH) -> str:
    """A row per case under a heading per workload, and how the suite scales; '' where none ran so."""
    ran = [(case, case.together) for case in cases if case.together is not None and case.together.gpus]
    if not ran:
        return ""
    groups: dict[str, list[Row]] = {}
    for case, found in ran:
        title = f"{case.key.workload}/{case.key.label}" if case.key.label else case.key.workload
        groups.setdefault(one_line(title), []).append(Row(case.key.backend, _cells(case, found)))
    shown = [Group(title, tuple(rows)) for title, rows in groups.items()]
    table = grid(shown, COLUMNS, corner="backend", width=width, before=0)
    return "\n".join([*wrapped(LEGEND, width), table, "", *wrapped(_suite_line(ran), width)])


def _cells(case: CaseResult, found: Together) -> tuple[str, ...]:
    worst = _worst(found)
    return (
        format_us(statistics.median(gpu.alone_us for gpu in found.gpus)),
        format_us(statistics.median(gpu.together_us for gpu in found.gpus)),
        f"{found.scaling:.2f}x of {len(found.gpus)}",
        format_change(1 + worst.interference),
        _rate(None if case.figures is None else case.figures.flops, found, 1e6),
        _rate(None if case.figures is None else case.figures.bytes_min, found, 1e3),
        one_line(short_name(worst.device_id)) or ABSENT,
    )


def _rate(amount: float | None, found: Together, unit: float) -> str:
    """Of all cards in sum: an amount per call in TFLOP/s or GB/s, by its unit per microsecond."""
    return ABSENT if amount is None else format_rate(sum(amount / gpu.together_us for gpu in found.gpus) / unit)


def _worst(found: Together) -> TogetherGpu:
    return max(found.gpus, key=lambda gpu: gpu.interference)


def _suite_line(ran: Sequence[tuple[CaseResult, Together]]) -> str:
    """The geometric mean of the share of perfect scaling, in units of the cards there were, and the worst case."""
    cards = max(len(found.gpus) for _, found in ran)
    share = statistics.geometric_mean(found.scaling / len(found.gpus) for _, found in ran)
    case, found = max(ran, key=lambda one: _worst(one[1]).interference)
    worst = _worst(found)
    card = f" on {one_line(short_name(worst.device_id))}" if worst.device_id else ""
    plural = "s" if len(ran) != 1 else ""
    return (
        f"{len(ran)} case{plural}, {share * cards:.2f}x of {cards} GPUs in the geometric mean; most interference "
        f"{format_change(1 + worst.interference)}: {one_line(case.key.backend)} on {one_line(case.key.workload)}{card}"
    )
