from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.records.published import PublishedTime, PublishedTimes
from pytest_attnperf.reports.files.json_results import decode, encode
from pytest_attnperf.reports.files.markdown import render_summary
from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.reports.run.published_times import hidden_line, list_published, only_workloads, published_table
from pytest_attnperf.results import CaseResult, RunResult

A = PublishedTimes(
    "Report A, 2025. Wall clock | of <100> calls.",
    "AMD Instinct MI300X (gfx942)",
    False,
    (PublishedTime("b4-s512", "ck (after tuning)", 89.0), PublishedTime("b4-s512", "triton.flash (after)", 200.0)),
)
B = PublishedTimes("Report B", "", True, (PublishedTime("s512", "hip.naive (results)", 12.0),))


def test_table_names_sources_once_below() -> None:
    """Published figures name their sources once, below, and say that they are never gated; none give no table."""
    assert published_table([A, B]).splitlines() == [
        "published elsewhere, never gated",
        "workload  backend                   time  source",
        "--------  --------------------  --------  ------",
        "b4-s512   ck (after tuning)     89.00 us  [1]",
        "b4-s512   triton.flash (after)  200.0 us  [1]",
        "s512      hip.naive (results)   12.00 us  [2]",
        "[1] Report A, 2025. Wall clock | of <100> calls.",
        "[2] Report B",
    ]
    assert published_table([]) == ""


def test_table_fits_the_width() -> None:
    """Long names have lines of their own, and long sources are wrapped."""
    rows = (PublishedTime("prefill-" * 20, "vendor.flash" * 3, 89.0),)
    lines = published_table(
        [PublishedTimes("A report with a long title, " * 9, "", False, rows)], width=80
    ).splitlines()
    assert [line for line in lines if "prefill-" in line] == [f"  {'prefill-' * 20}"]
    assert lines[-1].startswith("  ")


def test_figures_of_several_runs_are_shown_once() -> None:
    """Two runs that stored the same report show it once, and each of its times once."""
    lines, sources = list_published([A, B, A])
    assert sources == [A.source, B.source]
    assert [(line.workload, line.number, line.device) for line in lines] == [
        ("b4-s512", 1, A.device),
        ("b4-s512", 1, A.device),
        ("s512", 2, "a device that is not named"),
    ]


def test_only_figures_of_these_workloads() -> None:
    """A suite's table has those of its own workloads; a report without one of them is left out."""
    assert only_workloads([A, B], ["s512", "other"]) == [B]
    assert only_workloads([A, B], []) == []


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        ([], ""),
        ([B], ""),
        ([A, B], "2 published figures of AMD Instinct MI300X (gfx942) are not shown (-v shows all)"),
        ([PublishedTimes("C", "", False, B.rows)], "1 published figure of a device that is not named is not shown"),
    ],
)
def test_hidden_figures_are_counted(reports: list[PublishedTimes], line: str) -> None:
    """Figures of other devices are counted with the devices' names; those of the run's own are shown."""
    assert hidden_line(reports).startswith(line)
    assert bool(hidden_line(reports)) == bool(line)


def test_stored_results_keep_them(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> None:
    """results.json has them, and a file without them is read as before."""
    stored = run(case(), published=(A, B))
    assert decode(encode(stored), "results.json") == stored
    assert decode(encode(run(case())), "results.json").published == ()


def test_markdown_has_a_folded_table(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> None:
    """The summary has the times with device and source, markup of foreign texts escaped; none without figures."""
    text = render_summary(join_single(run(case(), published=(A, B))))
    section = text.partition("<summary>published elsewhere, never gated</summary>")[2].partition("</details>")[0]
    assert "1. Report B" in section, "that of the run's own device comes first"
    assert "| `b4-s512` | `ck (after tuning)` | 89.00 us | AMD Instinct MI300X (gfx942) | 2 |" in section
    assert "<100>" not in section
    assert "published elsewhere" not in render_summary(join_single(run(case())))


def test_markdown_without_room_counts_them(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> None:
    """Where there is no room they go first, and what is left out is counted."""
    many = PublishedTimes("Report " * 500, "", True, B.rows)
    text = render_summary(join_single(run(case(), published=(many,))), limit_bytes=3000)
    assert "published elsewhere" not in text
    assert "1 more part" in text


def test_html_has_a_section(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> None:
    """The page has them in a section of their own, with their sources, escaped; none without figures."""
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    first, second = run(case(), published=(A,)), run(case("b"), published=(A, B), started="2026-01-02T00:00:00Z")
    page = render_page(join_runs([("a", first), ("b", second)]))
    section = page.partition('<section id="published"')[2].partition("</section>")[0]
    assert section.count("<tr>") == 1 + 3
    assert "Published elsewhere, never gated" in section
    assert "<li>Report A, 2025. Wall clock | of &lt;100&gt; calls.</li>" in section
    assert 'href="#published"' in page
    assert 'id="published"' not in render_page(join_single(run(case())))
