"""Tables of what binds each profiled case: its class and the share of its own roof; the evidence is below."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, KernelBound, RooflinePoint
from pytest_attnperf.records.time_units import format_ns, format_time
from pytest_attnperf.reports.run.profile_figures import cut_middle, format_percent, make_ns_cell, short_name
from pytest_attnperf.reports.text.figures import ABSENT, format_bytes, format_rate, one_line
from pytest_attnperf.reports.text.time_cells import Cell, TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_terminal_tables
from pytest_attnperf.results import CaseResult, RunResult

NAME_WIDTH = 56
NAME_LIMIT = 400
TEXT_LIMIT = 1000
SHOWN_REASONS = 8
SHOWN_HOST = 5
PER_TERA = 1e12
PER_GIGA = 1e9
COLUMNS = ("bound by", "of its roof", "roof", "time", "profiled", "launches", "TFLOP/s", "GB/s", "FLOP/B")
LEFT = frozenset({"bound by", "roof"})
LEGEND = (
    "what binds each case: time as gated; profiled: device time of one call under torch's profiler, which slows "
    "the call, so it is no measurement; of its roof: the least time by useful FLOPs and compulsory bytes over the time"
)


def list_profiled(cases: Sequence[CaseResult]) -> list[tuple[CaseResult, CaseProfile]]:
    """Returns (case, profile) of every case that was profiled."""
    return [(case, case.profile) for case in cases if case.profile is not None]


def case_lines(run: RunResult, width: int, *, reasons: int = SHOWN_REASONS) -> list[str]:
    """Returns a table of what limits each profiled case (compute, memory, ...), then the first `reasons` lines of
    evidence; [] if none was profiled."""
    found = list_profiled(run.cases)
    if not found:
        return []
    table = bound_table(found)
    lines = render_terminal_tables((LEGEND,), [table], width).splitlines()
    told = [line for pair in found for line in reason_lines(*pair)]
    return [*lines, "", *told[:reasons], *([f"and {len(told) - reasons} more of these"] if len(told) > reasons else [])]


def bound_table(found: Sequence[tuple[CaseResult, CaseProfile]]) -> Table:
    """Returns a table with a row per case: what limits it, its share of that limit's highest rate, and its rates."""
    columns = tuple(Column(header, align="left" if header in LEFT else "right") for header in COLUMNS)
    rows = tuple((one_line(case.key.entry, NAME_LIMIT), *_format_cells(case, profile)) for case, profile in found)
    return Table("", "case", columns, rows)


def reason_lines(case: CaseResult, profile: CaseProfile) -> list[str]:
    """Returns lines on why the case is bound as it is, what would decide an open question, and the profile's notes."""
    name, lines = case.key.entry, []
    verdict = profile.bound
    if verdict is not None:
        decide = f"; what would decide it: {verdict.decide}" if verdict.decide else ""
        lines.append(f"{name}: {verdict.bound.value}: {verdict.reason}{_format_longest_kernel(profile)}{decide}")
    return [one_line(line, TEXT_LIMIT) for line in (*lines, *(f"{name}: note: {note}" for note in profile.notes))]


def detail_lines(case: CaseResult, profile: CaseProfile) -> list[str]:
    """Returns lines on what the time excludes: build, first call, memory allocations, and the host's time per call."""
    name = case.key.entry
    before = f"built in {format_time(profile.build_ms * 1e3)}, first call {format_time(profile.first_call_ms * 1e3)}"
    lines = [f"{name}: before any time: {before} (without what the process had built for other cases)"]
    if profile.allocations is not None:
        size = f", together {format_bytes(profile.allocated_bytes)} MiB" if profile.allocated_bytes is not None else ""
        times = "once" if profile.allocations == 1 else f"{profile.allocations} times"
        lines.append(f"{name}: one call asks for memory {times}{size}")
    if profile.host_ns and profile.calls:
        longest = sorted(profile.host_ns.items(), key=lambda item: -item[1])[:SHOWN_HOST]
        each = [(cut_middle(what, NAME_WIDTH), format_ns(ns / profile.calls)) for what, ns in longest]
        listed = ", ".join(f"{what} {time}" for what, time in each)
        total = format_ns(sum(profile.host_ns.values()) / profile.calls)
        lines.append(f"{name}: on the host, of a call under the profiler: {total}, of it {listed}")
    return [one_line(line, TEXT_LIMIT) for line in lines]


KERNEL_COLUMNS = ("bound by", "of its roof", "roof", "time", "TFLOP/s", "GB/s", "FLOP/B")


def kernel_bound_table(bounds: Sequence[KernelBound]) -> Table:
    """Returns a table with a row per --workload: what binds its kernels, by their steady median times under a
    profiler."""
    columns = tuple(Column(header, align="left" if header in LEFT else "right") for header in KERNEL_COLUMNS)
    rows = tuple(
        (
            cut_middle(one_line(found.name), NAME_WIDTH),
            _format_bound_class(found.verdict),
            *_format_roof(found.verdict.point),
            TimeCell(found.time_us),
            *_format_rates(found.verdict.point),
        )
        for found in bounds
    )
    return Table("what binds the named work (time: steady medians under a profiler)", "kernels", columns, rows)


def kernel_bound_lines(bounds: Sequence[KernelBound]) -> list[str]:
    """Returns a line per `KernelBound`: what binds the kernels, the evidence, and what would decide an open
    question."""
    lines = []
    for found in bounds:
        verdict = found.verdict
        decide = f"; what would decide it: {verdict.decide}" if verdict.decide else ""
        note = f" ({found.note})" if found.note else ""
        lines.append(one_line(f"{found.name}{note}: {verdict.bound.value}: {verdict.reason}{decide}", TEXT_LIMIT))
    return lines


def _format_cells(case: CaseResult, profile: CaseProfile) -> tuple[Cell, ...]:
    verdict = profile.bound
    point = verdict.point if verdict is not None else None
    return (
        _format_bound_class(verdict),
        *_format_roof(point),
        TimeCell(case.median_us),
        make_ns_cell(profile.total_ns / profile.calls if profile.calls else None),
        f"{_count_launches(profile):g}",
        *_format_rates(point),
    )


def _format_longest_kernel(profile: CaseProfile) -> str:
    """Returns '; N % of the profiled time is in KERNEL', the longest; '' for a call of one kernel."""
    total = profile.total_ns
    if len(profile.kernels) < 2 or not total:
        return ""
    most = max(profile.kernels, key=lambda kernel: sum(kernel.durations_ns))
    share = format_percent(sum(most.durations_ns) / total)
    return f"; {share} of the profiled time is in {short_name(most.shape.name, NAME_WIDTH)}"


def _format_roof(point: RooflinePoint | None) -> tuple[str, str]:
    """Returns (share that the point reaches of the highest rate that limits it, its name); '-' for what is unknown."""
    if point is None:
        return ABSENT, ABSENT
    return format_percent(point.share), one_line(point.roof, NAME_WIDTH) if point.roof else ABSENT


def _format_bound_class(verdict: BoundVerdict | None) -> str:
    if verdict is None:
        return ABSENT
    return "not decidable" if verdict.bound is BoundClass.UNDECIDED else verdict.bound.value


def _count_launches(profile: CaseProfile) -> float:
    return sum(len(kernel.durations_ns) for kernel in profile.kernels) / max(profile.calls, 1)


def _format_rates(point: RooflinePoint | None) -> tuple[str, str, str]:
    if point is None:
        return ABSENT, ABSENT, ABSENT
    flops = point.flops_per_s / PER_TERA if point.flops_per_s is not None else None
    size = point.bytes_per_s / PER_GIGA if point.bytes_per_s is not None else None
    return format_rate(flops), format_rate(size), format_rate(point.intensity)
