from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.reports.files.markdown_picture import (
    ABOVE,
    BELOW,
    CELLS,
    CHANGE,
    DrawnChange,
    choose_axis,
    picture_section,
)
from pytest_attnperf.reports.run.joined import Joined, join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]


def draw(joined: Joined, room: int = 10_000) -> list[str]:
    """The lines of the picture in so many bytes."""
    section = picture_section(joined)
    return [] if section is None else section.render_fitting(room, "report").rstrip("\n").splitlines()


def test_worst_and_best_first(case: CaseFactory, run: RunFactory) -> None:
    """The slowest leads, the fastest ends, each with its strip, percent and microseconds in columns; SAME is left
    out."""
    cases = (
        case("a", ratio=0.95, interval=(0.94, 0.96), verdict=Verdict.FASTER, median_us=2337.0, baseline_us=2460.0),
        case("b", verdict=Verdict.SAME, ratio=1.0),
        case("c"),
    )
    assert draw(join_single(run(*cases))) == [
        "```text",
        " -5 %         0        +5 %",
        "              |   :      [-o-]   +6.1 %  24.60 -> 26.10 us  prefill/c/prefill-b4-s512-h8-d256-f16-causal",
        " [-o-]        |   :              -5.0 %  2.460 -> 2.337 ms  prefill/a/prefill-b4-s512-h8-d256-f16-causal",
        "o change   [-] 95 % interval   | none   : allowed   < > beyond the axis",
        "```",
    ]


def test_every_count_up_to_the_limit_is_shown(case: CaseFactory, run: RunFactory) -> None:
    """24 changed cases all have a row; of 25 one is counted between worst and best."""
    cases = [case(f"b{number:02}", ratio=1.1 + number / 100) for number in range(25)]
    for count in (1, 8, 16, 17, 23, 24):
        lines = draw(join_single(run(*cases[:count])))
        assert len([line for line in lines if "prefill/" in line]) == count
        assert "between" not in "".join(lines)
    lines = draw(join_single(run(*cases)))
    assert [line.strip() for line in lines if "between" in line] == ["(1 more between)"]
    assert lines[-1] == "_1 more case is in the report_"
    named = [line.rpartition("prefill/b")[2][:2] for line in lines if "prefill/b" in line]
    assert named == [f"{number:02}" for number in (*range(24, 8, -1), *range(7, -1, -1))]


def test_whole_rows_are_left_out_first(case: CaseFactory, run: RunFactory) -> None:
    """In little room the worst stay, the fence is closed, and the others are counted; in less there is no picture."""
    joined = join_single(run(*(case(f"b{number}", ratio=1.1 + number / 100) for number in range(20))))
    lines = draw(joined, 600)
    assert sum(len(line) + 1 for line in lines) <= 600
    assert lines[2].rpartition("prefill/")[2].startswith("b19/")
    assert lines.index("```") == len(lines) - 3
    shown = sum("prefill/" in line for line in lines)
    assert 0 < shown < 20
    assert lines[-1] == f"_{20 - shown} more cases are in the report_"
    assert draw(joined, 150) == []


def test_hostile_names(case: CaseFactory, run: RunFactory) -> None:
    """A name cannot close the block, move a strip, nor hold a mention or a tag, and a long one loses its middle."""
    hostile = "```\n```\x1b[2J\u202e@team <img> " + "全" * 500 + "\ud800"
    made = run(case(key=CaseKey(hostile, hostile, hostile, hostile)), device=DeviceInfo("cuda", hostile, hostile))
    lines = draw(join_runs([("a", made), ("b", run(case(key=CaseKey("s", "b", "w"))))]))
    assert len(lines) == 6
    assert lines[-1] == "```"
    rows = lines[2:4]
    assert [row.index("24.60") for row in rows] == [rows[0].index("24.60")] * 2
    for text in rows:
        assert not set("<@`\x1b\u202e\ud800") & set(text)
        assert len(text) < 260
    assert rows[0].endswith("s/b/w on sm_90/h200") or rows[1].endswith("s/b/w on sm_90/h200")


def test_odd_figures(case: CaseFactory, run: RunFactory) -> None:
    """A ratio that is no number is not drawn; a missing time and threshold leave their place empty."""
    odd = [case(f"b{at}", ratio=ratio) for at, ratio in enumerate((math.nan, math.inf, None))]
    assert draw(join_single(run(*odd))) == []
    plain = case("c", median_us=None, baseline_us=None, threshold=None, interval=None, verdict=Verdict.UNDECIDED)
    lines = draw(join_single(run(*odd, plain)))
    assert [line.split() for line in lines[2:3]] == [
        ["|", "o", "+6.1", "%", "prefill/c/prefill-b4-s512-h8-d256-f16-causal"]
    ]


SLOWER = DrawnChange(1.061, (1.052, 1.07), 1.02)


def test_a_slower_and_a_faster_case_share_an_axis() -> None:
    """Both intervals stand around their changes, on either side of 'none', and the threshold is in one column."""
    faster = DrawnChange(0.95, (0.94, 0.96), 1.02)
    axis = choose_axis([SLOWER, faster])
    assert [axis.draw_labels(), axis.draw_strip(SLOWER), axis.draw_strip(faster)] == [
        " -5 %         0        +5 %",
        "              |   :      [-o-] ",
        " [-o-]        |   :            ",
    ]


def test_a_far_change_does_not_press_the_others_together() -> None:
    """It is drawn at the end of the axis, as beyond it, on its side."""
    far, faster = DrawnChange(3.5, (3.4, 3.6), 1.02), DrawnChange(0.01, None, 1.02)
    axis = choose_axis([SLOWER, far, faster])
    assert axis.high == pytest.approx(0.08)
    assert axis.draw_strip(far).endswith(ABOVE)
    assert axis.draw_strip(faster).startswith(BELOW)
    assert axis.draw_strip(SLOWER).index(":") < axis.draw_strip(SLOWER).index(CHANGE)


def test_an_interval_is_drawn_as_far_as_the_axis_goes() -> None:
    """What lies beyond has no closing bracket there."""
    wide = DrawnChange(1.05, (0.5, 1.06), 1.02)
    strip = choose_axis([wide]).draw_strip(wide)
    assert "[" not in strip
    assert strip.startswith("-")
    assert "o" in strip


@pytest.mark.parametrize(
    "change",
    [
        DrawnChange(1.0),
        DrawnChange(1.0, (1.0, 1.0), 1.0),
        DrawnChange(0.0, (0.0, 0.0), 1.02),
        DrawnChange(-5.0),
        DrawnChange(1e300, (math.nan, 2.0), math.inf),
        DrawnChange(1.02, (math.inf, -math.inf), math.nan),
        DrawnChange(1.0 + 1e-12, (1.0, 1.0 + 1e-9), 1.0 + 1e-12),
        DrawnChange(1.2, (1.3, 1.1), 2.0),
    ],
)
def test_odd_figures_in_a_strip(change: DrawnChange) -> None:
    """A strip has its width and its mark whatever a file says; ends in the wrong order are put right."""
    axis = choose_axis([change])
    strip = axis.draw_strip(change)
    assert len(strip) == CELLS
    assert sum(strip.count(mark) for mark in (CHANGE, BELOW, ABOVE)) == 1
    assert strip.isascii()
    assert "0" in axis.draw_labels()


def test_nothing_to_draw() -> None:
    """An axis without changes still has its ends in order."""
    axis = choose_axis([])
    assert axis.low <= 0 < axis.high
