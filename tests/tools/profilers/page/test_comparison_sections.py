from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records.profile_changes import Change, ProfileComparison
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.tools.profilers.page.comparison_sections import build_comparison_sections
from pytest_attnperf.tools.profilers.profile_comparison import compare_profiles
from tests.reports.html.conftest import messages
from tests.tools.profilers.page.samples import HOSTILE, make_network, read_analysed
from tests.tools.profilers.page.test_profile_sections import count, point_at

pytest.importorskip("jinja2", reason="a page needs jinja2")
pytest.importorskip("vl_convert", reason="a page needs vl_convert")

Open = Callable[..., None]
KERNELS = (
    Change("flash", 400e3, 200e3, 4, 4, -0.5),
    Change("gemm", 100e3, 150e3, 4, 4, 0.1, "within the spread"),
    Change("fused", 0.0, 50e3, 0, 4, 0.1, "new"),
    Change("softmax", 80e3, 0.0, 4, 0, -0.2, "gone"),
    Change("same", 10e3, 10e3, 1, 1, 0.0),
)
FOUND = ProfileComparison("a", "b", "pass", 590e3, 410e3, (Change("attention", 480e3, 250e3, 8, 8, 1.0),), KERNELS)


def test_kernels_that_changed_are_bars() -> None:
    """The largest change first, by kind: less time, more time, came and went; one without a change is in the table."""
    sections = build_comparison_sections(FOUND)
    figure = sections[1].figures[0]
    assert [(bar["name"], bar["kind"], bar["label"]) for bar in figure.data["bars"]] == [
        ("flash", "less time", "-200.0 us"),
        ("gemm", "more time", "+50.00 us"),
        ("fused", "came", "+50.00 us"),
        ("softmax", "went", "-80.00 us"),
    ]
    assert figure.caption == "After minus before. The table has 1 more, with less of it."
    assert sections[1].lead == ("1 kernel is new: only after, 50.00 us.", "1 kernel is gone: only before, 80.00 us.")
    assert len(sections[1].tables[0].rows) == 5


def test_families_have_two_bars() -> None:
    """One before and one after, with the change behind the second."""
    bars = build_comparison_sections(FOUND)[0].figures[0].data["bars"]
    assert [(bar["side"], bar["label"]) for bar in bars] == [("before", "480.0 us"), ("after", "250.0 us, -47.9 %")]


@pytest.mark.parametrize("names", [("public/mi300x_sglang_decode.json.gz", "public/mi300x_sglang_prefill.json.gz")])
def test_real_profiles_are_compared(names: tuple[str, str], browser: Any, open_page: Open) -> None:
    """Decode against prefill: both charts are drawn and answer to the pointer, and the browser is silent."""
    before, after = (read_analysed(name).summary for name in names)
    sections = build_comparison_sections(compare_profiles(before, after), ["problem: none"])
    assert "problem: none" in sections[-1].lead
    open_page(render_document("Two profiles", sections))
    assert count(browser, ".chart svg") == 2
    assert "before" in point_at(browser, "#families .mark-rect.role-mark path")
    assert "by" in point_at(browser, "#kernel-changes .mark-rect.role-mark path")
    assert messages(browser) == []


def test_hostile_names_stay_names(browser: Any, open_page: Open) -> None:
    """Names of kernels, families, notes and paths are text."""
    kernels = tuple(Change(name, 9e3, 1e3, 1, 1, 0.1, name) for name in HOSTILE)
    found = ProfileComparison(HOSTILE[0], HOSTILE[1], "pass", 1e6, 5e5, kernels, kernels)
    open_page(render_document("Two profiles", build_comparison_sections(found, HOSTILE)))
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert messages(browser) == []


def test_equal_profiles_have_no_chart_of_changes() -> None:
    """A profile against itself: the sentence says that the same kernels run, and no bar is drawn."""
    summary = make_network().summary
    sections = build_comparison_sections(compare_profiles(summary, summary))
    assert sections[1].figures == ()
    assert sections[1].lead == ("The same kernels run before and after.",)


def test_nothing_against_nothing() -> None:
    """Empty profiles give sections without charts."""
    sections = build_comparison_sections(ProfileComparison("a", "b", "profile", 0.0, 0.0, (), ()))
    assert [section.figures for section in sections[:2]] == [(), ()]
