from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.records.profiles import Agent, KernelShape, KernelTime, ProfileSource, Spread, StatsRow
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.first_calls import Traced, WarmUp
from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import list_stats_kernels, list_trace_kernels
from pytest_attnperf.tools.profilers.spreads import compute_spread

MI300X = Agent("Agent 4", arch="gfx942", compute_units=304, wave_size=64)
SMALL = KernelShape("attn_fwd", workgroup=(256, 1, 1), grid_items=(256, 1, 1), vgprs=96, accum_vgprs=0, sgprs=48)
LARGE = KernelShape("attn_fwd", workgroup=(256, 1, 1), grid_items=(25600, 1, 1), vgprs=96, accum_vgprs=0, sgprs=48)
COPY = KernelShape("HOST_TO_DEVICE", kind="copy")
ROWS = ((LARGE, 90), (COPY, 5), (SMALL, 10), (LARGE, 60), (SMALL, 11), (LARGE, 62))


def _times(warm_up: WarmUp, *agents: Agent, rows: tuple[tuple[KernelShape, int], ...] = ROWS) -> dict[str, KernelTime]:
    builder, now = DispatchesBuilder(), 0
    for shape, duration in rows:
        builder.add(builder.number_of(shape), now, now + duration)
        now += duration
    sources = (ProfileSource("a", "rocprofv3 kernel_trace"), ProfileSource("b", "rocprofv3 api_stats"))
    profile = Profile("run", sources, builder.build(), agents=agents)
    return {
        time.name: time
        for time in list_trace_kernels(
            Traced.from_dispatches(profile.dispatches, FamilyRules.load_default()), warm_up, profile
        )
    }


def test_sizes_are_told_apart_and_together() -> None:
    """Every size has its own spread, the one that takes longest first, and the kernel has that of them all."""
    kernel = _times(WarmUp(""))["attn_fwd"]
    assert [time.shape for time in kernel.shapes] == [LARGE, SMALL]
    assert kernel.shapes[0].spread == compute_spread([90, 60, 62])
    assert kernel.spread == kernel.steady == compute_spread([90, 10, 60, 11, 62])
    assert kernel.first_ns == 90


def test_warm_up_leaves_the_steady_spread() -> None:
    """Dispatches before a place are left out; a kernel that ran before it only has no steady state."""
    times = _times(WarmUp("", before=3))
    assert times["attn_fwd"].steady == compute_spread([60, 11, 62])
    assert times["attn_fwd"].spread.calls == 5
    assert times["HOST_TO_DEVICE"].steady is None


def test_first_dispatch_alone_can_be_left_out() -> None:
    """Where the first dispatch of a kernel is warm-up, it and nothing else is missing from steady state."""
    times = _times(WarmUp("", first_of=frozenset({"attn_fwd"})))
    assert times["attn_fwd"].steady == compute_spread([10, 60, 11, 62])
    assert times["HOST_TO_DEVICE"].steady == compute_spread([5])
    both = _times(WarmUp("", before=4, first_of=frozenset({"attn_fwd"})))
    assert both["attn_fwd"].steady == compute_spread([11, 62])


def test_occupancy_is_that_of_the_dispatch_s_device() -> None:
    """The only GPU serves dispatches that name none; with two GPUs nobody guesses."""
    alone = _times(WarmUp(""), MI300X, Agent("Agent 0", kind="cpu"))["attn_fwd"].shapes[0]
    assert alone.occupancy is not None
    assert alone.occupancy.waves_per_simd == 5
    two = _times(WarmUp(""), MI300X, Agent("Agent 5", arch="gfx1151"))["attn_fwd"].shapes[0]
    assert two.occupancy is None
    named = replace(LARGE, agent="Agent 4")
    found = _times(WarmUp(""), MI300X, Agent("Agent 5", arch="gfx1151"), rows=((named, 1),))["attn_fwd"].shapes[0]
    assert found.occupancy == alone.occupancy
    unknown = _times(WarmUp(""), replace(MI300X, name="Agent 9"), rows=((named, 1),))["attn_fwd"].shapes[0]
    assert unknown.occupancy is None


def test_statistics_serve_where_no_trace_does() -> None:
    """Kernels of statistics count beside a trace of copies, and copies beside one of kernels; two files add up."""
    rows = tuple(StatsRow(domain, name, Spread(2, 8)) for domain, name in (("kernel", "k"), ("copy", "HOST_TO_DEVICE")))
    profile = Profile("run", (), stats=(*rows, rows[0], StatsRow("api", "hipFree", Spread(1, 1))))

    def found(traced: KernelShape | None) -> list[tuple[str, str, int]]:
        builder = DispatchesBuilder()
        if traced:
            builder.add(builder.number_of(traced), 0, 1)
        times = list_stats_kernels(
            profile, Traced.from_dispatches(builder.build(), FamilyRules.load_default()), FamilyRules.load_default()
        )
        return [(time.kind, time.family, time.spread.calls) for time in times]

    assert found(None) == [("kernel", "other", 4), ("copy", "memory copy", 2)]
    assert found(SMALL) == [("copy", "memory copy", 2)]
    assert found(COPY) == [("kernel", "other", 4)]
