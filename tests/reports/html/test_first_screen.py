from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.plugin.report_inputs import ceilings_of, read_runs
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import Joined, join_runs, join_single
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Wait = Callable[[Any, str], Any]
Open = Callable[..., None]
Resize = Callable[[int, int], None]
Complaints = Callable[[], list[str]]

ROOT = Path(__file__).parents[3]
STORED = ROOT / "baselines/sm_90/h200"
MARKS = "#chart-picture .mark-symbol.role-mark path"
BOX = """const box = document.querySelector('#chart-picture svg').getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom]"""
PICTURE = "return document.querySelector('#chart-picture svg') !== null"


def suite_run(suite: str, seed: int, cases: int = 40) -> RunResult:
    """A sample run whose cases belong to another suite."""
    run = sample_run(cases, seed=seed)
    return replace(run, cases=tuple(replace(case, key=replace(case.key, suite=suite)) for case in run.cases))


def four_suites() -> Joined:
    """A page of four runs, each of its own suite."""
    names = ("prefill", "decode", "gemm", "norms")
    return join_runs([(f"{name}.json", suite_run(name, seed)) for seed, name in enumerate(names)])


def stored_baselines() -> Joined:
    """Every suite that is stored for an H200."""
    return read_runs([STORED])


def failing() -> Joined:
    """A run with failures."""
    return join_single(sample_run(72), "results.json")


@pytest.fixture(scope="module")
def html() -> str:
    """The page of a run with failures."""
    return render_page(failing())


def cases_of(browser: Any) -> list[str]:
    """The names of the picture's cases, in the order of its dots."""
    script = "return [...document.querySelectorAll(arguments[0])].map((mark) => mark.__data__.datum.name)"
    found: list[str] = browser.execute_script(script, MARKS)
    return found


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)])
@pytest.mark.parametrize("make", [failing, stored_baselines, four_suites])
def test_picture_is_on_the_first_screen(
    browser: Any,
    open_page: Open,
    resize: Resize,
    complaints: Complaints,
    make: Callable[[], Joined],
    width: int,
    height: int,
) -> None:
    """The verdict and a picture with dots stand in the first window of a laptop and of a phone, nothing cut."""
    resize(width, height)
    joined = make()
    open_page(render_page(joined, ceilings=ceilings_of(joined, [ROOT / "baselines"])), until=PICTURE)
    left, top, right, bottom = browser.execute_script(BOX)
    assert 0 <= left < right <= width
    assert 0 < top < bottom <= height
    assert len(cases_of(browser)) > 10
    assert browser.find_element("id", "summary-title").location["y"] < top
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert complaints() == []


def test_every_gated_case_has_a_dot_in_order(browser: Any, open_page: Open, html: str) -> None:
    """The slowest is first, the fastest last; the caption counts what has no change."""
    open_page(html, until=PICTURE)
    gated = sorted(
        (case for case in sample_run(72).cases if case.ratio is not None), key=lambda case: -(case.ratio or 0)
    )
    assert cases_of(browser) == [f"sm_90/sample {case.key}" for case in gated]
    caption = browser.find_element("id", "picture-caption").text
    assert caption.startswith(f"{len(gated)} cases by change")
    without = [case.verdict for case in sample_run(72).cases if case.ratio is None]
    assert f"{without.count(Verdict.UNSUPPORTED)} unsupported" in caption


def test_colour_and_shape_tell_verdicts_apart(browser: Any, open_page: Open, html: str) -> None:
    """Dots of two verdicts differ in both, so that no eye needs the colour."""
    open_page(html, until=PICTURE)
    script = """return [...document.querySelectorAll(arguments[0])].map((mark) =>
        [mark.__data__.datum.mark, getComputedStyle(mark).fill, mark.__data__.shape])"""
    looks = {tuple(look) for look in browser.execute_script(script, MARKS)}
    verdicts = {verdict for verdict, _, _ in looks}
    assert verdicts == {"SLOWER", "UNDECIDED", "SAME", "FASTER"}
    assert len({colour for _, colour, _ in looks}) == len({shape for _, _, shape in looks}) == len(looks) == 4


def test_keyboard_walks_over_dots_and_opens_a_case(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """Tab reaches the first dot and shows its figures, arrows go on, Enter opens, Escape returns to the dot."""
    from selenium.webdriver import ActionChains, Keys

    def press(key: str) -> None:
        ActionChains(browser, duration=0).send_keys(key).perform()

    open_page(html)
    names = cases_of(browser)
    focused = "return document.activeElement.__data__?.datum?.name"
    for _ in range(20):
        press(Keys.TAB)
        if browser.execute_script(focused):
            break
    assert browser.execute_script(focused) == names[0]
    assert browser.find_element("css selector", "#tooltip dd").text == names[0]
    for key, at in ((Keys.ARROW_RIGHT, 1), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_LEFT, 1), (Keys.END, -1), (Keys.HOME, 0)):
        press(key)
        assert browser.execute_script(focused) == names[at]
    press(Keys.ENTER)
    wait(browser, "return document.querySelector('dialog[open] #case-body .facts') !== null")
    assert names[0] in browser.find_element("id", "case-title").text
    press(Keys.ESCAPE)
    wait(browser, "return document.querySelector('dialog[open]') === null")
    assert browser.execute_script(focused) == names[0]
    press(Keys.TAB)
    assert browser.execute_script("return document.activeElement.closest('#chart-picture')") is None


def test_pointer_shows_and_opens_a_dot(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """The pointer on a dot shows the case with its change; a click opens it."""
    from selenium.webdriver import ActionChains

    open_page(html)
    mark = browser.find_elements("css selector", MARKS)[0]
    ActionChains(browser, duration=0).move_to_element(mark).perform()
    wait(browser, "return !document.getElementById('tooltip').hidden")
    shown = browser.find_element("id", "tooltip").text
    assert cases_of(browser)[0] in shown
    assert "change" in shown
    ActionChains(browser, duration=0).click(mark).perform()
    wait(browser, "return document.querySelector('dialog[open]') !== null")


def test_many_cases_keep_their_ends(browser: Any, open_page: Open) -> None:
    """The slowest and the fastest are dots, all between them one path, and the caption counts it by verdict."""
    run = sample_run(400)
    open_page(render_page(join_single(run)), until=PICTURE)
    gated = sorted((case for case in run.cases if case.ratio is not None), key=lambda case: -(case.ratio or 0))
    names = cases_of(browser)
    assert 50 < len(names) < 250
    assert names[0] == f"sm_90/sample {gated[0].key}"
    assert names[-1] == f"sm_90/sample {gated[-1].key}"
    caption = browser.find_element("id", "picture-caption").text
    assert "Left out as dots:" in caption
    rest = [case.verdict for case in gated if f"sm_90/sample {case.key}" not in names]
    assert f"{rest.count(Verdict.SAME)} same" in caption
    text = browser.execute_script("return document.querySelector('#chart-picture').textContent")
    assert f"{len(gated) - len(names)} more" in text


@pytest.mark.parametrize("ratio", [1.5, 40.0, 0.001, 1.0])
def test_one_case_of_any_change_is_drawn(browser: Any, open_page: Open, complaints: Complaints, ratio: float) -> None:
    """One case, slower by any factor or not at all, has its dot inside the picture and an axis that can be read."""
    (case, *_) = sample_run(1, verdicts=[Verdict.SAME]).cases
    one = replace(case, ratio=ratio, interval=(ratio * 0.99, ratio * 1.01))
    open_page(render_page(join_single(replace(sample_run(1), cases=(one,)))), until=PICTURE)
    assert len(cases_of(browser)) == 1
    ticks = browser.execute_script(
        "return [...document.querySelectorAll('#chart-picture .role-axis-label text')].map((one) => one.textContent)"
    )
    assert len(ticks) > 1
    assert max(map(len, ticks)) <= 8
    assert complaints() == []


def test_untimed_run_has_no_frame(browser: Any, open_page: Open, complaints: Complaints) -> None:
    """Without any time there is a sentence in place of a picture."""
    open_page(render_page(join_single(sample_run(3, verdicts=[Verdict.UNSUPPORTED]))))
    assert browser.execute_script("return document.getElementById('chart-picture')") is None
    assert "No case was timed" in browser.find_element("id", "summary").text
    assert complaints() == []


def test_suite_filters_the_table(browser: Any, open_page: Open) -> None:
    """A suite's name in its line shows its cases alone."""
    open_page(render_page(four_suites()))
    button = browser.find_element("css selector", "#suites tbody button")
    name = button.text
    browser.execute_script("arguments[0].click()", button)
    assert browser.find_element("id", "count").text == "40 of 160"
    assert browser.find_element("id", "filter-suite").get_attribute("value") == name


def test_hostile_names_stay_texts(browser: Any, open_page: Open, hostile: RunResult, complaints: Complaints) -> None:
    """Rows and captions of the picture show names as they are written."""
    for cases in (hostile.cases, tuple(replace(case, ratio=None, interval=None) for case in hostile.cases)):
        open_page(render_page(join_single(replace(hostile, cases=cases))), until=PICTURE)
        assert browser.execute_script("return window.pwned") is None
        assert complaints() == []
