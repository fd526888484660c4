"""Tables of a run: one per suite, and one of cases that ran on all GPUs at once.

For all GPUs at once, scaling is the calls per second in units of the median GPU alone, at best the number of GPUs.
Interference is how much slower a GPU is at once than alone.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.gpus import Together, TogetherGpu, short_name
from pytest_attnperf.reports.run.error_shares import compute_error_share, format_error_share
from pytest_attnperf.reports.run.overview import ORDER, verdict_text
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import (
    ABSENT,
    format_bytes,
    format_change,
    format_interval,
    format_rate,
    format_share,
    format_speedup,
    format_tolerance,
    one_line,
)
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.reports.text.time_cells import Cell, TimeCell
from pytest_attnperf.results import CaseResult

REFERENCE_BACKEND = "native.eager_fp32"
DEFAULT_WIDTH = 110
NAME_LIMIT = 60
SOURCE_LIMIT = 300
QUIET = frozenset({Verdict.SAME, Verdict.RECORDED, Verdict.RIGHT})
"""Verdicts that a long table leaves out."""

TOGETHER_COLUMNS = (
    GridColumn("alone"),
    GridColumn("at once"),
    GridColumn("scaling"),
    GridColumn("worst"),
    GridColumn("TFLOP/s", rank=1),
    GridColumn("GB/s", rank=2),
    GridColumn("of card", align="left", rank=3),
)
TOGETHER_LEGEND = (
    "on all GPUs at once: alone, at once: medians over the cards; worst: how much slower the card with the most "
    "interference is than alone; rates: of all cards at once, in sum"
)


@dataclass(frozen=True)
class _Column:
    """A column, and its text for a case and the reference of its workload."""

    column: GridColumn
    cell: Callable[[CaseResult, CaseResult | None], Cell]


def compute_tflops(case: CaseResult) -> float | None:
    """Returns a case's rate in TFLOP/s by useful FLOPs; None without a time or known FLOPs."""
    if not case.median_us or case.figures is None or case.figures.flops is None:
        return None
    return case.figures.flops / case.median_us / 1e6


def compute_gb_s(case: CaseResult) -> float | None:
    """Returns a case's rate in GB/s (1e9 bytes) by least bytes moved; None without a time or known bytes."""
    if not case.median_us or case.figures is None or case.figures.bytes_min is None:
        return None
    return case.figures.bytes_min / case.median_us / 1e3


def share_of_floor(case: CaseResult) -> float | None:
    """Returns least possible time / measured time: 1 is as fast as the device can be; None if either is not known."""
    return case.floor_us / case.median_us if case.median_us and case.floor_us is not None else None


def processes_text(case: CaseResult) -> str:
    """Returns how many processes decided the verdict ('3'), or pairs of processes ('12 pairs'); '-' for none."""
    if case.pairs:
        return f"{len(case.pairs)} pairs"
    return str(len(case.second or case.first) or ABSENT)


def _format_speedup_cell(case: CaseResult, reference: CaseResult | None) -> str:
    if reference is None or reference.median_us is None or not case.median_us:
        return ABSENT
    return format_speedup(reference.median_us / case.median_us)


def _format_detection_limit(case: CaseResult, _: CaseResult | None) -> str:
    return ABSENT if case.detection_limit is None else format_change(1 + case.detection_limit)


def _format_interval_cell(case: CaseResult, _: CaseResult | None) -> str:
    return format_interval(case.interval).removeprefix("95 %: ") or ABSENT


LEGENDS = {
    "change": "time against the baseline or the base side",
    "speedup": "over {reference} on the same workload",
    "TFLOP/s": "useful FLOPs / time",
    "error": "largest error against the reference / what the tolerance allows",
    "floor": "least possible time on this device / time",
    "peak MiB": "most memory in use during a call",
    "GB/s": "bytes that must at least be moved / time",
    "95 %": "confidence interval of the change",
    "detectable": "smallest slowdown that this measurement detects 99 % of the time",
    "processes": "fresh processes that decided, or pairs of them",
}
"""What columns hold, where their headers do not say it."""

COLUMNS = (
    _Column(GridColumn("verdict", align="left"), lambda case, _: verdict_text(case)),
    _Column(GridColumn("time"), lambda case, _: TimeCell(case.median_us)),
    _Column(GridColumn("change", rank=1), lambda case, _: format_change(case.ratio)),
    _Column(GridColumn("speedup", rank=5), _format_speedup_cell),
    _Column(GridColumn("TFLOP/s", rank=6), lambda case, _: format_rate(compute_tflops(case))),
    _Column(GridColumn("error", rank=7), lambda case, _: format_error_share(compute_error_share(case))),
    _Column(GridColumn("floor", rank=8), lambda case, _: format_share(share_of_floor(case))),
    _Column(GridColumn("peak MiB", rank=9), lambda case, _: format_bytes(case.peak_memory_bytes)),
    _Column(GridColumn("GB/s", rank=10), lambda case, _: format_rate(compute_gb_s(case))),
    _Column(GridColumn("95 %", rank=12), _format_interval_cell),
    _Column(GridColumn("detectable", rank=13), _format_detection_limit),
    _Column(GridColumn("processes", rank=14), lambda case, _: processes_text(case)),
)

HOW_SURE = 10
"""Subtracted from the rank of the last three columns in a verbose table, so that they follow the change."""


def suite_table(
    cases: Sequence[CaseResult],
    *,
    reference_backend: str = REFERENCE_BACKEND,
    width: int = DEFAULT_WIDTH,
    ink: Ink = PLAIN,
    verbose: bool = False,
    most_rows: int | None = None,
    legend: list[str] | None = None,
) -> str:
    """Returns a table of one suite's cases on one device, grouped by workload in the given order; '' without cases.

    `speedup` is over `reference_backend` of the same workload and label, `change` against the baseline. Columns without
    a figure are left out, and those that do not fit `width`: after verdict, name, time and change, columns are added in
    the order of `COLUMNS`. `verbose` puts interval, detection limit and number of processes before the others, and
    wraps no note. `legend` gets a line for each column
    that needs one. With more than `most_rows` cases, `QUIET` ones are left out and counted. The notes of
    `tolerance_notes` are below.
    """
    hidden = [case for case in cases if case.verdict in QUIET] if _is_long(cases, most_rows) else []
    references = {_build_reference_key(case): case for case in cases if case.key.backend == reference_backend}
    groups: dict[str, list[GridRow]] = {}
    for case in cases:
        if not hidden or case.verdict not in QUIET:
            cells = tuple(column.cell(case, references.get(_build_reference_key(case))) for column in COLUMNS)
            groups.setdefault(case.key.workload, []).append(GridRow(_format_backend(case), cells, case.verdict))
    shown = [GridGroup(workload, tuple(rows)) for workload, rows in groups.items()]
    columns = [_make_column(column.column, reference_backend, verbose=verbose) for column in COLUMNS]
    notes = [line for note in tolerance_notes(cases) for line in ([note] if verbose else wrap_text(note, width))]
    table = render_grid(shown, columns, corner="config", width=width, ink=ink, legend=legend)
    return "\n".join(filter(None, [table, _hidden_line(hidden), *notes]))


def tolerance_notes(cases: Iterable[CaseResult]) -> list[str]:
    """Returns a line per backend and tolerance that states a source (all but the default do), even if all is right."""
    sourced = dict.fromkeys(
        (case.key.backend, check.tolerance) for case in cases for check in case.checks if check.tolerance.source
    )
    return [
        f"{one_line(backend, NAME_LIMIT)}: {one_line(format_tolerance(tolerance), SOURCE_LIMIT)}"
        for backend, tolerance in sourced
    ]


def _is_long(cases: Sequence[CaseResult], most_rows: int | None) -> bool:
    return most_rows is not None and len(cases) > most_rows


def _hidden_line(hidden: Sequence[CaseResult]) -> str:
    """Returns the number of hidden cases: '8012 cases SAME and 3 RIGHT are not shown (-v shows all)'; '' for none."""
    counted = Counter(case.verdict for case in hidden)
    first, *others = [f"{counted[verdict]} {verdict.value}" for verdict in ORDER if counted[verdict]] or [""]
    if not first:
        return ""
    count, _, word = first.partition(" ")
    return f"{' and '.join([f'{count} cases {word}', *others])} are not shown (-v shows all)"


def _make_column(column: GridColumn, reference: str, *, verbose: bool) -> GridColumn:
    rank = column.rank - HOW_SURE if verbose and column.rank > HOW_SURE else column.rank
    return replace(column, rank=rank, legend=LEGENDS.get(column.header, "").format(reference=reference))


def _build_reference_key(case: CaseResult) -> tuple[str, str]:
    """Returns (workload, label), which a case shares with the reference backend's case that speedups are over."""
    return case.key.workload, case.key.label


def _format_backend(case: CaseResult) -> str:
    return f"{case.key.backend}/{case.key.label}" if case.key.label else case.key.backend


def together_table(cases: Sequence[CaseResult], width: int = DEFAULT_WIDTH) -> str:
    """Returns a table with a row per case that ran on all GPUs at once, and a line on how the suite scales; '' for
    none."""
    ran = [(case, case.together) for case in cases if case.together is not None and case.together.gpus]
    if not ran:
        return ""
    groups: dict[str, list[GridRow]] = {}
    for case, found in ran:
        title = f"{case.key.workload}/{case.key.label}" if case.key.label else case.key.workload
        groups.setdefault(one_line(title), []).append(GridRow(case.key.backend, _together_cells(case, found)))
    shown = [GridGroup(title, tuple(rows)) for title, rows in groups.items()]
    table = render_grid(shown, TOGETHER_COLUMNS, corner="backend", width=width, before=0)
    return "\n".join([*wrap_text(TOGETHER_LEGEND, width), table, "", *wrap_text(_suite_line(ran), width)])


def _together_cells(case: CaseResult, found: Together) -> tuple[Cell, ...]:
    worst = _find_worst_gpu(found)
    return (
        TimeCell(statistics.median(gpu.alone_us for gpu in found.gpus)),
        TimeCell(statistics.median(gpu.together_us for gpu in found.gpus)),
        f"{found.scaling:.2f}x of {len(found.gpus)}",
        format_change(1 + worst.interference),
        _format_total_rate(None if case.figures is None else case.figures.flops, found, 1e6),
        _format_total_rate(None if case.figures is None else case.figures.bytes_min, found, 1e3),
        one_line(short_name(worst.device_id)) or ABSENT,
    )


def _format_total_rate(amount: float | None, found: Together, unit: float) -> str:
    """Returns the summed rate of all GPUs for an `amount` (FLOPs or bytes) per call. `unit` is one TFLOP/s or GB/s in
    amount per microsecond; '-' for None."""
    return ABSENT if amount is None else format_rate(sum(amount / gpu.together_us for gpu in found.gpus) / unit)


def _find_worst_gpu(found: Together) -> TogetherGpu:
    return max(found.gpus, key=lambda gpu: gpu.interference)


def _suite_line(ran: Sequence[tuple[CaseResult, Together]]) -> str:
    """Returns one line: how many times one GPU's throughput all GPUs reach at once (geometric mean over cases), and the
    case that the others slow most."""
    cards = max(len(found.gpus) for _, found in ran)
    share = statistics.geometric_mean(found.scaling / len(found.gpus) for _, found in ran)
    case, found = max(ran, key=lambda one: _find_worst_gpu(one[1]).interference)
    worst = _find_worst_gpu(found)
    card = f" on {one_line(short_name(worst.device_id))}" if worst.device_id else ""
    plural = "s" if len(ran) != 1 else ""
    return (
        f"{len(ran)} case{plural}, {share * cards:.2f}x of {cards} GPUs in the geometric mean; most interference "
        f"{format_change(1 + worst.interference)}: {one_line(case.key.backend)} on {one_line(case.key.workload)}{card}"
    )
