"""Tables of a run: one per suite, and published figures beside it, never mixed into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tabulate import tabulate

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.figures import (
    ABSENT,
    format_bytes,
    format_change,
    format_ms,
    format_rate,
    format_share,
    format_speedup,
    format_tolerance,
    one_line,
)
from pytest_attnperf.results import CaseResult

REFERENCE_BACKEND = "native.eager_fp32"
DEFAULT_WIDTH = 110
GAP = 2
HEADER_PADDING = 2
"""Tabulate makes a column at least this much wider than its header."""

NAME_LIMIT = 60
SOURCE_LIMIT = 300


@dataclass(frozen=True)
class _Column:
    """A column: what it shows of a case, and in which order it is left out (`keep`, lowest first; None stays)."""

    header: str
    cell: Callable[[CaseResult, CaseResult | None], str]
    keep: int | None = None
    align: str = "right"


def tflops(case: CaseResult) -> float | None:
    """TFLOP/s by useful FLOPs; None for a case without a time or without known FLOPs."""
    if case.median_us is None or case.figures is None or case.figures.flops is None:
        return None
    return case.figures.flops / case.median_us / 1e6


def gb_s(case: CaseResult) -> float | None:
    """GB/s (1e9 bytes) by unique bytes; None for a case without a time or without known bytes."""
    if case.median_us is None or case.figures is None or case.figures.bytes_min is None:
        return None
    return case.figures.bytes_min / case.median_us / 1e3


def share_of_floor(case: CaseResult) -> float | None:
    """Least possible time / measured time: 1 is as fast as the device can be."""
    return None if case.median_us is None or case.floor_us is None else case.floor_us / case.median_us


def verdict_text(case: CaseResult) -> str:
    """The verdict's word; a case that was proven right and not timed says so."""
    if case.verdict is Verdict.RIGHT and case.median_us is None:
        return f"{case.verdict.value}, not timed"
    return case.verdict.value


def _speedup(case: CaseResult, reference: CaseResult | None) -> str:
    if reference is None or reference.median_us is None or case.median_us is None:
        return ABSENT
    return format_speedup(reference.median_us / case.median_us)


COLUMNS = (
    _Column("ms", lambda case, _: format_ms(case.median_us)),
    _Column("speedup", _speedup, keep=4),
    _Column("TFLOP/s", lambda case, _: format_rate(tflops(case)), keep=5),
    _Column("GB/s", lambda case, _: format_rate(gb_s(case)), keep=1),
    _Column("peak MiB", lambda case, _: format_bytes(case.peak_memory_bytes), keep=2),
    _Column("floor", lambda case, _: format_share(share_of_floor(case)), keep=3),
    _Column("change", lambda case, _: format_change(case.ratio), keep=6),
    _Column("verdict", lambda case, _: verdict_text(case), align="left"),
)


def suite_table(
    cases: Sequence[CaseResult], *, reference_backend: str = REFERENCE_BACKEND, width: int = DEFAULT_WIDTH
) -> str:
    """One suite's cases, grouped by workload in the order given; '' without cases.

    `speedup` is against `reference_backend` of the same workload and label, `change` against the baseline. A column
    without a single figure is left out; at narrow widths GB/s goes first, then peak memory, share of the floor and
    speedup. Below stands what `tolerance_notes` says.
    """
    references = {_twin(case): case for case in cases if case.key.backend == reference_backend}
    cells = [[column.cell(case, references.get(_twin(case))) for column in COLUMNS] for case in cases]
    headings = _headings(dict.fromkeys(case.key.workload for case in cases))
    names = [_backend(case) for case in cases]
    shown = _fitting(cells, width - max(map(len, (*headings.values(), *names)), default=0))
    rows: dict[str, list[list[str]]] = {
        workload: [[heading, *("" for _ in shown)]] for workload, heading in headings.items()
    }
    for case, name, row in zip(cases, names, cells, strict=True):
        rows[case.key.workload].append([name, *(row[index] for index in shown)])
    headers = ["config", *(COLUMNS[index].header for index in shown)]
    aligns = ["left", *(COLUMNS[index].align for index in shown)]
    body = [row for group in rows.values() for row in group]
    if not body:
        return ""
    table = tabulate(body, headers, tablefmt="simple", colalign=aligns, disable_numparse=True)
    return "\n".join([table, *tolerance_notes(cases)])


def tolerance_notes(cases: Iterable[CaseResult]) -> list[str]:
    """Once per backend, every tolerance that has a source: a wider budget is named also where all is well."""
    sourced = dict.fromkeys(
        (case.key.backend, check.tolerance) for case in cases for check in case.checks if check.tolerance.source
    )
    return [
        f"{one_line(backend, NAME_LIMIT)}: {one_line(format_tolerance(tolerance), SOURCE_LIMIT)}"
        for backend, tolerance in sourced
    ]


class PublishedRow(Protocol):
    """A figure from somebody's report: config, backend, the time as printed there, and where that is."""

    @property
    def config(self) -> str: ...  # noqa: D102
    @property
    def backend(self) -> str: ...  # noqa: D102
    @property
    def time(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102


def published_table(rows: Sequence[PublishedRow]) -> str:
    """Published figures with numbered sources below; '' without rows. Shown for orientation and never gated."""
    if not rows:
        return ""
    numbers = {source: number for number, source in enumerate(dict.fromkeys(row.source for row in rows), 1)}
    body = [
        [one_line(row.config, NAME_LIMIT), one_line(row.backend, NAME_LIMIT), one_line(row.time, NAME_LIMIT), mark]
        for row, mark in ((row, f"[{numbers[row.source]}]") for row in rows)
    ]
    headers = ["published elsewhere, never gated", "backend", "time", "source"]
    aligns = ("left", "left", "right", "left")
    table = tabulate(body, headers, tablefmt="simple", colalign=aligns, disable_numparse=True)
    notes = [f"[{number}] {one_line(source, SOURCE_LIMIT)}" for source, number in numbers.items()]
    return "\n".join([table, *notes])


def _twin(case: CaseResult) -> tuple[str, str]:
    """What a case shares with the reference it is compared with."""
    return case.key.workload, case.key.label


def _headings(workloads: Iterable[str]) -> dict[str, str]:
    """Workload -> what its group is called: its id, without the op family where all share one."""
    ids = list(workloads)
    families = {workload.partition("-")[0] for workload in ids}
    shared = len(families) == 1 and all("-" in workload for workload in ids)
    return {workload: one_line(workload.partition("-")[2] if shared else workload, NAME_LIMIT) for workload in ids}


def _backend(case: CaseResult) -> str:
    name = f"{case.key.backend}/{case.key.label}" if case.key.label else case.key.backend
    return one_line(f"- {name}", NAME_LIMIT)


def _fitting(cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Indices of the columns that hold a figure and fit into `room` characters beside the first column."""
    kept = [
        index
        for index, column in enumerate(COLUMNS)
        if column.keep is None or any(row[index] != ABSENT for row in cells)
    ]
    headers = [column.header + " " * HEADER_PADDING for column in COLUMNS]
    widths = {index: GAP + max(len(row[index]) for row in (headers, *cells)) for index in kept}
    for index in sorted(kept, key=lambda index: COLUMNS[index].keep or 0):
        if COLUMNS[index].keep is not None and sum(map(widths.__getitem__, kept)) > room:
            kept.remove(index)
    return kept
