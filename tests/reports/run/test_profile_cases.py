from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, KernelBound, RooflinePoint
from pytest_attnperf.reports.run.profile_cases import case_lines, detail_lines, kernel_bound_lines, kernel_bound_table
from pytest_attnperf.reports.text.wide_tables import render_terminal_tables
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

POINT = RooflinePoint(100.0, 5e7, 2e6, 5e11, 2e10, 25.0, 40.0, "DRAM", 0.4)
PROFILE = CaseProfile(
    calls=2,
    kernels=(LiveKernel(KernelShape("flash"), (90_000, 110_000)), LiveKernel(KernelShape("split"), (5_000, 5_000))),
    profiler_ns=210_000,
    bound=BoundVerdict(BoundClass.UNDECIDED, "40 % of its memory roof", "read L2 traffic", POINT),
)


def lines_of(*profiles: CaseProfile | None, reasons: int = 8) -> list[str]:
    """What a run of these profiles prints."""
    cases = tuple(
        CaseResult(CaseKey("s", f"b{index}", "decode-b1"), "n", Verdict.SAME, "", median_us=100.0, profile=profile)
        for index, profile in enumerate(profiles)
    )
    device = DeviceInfo("cuda", "sm_90", "h200")
    run = RunResult(RESULTS_SCHEMA, "0", "gate", "2026", "pytest", "c", device, None, cases)
    return case_lines(run, 160, reasons=reasons)


def test_a_run_without_profiles_prints_nothing() -> None:
    """Nobody who did not ask for profiles reads of them."""
    assert lines_of(None) == []


def test_class_roof_times_launches_and_rates() -> None:
    """One row says class, share of its own roof, gated and profiled time, launches per call and rates."""
    row = next(line for line in lines_of(PROFILE) if line.startswith("b0/decode-b1"))
    assert " ".join(row.split()) == "b0/decode-b1 not decidable 40.0 % DRAM 100.0 105.0 2 0.500 20.0 25.0"


def test_the_evidence_and_what_would_decide_it() -> None:
    """An undecided class names the measurement that would decide it."""
    assert (
        "b0/decode-b1: not decidable from this data: 40 % of its memory roof; 95.2 % of the profiled time is in flash; "
        "what would decide it: read L2 traffic" in lines_of(PROFILE)
    )


def test_a_call_of_one_kernel_names_none() -> None:
    """Where all time is in one kernel nothing is said of it."""
    alone = replace(PROFILE, kernels=PROFILE.kernels[:1])
    assert not any("of the profiled time" in line for line in lines_of(alone))


def test_what_is_no_part_of_the_time() -> None:
    """Building, the first call, memory and the host's time of one call are told apart from the kernels'."""
    profile = replace(
        PROFILE,
        build_ms=1234.5,
        first_call_ms=7.25,
        allocations=3,
        allocated_bytes=2**21,
        host_ns={"add": 2_000, "mm": 30_000},
    )
    case = CaseResult(CaseKey("s", "b", "w"), "n", Verdict.SAME, "")
    assert detail_lines(case, profile) == [
        "b/w: before any time: built in 1.234 s, first call 7.250 ms (without what the process had built for "
        "other cases)",
        "b/w: one call asks for memory 3 times, together 2.0 MiB",
        "b/w: on the host, of a call under the profiler: 16.00 us, of it mm 15.00 us, add 1.000 us",
    ]


def test_works_that_a_user_named() -> None:
    """Kernels of a trace have their class and evidence as cases do, and how calls were counted."""
    assert PROFILE.bound is not None
    bounds = (KernelBound("flash as decode-b1", 100.0, PROFILE.bound, "counted per call of flash"),)
    table = render_terminal_tables((), [kernel_bound_table(bounds)], 160)
    assert (
        " ".join(table.splitlines()[-1].split()) == "flash as decode-b1 not decidable 40.0 % DRAM 100.0 0.500 20.0 25.0"
    )
    assert kernel_bound_lines(bounds) == [
        "flash as decode-b1 (counted per call of flash): not decidable from this data: 40 % of its memory roof; what "
        "would decide it: read L2 traffic"
    ]


def test_evidence_is_cut_and_counted() -> None:
    """A long run prints the first reasons, and how many more there are."""
    assert lines_of(PROFILE, PROFILE, PROFILE, reasons=1)[-1] == "and 2 more of these"


def test_a_profile_without_a_class_is_shown_all_the_same() -> None:
    """Where nobody could classify, times and launches stand, and dashes."""
    row = next(line for line in lines_of(replace(PROFILE, bound=None)) if line.startswith("b0/"))
    assert row.split() == ["b0/decode-b1", "-", "-", "-", "100.0", "105.0", "2", "-", "-", "-"]


def test_notes_of_a_profile_are_said() -> None:
    """What must be known of a profile, as of totals that disagree, stands with its case."""
    lines = lines_of(replace(PROFILE, notes=("profiled with its inputs in the cache",)))
    assert "b0/decode-b1: note: profiled with its inputs in the cache" in lines
