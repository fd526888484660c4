"""Sums up one profile: where time goes, its spread, the warm-up, findings and advice.

The time of each kernel comes from traces or statistics; shares follow once the total is known. Where work stands
outside the passes, such as the loading of a model, these are summed up apart, and advice is about them alone.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import sub

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profiles import (
    Agent,
    Confidence,
    FamilyTime,
    FirstCalls,
    KernelShape,
    KernelTime,
    PhaseKind,
    PhaseTime,
    ProfileSource,
    ProfileSummary,
    Spread,
)
from pytest_attnperf.tools.profilers.advice import collect_advice
from pytest_attnperf.tools.profilers.amdahl import compute_gains
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.contradictions import find_contradictions
from pytest_attnperf.tools.profilers.dispatches import Dispatches, Timeline, compute_timeline
from pytest_attnperf.tools.profilers.first_calls import (
    KERNELS,
    Traced,
    TracedKernel,
    WarmUp,
    infer_warm_up,
    sum_first_calls,
    sum_host_times,
    use_given_warm_up,
)
from pytest_attnperf.tools.profilers.kernel_evidence import Classified, classify_kernels
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, OTHER, FamilyRules
from pytest_attnperf.tools.profilers.name_matching import shorten_name
from pytest_attnperf.tools.profilers.passes import Calls, PassesFound, find_passes
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.resources import shape_time
from pytest_attnperf.tools.profilers.spreads import add_spreads, compute_spread, join_durations

UNKNOWN_SHARE = 0.05
"""Share of GPU time in kernels of no known family from which a note reports it."""

STATS_WARM_UP = "unknown: statistics count every dispatch, warm-up included, and have no order"

WITHOUT_DISPATCHES = ("stats", "agent_info", "counter_collection", "api_trace", "memory_copy_trace")
"""Parts of the forms of sources without kernels' resources."""


def summarise_profile(
    profile: Profile,
    *,
    rules: FamilyRules | None = None,
    warm_up: int | None = None,
    passes: int | None = None,
    layers: int | None = None,
    device: DeviceSpec | None = None,
) -> ProfileSummary:
    """Returns the summary of a profile, with the options of `analyse_profile`. Raises UsageError as that does."""
    return analyse_profile(profile, rules=rules, warm_up=warm_up, passes=passes, layers=layers, device=device).summary


def analyse_profile(
    profile: Profile,
    *,
    rules: FamilyRules | None = None,
    warm_up: int | None = None,
    passes: int | None = None,
    layers: int | None = None,
    device: DeviceSpec | None = None,
) -> AnalysedProfile:
    """Returns a profile with its summary, and with where its passes are.

    rules      rules of kernel families; default: those of the package
    warm_up    passes to leave out of steady state if their beginnings are known, else dispatches; default: inferred
    passes     number of forward passes; default: inferred
    layers     number of layers of each pass; default: inferred
    device     its peaks are limits for the profile's figures
    Raises UsageError for a number that is too small.
    """
    for name, value, least in (("warm-up", warm_up, 0), ("passes", passes, 1), ("layers", layers, 1)):
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}, must be at least {least}")
    rules = rules or FamilyRules.load_default()
    classified = classify_kernels(profile.dispatches, rules)
    rules = rules.with_families({name: one.family for name, one in classified.items()})
    traced = Traced.from_dispatches(profile.dispatches, rules)
    found = find_passes(_count_calls(profile, traced, rules), passes=passes, layers=layers)
    cut = _choose_warm_up(traced, found, warm_up)
    kernels = _add_shares(list_trace_kernels(traced, cut, profile) + list_stats_kernels(profile, traced, rules))
    kernels = tuple(_add_evidence(kernel, classified) for kernel in kernels)
    families = _group_families(kernels, rules)
    timeline = compute_timeline(profile.dispatches)
    phases = _cut_phases(traced, found, rules)
    host = sorted((row for row in profile.stats if row.domain == "api"), key=lambda row: -row.spread.total_ns)
    host_ns = sum_host_times(host)
    summary = ProfileSummary(
        name=profile.name,
        sources=profile.sources,
        agents=profile.agents,
        total_ns=sum(kernel.spread.total_ns for kernel in kernels),
        calls=sum(kernel.spread.calls for kernel in kernels),
        kernels=kernels,
        families=families,
        gains=compute_gains(families),
        span_ns=timeline.span_ns if timeline else None,
        busy_ns=timeline.busy_ns if timeline else None,
        warm_up=cut.text,
        passes=found.passes,
        first_calls=_find_first_calls(profile, traced, host_ns),
        host=tuple(host),
        counters=profile.counters,
        problems=profile.problems,
        notes=profile.notes + _list_notes(profile, traced, kernels, timeline),
    )
    if phases:
        summary = replace(summary, phases=phases)
        summary = replace(summary, in_passes=_sum_up_passes(summary, profile, traced, found, cut, rules))
    summary = replace(summary, findings=find_contradictions(summary, device, stats=profile.stats))
    summary = replace(summary, advice=collect_advice(summary.in_passes or summary))
    return AnalysedProfile(profile, summary, found.begins, found.ends)


def _sum_up_passes(
    summary: ProfileSummary, profile: Profile, traced: Traced, found: PassesFound, cut: WarmUp, rules: FamilyRules
) -> ProfileSummary:
    """Returns the summary of the phase of the passes alone: its kernels, families, gains and times. What concerns the
    whole run, such as first calls and what the host did, is left out."""
    first, behind = found.begins[0], found.ends[-1]
    inside = traced.dispatches.select_range(first, behind)
    warm_up = WarmUp(cut.text, max(0, cut.before - first))
    known = {kernel.name: kernel for kernel in summary.kernels}
    kernels = tuple(
        replace(kernel, confidence=known[kernel.name].confidence, evidence=known[kernel.name].evidence)
        for kernel in _add_shares(list_trace_kernels(Traced.from_dispatches(inside, rules), warm_up, profile))
    )
    families = _group_families(kernels, rules)
    timeline = compute_timeline(inside)
    return replace(
        summary,
        total_ns=inside.total_ns,
        calls=len(inside),
        kernels=kernels,
        families=families,
        gains=compute_gains(families),
        span_ns=timeline.span_ns if timeline else None,
        busy_ns=timeline.busy_ns if timeline else None,
        first_calls=None,
        host=(),
        counters=(),
        problems=(),
        notes=(),
        phases=tuple(phase for phase in summary.phases if phase.kind is PhaseKind.PASSES),
        is_part=True,
    )


def _add_evidence(kernel: KernelTime, classified: Mapping[str, Classified]) -> KernelTime:
    found = classified.get(kernel.name) if kernel.kind == "kernel" else None
    return replace(kernel, confidence=found.confidence, evidence=found.evidence) if found else kernel


def _find_first_calls(profile: Profile, traced: Traced, host_ns: dict[str, int]) -> FirstCalls | None:
    """Returns the costs of first calls, with the time from first host call to first dispatch if both are known; None if
    there are neither host times nor kernels in a trace."""
    if not host_ns and not traced.firsts:
        return None
    found = sum_first_calls(traced.firsts, host_ns)
    if profile.api_begin_ns is None or not len(profile.dispatches):
        return found
    before_ns = profile.dispatches.start_ns[0] - profile.api_begin_ns
    return replace(found, before_ns=before_ns) if before_ns >= 0 else found


def _count_calls(profile: Profile, traced: Traced, rules: FamilyRules) -> Calls:
    """Returns the calls by kernel, with copies and fills apart: from the trace (of its device with most calls) or,
    without a trace, from statistics."""
    if traced.has_kernels:
        return traced.count_calls()
    counts: dict[str, int] = {}
    apart: dict[str, int] = {}
    for row in profile.stats:
        if row.domain == "kernel":
            into = apart if rules.is_memory_work(row.name) else counts
            into[row.name] = into.get(row.name, 0) + row.spread.calls
    attention = [name for name in counts if rules.find_family(name).name == ATTENTION]
    return Calls({name: count for name, count in counts.items() if count}, attention, apart=apart)


def _choose_warm_up(traced: Traced, found: PassesFound, given: int | None) -> WarmUp:
    dispatches = traced.dispatches
    if not len(dispatches):
        return WarmUp(STATS_WARM_UP)
    if given is not None:
        return use_given_warm_up(given, found.begins, len(dispatches))
    return infer_warm_up(traced.firsts, found.begins, array("q", map(sub, dispatches.end_ns, dispatches.start_ns)))


def _add_shares(kernels: Sequence[KernelTime]) -> tuple[KernelTime, ...]:
    """Returns the kernels with their shares of the time of all of them, the longest first."""
    total = sum(kernel.spread.total_ns for kernel in kernels)
    shared = [replace(kernel, share=kernel.spread.total_ns / total if total else 0.0) for kernel in kernels]
    return tuple(sorted(shared, key=lambda kernel: (-kernel.spread.total_ns, kernel.name, kernel.kind)))


def _cut_phases(traced: Traced, found: PassesFound, rules: FamilyRules) -> tuple[PhaseTime, ...]:
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
        families = _group_families(_list_kernels(inside), rules)
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


def _group_families(kernels: Sequence[KernelTime], rules: FamilyRules) -> tuple[FamilyTime, ...]:
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


def _list_notes(
    profile: Profile, traced: Traced, kernels: Sequence[KernelTime], timeline: Timeline | None
) -> tuple[str, ...]:
    """Returns notes on what the profile lacks (medians, families, dispatches), and how much the GPU waited."""
    notes = []
    if not kernels:
        notes.append("no kernel, copy or memory set is in these files: GPU time is unknown")
    unspread = [kernel for kernel in kernels if kernel.spread.median_ns is None]
    if unspread:
        whose = "every kernel" if len(unspread) == len(kernels) else f"{len(unspread)} of {len(kernels)} kernels"
        notes.append(f"{whose}: only statistics, so no median and no quartiles; a kernel trace gives them")
    if timeline is not None and timeline.gaps:
        notes.append(str(timeline))
    counted = sum(row.spread.calls for row in profile.stats if row.domain == "kernel")
    if traced.has_kernels and counted and counted != traced.kernel_calls:
        notes.append(
            f"the trace holds {traced.kernel_calls:,} kernel dispatches and the statistics count {counted:,}: one is "
            "incomplete, or they are of different runs; shown is the trace"
        )
    for kernel in kernels:
        if kernel.evidence:
            doubtful = kernel.confidence is Confidence.DOUBTFUL
            what = f"{kernel.family} by its name, but" if doubtful else f"likely {kernel.family}, in spite of its name:"
            notes.append(f"{shorten_name(kernel.name)}: {what} {'; '.join(kernel.evidence)}")
    unknown = [kernel for kernel in kernels if kernel.family == OTHER.name]
    share = sum(kernel.share for kernel in unknown)
    if unknown and share > UNKNOWN_SHARE:
        notes.append(
            f"{share:.1%} of GPU time is in kernels of no known family ({len(unknown)} of {len(kernels)}); a rules "
            "file can name theirs (--families)"
        )
    return tuple(notes)


def list_trace_kernels(traced: Traced, warm_up: WarmUp, profile: Profile) -> tuple[KernelTime, ...]:
    """Returns every kernel of a trace with its times in all and after the warm-up, and its launch sizes, longest first.
    Shares are 0 until `_add_shares`."""
    before = Counter(traced.dispatches.shape[: warm_up.before])
    form = _find_form(profile.sources)
    found = []
    for kernel in traced.kernels:
        times = [
            shape_time(shape, compute_spread(traced.durations[at]), _find_agent(shape, profile.agents), form=form)
            for at, shape in ((at, traced.dispatches.shapes[at]) for at in kernel.shapes)
        ]
        whole = (
            times[0].spread
            if len(times) == 1
            else compute_spread(join_durations(traced.durations[at] for at in kernel.shapes))
        )
        found.append(
            KernelTime(
                name=kernel.name,
                family=kernel.family,
                kind=kernel.kind,
                spread=whole,
                share=0.0,
                steady=_compute_steady_spread(traced, kernel, whole, before, warm_up),
                first_ns=traced.durations[kernel.first][0],
                shapes=tuple(sorted(times, key=lambda time: -time.spread.total_ns)),
            )
        )
    return tuple(found)


def _compute_steady_spread(
    traced: Traced, kernel: TracedKernel, whole: Spread, before: Counter[int], warm_up: WarmUp
) -> Spread | None:
    skipped = {at: before[at] for at in kernel.shapes if before[at]}
    if kernel.name in warm_up.first_of and kernel.kind in KERNELS:
        skipped[kernel.first] = max(1, skipped.get(kernel.first, 0))
    if not skipped:
        return whole
    rest = join_durations(traced.durations[at][skipped.get(at, 0) :] for at in kernel.shapes)
    return compute_spread(rest) if rest else None


def _find_form(sources: Sequence[ProfileSource]) -> str:
    """Returns the kind of file that holds the kernels' resources; '' if there are several kinds or none."""
    forms = {source.form for source in sources if not any(part in source.form for part in WITHOUT_DISPATCHES)}
    return forms.pop() if len(forms) == 1 else ""


def _find_agent(shape: KernelShape, agents: Sequence[Agent]) -> Agent | None:
    """Returns the device that a dispatch names, or the only GPU if it names none; else None."""
    named = next((agent for agent in agents if agent.name == shape.agent), None)
    gpus = [agent for agent in agents if agent.kind == "gpu"]
    return named or (gpus[0] if len(gpus) == 1 and not shape.agent else None)


def list_stats_kernels(profile: Profile, traced: Traced, rules: FamilyRules) -> tuple[KernelTime, ...]:
    """Returns the kernels and copies of *_stats files, each kind only if the trace has none of it. Shares are 0."""
    spreads: dict[tuple[str, str], list[Spread]] = {}
    for row in profile.stats:
        if (row.domain == "kernel" and not traced.has_kernels) or (row.domain == "copy" and not traced.has_copies):
            spreads.setdefault((row.name, row.domain), []).append(row.spread)
    return tuple(
        KernelTime(name, rules.find_family(name, kind).name, kind, add_spreads(each), 0.0)
        for (name, kind), each in spreads.items()
    )
