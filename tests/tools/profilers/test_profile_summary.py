from __future__ import annotations

import statistics
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import (
    Agent,
    KernelShape,
    KernelTime,
    Problem,
    ProfileSource,
    ProfileSummary,
    Spread,
    StatsRow,
)
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder, compute_timeline
from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import STATS_WARM_UP, summarise_profile

TRACE = (ProfileSource("run_kernel_trace.csv", "rocprofv3 kernel_trace", "ROCm 7.0 or later", 1953),)
GEMM = "Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI16x16x1_SN_LDSB0"
NORM = "void layer_norm_kernel<__half>(int, int, __half*, __half const*)"
BIAS = "void addBiasBatched_kernel<__half>(__half*, __half const*)"
CONVERTED = "void copyTypeConverted_kernel<__half, float>(__half*, float*, int)"
ATTENTION = "flash_attention_kernel"
COPY, FILL = "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned"
LAYER = (*[GEMM] * 8, *[NORM] * 4, *[BIAS] * 2, *[CONVERTED] * 5, ATTENTION, *[COPY] * 4)
ENDS = (*[GEMM] * 10, *[BIAS] * 6, *[CONVERTED] * 5, *[f"head_{number}" for number in range(8)])
TIMES_NS = {
    GEMM: 121_890_000,
    NORM: 11_440_000,
    BIAS: 8_120_000,
    FILL: 6_880_000,
    COPY: 1_220_000,
    CONVERTED: 4_190_000,
    ATTENTION: 2_350_000,
}
"""What a public profile of a chess network says: 5 passes of 15 layers on a Radeon 8060S, 157.16 ms in all."""

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=12)


def _profile(rows: Iterator[tuple[KernelShape, int]] | list[tuple[KernelShape, int]], gap: int = 0) -> Profile:
    """Dispatches one behind the other with these durations and gaps."""
    builder, now = DispatchesBuilder(), 1_000_000
    for shape, duration in rows:
        builder.add(builder.number_of(shape), now, now + duration)
        now += duration + gap
    return Profile("run", TRACE, builder.build())


def _network(first_pass: float = 1.0) -> list[tuple[KernelShape, int]]:
    """The profile's dispatches with its counts and times to the nanosecond; the first pass may take longer."""
    names = [*[FILL] * 4, *[COPY] * 4, *[*LAYER * 15, *ENDS] * 5]
    calls = {name: names.count(name) for name in names}
    left = {name: TIMES_NS.get(name, 133_750) for name in calls}
    rows = []
    for place, name in enumerate(names):
        duration = left[name] // calls[name]
        left[name] -= duration
        calls[name] -= 1
        slow = first_pass if 8 <= place < 8 + 389 else 1
        rows.append((KernelShape(name, agent="Agent 4"), round(duration * slow)))
    return rows


@pytest.fixture(scope="module")
def network() -> ProfileSummary:
    """The network's profile, summed up."""
    return summarise_profile(_profile(_network(), gap=500))


def test_total_and_families_of_the_network(network: ProfileSummary) -> None:
    """157.16 ms in 1,953 calls; 704 'memory copies' are 304 copies and 400 kernels that convert."""
    assert (network.total_ns, network.calls) == (157_160_000, 1953)
    found = {family.family: (family.nature, family.calls, family.total_ns) for family in network.families}
    assert found == {
        "GEMM": ("compute", 650, 121_890_000),
        "normalisation": ("compute", 300, 11_440_000),
        "bias add": ("compute", 180, 8_120_000),
        "fill": ("fill", 4, 6_880_000),
        "conversion": ("conversion", 400, 4_190_000),
        "attention": ("compute", 75, 2_350_000),
        "memory copy": ("copy", 304, 1_220_000),
        "other": ("other", 40, 1_070_000),
    }
    assert [kernel.name for kernel in network.kernels][:4] == [GEMM, NORM, BIAS, FILL]
    assert not any("no known family" in note for note in network.notes)
    assert [family.total_ns for family in network.families] == sorted((ns for *_, ns in found.values()), reverse=True)


def test_shares_and_gains_of_the_network(network: ProfileSummary) -> None:
    """Shares add up to 1, GEMM has 77.6 %, and attention of 1.5 % gains at most 1.52 %."""
    assert sum(kernel.share for kernel in network.kernels) == pytest.approx(1, abs=1e-12)
    assert sum(family.share for family in network.families) == pytest.approx(1, abs=1e-12)
    gains = {gain.name: gain for gain in network.gains}
    assert gains["GEMM"].share == pytest.approx(121.89 / 157.16)
    assert gains["attention"].limit == pytest.approx(2.35 / (157.16 - 2.35))
    assert len(gains) == len(network.families)


def test_passes_of_the_network(network: ProfileSummary) -> None:
    """5 passes of 15 layers, not the 3 batches of the command; fills and copies at the start are named as odd."""
    assert network.passes is not None
    assert (network.passes.count, network.passes.layers) == (5, 15)
    assert "75 calls of attention = 5 passes x 15 layers" in network.passes.how
    assert network.passes.odd == (
        f"{COPY}: 304 calls do not divide by 5 passes (copies and fills come from loading a model, too)",
        f"{FILL}: 4 calls do not divide by 5 passes (copies and fills come from loading a model, too)",
    )
    assert network.warm_up == (
        "8 dispatches before the first pass; no first dispatch of a kernel is far from its others; no first pass is "
        "slower than the median of 5 by 10%"
    )


def test_timeline_of_the_network(network: ProfileSummary) -> None:
    """The time in which something ran is the sum of the durations here, and the gaps are said."""
    assert network.busy_ns == network.total_ns
    assert network.span_ns == network.total_ns + 1952 * 500
    assert any("1,952 gaps between dispatches, median 500.0 ns" in note for note in network.notes)


def test_a_slow_first_pass_is_warm_up() -> None:
    """With a first pass of 1.5 times the usual time, steady state is the other four, of every kernel in them."""
    summary = summarise_profile(_profile(_network(first_pass=1.5)))
    assert summary.warm_up.startswith("the first 1 of 5 passes, against the median pass: +50%")
    steady = {kernel.name: kernel.steady for kernel in summary.kernels}
    assert steady[FILL] is None
    assert {name: spread.calls for name, spread in steady.items() if spread} == {
        GEMM: 520,
        NORM: 240,
        BIAS: 144,
        CONVERTED: 320,
        ATTENTION: 60,
        COPY: 240,
        **{f"head_{number}": 4 for number in range(8)},
    }
    attention = steady[ATTENTION]
    assert attention is not None
    assert attention.total_ns == pytest.approx(2_350_000 * 4 / 5, abs=60)


def test_warm_up_passes_and_layers_may_be_given() -> None:
    """Given numbers are used: 2 passes of warm-up, 3 passes claimed, and what does not fit is said."""
    profile = _profile(_network())
    assert summarise_profile(profile, warm_up=2).warm_up == "2 of 5 passes, as given (786 dispatches)"
    claimed = summarise_profile(profile, passes=3, layers=16).passes
    assert claimed is not None
    assert (claimed.count, claimed.layers) == (3, 16)
    assert f"{GEMM}: 650 calls do not divide by 3 passes" in claimed.odd
    assert "; the order shows 5 passes" in claimed.how


@pytest.mark.parametrize(("name", "value", "least"), [("warm-up", -1, 0), ("passes", 0, 1), ("layers", 0, 1)])
def test_impossible_numbers_are_refused(name: str, value: int, least: int) -> None:
    """The message holds the number and the least that is allowed."""
    given = {name.replace("-", "_"): value}
    with pytest.raises(UsageError, match=f"{name} is {value}, must be at least {least}"):
        summarise_profile(Profile("run", TRACE), **given)  # type: ignore[arg-type]


rows_of_traces = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 50), st.integers(1, 10**6)), min_size=1, max_size=40
)


@given(rows_of_traces, st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_summary_is_what_brute_force_finds(rows: list[tuple[int, int, int, int]], warm_up: int) -> None:
    """Counts, sums, medians and steady sums of random traces are those of lists, to the nanosecond."""
    builder = DispatchesBuilder()
    for number, size, start, duration in rows:
        shape = KernelShape(f"kernel_{number}", grid_items=(size, 1, 1))
        builder.add(builder.number_of(shape), start, start + duration)
    dispatches = builder.build()
    summary = summarise_profile(Profile("run", TRACE, dispatches), warm_up=warm_up, passes=10**6)
    every, steady = defaultdict(list), defaultdict(list)
    for place, (shape, start, end) in enumerate(dispatches):
        every[shape.name].append(end - start)
        if place >= warm_up:
            steady[shape.name].append(end - start)
    assert {kernel.name: kernel.first_ns for kernel in summary.kernels} == {
        name: each[0] for name, each in every.items()
    }
    for kernel in summary.kernels:
        own = every[kernel.name]
        assert (kernel.spread.calls, kernel.spread.total_ns) == (len(own), sum(own))
        assert kernel.spread.median_ns == statistics.median(own)
        assert sum(size.spread.total_ns for size in kernel.shapes) == sum(own)
        assert (kernel.steady.total_ns if kernel.steady else 0) == sum(steady[kernel.name])
    assert summary.total_ns == sum(family.total_ns for family in summary.families) == dispatches.total_ns
    assert sum(kernel.share for kernel in summary.kernels) == pytest.approx(1, abs=1e-12)


def _kernels(summary: ProfileSummary) -> dict[str, KernelTime]:
    return {kernel.name: kernel for kernel in summary.kernels}


def test_statistics_alone() -> None:
    """Without a trace there is no median, no span and no steady state, and all of that is said."""
    rows = tuple(
        StatsRow("kernel", name, Spread(calls, total, min_ns=1, max_ns=9, stddev_ns=2.0))
        for name, calls, total in (
            (GEMM, 650, 121_890),
            (ATTENTION, 75, 2_350),
            ("a", 5, 10),
            ("b", 5, 10),
            (COPY, 7, 3),
        )
    )
    host = (StatsRow("api", "hipMalloc", Spread(7, 336)), StatsRow("api", "hipLaunchKernel", Spread(9, 999)))
    summary = summarise_profile(Profile("run", TRACE, stats=(*rows, *host), notes=("from the reader",)))
    assert _kernels(summary)[GEMM].spread == rows[0].spread
    assert (summary.span_ns, summary.busy_ns, summary.warm_up) == (None, None, STATS_WARM_UP)
    assert all(kernel.steady is None and kernel.first_ns is None for kernel in summary.kernels)
    assert summary.notes[0] == "from the reader"
    assert any("every kernel: only statistics, so no median and no quartiles" in note for note in summary.notes)
    assert summary.passes is not None
    assert (summary.passes.count, summary.passes.layers) == (5, 15)
    assert [odd.partition(" (")[0] for odd in summary.passes.odd] == [f"{COPY}: 7 calls do not divide by 5 passes"]
    assert "(copies and fills" in summary.passes.odd[0]
    assert summary.first_calls is not None
    assert summary.first_calls.host_ns == {"launch": 999, "allocation": 336}
    assert [row.name for row in summary.host] == ["hipLaunchKernel", "hipMalloc"]


def test_kernels_without_calls_are_no_sign_of_passes() -> None:
    """A row of statistics that counts no call is no second kernel."""
    stats = (StatsRow("kernel", "a", Spread(5, 9)), StatsRow("kernel", "b", Spread(0, 0)))
    passes = summarise_profile(Profile("run", TRACE, stats=stats)).passes
    assert passes is not None
    assert "that needs at least two kernels" in passes.how


def test_trace_is_believed_before_statistics() -> None:
    """With a trace the statistics of kernels add nothing to the total, but a difference in calls is said."""
    stats = (StatsRow("kernel", GEMM, Spread(3, 99)), StatsRow("copy", "HOST_TO_DEVICE", Spread(1, 50)))
    profile = replace(_profile([(KernelShape(GEMM), 10), (KernelShape(GEMM), 20)]), stats=stats)
    summary = summarise_profile(profile)
    assert (summary.total_ns, summary.calls) == (80, 3)
    assert any("the trace holds 2 kernel dispatches and the statistics count 3" in note for note in summary.notes)
    assert any("1 of 2 kernels: only statistics" in note for note in summary.notes)
    agreeing = summarise_profile(replace(profile, stats=(replace(stats[0], spread=Spread(2, 30)),)))
    assert not any("the statistics count" in note for note in agreeing.notes)


def test_own_rules_name_unknown_kernels(tmp_path: Path) -> None:
    """Time in kernels of no known family is said, with the option that helps, and a rules file names them."""
    profile = _profile([(KernelShape("JacobiIterationKernel(int)"), 10), (KernelShape(ATTENTION), 10)])
    assert any(
        "50.0% of GPU time is in kernels of no known family (1 of 2)" in note
        for note in summarise_profile(profile).notes
    )
    path = tmp_path / "rules.json"
    path.write_text(
        '{"schema": 1, "rules": [{"pattern": "^Jacobi", "family": "stencil", "nature": "compute"}]}', encoding="utf-8"
    )
    named = summarise_profile(profile, rules=FamilyRules.load(path))
    assert [family.family for family in named.families] == ["attention", "stencil"]
    assert not any("no known family" in note for note in named.notes)


def test_two_natures_of_one_family_are_two_rows(tmp_path: Path) -> None:
    """A family that rules give two natures is listed once per nature, so no nature is lost."""
    path = tmp_path / "rules.json"
    rule = '{{"pattern": "{0}", "family": "mine", "nature": "{1}"}}'
    rules = ", ".join(rule.format(name, nature) for name, nature in (("^a", "compute"), ("^b", "conversion")))
    path.write_text(f'{{"schema": 1, "rules": [{rules}]}}', encoding="utf-8")
    summary = summarise_profile(_profile([(KernelShape("a"), 1), (KernelShape("b"), 2)]), rules=FamilyRules.load(path))
    assert [(family.family, family.nature) for family in summary.families] == [
        ("mine", "conversion"),
        ("mine", "compute"),
    ]


def test_one_of_two_devices_tells_the_passes() -> None:
    """Where two devices run the same model beside each other, the passes are those of one of them."""
    rows = [
        (KernelShape(name, agent=agent), 10)
        for _ in range(4)
        for name in ("embed", *[ATTENTION, GEMM] * 3, "head")
        for agent in ("Agent 4", "Agent 5")
    ]
    passes = summarise_profile(_profile(rows)).passes
    assert passes is not None
    assert (passes.count, passes.layers) == (4, 3)
    assert passes.how.endswith("; counted on Agent 5, the busiest of 2 devices")


def test_time_before_the_first_dispatch() -> None:
    """Where an API trace tells when the host began, that is said; a clock that puts it behind the GPU's work is not."""
    profile = _profile([(KernelShape("flash"), 100)] * 3)
    begin = profile.dispatches.start_ns[0]
    early, late = (summarise_profile(replace(profile, api_begin_ns=begin + shift)) for shift in (-5000, 5000))
    assert early.first_calls is not None
    assert early.first_calls.before_ns == 5000
    assert late.first_calls is not None
    assert late.first_calls.before_ns is None


def test_statistics_and_counters_reach_the_summary() -> None:
    """Percentages of a stats file that lacks rows are a contradiction, and counters are kept."""
    rows = tuple(StatsRow("kernel", name, Spread(1, 100), 20.0) for name in ("a", "b"))
    counter = KernelCounter("a", None, "SQ_WAVES", 64.0, 1)
    summary = summarise_profile(Profile("stats", (), stats=rows, counters=(counter,)))
    assert "percentages" in {found.rule for found in summary.findings if found.holds is False}
    assert summary.counters == (counter,)


def test_nothing_at_all() -> None:
    """A profile without a single row has no shares, no families and no passes, and says no lies."""
    problem = Problem("run.csv", "no rows")
    summary = summarise_profile(Profile("run", TRACE, agents=(Agent("8"),), problems=(problem,)))
    assert (summary.total_ns, summary.calls, summary.kernels, summary.families) == (0, 0, (), ())
    assert (summary.problems, summary.first_calls, summary.span_ns) == ((problem,), None, None)
    assert summary.notes == ("no kernel, copy or memory set is in these files: GPU time is unknown",)
    zero = summarise_profile(_profile([(KernelShape("k"), 0)]))
    assert zero.kernels[0].share == 0.0


def test_many_dispatches_take_little_time() -> None:
    """200,000 dispatches of 60 kernels in 3 sizes are summed up in a second or two of one core."""
    shapes = tuple(KernelShape(f"gemm_{kernel}", grid_items=(size, 1, 1)) for kernel in range(60) for size in (1, 2, 3))
    count = 200_000
    starts = array("q", range(0, 2000 * count, 2000))
    ends = array("q", (start + 500 + start * 7919 % 1009 for start in starts))
    dispatches = Dispatches(shapes, array("i", (place * 31 % 180 for place in range(count))), starts, ends)
    began = time.process_time()
    assert summarise_profile(Profile("run", TRACE, dispatches)).calls == count
    assert time.process_time() - began < 2


def _dispatches(rows: list[tuple[int, int]]) -> Dispatches:
    builder = DispatchesBuilder()
    number = builder.number_of(KernelShape("k"))
    for start, duration in rows:
        builder.add(number, start, start + duration)
    return builder.build()


@given(pairs)
@settings(max_examples=100, deadline=None)
def test_busy_time_is_every_nanosecond_counted(rows: list[tuple[int, int]]) -> None:
    """The union of intervals, counted nanosecond by nanosecond, is the busy time; the rest of the span is gaps."""
    found = compute_timeline(_dispatches(rows))
    assert found is not None
    busy = {now for start, duration in rows for now in range(start, start + duration)}
    assert found.busy_ns == len(busy)
    assert found.span_ns == max(start + duration for start, duration in rows) - min(start for start, _ in rows)
    assert found.work_ns == sum(duration for _, duration in rows)
    assert found.idle_ns + found.busy_ns == found.span_ns
    assert found.overlap_ns == found.work_ns - len(busy)


def test_gaps_are_counted_between_dispatches() -> None:
    """Two gaps of 5 and 20 ns; what begins where something ends, or within it, leaves none."""
    found = compute_timeline(_dispatches([(100, 10), (110, 5), (112, 1), (120, 10), (150, 10)]))
    assert found is not None
    assert (found.gaps, found.median_gap_ns, found.longest_gap_ns) == (2, statistics.median([5, 20]), 20)
    assert (found.busy_ns, found.span_ns, found.overlap_ns) == (35, 60, 1)
    assert "idles for 41.7% of the 60.00 ns" in str(found)
    assert "2 gaps between dispatches, median 12.50 ns, longest 20.00 ns; dispatches overlap by 1.000 ns" in str(found)


def test_no_dispatch_no_timeline() -> None:
    """Without dispatches there is nothing to say, and without gaps no gap is said."""
    assert compute_timeline(Dispatches()) is None
    alone = compute_timeline(Dispatches((KernelShape("k"),), array("i", [0]), array("q", [5]), array("q", [5])))
    assert alone is not None
    assert (alone.idle_share, alone.median_gap_ns, alone.longest_gap_ns) == (0.0, None, None)
    assert "gap" not in str(alone)
