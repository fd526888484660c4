from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, RooflinePoint
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.results import CaseResult
from pytest_attnperf.tools.profilers.page.profile_sections import MOST_DETAILED, build_case_sections
from tests.reports.html.conftest import messages
from tests.tools.profilers.page.samples import HOSTILE, make_analysed, make_network
from tests.tools.profilers.page.test_profile_sections import CEILINGS, count

pytest.importorskip("jinja2", reason="a page needs jinja2")
pytest.importorskip("vl_convert", reason="a page needs vl_convert")

Open = Callable[..., None]
POINT = RooflinePoint(100.0, 5e9, 2e8, 5e13, 2e12, 25.0, 41.7, "DRAM", 0.417, CEILINGS)


def make_cases(names: Sequence[str]) -> list[tuple[CaseResult, CaseProfile]]:
    """Profiled cases of these workloads."""
    kernels = (LiveKernel(KernelShape("flash_fwd"), (90_000, 110_000)),)
    bound = BoundVerdict(BoundClass.MEMORY, "41.7 % of DRAM", "", POINT)
    profile = CaseProfile(2, kernels, 200_000, "NVIDIA H200", bound=bound)
    keys = [CaseKey("decode", "triton.flash", name) for name in names]
    return [(CaseResult(key, "n", Verdict.SAME, "", median_us=100.0, profile=profile), profile) for key in keys]


def test_every_case_is_in_the_bars_and_the_table(browser: Any, open_page: Open) -> None:
    """What binds each case: a bar, a point of the roofline, a row, and a sentence of evidence."""
    found = make_cases(["decode-b1-s128", "decode-b2-s128"])
    sections = build_case_sections(found, [(case, make_network().summary) for case, _ in found], "NVIDIA H200 (sm_90)")
    assert [section.name for section in sections] == ["bounds", "evidence", "case-1", "case-2"]
    assert sections[0].lead[0] == "device: NVIDIA H200 (sm_90)"
    assert len(sections[0].figures[0].data["bars"]) == len(sections[0].tables[0].rows) == 2
    assert len(sections[1].lead) == 2
    assert len(sections[2].figures) == 2
    open_page(render_document("Cases", sections))
    assert count(browser, ".chart svg") == 6
    assert messages(browser) == []


def test_a_case_of_one_kernel_has_no_treemap() -> None:
    """A treemap of one rectangle shows nothing that its bar does not."""
    found = make_cases(["decode-b1-s128"])
    summary = make_analysed([("flash_fwd", "0", "s", 0, 9)]).summary
    titles = [figure.title for figure in build_case_sections(found, [(found[0][0], summary)], "H200")[2].figures]
    assert titles == ["The only kernel"]


def test_many_and_hostile_cases(browser: Any, open_page: Open) -> None:
    """Hundreds of cases are rows; only the first have sections; names stay names."""
    found = make_cases([*HOSTILE, *(f"w{n}" for n in range(300))])
    summary = make_network().summary
    sections = build_case_sections(found, [(case, summary) for case, _ in found], HOSTILE[0])
    assert len(sections) == 2 + MOST_DETAILED
    page = render_document("Cases", sections)
    assert len(page) < 3_000_000
    open_page(page)
    assert browser.execute_script("return window.pwned") is None
    assert messages(browser) == []
