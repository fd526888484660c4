from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.errors import ProfileError
from pytest_attnperf.records.profiles import ProfileFinding, Spread, StatsRow
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, Ceiling, KernelBound, RooflinePoint
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.sections import Section
from pytest_attnperf.tools.profilers.page.profile_sections import build_claim_sections, build_sections, read_sections
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import analyse_profile
from tests.reports.html.conftest import messages
from tests.tools.profilers.page.samples import HOSTILE, PROFILES, REAL, make_analysed, make_network, read_analysed

pytest.importorskip("jinja2", reason="a page needs jinja2")
pytest.importorskip("vl_convert", reason="a page needs vl_convert")

Open = Callable[..., None]
CEILINGS = (Ceiling(4.8e12, "B/s", "peak", "DRAM", "H200"), Ceiling(9.9e14, "FLOP/s", "measured", "f16 matrix", "H200"))
PAGE_BYTES = 3_000_000


def count(browser: Any, selector: str) -> int:
    """Number of elements of the page that fit."""
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def bound(name: str, bound_class: BoundClass, share: float | None = 0.4) -> KernelBound:
    """What binds a kernel that reaches a share of its roof."""
    point = RooflinePoint(100.0, 5e9, 2e8, 5e13, 2e12, 25.0, 41.7, "DRAM", share, CEILINGS)
    return KernelBound(name, 100.0, BoundVerdict(bound_class, "41.7 % of DRAM", "", point))


def point_at(browser: Any, selector: str) -> str:
    """Text of the tooltip over the middle of the first element that fits."""
    browser.execute_script(
        "const mark = document.querySelector(arguments[0]); mark.scrollIntoView({block: 'center'});"
        "const box = mark.getBoundingClientRect();"
        "const at = {bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};"
        "for (const kind of ['pointermove', 'mousemove', 'mouseover', 'pointerover'])"
        "  mark.dispatchEvent(new (kind.startsWith('p') ? PointerEvent : MouseEvent)(kind, at));",
        selector,
    )
    return str(
        browser.execute_script("const box = document.getElementById('tooltip'); return box.hidden ? '' : box.innerText")
    )


@pytest.mark.parametrize("name", REAL)
def test_real_profiles_are_pages(name: str, browser: Any, open_page: Open) -> None:
    """Every chart of a stored profile is drawn, nothing is wider than the window, and the browser is silent."""
    sections = build_sections(read_analysed(name))
    open_page(render_document("A profile", sections))
    assert count(browser, ".chart svg") == sum(len(section.figures) for section in sections) >= 2
    assert count(browser, "#time-title") == 1
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert messages(browser) == []


def test_names_of_rectangles_and_bars_show_up(browser: Any, open_page: Open) -> None:
    """Pointing at a rectangle, a bar of the time line and a bar of the kernels names the kernel and its time."""
    open_page(render_document("A profile", build_sections(make_network())))
    assert "Cijk_Ailk_Bljk_HB_MT64x64" in point_at(browser, "#time .mark-rect.role-mark path")
    assert "embed_kernel" in point_at(browser, "#line .mark-rect.role-mark path")
    assert "median" in point_at(browser, "#kernel-times .mark-rect.role-mark path")


def test_labels_in_rectangles_fit(browser: Any, open_page: Open) -> None:
    """No label of the treemap is wider than the chart, and titles and shares stand in the large rectangles."""
    open_page(render_document("A profile", build_sections(read_analysed(REAL[0]))))
    script = (
        "const chart = document.querySelector('#time svg').getBoundingClientRect();"
        "return [...document.querySelectorAll('#time svg text')].filter((text) => text.textContent)"
        ".map((text) => [text.textContent, text.getBoundingClientRect().right <= chart.right + 1])"
    )
    labels = browser.execute_script(script)
    assert all(inside for _, inside in labels)
    assert any(text.startswith("softmax 46.5 %") for text, _ in labels)
    assert any(text.startswith("GEMM") for text, _ in labels)


def test_hostile_names_stay_names(browser: Any, open_page: Open) -> None:
    """Scripts, templates of 2,000 characters, lone surrogates and blanks are text, and widen nothing."""
    rows = [(name, name, name, 10 * at, 10 * at + 9) for at, name in enumerate(HOSTILE * 3)]
    bounds = [bound(name, BoundClass.MEMORY) for name in HOSTILE]
    sections = [*build_sections(make_analysed(rows), bounds), *build_claim_sections(FINDINGS, HOSTILE[0])]
    open_page(render_document(HOSTILE[0], sections))
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert messages(browser) == []


FINDINGS = (
    ProfileFinding("rule a", True, "said", "", "it holds"),
    ProfileFinding(HOSTILE[0], False, HOSTILE[1], HOSTILE[2], HOSTILE[0] * 50),
    ProfileFinding("rule c", None, "said", "", "it is open"),
)


def test_claims_are_a_table_of_verdicts() -> None:
    """Contradictions first, then open ones, then those that hold, with their counts above."""
    (section,) = build_claim_sections(FINDINGS, "report.json")
    assert section.lead == ("claims: report.json", "1 contradicted, 1 open, 1 holds")
    assert [row[1] for row in section.tables[0].rows] == ["contradicted", "open", "holds"]
    assert build_claim_sections((), "report.json")[0].tables == ()


def test_what_binds_kernels_is_drawn(browser: Any, open_page: Open) -> None:
    """Bars of the share of the roof, the roofline with a number per kernel, the table and the reasons."""
    bounds = [bound(f"k{at}", each, 0.1 + at / 10) for at, each in enumerate(BoundClass)]
    sections = build_sections(make_network(), [*bounds, bound("unknown", BoundClass.UNDECIDED, None)])
    named = {section.name: section for section in sections}
    assert [figure.title for figure in named["bounds"].figures] == [
        "Share that each reaches of its own roof",
        "Roofline",
    ]
    assert len(named["bounds"].tables[0].rows) == len(named["evidence"].lead) == 7
    open_page(render_document("A profile", sections))
    assert count(browser, "#bounds .mark-symbol.role-mark path") == 7
    assert "of its roof" in point_at(browser, "#bounds .mark-symbol.role-mark path")
    assert messages(browser) == []


def test_a_profile_of_one_kernel(browser: Any, open_page: Open) -> None:
    """One dispatch fills the treemap, and is one bar."""
    open_page(render_document("A profile", build_sections(make_analysed([("flash_attention", "0", "s", 5, 99)]))))
    assert "flash_attention" in point_at(browser, "#time .mark-rect.role-mark path")
    assert messages(browser) == []


def test_an_empty_profile_says_so() -> None:
    """Without a kernel the page has no chart, and says that GPU time is not known."""
    stats = (StatsRow("api", "hipMalloc", Spread(3, 900)),)
    sections = build_sections(analyse_profile(Profile("run", (), stats=stats)))
    assert not any(section.figures for section in sections)
    assert any("GPU time: not known" in line for line in sections[0].lead)
    assert any("hipMalloc" in row[0] for section in sections for table in section.tables for row in table.rows)


def test_sums_alone_have_no_time_line() -> None:
    """Statistics give the treemap and the kernels; a time line needs a trace."""
    names = [section.name for section in build_sections(read_analysed("rocprof_v1/whole_run.stats.csv"))]
    assert names[:2] == ["time", "kernel-times"]
    assert "line" not in names


def test_figures_of_charts_stand_in_tables() -> None:
    """Every kernel of the bars is a row of a table, every family of the treemap too."""
    analysed = make_network()
    named = {section.name: section for section in build_sections(analysed)}
    families = {row[0] for row in named["time"].tables[0].rows}
    assert {kernel.family for kernel in analysed.summary.kernels} <= families
    rows = {row[0] for row in named["kernel-times"].tables[0].rows}
    assert {bar["name"] for bar in named["kernel-times"].figures[0].data["bars"]} <= rows


def test_sections_are_read_from_a_path() -> None:
    """What `attnperf report` needs: a path in, sections out; no profile is a stated error."""
    sections = read_sections(PROFILES / REAL[0], device="MI300X")
    assert [type(section) for section in sections] == [Section] * len(sections)
    assert len({section.name for section in sections}) == len(sections)
    with pytest.raises(ProfileError, match="is no file of a known profiler"):
        read_sections(PROFILES / "SOURCES.txt")


def test_same_profile_gives_the_same_page() -> None:
    """Nothing of the moment is in the page."""
    pages = {render_document("A profile", build_sections(make_network())) for _ in range(2)}
    assert len(pages) == 1


def test_many_launches_are_a_small_page() -> None:
    """200,000 dispatches of 500 kernels on eight streams are a page of at most 3 MB."""
    rows = [
        (f"kernel_{(n * 2654435761 >> 7) % 499}", f"{n % 2}", f"stream {n % 4}", 700 * n, 700 * n + 900 * (n % 50))
        for n in range(200_000)
    ]
    page = render_document("A profile", build_sections(make_analysed(rows)))
    assert len(page.encode("utf-8", "replace")) <= PAGE_BYTES
    assert "200,000 dispatches as" in page
