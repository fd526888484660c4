"""Finds figures of a profile that contradict each other or the device.

A finding has holds = False if figures cannot both be right. It is None (open) if they are right only under a condition
that the profile does not show, such as bytes that come from a cache.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.records.profiles import (
    Agent,
    KernelShape,
    KernelTime,
    ProfileFinding,
    ProfileSummary,
    ShapeTime,
    Spread,
    StatsRow,
)
from pytest_attnperf.roofline.floors import UNRELIABLE
from pytest_attnperf.tools.profilers.claims.claim_rules import make_contradiction, make_open_finding
from pytest_attnperf.tools.profilers.claims.claimed_figures import format_percent, format_seconds, format_si
from pytest_attnperf.tools.profilers.claims.claimed_occupancy import WHAT_TO_DO
from pytest_attnperf.tools.profilers.kernel_evidence import has_one_granule
from pytest_attnperf.tools.profilers.passes import cut_name

NS = 1e-9
MATRIX_FAMILIES = ("attention", "gemm", "quantised mat-mul", "convolution")
"""Families that keep sums of products in registers; lower case."""

WIDE_THREADS = 64
SOME_LDS_BYTES = 1024
"""Threads or LDS from which a kernel of these families is more than a reduction or a set-up step."""

CONSTANT_SGPRS = 128
MOST_THREADS = 1024
"""Most threads of a workgroup, on every AMD and NVIDIA GPU."""

OVERLAP_SHARE = 0.01
"""Overlap as a share of all durations from which it distorts shares."""

MOST_NAMES = 4


def find_contradictions(
    summary: ProfileSummary, spec: DeviceSpec | None, *, stats: Sequence[StatsRow] = ()
) -> tuple[ProfileFinding, ...]:
    """Returns findings on figures of a profile that contradict each other or, if `spec` is given, the device's peaks.

    `stats` are the rows of *_stats files: checks their percentages, and compares their sums with a trace."""
    rows = [*stats, *(row for row in summary.host if row not in stats)]
    found = [
        *_find_too_fast(summary.kernels, spec),
        *_find_single_granules(summary),
        *_find_impossible_sizes(summary.kernels),
        *_find_constant_sgprs(summary),
        *_find_odd_passes(summary),
        *_find_impossible_times(summary),
    ]
    for kernel in summary.kernels:
        found += _find_impossible_spread(kernel.name, kernel.spread)
    for row in rows:
        found += _find_impossible_spread(row.name, row.spread)
    found += _find_wrong_percentages(rows)
    if summary.span_ns is not None:
        found += _compare_stats_with_trace(stats, summary.kernels)
    return tuple(dict.fromkeys(found))


def _find_too_fast(kernels: Sequence[KernelTime], spec: DeviceSpec | None) -> Iterator[ProfileFinding]:
    """Yields a finding for copies and memory sets above the device's peak memory bandwidth: an open one if its cache
    can hold the bytes, else a contradiction. Yields nothing without reliable data of the device."""
    if spec is None or spec.confidence == UNRELIABLE:
        return
    for kernel in kernels:
        for one in kernel.shapes:
            moved, typical = _count_moved_bytes(one.shape), one.spread.median_ns or one.spread.mean_ns
            if not moved or not typical or moved / (typical * NS) <= spec.peak_bytes_per_s:
                continue
            rate, cache = moved / (typical * NS), spec.last_level_cache_bytes
            said = f"{cut_name(kernel.name)}: {format_si(moved, 'B')} in {format_seconds(typical * NS)}"
            should = f"{format_si(rate, 'B/s')} against {format_si(spec.peak_bytes_per_s, 'B/s')} of {spec.name}"
            if moved <= cache:
                text = f"{said} are {should}: cache-resident ({cache / 2**20:.0f} MiB), or not doing the work"
                yield make_open_finding("faster than memory", said, text, should)
            else:
                text = f"{said} are {should}, and no cache ({cache / 2**20:.0f} MiB) holds them: not doing the work"
                yield make_contradiction("faster than memory", said, should, text)


def _count_moved_bytes(shape: KernelShape) -> float:
    """Returns the bytes that a copy or memory set moves through device memory: its size, twice that for a copy within
    the device; 0 for a kernel, or if the size is not known."""
    if shape.kind not in ("copy", "set") or not shape.bytes:
        return 0.0
    name = shape.name.upper().replace(" ", "_")
    within = any(words in name for words in ("DEVICE_TO_DEVICE", "DTOD", "D2D", "DEVICE_->_DEVICE"))
    return float(shape.bytes) * (2 if shape.kind == "copy" and within else 1)


def _find_single_granules(summary: ProfileSummary) -> Iterator[ProfileFinding]:
    """Yields an open finding for each large launch of a matrix kernel with only one granule (8) of registers."""
    for kernel in summary.kernels:
        for one in kernel.shapes:
            shape = one.shape
            if not _is_doubted(kernel, shape, summary.agents):
                continue
            said = f"{cut_name(kernel.name)}: {_format_resources(shape)}"
            text = (
                f"{said}: one granule of registers is the least that a profiler can report, but {kernel.family} keeps "
                f"sums of products in them. A kernel whose body was compiled out has this number. {WHAT_TO_DO}"
            )
            yield make_open_finding("registers", said, text, "one granule: is anything computed?")


def list_doubted_kernels(summary: ProfileSummary) -> frozenset[str]:
    """Returns the names of kernels that may compute nothing, by the registers of one of their launches."""
    return frozenset(
        kernel.name
        for kernel in summary.kernels
        if any(_is_doubted(kernel, one.shape, summary.agents) for one in kernel.shapes)
    )


def _is_doubted(kernel: KernelTime, shape: KernelShape, agents: Sequence[Agent]) -> bool:
    """Returns whether a large launch of a matrix kernel has registers for no sums of products."""
    if kernel.kind != "kernel" or kernel.family.lower() not in MATRIX_FAMILIES:
        return False
    large = (shape.threads or 0) >= WIDE_THREADS or (shape.lds_bytes or 0) >= SOME_LDS_BYTES
    return large and has_one_granule(shape) and not _is_nvidia(shape, agents)


def _format_resources(shape: KernelShape) -> str:
    return f"{shape.vgprs} VGPRs, {shape.threads or '?'} threads, LDS {shape.lds_bytes or 0:,} bytes"


def _is_nvidia(shape: KernelShape, agents: Sequence[Agent]) -> bool:
    return any(agent.arch.startswith("sm_") for agent in agents if shape.agent in ("", agent.name))


def _find_impossible_sizes(kernels: Sequence[KernelTime]) -> Iterator[ProfileFinding]:
    """Yields contradictions for launches that no device accepts: too many threads, or resources that cannot fit."""
    for kernel in kernels:
        for one in kernel.shapes:
            yield from _find_size_problems(kernel, one)


def _find_size_problems(kernel: KernelTime, one: ShapeTime) -> Iterator[ProfileFinding]:
    shape, occupancy = one.shape, one.occupancy
    threads = shape.threads
    if threads is not None and threads > MOST_THREADS:
        said = f"{cut_name(kernel.name)}: workgroup of {threads:,} threads"
        yield make_contradiction(
            "workgroup", said, f"a workgroup has {MOST_THREADS:,} at most; was a grid read as a workgroup?"
        )
    if occupancy is not None and not occupancy.fits:
        said = f"{cut_name(kernel.name)}: ran with {_format_resources(shape)}"
        yield make_contradiction(
            "occupancy", said, f"by these figures not one workgroup fits a {occupancy.block}: one is wrong"
        )
    elif occupancy is not None and occupancy.whole_waves_per_simd > occupancy.max_waves_per_simd:
        said = f"{cut_name(kernel.name)}: {occupancy.whole_waves_per_simd:g} waves per SIMD"
        yield make_contradiction("occupancy", said, f"a SIMD holds {occupancy.max_waves_per_simd}")


def _find_constant_sgprs(summary: ProfileSummary) -> Iterator[ProfileFinding]:
    archs = {agent.arch for agent in summary.agents if agent.kind == "gpu" and agent.arch}
    counts = {
        one.shape.sgprs
        for kernel in summary.kernels
        for one in kernel.shapes
        if one.shape.kind == "kernel" and one.shape.sgprs is not None
    }
    if counts == {CONSTANT_SGPRS} and archs and all(arch.startswith("gfx1") for arch in archs):
        said = f"every kernel has {CONSTANT_SGPRS} SGPRs"
        text = f"{said}: on {', '.join(sorted(archs))} profilers always report it per wave; it is never a limit"
        yield make_open_finding("sgprs", said, text, "a constant, no measurement")


def _find_odd_passes(summary: ProfileSummary) -> Iterator[ProfileFinding]:
    passes = summary.passes
    if passes is None or not passes.count:
        return
    odd = [line for line in passes.odd if kind_of(line) is not NoteKind.COPIES]
    if odd:
        said = f"{passes.count} passes"
        more = len(odd) - MOST_NAMES
        listed = "; ".join(odd[:MOST_NAMES]) + (f"; and {more} more" if more > 0 else "")
        yield make_open_finding("passes", said, f"{said}, but {listed}", listed)
    expected = passes.count * (passes.layers or 0)
    for family in (summary.in_passes or summary).families:
        if expected and family.family.lower() == "attention" and family.calls % expected:
            said = f"{family.calls} calls of attention"
            should = f"do not divide by {passes.count} passes x {passes.layers} layers = {expected}"
            yield make_open_finding("layers", said, f"{said} {should}", should)


def _find_impossible_times(summary: ProfileSummary) -> Iterator[ProfileFinding]:
    """Yields contradictions for times longer than the whole trace or sums below the busy time, and an open finding for
    dispatches of one device that overlap by more than 1 %."""
    span, busy, total = summary.span_ns, summary.busy_ns, summary.total_ns
    if span is not None:
        for kernel in summary.kernels:
            longest = kernel.spread.max_ns or 0
            if longest > span:
                said = f"{cut_name(kernel.name)}: {format_seconds(longest * NS, 5)} for one call"
                yield make_contradiction(
                    "longer than the profile", said, f"the whole trace spans {format_seconds(span * NS, 5)}"
                )
    if span is not None and busy is not None and busy > span:
        said = f"busy for {format_seconds(busy * NS, 5)}"
        yield make_contradiction(
            "longer than the profile", said, f"the whole trace spans {format_seconds(span * NS, 5)}"
        )
    if busy is not None and total < busy:
        said = f"durations add up to {format_seconds(total * NS, 5)}"
        yield make_contradiction(
            "busy time", said, f"something ran for {format_seconds(busy * NS, 5)}, so dispatches are missing"
        )
    elif busy is not None and total - busy > OVERLAP_SHARE * total and len(_collect_agents(summary)) <= 1:
        said = f"durations add up to {format_seconds(total * NS, 5)}"
        overlap = format_percent((total - busy) / total)
        should = f"something ran for {format_seconds(busy * NS, 5)}: dispatches overlap for {overlap} of them"
        text = f"{said}, but {should}. Durations of kernels that run at the same time contain each other's work"
        yield make_open_finding("overlap", said, text, should)


def _collect_agents(summary: ProfileSummary) -> set[str]:
    """Returns the names of the devices that ran something ('' if not named); several may run at the same time."""
    return {one.shape.agent for kernel in summary.kernels for one in kernel.shapes}


def _find_impossible_spread(name: str, spread: Spread) -> Iterator[ProfileFinding]:
    """Yields a finding for each contradiction between minimum, quartiles, maximum, standard deviation and total."""
    calls, total, least, most = spread.calls, spread.total_ns, spread.min_ns, spread.max_ns
    shown = f"{cut_name(name)}: {calls:,} calls, {total:,} ns"
    ordered = [
        (word, value)
        for word, value in (
            ("minimum", least),
            ("first quartile", spread.q1_ns),
            ("median", spread.median_ns),
            ("third quartile", spread.q3_ns),
            ("maximum", most),
        )
        if value is not None
    ]
    for (word, value), (next_word, next_value) in pairwise(ordered):
        if value > next_value:
            yield make_contradiction(
                "spread", shown, f"its {word} of {value:,} ns is above its {next_word} of {next_value:,} ns"
            )
    if not calls:
        if total:
            yield make_contradiction("spread", shown, "time without a call")
        return
    if least is not None and calls * least > total:
        yield make_contradiction("spread", shown, f"{calls:,} x the minimum of {least:,} ns are more than the total")
    if most is not None and calls * most < total:
        yield make_contradiction("spread", shown, f"{calls:,} x the maximum of {most:,} ns are less than the total")
    if least is not None and most is not None and calls > 1 and spread.stddev_ns is not None:
        bound = (most - least) / 2 * math.sqrt(calls / (calls - 1))
        if spread.stddev_ns > bound * (1 + 1e-6) + 1:
            should = f"{least:,} to {most:,} ns allow a standard deviation of {bound:,.0f} ns"
            yield make_contradiction("spread", shown, f"{should}, not {spread.stddev_ns:,.0f} ns")


def _find_wrong_percentages(rows: Sequence[StatsRow]) -> Iterator[ProfileFinding]:
    """Yields contradictions of the percentages in each domain of statistics: a sum that is not 100, or a row's
    percentage that is not its time over the sum of all times."""
    domains: dict[str, list[tuple[StatsRow, float]]] = defaultdict(list)
    for row in rows:
        if row.percentage is not None:
            domains[row.domain].append((row, row.percentage))
    for domain, said in domains.items():
        total = sum(row.spread.total_ns for row, _ in said)
        summed, slack = sum(value for _, value in said), sum(_half_digit(value) for _, value in said)
        if not total or _has_several_files(summed, slack):
            continue
        words = f"{domain} statistics: {len(said)} percentages add up to {summed:.6g}"
        if summed > 100 + slack:
            yield make_contradiction(
                "percentages", words, f"more than 100, beyond the {slack:.2g} that rounding explains"
            )
        elif summed < 100 - slack:
            should = f"less than 100, beyond the {slack:.2g} that rounding explains: rows are missing"
            yield make_contradiction("percentages", words, should)
            continue
        for row, value in said:
            share = 100 * row.spread.total_ns / total
            if abs(share - value) > _half_digit(value) * (1 + 1e-6):
                text = f"{cut_name(row.name)}: {value:g}% of the {domain} statistics"
                yield make_contradiction("percentages", text, f"its total is {share:.4f}% of all rows'")


def _half_digit(percentage: float) -> float:
    """Returns the rounding error of a printed percentage: half its last digit. rocprofv3 prints 2 decimals from 1 on, 4
    above 0.01, 3 in scientific form below."""
    if percentage >= 1:
        return 0.005
    if percentage < 0:
        return 0.0  # rocprofv3 prints none
    return 0.00005 if percentage > 0.01 else 0.0005 * 10 ** math.floor(math.log10(percentage)) if percentage else 5e-7


def _has_several_files(summed: float, slack: float) -> bool:
    """Returns whether percentages that add up to `summed` are of several processes: whether that is 200, 300 ..., give
    or take `slack`."""
    return round(summed / 100) > 1 and abs(summed - 100 * round(summed / 100)) <= slack


def _compare_stats_with_trace(rows: Sequence[StatsRow], kernels: Sequence[KernelTime]) -> Iterator[ProfileFinding]:
    """Yields one contradiction that names the kernels whose calls or time differ between statistics and trace; nothing
    if none differs. One for all, because they share a cause: files of two runs, or a cut trace."""
    traced = {kernel.name: kernel.spread for kernel in kernels if kernel.kind == "kernel"}
    pairs = [(row, traced[row.name]) for row in rows if row.domain == "kernel" and row.name in traced]
    differing = [
        f"{cut_name(row.name)} has {_format_calls(row.spread)}, in the trace {_format_calls(seen)}"
        for row, seen in pairs
        if (row.spread.calls, row.spread.total_ns) != (seen.calls, seen.total_ns)
    ]
    if differing:
        said = f"statistics and a trace with {len(pairs)} common name(s)"
        more = f"; and {len(differing) - MOST_NAMES} more" if len(differing) > MOST_NAMES else ""
        should = f"{len(differing)} differ: {'; '.join(differing[:MOST_NAMES])}{more}. Are both of one run, and whole?"
        yield make_contradiction("statistics against trace", said, should)


def _format_calls(spread: Spread) -> str:
    return f"{spread.calls:,} calls in {spread.total_ns:,} ns"
