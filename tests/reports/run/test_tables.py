from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from pytest_attnperf.records import Verdict, WorkloadFigures
from pytest_attnperf.records.gpus import Together, TogetherGpu
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.run.tables import (
    compute_gb_s,
    compute_tflops,
    share_of_floor,
    suite_table,
    together_table,
)
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.reports.text.text_width import display_width
from pytest_attnperf.results import CaseResult

CaseFactory: TypeAlias = Callable[..., CaseResult]

UNMEASURED = {"median_us": None, "baseline_us": None, "ratio": None, "interval": None, "peak_memory_bytes": None}
LONG = "prefill-b4-s1024-h8-d64-f16-causal"
EVERY = ["change", "speedup", "TFLOP/s", "error", "floor", "peak MiB", "GB/s", "95 %", "detectable", "processes"]
"""Columns behind verdict, config and time, as they come with more room."""

HOW_SURE = ["95 %", "detectable", "processes"]


def cells(line: str) -> list[str]:
    """The cells of a row: two spaces stand between them at least."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def columns(table: str) -> list[str]:
    """Headers behind verdict, config and time."""
    verdict, config, time, *others = cells(table.splitlines()[0])
    assert (verdict, config, time) == ("verdict", "config", "time us")
    return others


def full(case: CaseFactory) -> list[CaseResult]:
    """Two cases that fill every column."""
    return [case("native.eager_fp32", detection_limit=0.023), case(detection_limit=0.023)]


def test_a_whole_table(case: CaseFactory) -> None:
    """Every column of the widest table, exactly: verdict first, and the workload's heading on a line of its own."""
    eager = case("native.eager_fp32", median_us=400.0, ratio=0.9996, verdict=Verdict.SAME, detection_limit=0.023)
    missing = case("ck", verdict=Verdict.ERROR, first=(), second=(), checks=(), **UNMEASURED)
    assert suite_table([eager, case(), missing], width=140).splitlines() == [
        "verdict  config             time us  change  speedup  TFLOP/s  error  floor  peak MiB  GB/s              95 %"
        "  detectable  processes",
        "-------  -----------------  -------  ------  -------  -------  -----  -----  --------  ----  ----------------"
        "  ----------  ---------",
        "prefill-b4-s512-h8-d256-f16-causal",
        "SAME     native.eager_fp32    400.0   0.0 %    1.00x     42.8   50 %    4 %     128.0  83.9  +5.2 % .. +7.0 %"
        "      +2.3 %          2",
        "SLOWER   triton.flash         26.10  +6.1 %    15.3x      655   50 %   61 %     128.0  1286  +5.2 % .. +7.0 %"
        "           -          2",
        "ERROR    ck                       -       -        -        -      -      -         -     -                 -"
        "           -          -",
    ]


def test_workloads_are_named_once_in_order(case: CaseFactory) -> None:
    """Cases of one workload stand together under one heading, whatever order they come in."""
    table = suite_table([case("a"), case("a", workload=LONG), case("b"), case("b", workload=LONG)])
    assert [line.split()[:2][-1] for line in table.splitlines()[2:]] == [
        "prefill-b4-s512-h8-d256-f16-causal",
        "a",
        "b",
        LONG,
        "a",
        "b",
    ]


def test_ids_are_whole(case: CaseFactory) -> None:
    """A heading is the workload's id as a command takes it, and the test's name of `attnperf.gate()`."""
    for name in (LONG, "test_softmax[16-1000]", "test_softmax[f16-[1, 2]-a-b]"):
        assert suite_table([case(workload=name)]).splitlines()[2] == name


def test_speedup_is_against_the_same_workload(case: CaseFactory) -> None:
    """A reference of another workload or label gives no speedup."""
    cases = [case("native.eager_fp32", workload=LONG, median_us=261.0), case(), case(workload=LONG), case(label="x")]
    rows = [cells(line) for line in suite_table(cases).splitlines() if "triton.flash" in line]
    assert [row[4] for row in rows] == ["10.0x", "-", "-"]


def test_another_reference(case: CaseFactory) -> None:
    """The reference backend is a parameter."""
    table = suite_table([case("a", median_us=10.0), case("b", median_us=5.0)], reference_backend="a")
    assert cells(table.splitlines()[-1])[1:5] == ["b", "5.000", "+6.1 %", "2.00x"]


def test_an_interleaved_look_rests_on_pairs(case: CaseFactory) -> None:
    """Its number of pairs stands where others have their processes."""
    pairs = tuple(PairSummary(ratio, 24.6, 26.1, 12, "graph", seconds=1.25) for ratio in (1.058, 1.063, 1.061))
    assert suite_table([case(pairs=pairs)], width=200).endswith("3 pairs")


def test_right_but_not_timed(case: CaseFactory) -> None:
    """A case proven right without a time says so, and a timed one does not."""
    table = suite_table([case(verdict=Verdict.RIGHT, **UNMEASURED), case("timed", verdict=Verdict.RIGHT)])
    assert [cells(line)[0] for line in table.splitlines()[3:]] == ["RIGHT, not timed", "RIGHT"]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_verdicts_are_printed_exactly(case: CaseFactory, verdict: Verdict) -> None:
    """Every verdict begins its row, as its own word."""
    assert suite_table([case(verdict=verdict)]).splitlines()[-1].startswith(f"{verdict.value}  ")


@pytest.mark.parametrize("verbose", [False, True])
def test_more_columns_with_more_room(case: CaseFactory, verbose: bool) -> None:
    """At every width the table fits, and columns come in their order; verbose ones say first how sure a change is."""
    order = ["change", *HOW_SURE, *EVERY[1:7]] if verbose else EVERY
    seen: list[int] = []
    for width in range(80, 180):
        table = suite_table(full(case), width=width, verbose=verbose)
        assert max(map(len, table.splitlines())) <= width
        shown = columns(table)
        assert set(shown) == set(order[: len(shown)])
        seen.append(len(shown))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (3 if verbose else 5, len(EVERY))


@pytest.mark.parametrize(("width", "shown"), [(46, ["change"]), (35, []), (20, [])])
def test_below_80_columns(case: CaseFactory, width: int, shown: list[str]) -> None:
    """Verdict and time stay, and names that no longer fit have lines of their own."""
    table = suite_table(full(case), width=width)
    assert columns(table) == shown
    assert all(len(line) <= max(width, 27) or " " not in line.strip() for line in table.splitlines())


def test_long_names_are_whole(case: CaseFactory) -> None:
    """A name that does not fit has a line of its own above its row, whole."""
    names = [f"vendor.flash_attention_with_a_very_long_name_{middle * 40}_forward_v3" for middle in "xyz"]
    table = suite_table([*(case(name) for name in names), case("ck")], width=80)
    lines = table.splitlines()
    assert [line for line in lines if len(line) > 80] == lines[3:9:2] == [f"  {name}" for name in names]
    assert [cells(line)[:2] for line in (lines[4], lines[9])] == [["SLOWER", "26.10"], ["SLOWER", "ck"]]


def test_headings_of_any_length(case: CaseFactory) -> None:
    """A workload of 100 kB keeps both ends; it does not widen a cell."""
    table = suite_table([case(workload=f"prefill-{'s' * 100_000}-f16"), case(workload="prefill-b1")], width=80)
    heading = table.splitlines()[2]
    assert (len(heading), heading[:9], heading[-5:]) == (403, "prefill-s", "s-f16")
    assert max(map(len, table.splitlines()[3:])) <= 80


def test_columns_without_figures_go(case: CaseFactory) -> None:
    """On a CPU nobody knows a floor, and a first run has no change: neither column is printed."""
    shown = columns(suite_table([case(floor_us=None, ratio=None)]))
    assert "floor" not in shown
    assert "change" not in shown
    assert "GB/s" in shown


def test_hostile_names(case: CaseFactory) -> None:
    """Escapes and newlines in a name do not leave their cell."""
    table = suite_table([case("evil\x1b[2J\nname", workload="a\nb\x1b[31m")])
    assert "\x1b" not in table
    assert len(table.splitlines()) == 4


def test_wide_characters_are_aligned(case: CaseFactory) -> None:
    """A name of East Asian characters takes two cells for each, and the next column still begins where others do."""
    table = suite_table([case("\u6ce8\u610f\u529b.\u524d\u5411"), case("ck"), case("e\u0301e\u0301")])
    ends = {display_width(line.split("26.10")[0]) for line in table.splitlines() if "26.10" in line}
    assert len(ends) == 1


def test_colours_do_not_move_anything(case: CaseFactory) -> None:
    """Without its escapes a coloured table is the plain one; a failing verdict is painted, SAME is not."""
    cases = [case(), case("b", verdict=Verdict.SAME)]
    painted = suite_table(cases, ink=Ink.ansi())
    for sequence in ("\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        assert sequence in painted
        painted = painted.replace(sequence, "")
    assert painted == suite_table(cases)
    assert suite_table(cases, ink=Ink.ansi()).splitlines()[-1].startswith("SAME ")


def test_a_long_table_leaves_out_what_is_as_it_was(case: CaseFactory) -> None:
    """Beyond `most_rows` only rows with something to say are shown, with their speedup; how many others is said."""
    eager = case("native.eager_fp32", verdict=Verdict.SAME, median_us=261.0)
    cases = [eager, case(), *(case(workload=f"prefill-{index}", verdict=Verdict.SAME) for index in range(5))]
    table = suite_table([*cases, case("r", verdict=Verdict.RECORDED)], most_rows=7)
    assert [cells(line)[0] for line in table.splitlines()[2:]] == [
        "prefill-b4-s512-h8-d256-f16-causal",
        "SLOWER",
        "6 cases SAME and 1 RECORDED are not shown (-v shows all)",
    ]
    assert "10.0x" in table
    assert "not shown" not in suite_table(cases, most_rows=7)
    assert suite_table(cases[2:], most_rows=4) == "5 cases SAME are not shown (-v shows all)"


def test_nothing_to_show() -> None:
    """No cases give no table."""
    assert suite_table([]) == ""


def test_a_time_of_nothing_has_no_rate(case: CaseFactory) -> None:
    """A file may hold 0 us: that is shown, and nothing is divided by it."""
    table = suite_table([case("native.eager_fp32"), case(median_us=0.0)], width=200)
    cells = table.splitlines()[-1].split()
    assert cells[2] == "0"
    assert (
        compute_tflops(case(median_us=0.0)),
        compute_gb_s(case(median_us=0.0)),
        share_of_floor(case(median_us=0.0)),
    ) == (None,) * 3


def test_short_names_take_no_more_than_they_need(case: CaseFactory) -> None:
    """Whatever the width and the verdict, a table of names shorter than the least of a cut one stays within it."""
    cases = [case("a.b"), case("c", verdict=Verdict.INCORRECT, median_us=None)]
    for width in range(60, 130):
        assert max(map(len, suite_table(cases, width=width).splitlines())) <= width


Make = Callable[..., CaseResult]
UUID = "GPU-22e33a7a-1b2c-4d5e-8f90-123456789abc"
FREE = Together((TogetherGpu(UUID, 100.0, 100.0, 90), TogetherGpu("GPU-2", 100.0, 100.0, 91)), "graph", 0.5)
HELD = Together((TogetherGpu(UUID, 100.0, 125.0, 90), TogetherGpu("GPU-2", 100.0, 100.0, 91)), "graph", 0.5)
COPY = WorkloadFigures(None, 4e8, "f16", "cold", {})


@pytest.fixture
def cases(case: Make) -> list[CaseResult]:
    """One that scales, one that does not, and one that did not run so."""
    return [
        case("triton.bandwidth", workload="copy", together=FREE, figures=COPY),
        case("native.copy", workload="copy", together=HELD, figures=COPY, label="x"),
        case("native.other", workload="copy"),
    ]


def test_every_case_shows_times_scaling_and_what_all_cards_did(cases: list[CaseResult]) -> None:
    """A row has the median times, 'x of N', the worst interference with its card, and rates in sum."""
    table = together_table(cases, 110)
    row = next(line for line in table.splitlines() if line.startswith("native.copy"))
    assert row.split() == ["native.copy", "100.0", "112.5", "1.80x", "of", "2", "+25.0", "%", "7200", "GPU-22e33a7a"]
    assert "native.other" not in table
    assert "TFLOP/s" not in table, "the workload has no useful operations"


def test_a_suite_is_summed_up_by_the_geometric_mean(cases: list[CaseResult]) -> None:
    """The last line says how the suite scales, and which case met the most interference, on which card."""
    *_, last = together_table(cases, 200).splitlines()
    assert last == (
        "2 cases, 1.90x of 2 GPUs in the geometric mean; most interference +25.0 %: native.copy on copy on GPU-22e33a7a"
    )


def test_a_narrow_terminal_gets_what_matters(cases: list[CaseResult]) -> None:
    """At 60 columns no line is wider, and times, scaling and interference still stand."""
    table = together_table(cases, 60)
    assert max(map(len, table.splitlines())) <= 60
    assert "1.80x of 2" in table
    assert "+25.0 %" in table


def test_cases_that_ran_otherwise_have_no_table(case: Make) -> None:
    """A run of any other kind prints nothing of this."""
    assert together_table([case(), case("native.sdpa")], 80) == ""
