"""Gives recommendations on single launches of kernels: scratch memory, occupancy, grids, and times that scatter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.profiles import Advice, Agent, ProfileSummary, ShapeTime, Spread
from pytest_attnperf.records.time_units import NS_PER_US, format_ns, format_times
from pytest_attnperf.tools.profilers.amdahl import format_percent, overall_gain
from pytest_attnperf.tools.profilers.name_matching import shorten_name
from pytest_attnperf.tools.profilers.resources import GridFill, grid_fill

SHOWN = 3
"""Most launches that one rule names."""

SPILL_SHARE = 0.005
GRID_SHARE = SPREAD_SHARE = 0.02
OCCUPANCY_SHARE = 0.10
"""Shares of GPU time from which a launch is named. Occupancy alone proves no loss of time, so its share is larger."""

LOW_OCCUPANCY = 0.25
"""Share of the wave slots, in whole workgroups, up to which occupancy is low."""

HIGH_CV = 0.10
"""Standard deviation over mean from which a mean cannot show a change of a few percent."""

SPREAD_CALLS = 10
"""Least calls to judge a spread."""


LIMITER_WORDS = {
    "vgprs": "registers",
    "sgprs": "SGPRs",
    "lds": "LDS",
    "slots": "the size of the workgroup",
    "workgroups": "the number of workgroups",
}


def advise_on_spills(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on the three longest kernels with scratch memory, of those that take 0.5 % or more of GPU time."""
    found = []
    for kernel in summary.kernels:
        launches = [one for one in kernel.shapes if kernel.kind == "kernel" and one.shape.scratch_bytes]
        total_ns = sum(one.spread.total_ns for one in launches)
        if launches and total_ns >= SPILL_SHARE * summary.total_ns:
            spread = Spread(sum(one.spread.calls for one in launches), total_ns)
            found.append((spread, max(one.shape.scratch_bytes or 0 for one in launches), kernel.name))
    for spread, scratch, name in sorted(found, key=lambda one: -one[0].total_ns)[:SHOWN]:
        share = spread.total_ns / summary.total_ns
        yield Advice(
            f"See why {shorten_name(name)} uses scratch memory: spilled registers, or arrays and calls that "
            f"need a stack "
            "(attnperf occupancy FILE shows which, and how to avoid spills)",
            f"{scratch} bytes of scratch per work-item; {_format_launch(spread, share)}",
            overall_gain(share, math.inf),
        )


def _advise_on_occupancy(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on launches with low occupancy and 10 % or more of GPU time: what limits it. One per kernel."""
    named: set[str] = set()
    for launch, share in _list_launches(summary, OCCUPANCY_SHARE, lambda one: _find_low_occupancy(one) is not None):
        found = _find_low_occupancy(launch)
        if found is None or launch.shape.name in named:
            continue
        named.add(launch.shape.name)
        waves = f"{found.whole_waves_per_simd:g} of {found.max_waves_per_simd} waves per SIMD"
        yield Advice(
            f"Occupancy of {shorten_name(launch.shape.name)} is low because of {_format_limiters(found)}. It is a "
            f"diagnosis and no goal: "
            "matrix kernels run well at 1 or 2 waves per SIMD, and only a measurement shows whether more would help",
            f"{waves} (calculated, no counter was read); {_format_launch(launch.spread, share)}",
            overall_gain(share, math.inf),
        )


def _advise_on_grids(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice on launches with fewer workgroups than compute units and 2 % or more of GPU time. The gain in it
    assumes that all units get work."""
    agents = {agent.name: agent for agent in summary.agents}
    for launch, share in _list_launches(summary, GRID_SHARE, lambda one: _find_idle_units(one, agents) is not None):
        fill = _find_idle_units(launch, agents)
        if fill is None:
            continue
        yield Advice(
            f"Split the work of {shorten_name(launch.shape.name)} into more workgroups, or run other work at the "
            f"same time: its "
            "grid is smaller than the device",
            f"{fill.workgroups} workgroups on {fill.units} compute units leave {fill.idle_units} without work; "
            f"{_format_launch(launch.spread, share)}; the gain assumes that all are used",
            overall_gain(share, fill.units / fill.workgroups - 1),
        )


def _advise_on_scatter(summary: ProfileSummary) -> Iterator[Advice]:
    """Yields advice to trace kernels again whose times after the warm-up vary much. Leaves out kernels with several
    launch sizes, because their times differ anyway."""
    kernels = [kernel for kernel in summary.kernels if kernel.share >= SPREAD_SHARE and len(kernel.shapes) <= 1]
    scattered = [(kernel, kernel.steady) for kernel in kernels if kernel.steady and _has_scatter(kernel.steady)]
    for kernel, steady in sorted(scattered, key=lambda pair: -pair[0].spread.total_ns)[:SHOWN]:
        extremes = (
            "" if steady.min_ns is None or steady.max_ns is None else _format_extremes(steady.min_ns, steady.max_ns)
        )
        yield Advice(
            f"Trace {shorten_name(kernel.name)} again with fixed clocks and more passes, and compare medians: its mean "
            "cannot show a change of a few percent",
            f"standard deviation {format_percent(steady.cv or 0.0)} of the mean in {steady.calls} calls of steady state"
            f"{extremes}; {format_percent(kernel.share)} of GPU time",
        )


LAUNCH_RULES: tuple[Callable[[ProfileSummary], Iterator[Advice]], ...] = (
    advise_on_spills,
    _advise_on_occupancy,
    _advise_on_grids,
    _advise_on_scatter,
)


def _list_launches(
    summary: ProfileSummary, least: float, wanted: Callable[[ShapeTime], bool]
) -> list[tuple[ShapeTime, float]]:
    """Returns the three longest `wanted` launches with at least the share `least` of GPU time, each with its share."""
    found = [
        (launch, launch.spread.total_ns / summary.total_ns)
        for kernel in summary.kernels
        if kernel.kind == "kernel"
        for launch in kernel.shapes
        if launch.spread.total_ns >= least * summary.total_ns and wanted(launch)
    ]
    return sorted(found, key=lambda pair: -pair[1])[:SHOWN]


def _find_low_occupancy(launch: ShapeTime) -> Occupancy | None:
    """Returns the launch's occupancy if it is at most a quarter of the wave slots, else None."""
    found = launch.occupancy
    return found if found and found.whole_waves_per_simd <= LOW_OCCUPANCY * found.max_waves_per_simd else None


def _find_idle_units(launch: ShapeTime, agents: Mapping[str, Agent]) -> GridFill | None:
    """Returns how a launch's grid fills the device if it leaves compute units idle, else None."""
    fill = grid_fill(launch.shape, launch.occupancy, agents.get(launch.shape.agent))
    return fill if fill and fill.workgroups and fill.idle_units else None


def _format_limiters(found: Occupancy) -> str:
    words = " and ".join(LIMITER_WORDS.get(name, name) for name in found.limiters)
    return words or f"whole workgroups of {found.waves_per_workgroup} waves"


def _has_scatter(spread: Spread) -> bool:
    return spread.calls >= SPREAD_CALLS and spread.cv is not None and spread.cv >= HIGH_CV


def _format_extremes(least_ns: int, most_ns: int) -> str:
    return f", {format_times([least_ns / NS_PER_US, most_ns / NS_PER_US], ' to ')}"


def _format_launch(spread: Spread, share: float) -> str:
    calls = "1 call" if spread.calls == 1 else f"{spread.calls} calls"
    return f"{format_percent(share)} of GPU time: {format_ns(spread.total_ns)} in {calls}"
