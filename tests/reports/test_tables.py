from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.tables import published_table, suite_table
from pytest_attnperf.results import CaseResult

CaseFactory: TypeAlias = Callable[..., CaseResult]

UNMEASURED = {"median_us": None, "baseline_us": None, "ratio": None, "interval": None, "peak_memory_bytes": None}
LONG = "prefill-b4-s1024-h8-d64-f16-causal"


class Row(NamedTuple):
    """A published figure."""

    config: str
    backend: str
    time: str
    source: str


def cells(table: str, name: str) -> list[str]:
    """The cells of the row that begins with this."""
    line = next(line for line in table.splitlines() if line.startswith(name))
    return [cell for cell in line.split("  ") if cell.strip()]


def test_a_whole_table(case: CaseFactory) -> None:
    """Every column of the widest table, exactly."""
    eager = case("native.eager_fp32", median_us=400.0, ratio=0.9996, verdict=Verdict.SAME)
    missing = case("ck", verdict=Verdict.ERROR, **UNMEASURED)
    assert suite_table([eager, case(), missing]).splitlines() == [
        "config                           ms    speedup    TFLOP/s    GB/s    peak MiB    floor    change  verdict",
        "--------------------------  -------  ---------  ---------  ------  ----------  -------  --------  ---------",
        "b4-s512-h8-d256-f16-causal",
        "- native.eager_fp32          0.4000      1.00x       42.8    83.9       128.0      4 %     0.0 %  SAME",
        "- triton.flash              0.02610      15.3x        655    1286       128.0     61 %    +6.1 %  SLOWER",
        "- ck                              -          -          -       -           -        -         -  ERROR",
    ]


def test_workloads_are_named_once_in_order(case: CaseFactory) -> None:
    """Cases of one workload stand together under one heading, whatever order they come in."""
    table = suite_table([case("a"), case("a", workload=LONG), case("b"), case("b", workload=LONG)])
    firsts = [line.split()[:2] for line in table.splitlines()[2:]]
    assert [first[-1] if first[0] == "-" else first[0] for first in firsts] == [
        "b4-s512-h8-d256-f16-causal",
        "a",
        "b",
        "b4-s1024-h8-d64-f16-causal",
        "a",
        "b",
    ]


def test_mixed_families_keep_their_name(case: CaseFactory) -> None:
    """The op family is cut from headings only where all share it."""
    table = suite_table([case(), case(workload="decode-b1-s16-h4-d32-f16")])
    assert "prefill-b4-s512-h8-d256-f16-causal" in table
    assert "decode-b1-s16-h4-d32-f16" in table


def test_speedup_is_against_the_same_workload(case: CaseFactory) -> None:
    """A reference of another workload or label gives no speedup."""
    cases = [case("native.eager_fp32", workload=LONG, median_us=261.0), case(), case(workload=LONG), case(label="x")]
    table = suite_table(cases)
    assert [line.split()[3] for line in table.splitlines() if "triton.flash" in line] == ["10.0x", "-", "-"]


def test_another_reference(case: CaseFactory) -> None:
    """The reference backend is a parameter."""
    table = suite_table([case("a", median_us=10.0), case("b", median_us=5.0)], reference_backend="a")
    assert "2.00x" in cells(table, "- b")[2]


def test_right_but_not_timed(case: CaseFactory) -> None:
    """A case proven right without a time says so, and a timed one does not."""
    table = suite_table([case(verdict=Verdict.RIGHT, **UNMEASURED), case("timed", verdict=Verdict.RIGHT)])
    assert table.splitlines()[3].endswith("RIGHT, not timed")
    assert table.splitlines()[4].endswith("  RIGHT")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_verdicts_are_printed_exactly(case: CaseFactory, verdict: Verdict) -> None:
    """Every verdict appears as its own word."""
    assert suite_table([case(verdict=verdict)]).splitlines()[-1].endswith(f"  {verdict.value}")


@pytest.mark.parametrize(
    ("width", "absent"),
    [
        (107, set()),
        (106, {"GB/s"}),
        (99, {"GB/s"}),
        (98, {"GB/s", "peak MiB"}),
        (87, {"GB/s", "peak MiB"}),
        (86, {"GB/s", "peak MiB", "floor"}),
        (80, {"GB/s", "peak MiB", "floor"}),
    ],
)
def test_narrow_tables(case: CaseFactory, width: int, absent: set[str]) -> None:
    """Optional columns go in order until the table fits; time, change and verdict stay at 80 columns."""
    table = suite_table([case("native.eager_fp32"), case()], width=width)
    header = table.splitlines()[0]
    assert {name for name in ("GB/s", "peak MiB", "floor") if name not in header} == absent
    assert all(len(line) <= width for line in table.splitlines())
    assert all(name in header for name in ("ms", "speedup", "change", "verdict"))


def test_columns_without_figures_go(case: CaseFactory) -> None:
    """On a CPU nobody knows a floor, and a first run has no change: neither column is printed."""
    header = suite_table([case(floor_us=None, ratio=None)]).splitlines()[0]
    assert "floor" not in header
    assert "change" not in header
    assert "GB/s" in header


def test_hostile_names(case: CaseFactory) -> None:
    """Escapes and newlines in a name do not leave their cell."""
    table = suite_table([case("evil\x1b[2J\nname", workload="a\nb")])
    assert "\x1b" not in table
    assert len(table.splitlines()) == 4


def test_nothing_to_show() -> None:
    """No cases and no published rows give no table."""
    assert suite_table([]) == ""
    assert published_table([]) == ""


def test_ten_thousand_cases_render_in_two_seconds(case: CaseFactory) -> None:
    """Large suites render fast."""
    cases = [case(f"backend{number % 10}", workload=f"prefill-b1-s{number // 10}") for number in range(10_000)]
    started = time.process_time()
    suite_table(cases)
    assert time.process_time() - started < 2.0


def test_published_table() -> None:
    """Published figures name their sources once, below, and say that they are never gated."""
    rows = [
        Row("b4-s512", "ck", "0.089 ms", "Report A, 2025"),
        Row("b4-s512", "triton.flash", "0.2 ms", "Report A, 2025"),
        Row("s512", "hip.naive", "12 us", "Report B"),
    ]
    assert published_table(rows).splitlines() == [
        "published elsewhere, never gated    backend           time  source",
        "----------------------------------  ------------  --------  --------",
        "b4-s512                             ck            0.089 ms  [1]",
        "b4-s512                             triton.flash    0.2 ms  [1]",
        "s512                                hip.naive        12 us  [2]",
        "[1] Report A, 2025",
        "[2] Report B",
    ]
