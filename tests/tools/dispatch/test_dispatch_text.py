from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.tools.dispatch import dispatch_text as dispatch
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, make_points
from pytest_attnperf.tools.dispatch.regions import DispatchTable, list_never_combined, make_dispatch_table


def timed(
    backend: str, us: float, workload: str = "prefill-b4-s512-h8-d256-f16-causal", samples: bool = True
) -> BackendTime:
    """A steady backend, or a published figure."""
    process = ProcessSummary(us, us, us, (us,), 10, "graph")
    return BackendTime(backend, workload, us, "run.json", "2026-01-01", (process,) * 3 if samples else ())


def decided(*times: BackendTime) -> DispatchTable:
    """Of these, at a margin of 2 %."""
    points, left_out = make_points(times)
    return make_dispatch_table(points, left_out, margin=0.02)


def text(table: DispatchTable, width: int = 100, told: Sequence[str] = ("H200",)) -> str:
    """As a terminal of this width shows it."""
    return dispatch.render_table(table, told, list_never_combined(table.groups), width)


def two_sizes(*, samples: bool = True, new: str = "new") -> DispatchTable:
    """One backend to 512, the other at 1024 and 2048; the other also in a second shape."""
    sizes = [f"prefill-b4-s{seq}-h8-d256-f16-causal" for seq in (512, 1024, 2048)]
    times = [timed("old", us, size, samples) for us, size in zip((2.0, 1.0, 1.0), sizes, strict=True)]
    times += [timed(new, us, size, samples) for us, size in zip((1.0, 1.5, 1.25), sizes, strict=True)]
    return decided(*times, timed("old", 1.0, "prefill-b1-s64-h8-d64-f16-causal", samples))


def test_the_table_of_a_family() -> None:
    """Regions under their shape, with margins, confidence, how many backends there were, and over which."""
    lines = text(two_sizes()).splitlines()
    start = lines.index("prefill, by seq; incumbent old")
    assert [line.split() for line in lines[start + 3 : start + 6]] == [
        ["b1", "h8", "d64", "f16", "causal", "64", "old", "-", "alone", "1", "-"],
        ["b4", "h8", "d256", "f16", "causal", "512", "new", "100.0", "%", "clear", "2", "old"],
        ["1024", "-", "2048", "old", "25.0", "..", "50.0", "%", "clear", "2", "new"],
    ]


def test_figures_without_samples_say_so() -> None:
    """In every cell of confidence, and once in words; measured tables do not."""
    published = text(two_sizes(samples=False))
    assert "no samples: confidence unknown; only the margin decides" in published
    assert [line.split()[-4:] for line in published.splitlines() if "1024 - 2048" in line] == [
        ["no", "samples", "2", "new"]
    ]
    assert "no samples" not in text(two_sizes())


def test_unmeasured_regions_are_named() -> None:
    """Gaps, ends, single sizes, combinations, and backends that one size lacks."""
    table = decided(
        *(timed("a", 1.0, f"prefill-b4-s{seq}-h8-d256-f16") for seq in (512, 4096)),
        timed("b", 2.0, "prefill-b4-s512-h8-d256-f16"),
        timed("a", 1.0, "prefill-b1-s64-h8-d64-f16"),
        timed("a", 1.0, "varlen-q5_63-h4-hk2-d64-f16"),
    )
    lines = text(table).splitlines()
    for said in (
        "- prefill b4 h8 d256 f16: seq below 512, 513 to 4095, above 4096",
        "- 1 shape with one size in the table: every other size",
        "- shapes without a size: every other list of lengths",
        "- prefill f16: head_dim 64 with batch 4",
        "- prefill f16: head_dim 256 with batch 1",
        "- every other shape than those in the table",
        "- prefill b4 h8 d256 f16, seq 4096: b",
    ):
        assert said in lines


def test_a_family_with_nothing_to_choose_is_one_line() -> None:
    """It gets no table."""
    shown = text(decided(timed("a", 1.0), timed("b", 2.0), timed("c", 1.0, "softmax-r8-c64-f16")))
    assert "nothing to choose, because no case has more than one backend: softmax (c)" in shown
    assert "softmax, by rows" not in shown


def test_left_out_cases_are_listed_up_to_a_limit() -> None:
    """The number of all, the first with their reasons."""
    bad = [timed(f"x{index}", 1.0, f"prefill-{index}") for index in range(dispatch.LEFT_OUT_SHOWN + 2)]
    shown = text(decided(timed("a", 1.0), *bad))
    assert f"Left out of all decisions: {len(bad)} cases" in shown
    assert "- x0 on prefill-0: prefill workload" in shown
    assert "- 2 more, see --json" in shown


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("new", ["new", "triton.flash_persistent", "layer.triton.flash_persistent"])
def test_everything_fits_the_terminal(width: int, new: str) -> None:
    """A narrow one gets shapes on lines of their own, or parts of the table; less than 80 columns is taken for 80."""
    shown = text(two_sizes(samples=False, new=new), width)
    assert max(map(len, shown.splitlines())) <= max(width, 80)
    assert all(word in shown for word in (new, "100.0 %", "512", "no samples", "over"))


def test_a_narrow_terminal_shows_as_much_as_a_wide_one() -> None:
    """Every column is shown at every width: in a narrow terminal in several parts of the table."""
    table = two_sizes(new="layer.triton.flash_persistent")
    lines = [[line for line in text(table, width).splitlines() if line.startswith("shape ")] for width in (80, 140)]
    narrow, wide = ([word for line in each for word in line.split() if word != "shape"] for each in lines)
    assert narrow == wide == ["seq", "backend", "margin", "confidence", "of", "over"]


def test_a_hostile_name_prints_no_escape_and_no_markup() -> None:
    """Neither in a terminal nor in Markdown."""
    table = decided(timed("\x1b[2Ja|b<i>", 1.0), timed("b", 2.0), timed("c", 1.0, "prefill-\x1b[2J"))
    told = ("H200\x1b[2J",)
    assert "\x1b" not in text(table, told=told)
    page = dispatch.render_markdown(table, told, list_never_combined(table.groups))
    assert "\x1b" not in page
    assert "a\\|b&lt;i>" in page


def test_markdown_has_a_heading_per_list() -> None:
    """Tables, unmeasured regions, and what was left out."""
    table = decided(timed("a", 1.0), timed("b", 2.0), timed("c", 1.0, "prefill-x"))
    page = dispatch.render_markdown(table, ("H200",), list_never_combined(table.groups))
    assert [line for line in page.splitlines() if line.startswith("### ")] == [
        "### prefill, by seq; incumbent a",
        "### Never measured, so the incumbent is chosen",
        "### Left out of all decisions: 1 case",
    ]
