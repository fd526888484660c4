from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.records.profiles import (
    Agent,
    FamilyTime,
    ForwardPasses,
    KernelShape,
    KernelTime,
    ProfileFinding,
    ProfileSummary,
    ShapeTime,
    Spread,
    StatsRow,
)
from pytest_attnperf.tools.profilers.contradictions import find_contradictions

SPEC = next(spec for spec in all_specs() if spec.arch == "gfx1151")
SOUND = Spread(calls=4, total_ns=100, median_ns=25, q1_ns=22, q3_ns=27, min_ns=20, max_ns=30, stddev_ns=4.0)


def kernel(shape: KernelShape, spread: Spread = SOUND, family: str = "other") -> KernelTime:
    """A kernel of one shape."""
    return KernelTime(shape.name, family, shape.kind, spread, 1.0, shapes=(ShapeTime(shape, spread),))


def profile(*kernels: KernelTime, arch: str = "gfx1151") -> ProfileSummary:
    """A profile of these kernels, one after the other."""
    total, calls = sum(one.spread.total_ns for one in kernels), sum(one.spread.calls for one in kernels)
    return ProfileSummary(
        name="run",
        sources=(),
        agents=(Agent("Agent 4", arch=arch),),
        total_ns=total,
        calls=calls,
        kernels=kernels,
        families=(),
        span_ns=2 * total,
        busy_ns=total,
    )


def found_in(
    summary: ProfileSummary, spec: DeviceSpec | None = SPEC, *, stats: tuple[StatsRow, ...] = ()
) -> ProfileFinding:
    """The one finding of a profile."""
    findings = find_contradictions(summary, spec, stats=stats)
    assert len(findings) == 1, [found.text for found in findings]
    return findings[0]


def copy_of(size: int, took_ns: int, name: str = "MEMORY_COPY_DEVICE_TO_DEVICE") -> ProfileSummary:
    """A profile of one copy."""
    return profile(kernel(KernelShape(name, "copy", bytes=size), Spread(1, took_ns, took_ns)))


def test_sound_profile_contradicts_nothing() -> None:
    """A kernel with ordinary registers and times, and its statistics, give no finding."""
    shape = KernelShape("attn_fwd", workgroup=(256, 1, 1), lds_bytes=16384, vgprs=96, sgprs=64)
    row = StatsRow("kernel", "attn_fwd", SOUND, 100.0)
    assert find_contradictions(profile(kernel(shape, family="attention")), SPEC, stats=(row,)) == ()


def test_copy_above_the_memory_that_no_cache_holds_is_a_contradiction() -> None:
    """1 GB read and written in a millisecond are 2 TB/s on 256 GB/s, and 32 MiB of cache do not hold it."""
    found = found_in(copy_of(10**9, 10**6))
    assert (found.rule, found.holds) == ("faster than memory", False)
    assert "2 GB in 1 ms are 2 TB/s against 256 GB/s of Radeon 8060S" in found.text


def test_copy_above_the_memory_may_be_in_a_cache() -> None:
    """8 MB read and written fit the cache, so the same rate is open."""
    found = found_in(copy_of(8 * 10**6, 8000))
    assert found.holds is None
    assert "cache-resident (32 MiB), or not doing the work" in found.text


@pytest.mark.parametrize(
    ("summary", "spec"),
    [
        (copy_of(10**9, 10**7), SPEC),
        (copy_of(200 * 10**6, 10**6, "MEMORY_COPY_HOST_TO_DEVICE"), SPEC),
        (copy_of(10**9, 10**6), None),
        (copy_of(10**9, 10**6), replace(SPEC, confidence="C")),
    ],
    ids=["below", "one way only", "no peak known", "unreliable peak"],
)
def test_copy_within_what_is_known_is_no_finding(summary: ProfileSummary, spec: DeviceSpec | None) -> None:
    """Copies below the peak, or against none that is known, are not questioned; from the host, bytes count once."""
    assert find_contradictions(summary, spec) == ()


def test_one_granule_of_registers_in_attention_is_open() -> None:
    """8 VGPRs for 256 threads of attention with LDS are named, with what would decide it."""
    shape = KernelShape("flash_attn", workgroup=(32, 8, 1), lds_bytes=1536, vgprs=8)
    found = found_in(profile(kernel(shape, family="attention")))
    assert (found.rule, found.holds) == ("registers", None)
    assert found.said == "flash_attn: 8 VGPRs, 256 threads, LDS 1,536 bytes"
    assert "compiled out" in found.text
    assert "Compare its outputs with a reference" in found.text


@pytest.mark.parametrize(
    ("shape", "family", "arch"),
    [
        (KernelShape("attn", workgroup=(256, 1, 1), vgprs=16), "attention", "gfx1151"),
        (KernelShape("attn", workgroup=(256, 1, 1), vgprs=8, accum_vgprs=120), "attention", "gfx942"),
        (KernelShape("attn_reduce", workgroup=(32, 1, 1), vgprs=8), "attention", "gfx1151"),
        (KernelShape("fill", workgroup=(256, 1, 1), vgprs=8), "fill", "gfx1151"),
        (KernelShape("attn", workgroup=(256, 1, 1), vgprs=8), "attention", "sm_90"),
        (KernelShape("attn", workgroup=(256, 1, 1)), "attention", "gfx1151"),
    ],
    ids=["more registers", "sums in AccVGPRs", "small", "other family", "NVIDIA", "registers unknown"],
)
def test_ordinary_registers_are_no_finding(shape: KernelShape, family: str, arch: str) -> None:
    """Only large kernels of matrix products with nothing but one granule are questioned."""
    assert find_contradictions(profile(kernel(shape, family=family), arch=arch), SPEC) == ()


def test_constant_sgprs_are_named() -> None:
    """128 SGPRs of every kernel on gfx1151 are a constant; on gfx942 they are a figure."""
    summary = profile(kernel(KernelShape("a", sgprs=128)))
    assert found_in(summary).text.startswith("every kernel has 128 SGPRs: on gfx1151 profilers always report it")
    assert find_contradictions(profile(kernel(KernelShape("a", sgprs=128)), arch="gfx942"), SPEC) == ()


def test_launch_that_no_device_takes_is_a_contradiction() -> None:
    """A workgroup of 6,144 threads is a grid that was read as one."""
    found = found_in(profile(kernel(KernelShape("a", workgroup=(4, 24, 64)))))
    assert found.holds is False
    assert "workgroup of 6,144 threads: a workgroup has 1,024 at most" in found.text


def test_kernel_that_could_not_have_run_is_a_contradiction() -> None:
    """More LDS than a workgroup can have, in a kernel that ran, is a wrong figure."""
    shape = KernelShape("a", workgroup=(256, 1, 1), lds_bytes=65_540, vgprs=64)
    none = occupancy_with("gfx942", Resources(64, 0, sgprs=32, lds_bytes=65_540, threads=256))
    time = KernelTime("a", "other", "kernel", SOUND, 1.0, shapes=(ShapeTime(shape, SOUND, none),))
    found = found_in(profile(time))
    assert found.holds is False
    assert "by these figures not one workgroup fits a CU" in found.should


def test_calls_that_do_not_divide_by_the_passes_are_open() -> None:
    """Kernels that do not fit the passes are listed, and attention that does not fit passes x layers."""
    summary = replace(
        profile(kernel(KernelShape("a"))),
        families=(FamilyTime("attention", "compute", 1, 76, 100, 1.0),),
        passes=ForwardPasses(
            5, "most kernels have 5 calls", layers=15, odd=("a: 113 calls do not divide by 5 passes",) * 6
        ),
    )
    odd, layers = find_contradictions(summary, SPEC)
    assert odd.text.startswith("5 passes, but a: 113 calls do not divide by 5 passes")
    assert odd.text.endswith("; and 2 more")
    assert layers.text == "76 calls of attention do not divide by 5 passes x 15 layers = 75"
    assert {odd.holds, layers.holds} == {None}
    of_runtime = (Note(NoteKind.COPIES, "copy: 3 calls do not divide"),)
    copies = replace(summary.passes or ForwardPasses(5, ""), odd=of_runtime)
    assert find_contradictions(replace(summary, passes=copies), SPEC) == (layers,)


@pytest.mark.parametrize(
    ("changed", "rule", "holds", "text"),
    [
        ({"span_ns": 25, "busy_ns": None}, "longer than the profile", False, "30 ns for one call"),
        ({"busy_ns": 300, "total_ns": 300}, "longer than the profile", False, "busy for 300 ns"),
        ({"busy_ns": 150}, "busy time", False, "so dispatches are missing"),
        ({"busy_ns": 80}, "overlap", None, "dispatches overlap for 20% of them"),
    ],
)
def test_times_of_the_whole_are_compared(
    changed: dict[str, int | None], rule: str, holds: bool | None, text: str
) -> None:
    """Span, busy time and durations added up are held against each other."""
    found = found_in(replace(profile(kernel(KernelShape("a"))), **changed))  # type: ignore[arg-type]
    assert (found.rule, found.holds) == (rule, holds)
    assert text in found.text


def test_devices_may_work_at_the_same_time() -> None:
    """Dispatches that overlap on two devices are no finding."""
    kernels = (kernel(KernelShape("a", agent="Agent 4")), kernel(KernelShape("b", agent="Agent 5")))
    assert find_contradictions(replace(profile(*kernels), busy_ns=100), SPEC) == ()


def test_many_statistics_of_another_run_are_one_finding() -> None:
    """Of six kernels that differ, four are shown."""
    summary = profile(*(kernel(KernelShape(name)) for name in "abcdef"))
    rows = tuple(StatsRow("kernel", name, replace(SOUND, calls=5)) for name in "abcdef")
    found = found_in(summary, stats=rows)
    assert "6 differ: a has" in found.should
    assert "; and 2 more. Are both of one run, and whole?" in found.should


def test_a_trace_of_overlap_is_no_finding() -> None:
    """Dispatches that overlap for less than a hundredth change no share."""
    long = kernel(KernelShape("a"), Spread(1, 1000))
    assert find_contradictions(replace(profile(long), busy_ns=991), SPEC) == ()


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (replace(SOUND, min_ns=26), "its minimum of 26 ns is above its first quartile of 22 ns"),
        (replace(SOUND, median_ns=28.5), "its median of 28.5 ns is above its third quartile of 27 ns"),
        (Spread(4, 100, min_ns=26, max_ns=30), "4 x the minimum of 26 ns are more than the total"),
        (Spread(4, 100, min_ns=20, max_ns=24), "4 x the maximum of 24 ns are less than the total"),
        (replace(SOUND, stddev_ns=40.0), "20 to 30 ns allow a standard deviation of 6 ns, not 40 ns"),
        (Spread(0, 100), "time without a call"),
    ],
)
def test_spread_that_cannot_be_is_a_contradiction(spread: Spread, text: str) -> None:
    """Minimum, quartiles, maximum, mean and total must be in order, of a trace and of a stats file alike."""
    assert text in find_contradictions(replace(profile(), host=(StatsRow("api", "hipMalloc", spread),)), SPEC)[0].should
    summary = replace(profile(kernel(KernelShape("a"), spread)), span_ns=None, busy_ns=None)
    assert text in find_contradictions(summary, SPEC)[0].should


def row(name: str, total_ns: int, percentage: float, domain: str = "kernel") -> StatsRow:
    """One row of a stats file, of one call."""
    return StatsRow(domain, name, Spread(1, total_ns), percentage)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ((row("a", 600, 60.01), row("b", 400, 40.01)), "2 percentages add up to 100.02: more than 100"),
        ((row("a", 600, 60.0), row("b", 300, 30.0)), "2 percentages add up to 90: less than 100"),
        ((row("a", 700, 60.0), row("b", 300, 40.0)), "a: 60% of the kernel statistics: its total is 70.0000%"),
        ((row("a", 10**7 - 400, 100.0), row("b", 400, 0.005)), "b: 0.005% of the kernel statistics"),
    ],
)
def test_percentages_that_do_not_fit_are_a_contradiction(rows: tuple[StatsRow, ...], text: str) -> None:
    """Percentages of a stats file must be those of its totals, to the decimals that are printed."""
    found = find_contradictions(replace(profile(), span_ns=None, busy_ns=None), SPEC, stats=rows)
    assert found
    assert found[0].holds is False
    assert text in found[0].text


@pytest.mark.parametrize(
    "rows",
    [
        (row("a", 1, 33.33), row("b", 1, 33.33), row("c", 1, 33.33)),
        (row("a", 99996, 100.0), row("b", 4, 4.000e-03)),
        (row("a", 1, 100.0), row("a", 1, 100.0, "api")),
        (row("a", 6, 60.0), row("b", 4, 40.0), row("a", 6, 60.0), row("b", 4, 40.0)),
    ],
    ids=["99.99 by rounding", "scientific", "two domains", "two processes"],
)
def test_percentages_within_rounding_are_no_finding(rows: tuple[StatsRow, ...]) -> None:
    """Two decimals from 1 on, four above 0.01 and three digits below need not add up to 100.00."""
    assert find_contradictions(replace(profile(), span_ns=None, busy_ns=None), SPEC, stats=rows) == ()


def test_statistics_of_another_run_are_found() -> None:
    """Calls or totals of a stats file that are not those of the trace beside it are told."""
    summary = profile(kernel(KernelShape("a")))
    found = found_in(summary, stats=(StatsRow("kernel", "a", replace(SOUND, calls=5), 100.0),))
    assert found.holds is False
    assert found.text == (
        "statistics and a trace with 1 common name(s): 1 differ: a has 5 calls in 100 ns, in the trace 4 calls in 100 "
        "ns. Are both of one run, and whole?"
    )
    untraced = replace(summary, span_ns=None, busy_ns=None)
    assert find_contradictions(untraced, SPEC, stats=(StatsRow("kernel", "a", replace(SOUND, calls=5)),)) == ()
