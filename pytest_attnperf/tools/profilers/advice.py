"""Gives recommendations from a profile, each based on figures of this profile only.

`Advice.gain` is the most that the whole could gain, by Amdahl's law: the gain if the part took no time at all. It is a
bound and no forecast. A rule gives nothing if the profile lacks its evidence. Rules on single kernels use their
launches; a launch that takes little of the GPU's time is not named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from pytest_attnperf.records.profiles import Advice, FamilyTime, ProfileSummary
from pytest_attnperf.records.time_units import format_ns
from pytest_attnperf.tools.profilers.amdahl import format_percent, overall_gain
from pytest_attnperf.tools.profilers.contradictions import list_doubted_kernels
from pytest_attnperf.tools.profilers.gemm_advice import GEMM_RULES
from pytest_attnperf.tools.profilers.launch_advice import LAUNCH_RULES
from pytest_attnperf.tools.profilers.name_matching import shorten_name

Rule = Callable[[ProfileSummary], Iterator[Advice]]

LEAVE_ALONE = 0.02
"""Share of GPU time below which a part is not worth optimising."""

WORTH_SAYING = 0.005
"""Share below which a part is not named: no profile could show that it was removed."""

IDLE_SHARE = 0.10
"""Share of the span from which idle time is reported; any stream of launches has smaller gaps."""

SHORT_KERNEL_NS = 10_000
"""Mean duration in ns below which a GPU may wait for launches of the host, which take about 5 to 10 us each."""

FIRST_SHARE = 0.05
"""Share of GPU time from which the extra time of first calls distorts totals and means."""

UNKNOWN = "other"
"""Nature of kernels that match no rule of a family."""

SET_UP = ("allocation", "loading and compiling")
"""Categories of `FirstCalls.host_ns` that a warmed-up program does not pay again."""

SHOWN = 3
"""Number of families that are named one by one; the rest is summed up."""

TO_AND_FROM_HOST = ("hosttodevice", "devicetohost", "htod", "dtoh")
"""Parts of a copy's name, ignoring case and '_': HOST_TO_DEVICE of rocprofv3, 'Memcpy HtoD' of torch.profiler."""


def collect_advice(summary: ProfileSummary) -> tuple[Advice, ...]:
    """Returns recommendations, the largest gain first and those without a gain last; () without GPU time."""
    if summary.total_ns <= 0:
        return ()
    found = [advice for rule in RULES for advice in rule(summary)]
    return tuple(sorted(found, key=lambda advice: -(advice.gain if advice.gain is not None else -math.inf)))


def advise_on_largest(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to work on the family with most of the time first, or to name its kernels if no rule knows them."""
    family = max(summary.families, key=lambda one: one.total_ns, default=None)
    if family is None:
        return
    kernels = [kernel for kernel in summary.kernels if kernel.family == family.family]
    top = max(kernels, key=lambda one: one.spread.total_ns, default=None)
    inside = (
        f"; most of it in {shorten_name(top.name)} ({format_percent(top.share)})" if top and len(kernels) > 1 else ""
    )
    if family.nature == UNKNOWN:
        text = "The time is in kernels of no known family: name them in a rules file (attnperf profile --families FILE)"
    else:
        text = f"The time is in {family.family}: work on it first"
    yield Advice(text, f"{_format_family(family)}{inside}", _compute_gain_limit(family.share))


def advise_leaving_alone(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice not to optimise kernel families that compute and take less than 2 % of GPU time each. It does not
    judge a small kernel of a large family, nor a family with a kernel that may compute nothing."""
    names = list_doubted_kernels(summary)
    doubted = {kernel.family for kernel in summary.kernels if kernel.name in names}
    small = [
        family
        for family in summary.families
        if family.share < LEAVE_ALONE and family.nature in ("compute", UNKNOWN) and family.family not in doubted
    ]
    small = sorted((family for family in small if family.total_ns), key=lambda one: -one.total_ns)
    for family in small[:SHOWN]:
        limit, partly = _compute_gain_limit(family.share), format_percent(overall_gain(family.share, 0.04))
        yield Advice(
            f"Leave {family.family} alone: infinitely fast it would gain at most {format_percent(limit)}",
            f"{_format_family(family)}; 4 % faster gains {partly}",
            limit,
        )
    rest = small[SHOWN:]
    if rest:
        share = sum(family.share for family in rest)
        yield Advice(
            f"Leave {len(rest)} further families alone, each below {LEAVE_ALONE:.0%}",
            f"together {format_percent(share)} of GPU time: {', '.join(family.family for family in rest)}",
            _compute_gain_limit(share),
        )


def advise_on_conversions(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to fuse families that only change layout or type, from 0.5 % of GPU time on."""
    for family in summary.families:
        if family.nature == "conversion" and family.share >= WORTH_SAYING:
            yield Advice(
                f"Fuse the {family.family} kernels into their neighbours, or keep the data in one type and layout",
                f"{_format_family(family)}: they only change how values are laid out or stored",
                _compute_gain_limit(family.share),
            )


def advise_on_copies(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to avoid copies between host and device that take 0.5 % of GPU time after the warm-up."""
    kernels = [kernel for kernel in summary.kernels if kernel.kind == "copy" and _is_host_copy(kernel.name)]
    for kernel in kernels:
        if kernel.steady is None or kernel.steady.total_ns / summary.total_ns < WORTH_SAYING:
            continue
        share = kernel.steady.total_ns / summary.total_ns
        yield Advice(
            f"Keep data on the device: {kernel.name} copies go on in steady state",
            f"{_format_count(kernel.steady.calls, 'copy', 'copies')} after the warm-up, "
            f"{format_ns(kernel.steady.total_ns)}, "
            f"{format_percent(share)} of GPU time",
            _compute_gain_limit(share),
        )


def advise_on_fills(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on families that fill memory: avoid them or, if only the warm-up has them, leave them out."""
    for family in summary.families:
        if family.nature != "fill" or family.share < WORTH_SAYING:
            continue
        kernels = [kernel for kernel in summary.kernels if kernel.family == family.family]
        if kernels and all(kernel.first_ns is not None and kernel.steady is None for kernel in kernels):
            yield Advice(
                f"Leave the {family.family} kernels out of every comparison: they run in the warm-up only",
                f"{_format_family(family)}, none of it after the warm-up",
            )
            continue
        yield Advice(
            f"Avoid the {family.family} kernels where the next kernel overwrites what they wrote, or fuse them into it",
            _format_family(family),
            _compute_gain_limit(family.share),
        )


def advise_on_idle(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice if no kernel ran in 10 % or more of the time from the first dispatch to the last, or of the median
    pass where passes are known apart from loading."""
    busy, span = summary.busy_ns, summary.span_ns
    passes = [share for phase in summary.phases for share in phase.idle_shares]
    idle = statistics.median(passes) if passes else 1 - busy / span if busy and span else 0.0
    if idle < IDLE_SHARE:
        return
    mean = summary.total_ns / summary.calls if summary.calls else math.inf
    where = (
        f"the median of {len(passes)} passes,"
        if passes
        else f"{format_ns(span or 0)} from the first dispatch to the last, warm-up"
    )
    evidence = (
        f"idle for {format_percent(idle)} of {where} and the profiler's own cost included; {summary.calls} dispatches "
        f"of {format_ns(mean)} on average; the gain is of elapsed time"
    )
    if mean < SHORT_KERNEL_NS:
        text = "The GPU waits between many short kernels: capture them in a graph, or fuse them"
    else:
        text = "The GPU waits between its kernels, which are not short: look for synchronisation and host work between"
    yield Advice(text, evidence, overall_gain(idle, math.inf))


def advise_on_first_calls(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to warm up, and to allocate and compile once, if first calls cost 5 % or more of the time."""
    first = summary.first_calls
    if first is None:
        return
    if first.excess_ns >= FIRST_SHARE * summary.total_ns:
        share = first.excess_ns / summary.total_ns
        yield Advice(
            "Warm up before anything is compared or served: first calls distort totals and means",
            f"the first dispatches of {_format_count(first.kernels, 'kernel', 'kernels')} exceed their later ones by "
            f"{format_ns(first.excess_ns)}, {format_percent(share)} of GPU time",
        )
    spent = {name: first.host_ns[name] for name in SET_UP if first.host_ns.get(name, 0) > 0}
    if sum(spent.values()) >= FIRST_SHARE * (summary.span_ns or summary.total_ns):
        parts = ", ".join(f"{name} {format_ns(ns)}" for name, ns in spent.items())
        yield Advice(
            "Allocate and compile once, before steady state: pool memory, and keep compiled kernels",
            f"host time: {parts}; GPU time {format_ns(summary.total_ns)}",
        )


RULES: Sequence[Rule] = (
    advise_on_largest,
    *GEMM_RULES,
    advise_on_conversions,
    advise_on_copies,
    advise_on_fills,
    advise_on_idle,
    advise_on_first_calls,
    *LAUNCH_RULES,
    advise_leaving_alone,
)


def _is_host_copy(name: str) -> bool:
    folded = name.casefold().replace("_", "")
    return any(part in folded for part in TO_AND_FROM_HOST)


def _compute_gain_limit(share: float) -> float:
    """Returns the gain of the whole if a part with this share took no time. Clamps the share, because rounding may make
    a sum of shares exceed 1."""
    return overall_gain(min(share, 1.0), math.inf)


def _format_family(family: FamilyTime) -> str:
    calls, kernels = _format_count(family.calls, "call", "calls"), _format_count(family.kernels, "kernel", "kernels")
    return f"{format_percent(family.share)} of GPU time: {format_ns(family.total_ns)} in {calls} of {kernels}"


def _format_count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
