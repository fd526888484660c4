from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.reports.html import skeleton
from pytest_attnperf.reports.html.embedding import csp_hash
from pytest_attnperf.reports.html.page import BUDGET_BYTES, render_page
from pytest_attnperf.reports.html.skeleton import HtmlReportError
from pytest_attnperf.reports.run.joined import Joined, join_runs, join_single
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Read = Callable[[str], Any]
Run = Callable[..., RunResult]

LIMIT = 3_000_000


@pytest.fixture(scope="module")
def run() -> RunResult:
    """A run with every verdict of the sample mix."""
    return sample_run(120, seed=2)


@pytest.fixture(scope="module")
def html(run: RunResult) -> str:
    """Its page."""
    return render_page(join_single(run, "results.json"))


def test_page_is_well_made(html: str, read_page: Read) -> None:
    """Ids are unique, headings go down one level at a time, tables have captions, controls have labels."""
    parsed = read_page(html)
    assert set(parsed.ids.values()) == {1}
    assert parsed.headings[0] == 1
    assert all(then - before <= 1 for before, then in zip(parsed.headings, parsed.headings[1:], strict=False))
    assert parsed.tags["html"] == parsed.tags["main"] == parsed.tags["title"] == 1
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert parsed.tags["label"] >= parsed.tags["select"] + parsed.tags["input"]
    assert '<a class="skip" href="#cases">' in html


def test_page_names_no_other_address(html: str, read_page: Read) -> None:
    """Tags name nothing outside of the page, no tag holds a handler or style, and the policy allows only its own."""
    parsed = read_page(html)
    assert [link for link in parsed.links if not link[2].startswith("#")] == []
    assert parsed.handlers == []
    policy = parsed.metas["Content-Security-Policy"]
    executed = [text for attributes, text in parsed.scripts if not attributes.get("type")]
    # The chart library is held as text, and run once the table stands there.
    (library,) = [text for attributes, text in parsed.scripts if attributes.get("id") == "bundle"]
    assert len(executed) == 1
    for text in (*executed, library):
        assert csp_hash(text) in policy
    assert [csp_hash(style) in policy for style in parsed.styles] == [True]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "connect-src" not in policy


def test_page_says_the_verdict_first(run: RunResult, html: str, read_page: Read) -> None:
    """The outcome, device and base stand above everything, then the failing cases with their commands."""
    text = " ".join(read_page(html).text.split())
    worst = min(run.cases, key=lambda case: (not case.fails, case.verdict is not Verdict.INCORRECT, str(case.key)))
    body = text[text.index("Failed") :]
    assert 0 < body.index("On sm_90/sample against 4f2c1ab90d11") < body.index("Worst first")
    assert body.index("Worst first") < body.index(worst.reproduce)
    assert "results.json" in text
    assert "torch 2.11.0" in text


@pytest.mark.parametrize(
    ("fields", "word", "kind"),
    [
        ({"mode": "update"}, "Recorded", "open"),
        ({"mode": "baselines"}, "Stored baselines", "open"),
        ({"mode": "calibrate"}, "Calibrated", "open"),
        ({"complete": False}, "Incomplete", "open"),
    ],
)
def test_what_compared_nothing_has_not_passed(fields: dict[str, object], word: str, kind: str) -> None:
    """The page and its title say what the run is."""
    html = render_page(join_single(replace(sample_run(3, verdicts=[Verdict.RECORDED]), **fields)))  # type: ignore[arg-type]
    assert f'<span class="outcome {kind}">{word}</span>' in html
    assert f"<title>{word.lower()}: 3 recorded" in html
    assert "Passed" not in html


def test_page_of_a_run_that_passed() -> None:
    """Only what was compared has."""
    assert '<span class="outcome passes">Passed</span>' in render_page(
        join_single(sample_run(3, verdicts=[Verdict.SAME]))
    )


@pytest.mark.parametrize("count", [1, 3])
def test_facts_are_folded(run: RunResult, count: int) -> None:
    """Device and software of all runs are behind one heading; findings stay in sight, above it."""
    runs = [(f"{number}.json", replace(run, findings=("crept",), cases=run.cases[:3])) for number in range(count)]
    html = render_page(join_runs(runs))
    assert html.count('<details class="facts-of-runs">') == 1
    assert html.count("<li>crept</li>") == count
    assert html.rindex("<li>crept</li>") < html.index('<details class="facts-of-runs">') < html.index("torch 2.11.0")


def test_several_suites_have_a_line_each(run: RunResult, read_page: Read) -> None:
    """Its name, a strip of its changes, and its cases by verdict; a page of one suite has no such lines."""
    other = replace(run, cases=tuple(replace(case, key=replace(case.key, suite="decode")) for case in run.cases[:9]))
    parsed = read_page(render_page(join_runs([("a.json", run), ("b.json", other)])))
    assert parsed.ids["suites"] == 1
    assert parsed.tags["svg"] == 2
    assert "decode" in parsed.text
    assert read_page(render_page(join_single(run))).ids["suites"] == 0


def test_page_without_a_script_shows_the_worst_rows(html: str) -> None:
    """A hundred rows stand there as HTML, and the page says that there are more."""
    assert len(re.findall(r"<tr[^>]*><td[^>]*><span class=\"verdict\"", html)) == 100
    assert "Without scripts this page shows its worst 100 of 120 cases" in html


def test_data_holds_every_case(run: RunResult, html: str, read_page: Read) -> None:
    """Words and samples of every case are in the page where there is room, each under its row."""
    parsed = read_page(html)
    rows, details = parsed.data("rows"), parsed.data("details")
    assert sorted(rows["keys"]) == sorted(f"sm_90/sample {case.key}" for case in run.cases)
    assert sorted((index, kind) for index, kind, _ in details) == [
        (index, kind) for index in range(120) for kind in "st"
    ]
    assert '<p class="left-out">' not in html


def test_same_input_is_the_same_page(run: RunResult, html: str) -> None:
    """No clock and no order of a set gets into it."""
    assert render_page(join_single(run, "results.json")) == html


def test_page_keeps_its_budget(read_page: Read) -> None:
    """What does not fit is left out, the cases that need somebody last, and that is said with figures."""
    run = sample_run(300, seed=5)
    full = len(render_page(join_single(run)).encode())
    html = render_page(join_single(run), budget_bytes=full - 40_000)
    assert len(html.encode()) <= full - 40_000
    details = read_page(html).data("details")
    words = sum(kind == "t" for _, kind, _ in details)
    samples = sum(kind == "s" for _, kind, _ in details)
    assert words == 300 > samples > 0
    assert f"the texts of {words} and the samples of {samples} of 300 cases" in " ".join(html.split())
    failing = [index for index, fails in enumerate(read_page(html).data("rows")["fails"]) if fails]
    assert set(failing) <= {index for index, kind, _ in details if kind == "s"}


def test_hostile_text_is_data_only(hostile: RunResult, read_page: Read) -> None:
    """No text of a run becomes a tag, an attribute, a script, a template expression or a link."""
    joined = join_single(hostile, "</title><script>window.pwned=1</script>")
    html = render_page(joined)
    parsed = read_page(html)
    clean = read_page(render_page(join_single(sample_run(28))))
    assert parsed.tags["script"] == clean.tags["script"]
    assert parsed.tags["img"] == 0
    assert parsed.tags["svg"] == html.count('<svg class="strip"')
    assert parsed.handlers == []
    assert [link for link in parsed.links if not link[2].startswith("#")] == []
    assert not any("pwned" in text for attributes, text in parsed.scripts if not attributes.get("type"))
    assert "{{7*7}}" in parsed.text
    assert not any(character in parsed.text for character in "\x1b\u2028\u202e")


def test_long_text_is_cut(run: RunResult) -> None:
    """A megabyte of text in every place makes no page over its limit."""
    long = "<&" * 500_000
    case = replace(run.cases[0], summary=long, reasons=(long,) * 9, log=long, reproduce=long, config={long: long})
    html = render_page(join_single(replace(run, cases=(case,), command=long, commit=long, findings=(long,) * 99)))
    assert len(html.encode()) < LIMIT


def test_page_of_several_runs(run: RunResult, read_page: Read, history: Callable[..., CaseHistory]) -> None:
    """Each run has its line; what had to be decided to join them, and changes in history, are shown."""
    later = replace(run, started="2026-02-01T00:00:00+00:00", run_id="2", complete=False)
    histories = [history(str(run.cases[0].key))]
    html = render_page(join_runs([("first.json", run), ("second.json", later)]), histories=histories)
    text = " ".join(read_page(html).text.split())
    assert "first.json" in text
    assert "second.json" in text
    assert "prefill (second.json) was stopped before its end" in text
    assert "120 notes on joining these runs" in text
    assert "occurs twice" in text
    assert "c0ffee3 -> c0ffee4" in text
    assert "torch: 2.10.0 -> 2.11.0" in text


@pytest.mark.parametrize("joined", [join_runs([]), join_single(replace(sample_run(0), device=None, fingerprint=None))])
def test_page_of_nothing(joined: Joined, read_page: Read) -> None:
    """Without a run, and without a case, there is still a page, which passed nothing and says so."""
    parsed = read_page(render_page(joined))
    assert "0 cases" in parsed.text
    assert parsed.data("details") == []


def test_link_to_ci_is_one_of_the_web(run: RunResult, read_page: Read) -> None:
    """An address of the web is a link; any other is text."""
    for address, links in (("https://ci.example/1?a=b&c", 1), ("javascript:alert(1)", 0), (" data:text/html,x", 0)):
        parsed = read_page(render_page(join_single(replace(run, cases=(), provenance={"ci_url": address}))))
        found = [link[2] for link in parsed.links if not link[2].startswith("#")]
        assert found == [address] * links
        assert address.strip() in parsed.text


@pytest.mark.parametrize("module", ["jinja2", "vl_convert"])
def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, run: RunResult, module: str) -> None:
    """Without one of the two libraries the error names it and the extra that brings it."""
    monkeypatch.setitem(sys.modules, module, None)
    skeleton.load_bundle.cache_clear()
    with pytest.raises(HtmlReportError, match=rf"needs {module} .*pip install 'pytest-attnperf\[html\]'"):
        render_page(join_single(run))


@pytest.mark.soak
def test_ten_thousand_cases() -> None:
    """A page of 10,000 cases is under 3 MB, made in under 20 s and with under 2 GB."""
    joined = join_single(sample_run(10_000))
    start = time.process_time()
    size = len(render_page(joined).encode())
    assert time.process_time() - start < 20
    assert size <= BUDGET_BYTES < LIMIT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20
