"""Cuts a trace into what stands before, in and after its passes, and sums up each: families, busy and idle times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_attnperf.records.profiles import FamilyTime, KernelTime, PhaseKind, PhaseTime, Spread
from pytest_attnperf.tools.profilers.dispatches import Dispatches
from pytest_attnperf.tools.profilers.first_calls import Traced
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, FamilyRules
from pytest_attnperf.tools.profilers.passes import PassesFound
from pytest_attnperf.tools.profilers.timeline import compute_timeline


def cut_phases(traced: Traced, found: PassesFound, rules: FamilyRules) -> tuple[PhaseTime, ...]:
    """Returns the phases of a trace, ordered by start; () if it is not known where passes are, or if nothing but passes
    ran."""
    if not found.begins:
        return ()
    first, behind, every = found.begins[0], found.ends[-1], len(traced.dispatches)
    if not first and behind == every:
        return ()
    return tuple(_sum_up_phases(traced.dispatches, found, rules))


def _sum_up_phases(dispatches: Dispatches, found: PassesFound, rules: FamilyRules) -> Iterator[PhaseTime]:
    cuts = (0, found.begins[0], found.ends[-1], len(dispatches))
    for kind, begin, end in zip((PhaseKind.LOADING, PhaseKind.PASSES, PhaseKind.AFTER), cuts, cuts[1:], strict=False):
        inside = dispatches.select_range(begin, end)
        timeline = compute_timeline(inside)
        if timeline is None:
            continue
        families = group_families(_list_kernels(inside), rules)
        if kind is PhaseKind.LOADING and any(family.family == ATTENTION for family in families):
            kind = PhaseKind.BEFORE
        idle = _measure_idle(dispatches, found) if kind is PhaseKind.PASSES else ()
        yield PhaseTime(kind, len(inside), timeline.work_ns, timeline.span_ns, timeline.busy_ns, families, idle)


def _measure_idle(dispatches: Dispatches, found: PassesFound) -> tuple[float, ...]:
    ranges = zip(found.begins, found.ends, strict=True)
    times = (compute_timeline(dispatches.select_range(begin, end)) for begin, end in ranges)
    return tuple(time.idle_share for time in times if time is not None)


def _list_kernels(dispatches: Dispatches) -> list[KernelTime]:
    """Returns the time of each launch size; families are found by its name."""
    pairs = zip(dispatches.shapes, dispatches.durations_by_shape(), strict=True)
    return [
        KernelTime(shape.name, "", shape.kind, Spread(len(times), sum(times)), 0.0) for shape, times in pairs if times
    ]


def group_families(kernels: Sequence[KernelTime], rules: FamilyRules) -> tuple[FamilyTime, ...]:
    """Sums up kernels by family and nature, the longest first. Rules may give one family several natures."""
    total = sum(kernel.spread.total_ns for kernel in kernels)
    members: dict[tuple[str, str], list[KernelTime]] = {}
    for kernel in kernels:
        members.setdefault(rules.find_family(kernel.name, kernel.kind), []).append(kernel)
    families = []
    for (family, nature), each in members.items():
        time = sum(kernel.spread.total_ns for kernel in each)
        calls = sum(kernel.spread.calls for kernel in each)
        names = len({(kernel.name, kernel.kind) for kernel in each})
        families.append(FamilyTime(family, nature, names, calls, time, time / total if total else 0.0))
    return tuple(sorted(families, key=lambda family: (-family.total_ns, family.family, family.nature)))
