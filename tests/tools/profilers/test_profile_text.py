from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import (
    Advice,
    Agent,
    FamilyTime,
    FirstCalls,
    ForwardPasses,
    Gain,
    KernelShape,
    KernelTime,
    Problem,
    ProfileFinding,
    ProfileSource,
    ProfileSummary,
    ShapeTime,
    Spread,
    StatsRow,
)
from pytest_attnperf.reports.text.wide_tables import render_terminal_tables
from pytest_attnperf.tools.profilers.profile_text import (
    WIDTH,
    conclusion_lines,
    gain_line,
    profile_lines,
    profile_tables,
)

GEMM = "Cijk_Ailk_Bljk_HB_MT128x128x16_SE_" + "K1_" * 40
SHAPE = KernelShape(
    "flash", workgroup=(32, 8, 1), grid_items=(128, 192, 64), lds_bytes=1536, scratch_bytes=0, vgprs=8, sgprs=128
)
STEADY = Spread(74, 2_316_000, 30_100.0, 26_000.0, 34_000.0, 19_200, 50_600, 5_800.0)
FLASH = KernelTime(
    "flash", "attention", "kernel", replace(STEADY, calls=75, total_ns=2_350_000), 0.015, STEADY, 34_000,
    (ShapeTime(SHAPE, STEADY, Occupancy(16, 16.0, 16, 8, 8, {}, ()), ("VGPR_Count 8 is one granule",)),),
)  # fmt: skip
LONG = KernelTime(GEMM, "GEMM", "kernel", Spread(650, 154_810_000), 0.985)
SUMMARY = ProfileSummary(
    name="flash_attn_profile",
    sources=(ProfileSource("kernel_trace.csv", "rocprofv3 kernel_trace", "ROCm 7.0 or later", 725),),
    agents=(Agent("Agent 1", "gpu", "gfx1151", "Radeon 8060S", 40), Agent("Agent 0", "cpu")),
    total_ns=157_160_000,
    calls=725,
    kernels=(LONG, FLASH),
    families=(
        FamilyTime("GEMM", "compute", 1, 650, 154_810_000, 0.985),
        FamilyTime("attention", "compute", 1, 75, 2_350_000, 0.015),
    ),
    gains=(Gain("GEMM", 0.985, 65.7), Gain("attention", 0.015, 0.01523, ((0.04, 0.000577),))),
    span_ns=170_000_000,
    busy_ns=150_000_000,
    warm_up="the first dispatch of each kernel",
    passes=ForwardPasses(5, "75 calls of attention", 15, ("odd: 3 calls do not divide by 5 passes",)),
    first_calls=FirstCalls(1_200_000, 12, {"allocation": 6_880_000}, 42_000_000),
    host=(StatsRow("api", "hipMalloc", Spread(12, 6_880_000)), StatsRow("kernel", "flash", STEADY)),
    findings=(
        ProfileFinding("too fast", False, "803 GB/s", "256 GB/s", "803 GB/s beyond 256 GB/s"),
        ProfileFinding("hit rate", None, "90%", "", "no counter was read"),
        ProfileFinding("sum", True, "100", "", "adds up"),
    ),
    advice=(Advice("leave attention alone", "1.50 % of GPU time", 0.01523),),
    problems=(Problem("kernel_trace.csv", "the last row is cut short", "725 rows are used", 727),),
    notes=("3 dispatches overlap",),
)


def text(summary: ProfileSummary = SUMMARY, shown: int = 15) -> str:
    """All that a terminal shows of it."""
    parts = (
        render_terminal_tables(profile_lines(summary), profile_tables(summary, shown=shown), WIDTH),
        render_terminal_tables(conclusion_lines(summary), (), WIDTH),
    )
    return "\n\n".join(parts)


def test_what_was_read_stands_first() -> None:
    """The reader sees which files, of which version, and which device the figures are of; CPUs are left out."""
    lines = profile_lines(SUMMARY)
    assert "read: kernel_trace.csv (rocprofv3 kernel_trace, ROCm 7.0 or later, 725 rows)" in lines
    assert "device: Agent 1: Radeon 8060S, gfx1151, 40 compute units" in lines
    assert not any("Agent 0" in line for line in lines)


def test_time_passes_and_warm_up_are_said() -> None:
    """GPU time, how much of the span it fills, the passes with their reason, and what does not divide."""
    lines = profile_lines(SUMMARY)
    assert (
        "GPU time: 157.2 ms in 725 dispatches; something ran in 88.2 % of the 170.0 ms from the first to the last"
        in lines
    )
    assert "forward passes: 5 of 15 layers (75 calls of attention)" in lines
    assert "does not divide: odd: 3 calls do not divide by 5 passes" in lines
    assert "warm-up: the first dispatch of each kernel" in lines


def test_without_a_trace_nothing_is_said_of_a_span() -> None:
    """Of a stats file only totals are known."""
    lines = profile_lines(replace(SUMMARY, span_ns=None, busy_ns=None, passes=ForwardPasses(None, "no trace")))
    assert "GPU time: 157.2 ms in 725 dispatches; only totals are known, without a trace" in lines
    assert "forward passes: unknown (no trace)" in lines


def test_families_with_calls_per_pass_and_what_they_could_gain() -> None:
    """The breakdown says family, ms, share, calls and what the whole gains without it."""
    row = next(line.split() for line in text().splitlines() if line.startswith("attention"))
    assert row == ["attention", "2.350", "1.50", "%", "75", "15", "1", "compute", "+1.52", "%"]
    assert next(line.split() for line in text().splitlines() if line.startswith("all "))[:4] == [
        "all",
        "157.2",
        "100",
        "%",
    ]


def test_kernels_have_median_and_spread_behind_the_warm_up() -> None:
    """A kernel with a trace has a median; one of a stats file has a dash, never a mean in its place."""
    kernels = text().split("\nkernels\n")[1]
    flash = next(line.split() for line in kernels.splitlines() if line.startswith("flash"))
    assert flash == ["flash", "attention", "2.350", "1.50", "%", "75", "30.10", "26.6", "%", "50.60", "34.00"]
    gemm = next(line.split() for line in kernels.splitlines() if line.startswith("Cijk"))
    assert gemm[1:] == ["GEMM", "154.8", "98.5", "%", "650", "-", "-", "-", "-"]


def test_kernels_that_are_cut_off_are_counted() -> None:
    """What a table leaves out is said with its share."""
    assert "1 more take 2.350 ms together, 1.50 % (--all shows them)" in text(shown=1)


def test_resources_with_caveats_and_no_measured_occupancy() -> None:
    """Registers, LDS and waves of each size of launch, what they mean, and that nothing of it was measured."""
    said = text()
    row = said.split("resources of each size of launch")[1].splitlines()
    flash = next(line.split() for line in row if line.startswith("flash"))
    assert flash == ["flash", "74", "30.10", "32x8", "6,144", "8", "128", "1.5", "0", "16/16"]
    flat = " ".join(said.split())
    assert "VGPR_Count 8 is one granule" in flat
    assert "an upper bound, no counter was read" in flat


def test_amdahl_first_calls_and_host_time() -> None:
    """An infinitely fast kernel gains what its share allows, and a partial gain its part of that."""
    lines = conclusion_lines(SUMMARY)
    assert lines[0] == "GEMM takes 98.5 %: infinitely fast it makes the whole 66.7x as fast"
    assert lines[1] == (
        "attention takes 1.50 %: infinitely fast it gains at most +1.52 % overall; +4.00 % on it is +0.058 % overall"
    )
    assert "first dispatches: 1.200 ms more than the median of the rest, over 12 kernels" in lines
    assert "on the host, no part of GPU time: allocation 6.880 ms" in lines
    assert "before the first dispatch: 42.00 ms" in lines
    assert gain_line(Gain("all", 1.0, float("inf"))) == "all takes all of the GPU time"


def test_contradictions_advice_and_problems_with_their_evidence() -> None:
    """What contradicts itself, what is advised on which figures, and what could not be read; what holds is quiet."""
    lines = conclusion_lines(SUMMARY)
    assert "contradiction: 803 GB/s beyond 256 GB/s" in lines
    assert "open: no counter was read" in lines
    assert "advice: leave attention alone (at most +1.52 % overall); evidence: 1.50 % of GPU time" in lines
    assert "problem: kernel_trace.csv:727: the last row is cut short; 725 rows are used" in lines
    assert "note: 3 dispatches overlap" in lines
    assert not any("adds up" in line for line in lines)


def test_counters_have_readings_and_plain_values() -> None:
    """What counters say stands in a table, and every value as it was read below it."""
    counters = (
        KernelCounter("flash", 65536, "FETCH_SIZE", 1024.0, 20),
        KernelCounter("flash", 65536, "WRITE_SIZE", 1024.0, 20),
        KernelCounter("flash", 65536, "L2CacheHit", 62.5, 20),
        KernelCounter("flash", 65536, "SQ_WAVES", 16384.0, 20),
    )
    said = text(replace(SUMMARY, counters=counters)).split("hardware counters")[1]
    row = next(line.split() for line in said.splitlines() if line.startswith("flash "))
    assert row == ["flash", "65,536", "20", "2", "62.5", "%", "-", "-"]
    assert "flash: SQ_WAVES 16,384" in said


def test_files_without_kernels_say_nothing_of_gpu_time() -> None:
    """Statistics of an API are no 0 ms of GPU time."""
    empty = ProfileSummary("api", (), (), 0, 0, (), ())
    assert "GPU time: not known, these files hold no kernels" in profile_lines(empty)


def test_advice_on_all_of_the_time_promises_no_figure() -> None:
    """Where a part is everything there is no bound to print."""
    endless = replace(SUMMARY, advice=(Advice("look here", "100 %", float("inf")),))
    assert "advice: look here; evidence: 100 %" in conclusion_lines(endless)


def test_nothing_is_wider_than_the_terminal() -> None:
    """Names of hundreds of characters and escape sequences leave the table in its width."""
    hostile = replace(LONG, name="\x1b[2J" + "evil|" * 500)
    said = text(replace(SUMMARY, name="x\n\x1b[31m", kernels=(hostile, FLASH)))
    assert max(map(len, said.splitlines())) <= WIDTH
    assert "\x1b" not in said


def test_an_empty_profile_has_no_tables() -> None:
    """Nothing read is no table of nothing."""
    assert profile_tables(ProfileSummary("none", (), (), 0, 0, (), ())) == []
