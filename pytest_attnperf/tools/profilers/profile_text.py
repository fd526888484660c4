"""Formats one profile as tables: where the time goes, each kernel, their resources, and conclusions.

The order answers "why is it slow": the breakdown first, then the kernels, then their registers, then contradictions and
advice. Unknown values are '-'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_attnperf.records.counters import make_readings
from pytest_attnperf.records.profiles import (
    Confidence,
    FamilyTime,
    Gain,
    KernelShape,
    KernelTime,
    PhaseTime,
    ProfileSummary,
    ShapeTime,
    Spread,
)
from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.reports.run.profile_figures import (
    KIB,
    format_count,
    format_gain,
    format_percent,
    format_size,
    format_waves,
    make_ns_cell,
    short_name,
    tell_apart,
)
from pytest_attnperf.reports.text.figures import ABSENT, BYTES_PER_MIB, one_line
from pytest_attnperf.reports.text.time_cells import TOTAL, Cell
from pytest_attnperf.reports.text.wide_tables import Column, Table

WIDTH = 110
NAME_WIDTH = 36
TEXT_LIMIT = 2000
SHOWN_KERNELS = 15
SHOWN_SHAPES = 12
SHOWN_HOST = 8
SHOWN_LINES = 12
SHOWN_FAMILIES = 3
ATTENTION = "attention"
"""Family whose gain has a line of its own besides the largest one's, because this package is about attention."""

FAMILY_COLUMNS = ("time", "share", "calls", "per pass", "kernels", "does", "without it")
KERNEL_COLUMNS = ("family", "time", "share", "calls", "median", "iqr", "max", "first")
SHAPE_COLUMNS = ("calls", "median", "block", "groups", "VGPRs", "SGPRs", "LDS", "scratch", "waves")
COUNTER_COLUMNS = ("work-items", "dispatches", "MiB behind L2", "L2 hits", "waves", "matrix busy")
COUNTER_TITLE = "hardware counters (medians per dispatch; kernels run one at a time while they are read)"
LEFT = frozenset({"does", "family"})

LEGEND = (
    "share: of the sum of durations of all kernels, copies and memory sets; without it: gain of the whole if this took "
    "no time (1 / (1 - share) - 1)",
    "median, iqr (third quartile minus first, relative to the median) and max: after the warm-up if there is a trace; "
    "first: the first dispatch",
)
SHAPE_LEGEND = (
    "block: threads of a workgroup; groups: workgroups; VGPRs (+AccVGPRs) and SGPRs as allocated, in granules; "
    "waves: per SIMD as whole workgroups, of the maximum, and what limits them: calculated from these "
    "figures, an upper bound, no counter was read"
)


def profile_lines(summary: ProfileSummary) -> list[str]:
    """Returns the lines above the tables: files read, devices, GPU time, warm-up and passes."""
    lines = [f"profile: {_clean_text(summary.name)}"]
    lines += [
        _format_source(source.path, source.form, source.version, source.rows)
        for source in summary.sources[:SHOWN_LINES]
    ]
    if len(summary.sources) > SHOWN_LINES:
        lines.append(f"and {len(summary.sources) - SHOWN_LINES} more files")
    gpus = [agent for agent in summary.agents if agent.kind == "gpu"]
    for agent in gpus[:SHOWN_LINES]:
        said = [agent.product, agent.arch, f"{agent.compute_units} compute units" if agent.compute_units else ""]
        lines.append(
            f"device: {_clean_text(agent.name)}: "
            f"{_clean_text(', '.join(filter(None, said)) or 'nothing is known of it')}"
        )
    lines.append(_time_line(summary))
    if summary.warm_up:
        lines.append(f"warm-up: {_clean_text(summary.warm_up)}")
    if summary.passes is not None:
        lines += _pass_lines(summary)
    return [*lines, *map(_phase_line, summary.phases)]


def profile_tables(summary: ProfileSummary, *, shown: int = SHOWN_KERNELS) -> list[Table]:
    """Returns tables of families, the `shown` longest kernels, their resources, counters, and host calls; leaves out a
    table that would be empty."""
    tables = [_family_table(summary.in_passes or summary)] if summary.families else []
    if summary.kernels:
        tables += [_kernel_table(summary, shown), *_shape_tables(summary, shown)]
    if summary.counters:
        tables.append(_counter_table(summary))
    host = [row for row in summary.host if row.domain == "api"]
    if host:
        rows = sorted(host, key=lambda row: -row.spread.total_ns)
        more = len(rows) - SHOWN_HOST
        table = tuple(
            (short_name(row.name, NAME_WIDTH), make_ns_cell(row.spread.total_ns), format_count(row.spread.calls))
            for row in rows[:SHOWN_HOST]
        )
        notes = (f"{more} more",) if more > 0 else ()
        tables.append(Table("on the host", "call", (Column("time"), Column("calls")), table, notes))
    return tables


def conclusion_lines(summary: ProfileSummary) -> list[str]:
    """Returns the lines below the tables: gains, first calls, contradictions, advice, and what could not be read."""
    lines = [*_first_lines(summary)]
    lines += [f"contradiction: {_clean_text(found.text)}" for found in summary.findings if found.holds is False]
    lines += [f"open: {_clean_text(found.text)}" for found in summary.findings if found.holds is None]
    about, of_what = ("advice for the passes", "of them") if summary.in_passes else ("advice", "overall")
    for advice in summary.advice:
        known = advice.gain is not None and math.isfinite(advice.gain)
        most = f" (at most {format_gain(advice.gain)} {of_what})" if known else ""
        lines.append(f"{about}: {_clean_text(advice.text)}{most}; evidence: {_clean_text(advice.evidence)}")
    lines += [f"note: {_clean_text(note)}" for note in summary.notes]
    lines += [f"problem: {_clean_text(str(problem))}" for problem in summary.problems]
    return lines


def gain_line(found: Gain) -> str:
    """Formats what speeding up one part gains in all, by Amdahl's law: 'attention takes 1.50 %: infinitely fast it
    gains at most +1.52 % overall'."""
    name = short_name(found.name, NAME_WIDTH)
    partial = "".join(
        f"; +{format_percent(own)} on it is +{format_percent(whole)} overall" for own, whole in found.partial
    )
    if math.isinf(found.limit):
        return f"{name} takes all of the GPU time{partial}"
    within = f"gains at most {format_gain(found.limit)} overall"
    limit = within if found.limit < 1 else f"makes the whole {format_gain(found.limit)} as fast"
    return f"{name} takes {format_percent(found.share)}: infinitely fast it {limit}{partial}"


def _clean_text(text: str) -> str:
    return one_line(text, TEXT_LIMIT)


def _format_source(path: str, form: str, version: str, rows: int) -> str:
    said = f"{form}, {version}" if version else form
    return f"read: {_clean_text(path)} ({_clean_text(said)}, {rows:,} rows)"


def _time_line(summary: ProfileSummary) -> str:
    if not summary.calls:
        return "GPU time: not known, these files hold no kernels"
    line = f"GPU time: {format_ns(summary.total_ns)} in {summary.calls:,} dispatches"
    if not summary.span_ns or summary.busy_ns is None:
        return f"{line}; only totals are known, without a trace"
    busy = format_percent(summary.busy_ns / summary.span_ns)
    return f"{line}; something ran in {busy} of the {format_ns(summary.span_ns)} from the first to the last"


def _pass_lines(summary: ProfileSummary) -> list[str]:
    passes = summary.passes
    assert passes is not None, "asked by the caller"
    layers = f" of {passes.layers} layers" if passes.layers and passes.count else ""
    head = f"forward passes: {passes.count}{layers}" if passes.count else "forward passes: unknown"
    odd = [f"does not divide: {_clean_text(line)}" for line in passes.odd[:SHOWN_LINES]]
    if len(passes.odd) > SHOWN_LINES:
        odd.append(f"and {len(passes.odd) - SHOWN_LINES} more kernels do not divide")
    return [f"{head} ({_clean_text(passes.how)})", *odd]


def _phase_line(phase: PhaseTime) -> str:
    """Formats a phase: its dispatches and time, how long nothing ran, and the families with most of its time."""
    line = f"phase {phase.kind.value}: {format_ns(phase.total_ns)} in {phase.calls:,} dispatches"
    line += f", nothing ran in {format_percent(phase.idle_share)} of its {format_ns(phase.span_ns)}"
    if phase.idle_shares:
        shown = ", ".join(format_percent(share) for share in phase.idle_shares[:SHOWN_LINES])
        more = ", ..." if len(phase.idle_shares) > SHOWN_LINES else ""
        return f"{line} (in each pass {shown}{more})"
    largest = (
        f"{_clean_text(family.family)} {format_percent(family.share)} ({family.calls:,} calls)"
        for family in phase.families[:SHOWN_FAMILIES]
    )
    return f"{line}; most time: {', '.join(largest)}"


def _family_table(summary: ProfileSummary) -> Table:
    limits = {one.name: one.limit for one in summary.gains}
    passes = summary.passes.count if summary.passes is not None else None
    rows = tuple(_family_row(family, limits.get(family.family), passes) for family in summary.families)
    total = ("all", make_ns_cell(summary.total_ns), "100 %", format_count(summary.calls), *("",) * 4)
    title = "where the time goes in the passes" if summary.is_part else "where the time goes"
    return Table(title, "family", _make_columns(FAMILY_COLUMNS), (*rows, total))


def _family_row(family: FamilyTime, limit: float | None, passes: int | None) -> tuple[Cell, ...]:
    return (
        _clean_text(family.family),
        make_ns_cell(family.total_ns),
        format_percent(family.share),
        format_count(family.calls),
        format_count(family.calls / passes) if passes else ABSENT,
        format_count(family.kernels),
        _clean_text(family.nature),
        format_gain(limit),
    )


def _kernel_table(summary: ProfileSummary, shown: int) -> Table:
    names = _name_kernels(summary)
    rows = tuple(_kernel_row(kernel, names[kernel.name]) for kernel in summary.kernels[:shown])
    rest = summary.kernels[shown:]
    notes: tuple[str, ...] = ()
    if rest:
        total = sum(kernel.spread.total_ns for kernel in rest)
        share = sum(kernel.share for kernel in rest)
        notes = (f"{len(rest)} more take {format_ns(total)} together, {format_percent(share)} (--all shows them)",)
    return Table("kernels", "kernel", _make_columns(KERNEL_COLUMNS), rows, notes)


def _name_kernels(summary: ProfileSummary) -> dict[str, str]:
    return tell_apart((kernel.name for kernel in summary.kernels), NAME_WIDTH)


def _kernel_row(kernel: KernelTime, name: str) -> tuple[Cell, ...]:
    spread = kernel.steady or kernel.spread
    return (
        name,
        _clean_text(kernel.family) + ("" if kernel.confidence is Confidence.SURE else "?"),
        make_ns_cell(kernel.spread.total_ns, TOTAL),
        format_percent(kernel.share),
        format_count(kernel.spread.calls),
        make_ns_cell(spread.median_ns),
        _format_iqr(spread),
        make_ns_cell(spread.max_ns),
        make_ns_cell(kernel.first_ns),
    )


def _format_iqr(spread: Spread) -> str:
    if spread.q1_ns is None or spread.q3_ns is None or not spread.median_ns:
        return ABSENT
    return format_percent((spread.q3_ns - spread.q1_ns) / spread.median_ns)


def _shape_tables(summary: ProfileSummary, shown: int) -> list[Table]:
    """Returns one table with the resources of the `shown` longest kernels, caveats below it; [] without resources."""
    told = [(kernel, shape) for kernel in summary.kernels[:shown] for shape in kernel.shapes if _has_resources(shape)]
    if not told:
        return []
    names = _name_kernels(summary)
    rows = tuple(_shape_row(shape, names[kernel.name]) for kernel, shape in told[:SHOWN_SHAPES])
    caveats = list(dict.fromkeys(caveat for _, shape in told[:SHOWN_SHAPES] for caveat in shape.caveats))
    more = [f"{len(told) - SHOWN_SHAPES} more sizes"] if len(told) > SHOWN_SHAPES else []
    notes = (SHAPE_LEGEND, *more, *map(_clean_text, caveats))
    return [
        Table(
            "resources of each size of launch (LDS in KiB, scratch in bytes per work-item)",
            "kernel",
            _make_columns(SHAPE_COLUMNS),
            rows,
            notes,
        )
    ]


def _has_resources(shape: ShapeTime) -> bool:
    one = shape.shape
    return one.kind == "kernel" and (one.workgroup is not None or one.vgprs is not None or one.lds_bytes is not None)


def _shape_row(told: ShapeTime, name: str) -> tuple[Cell, ...]:
    shape = told.shape
    return (
        name,
        format_count(told.spread.calls),
        make_ns_cell(told.spread.median_ns),
        format_size(shape.workgroup),
        format_count(shape.workgroups),
        _format_vgprs(shape),
        format_count(shape.sgprs),
        ABSENT if shape.lds_bytes is None else f"{shape.lds_bytes / KIB:g}",
        format_count(shape.scratch_bytes),
        format_waves(told.occupancy),
    )


def _counter_table(summary: ProfileSummary) -> Table:
    """Returns a table of L2 traffic and hits, waves and busy matrix units by kernel and grid, raw counters below."""
    found = make_readings(summary.counters)
    rows = tuple(
        (
            short_name(one.kernel, NAME_WIDTH),
            format_count(one.grid_items),
            format_count(one.dispatches),
            ABSENT if one.traffic_bytes is None else f"{one.traffic_bytes / BYTES_PER_MIB:,.4g}",
            format_percent(one.l2_hit),
            format_percent(one.occupancy),
            format_percent(one.matrix_busy),
        )
        for one in found[:SHOWN_SHAPES]
    )
    more = [f"{len(found) - SHOWN_SHAPES} more kernels and sizes"] if len(found) > SHOWN_SHAPES else []
    plain = [
        f"{short_name(one.kernel, NAME_WIDTH)}: {one_line(one.counter, NAME_WIDTH)} {one.median:,.6g}"
        for one in summary.counters[:SHOWN_LINES]
    ]
    left_out = len(summary.counters) - SHOWN_LINES
    plain += [f"{left_out} more counters (--json has all)"] if left_out > 0 else []
    columns = tuple(map(Column, COUNTER_COLUMNS))
    return Table(COUNTER_TITLE, "kernel", columns, rows, (*more, *plain))


def _format_vgprs(shape: KernelShape) -> str:
    """Formats VGPRs: '84', '84+16' with AccVGPRs, '-' if unknown."""
    return (
        f"{shape.vgprs}+{shape.accum_vgprs}"
        if shape.vgprs is not None and shape.accum_vgprs
        else format_count(shape.vgprs)
    )


def _first_lines(summary: ProfileSummary) -> list[str]:
    part = summary.in_passes or summary
    largest = part.families[0].family if part.families else ""
    lines = [gain_line(one) for one in part.gains if one.name == largest or ATTENTION in one.name]
    first = summary.first_calls
    if first is None:
        return lines
    if first.excess_ns:
        lines.append(
            f"first dispatches: {format_ns(first.excess_ns)} more than the median of the rest, over "
            f"{first.kernels:,} kernels"
        )
    host = ", ".join(f"{_clean_text(what)} {format_ns(ns)}" for what, ns in first.host_ns.items())
    if host:
        lines.append(f"on the host, no part of GPU time: {host}")
    if first.before_ns is not None:
        lines.append(f"before the first dispatch: {format_ns(first.before_ns)}")
    return lines


def _make_columns(headers: Sequence[str]) -> tuple[Column, ...]:
    return tuple(Column(header, align="left" if header in LEFT else "right") for header in headers)
