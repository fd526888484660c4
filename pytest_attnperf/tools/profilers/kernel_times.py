"""The time of every kernel, of traces and of statistics; shares are added by who knows the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_attnperf.records.profiles import Agent, KernelShape, KernelTime, Source, Spread
from pytest_attnperf.tools.profilers.first_calls import WarmUp
from pytest_attnperf.tools.profilers.kernel_families import Rules
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.resources import shape_time
from pytest_attnperf.tools.profilers.spreads import added, joined, spread_of
from pytest_attnperf.tools.profilers.traced import KERNELS, Traced, TracedKernel

WITHOUT_DISPATCHES = ("stats", "agent_info", "counter_collection", "api_trace", "memory_copy_trace")
"""Within the form of a source that tells nothing of kernels' resources."""


def from_trace(traced: Traced, warm_up: WarmUp, profile: Profile) -> tuple[KernelTime, ...]:
    """Every kernel of a trace, with its sizes, the longest size first."""
    before = Counter(traced.dispatches.shape[: warm_up.before])
    form = _form(profile.sources)
    found = []
    for kernel in traced.kernels:
        times = [
            shape_time(shape, spread_of(traced.durations[at]), _agent(shape, profile.agents), form=form)
            for at, shape in ((at, traced.dispatches.shapes[at]) for at in kernel.shapes)
        ]
        whole = times[0].spread if len(times) == 1 else spread_of(joined(traced.durations[at] for at in kernel.shapes))
        found.append(
            KernelTime(
                name=kernel.name,
                family=kernel.family,
                kind=kernel.kind,
                spread=whole,
                share=0.0,
                steady=_steady(traced, kernel, whole, before, warm_up),
                first_ns=traced.durations[kernel.first][0],
                shapes=tuple(sorted(times, key=lambda time: -time.spread.total_ns)),
            )
        )
    return tuple(found)


def _steady(
    traced: Traced, kernel: TracedKernel, whole: Spread, before: Counter[int], warm_up: WarmUp
) -> Spread | None:
    skipped = {at: before[at] for at in kernel.shapes if before[at]}
    if kernel.name in warm_up.first_of and kernel.kind in KERNELS:
        skipped[kernel.first] = max(1, skipped.get(kernel.first, 0))
    if not skipped:
        return whole
    rest = joined(traced.durations[at][skipped.get(at, 0) :] for at in kernel.shapes)
    return spread_of(rest) if rest else None


def _form(sources: Sequence[Source]) -> str:
    """What wrote the resources of kernels; '' where several kinds of file did."""
    forms = {source.form for source in sources if not any(part in source.form for part in WITHOUT_DISPATCHES)}
    return forms.pop() if len(forms) == 1 else ""


def _agent(shape: KernelShape, agents: Sequence[Agent]) -> Agent | None:
    """The device of a dispatch by its name, or the only one there is where dispatches name none."""
    named = next((agent for agent in agents if agent.name == shape.agent), None)
    gpus = [agent for agent in agents if agent.kind == "gpu"]
    return named or (gpus[0] if len(gpus) == 1 and not shape.agent else None)


def from_stats(profile: Profile, traced: Traced, rules: Rules) -> tuple[KernelTime, ...]:
    """Kernels and copies of statistics, where a trace holds none of that kind."""
    spreads: dict[tuple[str, str], list[Spread]] = {}
    for row in profile.stats:
        if (row.domain == "kernel" and not traced.holds_kernels) or (row.domain == "copy" and not traced.holds_copies):
            spreads.setdefault((row.name, row.domain), []).append(row.spread)
    return tuple(
        KernelTime(name, rules.family(name, kind).name, kind, added(each), 0.0)
        for (name, kind), each in spreads.items()
    )
