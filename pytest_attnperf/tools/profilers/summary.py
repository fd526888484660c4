"""One profile summed up: where time goes, how it spreads, what is warm-up, and what follows from it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from operator import sub

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profiles import FamilyTime, FirstCalls, KernelTime, ProfileSummary
from pytest_attnperf.tools.profilers.advice import advise
from pytest_attnperf.tools.profilers.amdahl import gains
from pytest_attnperf.tools.profilers.contradictions import contradictions
from pytest_attnperf.tools.profilers.first_calls import WarmUp, first_calls_of, host_times, warm_up_given, warm_up_of
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, OTHER, Rules
from pytest_attnperf.tools.profilers.kernel_times import from_stats, from_trace
from pytest_attnperf.tools.profilers.passes import Calls, PassesFound, find_passes
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.timeline import Timeline, timeline_of
from pytest_attnperf.tools.profilers.traced import Traced

UNKNOWN_SHARE = 0.05
"""Of GPU time in kernels of no known family, from which on it is said."""

STATS_WARM_UP = "unknown: statistics count every dispatch, warm-up included, and do not tell their order"


def summarise(
    profile: Profile,
    *,
    rules: Rules | None = None,
    warm_up: int | None = None,
    passes: int | None = None,
    layers: int | None = None,
    device: DeviceSpec | None = None,
) -> ProfileSummary:
    """Everything that a profile says.

    rules      of kernel families; the default ones without
    warm_up    passes to leave out of steady state where it is known where they begin, else dispatches; decided from
               the data without
    passes     forward passes, inferred without; layers: of each, inferred without
    device     whose peaks the profile's figures must respect

    Raises UsageError for a number below what it can be.
    """
    for name, value, least in (("warm-up", warm_up, 0), ("passes", passes, 1), ("layers", layers, 1)):
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}, must be at least {least}")
    rules = rules or Rules.default()
    traced = Traced.of(profile.dispatches, rules)
    found = find_passes(_calls(profile, traced, rules), passes=passes, layers=layers)
    cut = _warm_up(traced, found, warm_up)
    kernels = _shared(from_trace(traced, cut, profile) + from_stats(profile, traced, rules))
    families = _families(kernels, rules)
    timeline = timeline_of(profile.dispatches)
    host = sorted((row for row in profile.stats if row.domain == "api"), key=lambda row: -row.spread.total_ns)
    host_ns = host_times(host)
    summary = ProfileSummary(
        name=profile.name,
        sources=profile.sources,
        agents=profile.agents,
        total_ns=sum(kernel.spread.total_ns for kernel in kernels),
        calls=sum(kernel.spread.calls for kernel in kernels),
        kernels=kernels,
        families=families,
        gains=gains(families),
        span_ns=timeline.span_ns if timeline else None,
        busy_ns=timeline.busy_ns if timeline else None,
        warm_up=cut.text,
        passes=found.passes,
        first_calls=_first_calls(profile, traced, host_ns),
        host=tuple(host),
        counters=profile.counters,
        problems=profile.problems,
        notes=profile.notes + _notes(profile, traced, kernels, timeline),
    )
    summary = replace(summary, findings=contradictions(summary, device, stats=profile.stats))
    return replace(summary, advice=advise(summary))


def _first_calls(profile: Profile, traced: Traced, host_ns: dict[str, int]) -> FirstCalls | None:
    """What came before steady state; from the first call of the host to the first dispatch where both are told."""
    if not host_ns and not traced.firsts:
        return None
    found = first_calls_of(traced.firsts, host_ns)
    if profile.api_begin_ns is None or not len(profile.dispatches):
        return found
    before_ns = profile.dispatches.start_ns[0] - profile.api_begin_ns
    return replace(found, before_ns=before_ns) if before_ns >= 0 else found


def _calls(profile: Profile, traced: Traced, rules: Rules) -> Calls:
    """Calls of kernels without the runtime's copies and fills; of the busiest device where a trace holds several."""
    if traced.holds_kernels:
        return traced.calls()
    counts: dict[str, int] = {}
    apart: dict[str, int] = {}
    for row in profile.stats:
        if row.domain == "kernel":
            into = apart if rules.is_memory_work(row.name) else counts
            into[row.name] = into.get(row.name, 0) + row.spread.calls
    attention = [name for name in counts if rules.family(name).name == ATTENTION]
    return Calls({name: count for name, count in counts.items() if count}, attention, apart=apart)


def _warm_up(traced: Traced, found: PassesFound, given: int | None) -> WarmUp:
    dispatches = traced.dispatches
    if not len(dispatches):
        return WarmUp(STATS_WARM_UP)
    if given is not None:
        return warm_up_given(given, found.begins, len(dispatches))
    return warm_up_of(traced.firsts, found.begins, array("q", map(sub, dispatches.end_ns, dispatches.start_ns)))


def _shared(kernels: Sequence[KernelTime]) -> tuple[KernelTime, ...]:
    """With the share that each has of them all, the longest first."""
    total = sum(kernel.spread.total_ns for kernel in kernels)
    shared = [replace(kernel, share=kernel.spread.total_ns / total if total else 0.0) for kernel in kernels]
    return tuple(sorted(shared, key=lambda kernel: (-kernel.spread.total_ns, kernel.name, kernel.kind)))


def _families(kernels: Sequence[KernelTime], rules: Rules) -> tuple[FamilyTime, ...]:
    """Kernels by family and nature, the longest first. Rules may give one family several natures."""
    total = sum(kernel.spread.total_ns for kernel in kernels)
    members: dict[tuple[str, str], list[KernelTime]] = {}
    for kernel in kernels:
        members.setdefault(rules.family(kernel.name, kernel.kind), []).append(kernel)
    families = []
    for (family, nature), each in members.items():
        time = sum(kernel.spread.total_ns for kernel in each)
        calls = sum(kernel.spread.calls for kernel in each)
        families.append(FamilyTime(family, nature, len(each), calls, time, time / total if total else 0.0))
    return tuple(sorted(families, key=lambda family: (-family.total_ns, family.family, family.nature)))


def _notes(
    profile: Profile, traced: Traced, kernels: Sequence[KernelTime], timeline: Timeline | None
) -> tuple[str, ...]:
    """What a reader must know of this profile, and of how much the GPU waited."""
    notes = []
    if not kernels:
        notes.append("no kernel, copy or memory set is in these files: of GPU time nothing is known")
    unspread = [kernel for kernel in kernels if kernel.spread.median_ns is None]
    if unspread:
        whose = "every kernel" if len(unspread) == len(kernels) else f"{len(unspread)} of {len(kernels)} kernels"
        notes.append(f"{whose}: only statistics, so no median and no quartiles; a kernel trace gives them")
    if timeline is not None and timeline.gaps:
        notes.append(str(timeline))
    counted = sum(row.spread.calls for row in profile.stats if row.domain == "kernel")
    if traced.holds_kernels and counted and counted != traced.kernel_calls:
        notes.append(
            f"the trace holds {traced.kernel_calls:,} kernel dispatches and the statistics count {counted:,}: one is "
            "incomplete, or they are of different runs; shown is the trace"
        )
    unknown = [kernel for kernel in kernels if kernel.family == OTHER.name]
    share = sum(kernel.share for kernel in unknown)
    if unknown and share > UNKNOWN_SHARE:
        notes.append(
            f"{share:.1%} of GPU time is in kernels of no known family ({len(unknown)} of {len(kernels)}); a rules "
            "file can name theirs (--families)"
        )
    return tuple(notes)
