"""Recommendations about single kernels: spilling, occupancy, grids that are too small, times that scatter.

Their figures are in the launches of a kernel; a kernel that takes little of the GPU's time is not named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.profiles import Advice, Agent, ProfileSummary, ShapeTime, Spread
from pytest_attnperf.tools.profilers.amdahl import overall_gain, percent
from pytest_attnperf.tools.profilers.name_matching import short_name
from pytest_attnperf.tools.profilers.resources import GridFill, grid_fill

SPILL_SHARE = 0.005
GRID_SHARE = SPREAD_SHARE = 0.02
OCCUPANCY_SHARE = 0.10
"""Shares of GPU time from which on a launch is named; occupancy is only a diagnosis, so it needs more."""

LOW_OCCUPANCY = 0.25
"""Of the wave slots, in whole workgroups."""

HIGH_CV = 0.10
"""Standard deviation over mean: such a mean cannot show a change of a few percent."""

SPREAD_CALLS = 10
"""Fewer calls do not tell a spread."""

SHOWN = 3
"""Launches that a rule names at most, the longest first."""

LIMITER_WORDS = {
    "vgprs": "registers",
    "sgprs": "SGPRs",
    "lds": "LDS",
    "slots": "the size of the workgroup",
    "workgroups": "the number of workgroups",
}


def spills(summary: ProfileSummary) -> Iterator[Advice]:
    """Scratch memory in kernels that take time."""
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
            f"See why {short_name(name)} uses scratch memory: spilled registers, or arrays and calls that need a stack "
            "(attnperf occupancy FILE tells which, and what would avoid spills)",
            f"{scratch} bytes of scratch per work-item; {_figures(spread, share)}",
            overall_gain(share, math.inf),
        )


def low_occupancy(summary: ProfileSummary) -> Iterator[Advice]:
    """Few waves fit: what keeps them out, as a question and not as a goal. Of a kernel its longest launch is named."""
    named: set[str] = set()
    for launch, share in _launches(summary, OCCUPANCY_SHARE, lambda one: _low(one) is not None):
        found = _low(launch)
        if found is None or launch.shape.name in named:
            continue
        named.add(launch.shape.name)
        waves = f"{found.whole_waves_per_simd:g} of {found.max_waves_per_simd} waves per SIMD"
        yield Advice(
            f"Occupancy of {short_name(launch.shape.name)} is low by {_limiter(found)}. It is a diagnosis and no goal: "
            "matrix kernels run well at 1 or 2 waves per SIMD, and only a measurement tells whether more would help",
            f"{waves} (calculated, no counter was read); {_figures(launch.spread, share)}",
            overall_gain(share, math.inf),
        )


def small_grids(summary: ProfileSummary) -> Iterator[Advice]:
    """Launches of fewer workgroups than there are compute units. The gain is that of spreading the work over all."""
    agents = {agent.name: agent for agent in summary.agents}
    for launch, share in _launches(summary, GRID_SHARE, lambda one: _starved(one, agents) is not None):
        fill = _starved(launch, agents)
        if fill is None:
            continue
        yield Advice(
            f"Split the work of {short_name(launch.shape.name)} into more workgroups, or run something beside it: its "
            "grid is smaller than the device",
            f"{fill.workgroups} workgroups on {fill.units} compute units leave {fill.idle_units} without work; "
            f"{_figures(launch.spread, share)}; the gain is with all of them used",
            overall_gain(share, fill.units / fill.workgroups - 1),
        )


def scattered_times(summary: ProfileSummary) -> Iterator[Advice]:
    """Steady times of one size of launch that scatter. Several sizes differ by themselves, and are not looked at."""
    kernels = [kernel for kernel in summary.kernels if kernel.share >= SPREAD_SHARE and len(kernel.shapes) <= 1]
    scattered = [(kernel, kernel.steady) for kernel in kernels if kernel.steady and _scatters(kernel.steady)]
    for kernel, steady in sorted(scattered, key=lambda pair: -pair[0].spread.total_ns)[:SHOWN]:
        extremes = "" if steady.min_ns is None or steady.max_ns is None else _extremes(steady.min_ns, steady.max_ns)
        yield Advice(
            f"Trace {short_name(kernel.name)} again with fixed clocks and more passes, and compare medians: its mean "
            "cannot show a change of a few percent",
            f"standard deviation {percent(steady.cv or 0.0)} of the mean in {steady.calls} calls of steady state"
            f"{extremes}; {percent(kernel.share)} of GPU time",
        )


KERNEL_RULES: tuple[Callable[[ProfileSummary], Iterator[Advice]], ...] = (
    spills,
    low_occupancy,
    small_grids,
    scattered_times,
)


def _launches(
    summary: ProfileSummary, least: float, wanted: Callable[[ShapeTime], bool]
) -> list[tuple[ShapeTime, float]]:
    """Launches that take this share of GPU time, with their shares, the longest first, no more than are named."""
    found = [
        (launch, launch.spread.total_ns / summary.total_ns)
        for kernel in summary.kernels
        if kernel.kind == "kernel"
        for launch in kernel.shapes
        if launch.spread.total_ns >= least * summary.total_ns and wanted(launch)
    ]
    return sorted(found, key=lambda pair: -pair[1])[:SHOWN]


def _low(launch: ShapeTime) -> Occupancy | None:
    """The launch's occupancy, where it is low."""
    found = launch.occupancy
    return found if found and found.whole_waves_per_simd <= LOW_OCCUPANCY * found.max_waves_per_simd else None


def _starved(launch: ShapeTime, agents: Mapping[str, Agent]) -> GridFill | None:
    """How its grid fills the device, where it leaves compute units without work."""
    fill = grid_fill(launch.shape, launch.occupancy, agents.get(launch.shape.agent))
    return fill if fill and fill.workgroups and fill.idle_units else None


def _limiter(found: Occupancy) -> str:
    words = " and ".join(LIMITER_WORDS.get(name, name) for name in found.limiters)
    return words or f"whole workgroups of {found.waves_per_workgroup} waves"


def _scatters(spread: Spread) -> bool:
    return spread.calls >= SPREAD_CALLS and spread.cv is not None and spread.cv >= HIGH_CV


def _extremes(least_ns: int, most_ns: int) -> str:
    return f", {least_ns / 1e3:.4g} to {most_ns / 1e3:.4g} us"


def _figures(spread: Spread, share: float) -> str:
    calls = "1 call" if spread.calls == 1 else f"{spread.calls} calls"
    return f"{percent(share)} of GPU time: {spread.total_ns / 1e6:.4g} ms in {calls}"
