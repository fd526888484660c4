from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.records import CaseKey, DeviceInfo, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.files.junit_xml import NAME_LIMIT, TEXT_LIMIT, list_properties, render_junit, xml_text
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.reports.run.terminal import failure_text
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

CaseFactory: TypeAlias = Callable[..., CaseResult]
RunFactory: TypeAlias = Callable[..., RunResult]

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def counts(element: Element) -> tuple[int, ...]:
    """Tests, failures, errors and skipped, as the element says."""
    return tuple(int(element.get(name, "-1")) for name in ("tests", "failures", "errors", "skipped"))


def found(element: Element) -> dict[str | None, str | None]:
    """Its own properties."""
    return {one.get("name"): one.get("value") for one in element.iterfind("properties/property")}


def test_stored_baselines_have_not_passed(case: CaseFactory, run: RunFactory) -> None:
    """Nothing was measured for them: they are skipped; what an update has recorded passes, and the mode says it."""
    recorded = case(verdict=Verdict.RECORDED, fails=False, summary="stored on 2026-01-01")
    for mode, skipped in (("baselines", 1), ("update", 0)):
        root = ElementTree.fromstring(render_junit(join_single(run(recorded, mode=mode))))
        assert counts(root) == (1, 0, 0, skipped)
        assert found(root[0])["attnperf.mode"] == mode


def test_a_regression_is_a_failure(case: CaseFactory, run: RunFactory) -> None:
    """A failing case fails with the terminal's text, an unsupported one is skipped, an undecided one passes."""
    slower = case(seconds=2.0)
    unsupported = case("b", verdict=Verdict.UNSUPPORTED, fails=False, reasons=("no such", "kernel"), seconds=0.25)
    undecided = case("c", verdict=Verdict.UNDECIDED, fails=False, seconds=1.0)
    root = ElementTree.fromstring(render_junit(join_single(run(slower, unsupported, undecided))))
    (suite,) = root
    first, second, third = suite.iterfind("testcase")
    assert counts(root) == counts(suite) == (3, 1, 0, 1)
    assert (root.get("time"), suite.get("time"), first.get("time")) == ("3.250", "3.250", "2.000")
    failure, skipped = first.find("failure"), second.find("skipped")
    assert failure is not None
    assert skipped is not None
    assert failure.text == failure_text(slower)
    assert failure.get("message") == "SLOWER: prefill/triton.flash/prefill-b4-s512-h8-d256-f16-causal"
    assert (skipped.get("type"), skipped.get("message")) == ("pytest.skip", "no such; kernel")
    assert [one.tag for one in third] == ["properties"]
    assert found(third)["attnperf.verdict"] == "UNDECIDED"


def test_an_unsupported_case_that_fails_is_no_skip(case: CaseFactory, run: RunFactory) -> None:
    """What was supported once, and fails for being so no more, is a failure."""
    root = ElementTree.fromstring(render_junit(join_single(run(case(verdict=Verdict.UNSUPPORTED, fails=True)))))
    assert counts(root) == (1, 1, 0, 0)


def test_properties_are_those_of_pytests_file(case: CaseFactory, run: RunFactory) -> None:
    """Every figure is there, unrounded; the suite says where the run came from."""
    made = run(case(median_us=26.123456789), against="main", started="2026-01-01T00:00:00Z")
    (suite,) = ElementTree.fromstring(render_junit(join_single(made)))
    (test,) = suite.iterfind("testcase")
    assert found(test) == {name: str(value) for name, value in list_properties(made.cases[0])}
    assert found(suite) == {
        "attnperf.version": "0.1.0",
        "attnperf.mode": "gate",
        "attnperf.commit": "4f2c1ab",
        "attnperf.against": "main",
        "attnperf.command": "pytest --attnperf suites/",
    }
    assert suite.get("timestamp") == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("nodeid", "classname", "name"),
    [
        ("suites/test_a.py::test_b[c-d1/2::e]", "suites.test_a", "test_b[c-d1/2::e]"),
        ("suites/x/test_a.py::TestC::test_b", "suites.x.test_a.TestC", "test_b"),
        ("test_a.py::test_b", "test_a", "test_b"),
        ("odd", "odd", "odd"),
        ("", "prefill.triton.flash.w", "prefill.triton.flash.w"),
    ],
)
def test_names_are_pytests(case: CaseFactory, run: RunFactory, nodeid: str, classname: str, name: str) -> None:
    """A case has the class and name that pytest's own file gives it; without a node id its key stands for both."""
    root = ElementTree.fromstring(render_junit(join_single(run(case(nodeid=nodeid, workload="w")))))
    (test,) = root.iter("testcase")
    assert (test.get("classname"), test.get("name")) == (classname, name)


def test_a_suite_per_device_and_suite(case: CaseFactory, run: RunFactory) -> None:
    """Cases of two devices and suites, and compiled kernels, are apart; a case of two devices is there twice."""
    other = replace(case(verdict=Verdict.SAME, fails=False), key=CaseKey("decode", "b", "w"))
    kernel = CodeResult(CaseKey("code_objects", "k", "c", "gfx942"), "t.py::t", Verdict.WORSE, "worse", fails=True)
    skipped = replace(kernel, key=replace(kernel.key, backend="l"), verdict=Verdict.UNSUPPORTED, fails=False)
    on_amd = run(case(), device=DeviceInfo("rocm", "gfx942", "mi300x"), code=(kernel, skipped))
    root = ElementTree.fromstring(
        render_junit(join_runs([("a", run(case(), other)), ("b", on_amd), ("c", run(device=None))]))
    )
    assert [(suite.get("name"), counts(suite)) for suite in root] == [
        ("prefill on sm_90/h200", (1, 1, 0, 0)),
        ("decode on sm_90/h200", (1, 0, 0, 0)),
        ("prefill on gfx942/mi300x", (1, 1, 0, 0)),
        ("code_objects", (2, 1, 0, 1)),
    ]
    assert counts(root) == (5, 3, 0, 1)
    assert "WORSE: code_objects/k/c/gfx942" in str(root[3][1].findtext("failure"))


def test_no_runs() -> None:
    """A file without tests is whole."""
    assert counts(ElementTree.fromstring(render_junit(join_runs([])))) == (0, 0, 0, 0)


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(), max_size=30))
def test_any_text_is_xml(text: str) -> None:
    """What XML cannot hold is shown, everything else is kept."""
    assert not NOT_XML.search(xml_text(text, 1000))
    element = ElementTree.fromstring(ElementTree.tostring(_holding(xml_text(text, 1000))))
    assert element.get("a") == xml_text(text, 1000)
    if not NOT_XML.search(text) and not re.search("[\x7f-\x9f]", text):
        assert element.get("a") == text


def _holding(text: str) -> Element:
    return Element("a", a=text)


@pytest.mark.parametrize("text", ['<a>&"]]>\x00\x1b[2J\ud800\ufffe\n', "x" * 100_000])
def test_foreign_text(case: CaseFactory, run: RunFactory, text: str) -> None:
    """Markup, control characters, halves of pairs and 100 kB in any field give a valid file of a bounded size."""
    made = case(
        key=CaseKey(text, text, text, text), nodeid=text, summary=text, reasons=(text,), log=text, reproduce=text
    )
    skipped = replace(made, verdict=Verdict.UNSUPPORTED, fails=False, key=CaseKey("s", "b", "w"))
    device = DeviceInfo("cuda", text, text)
    data = render_junit(
        join_single(run(made, skipped, device=device, commit=text, command=text, started=text, against=text))
    )
    root = ElementTree.fromstring(data)
    assert counts(root) == (2, 1, 0, 1)
    assert not NOT_XML.search(data.decode())
    assert max(len(value) for element in root.iter() for value in element.attrib.values()) <= TEXT_LIMIT + 10
    assert max(len(one.get("name", "")) for one in root.iter("testcase")) <= NAME_LIMIT + 10
    assert root[0].get("timestamp") is None


def test_the_same_bytes_and_quickly() -> None:
    """The same runs give the same file, in a time that suits ten thousand cases."""
    joined = join_single(sample_run(500))
    started = time.process_time()
    data = render_junit(joined)
    assert time.process_time() - started < 1
    assert data == render_junit(joined)
    assert data.startswith(b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites ')


def test_quarantined_and_unchanged_tests_pass_and_are_counted(case: CaseFactory, run: RunFactory) -> None:
    """JUnit has no word for either: they pass, say so in a property, and the testsuite says how many there are."""
    held = [case(name, fails=False, quarantined="#7 until 2026-02-10") for name in "ab"]
    right = case("c", verdict=Verdict.RIGHT, fails=False, median_us=None, unchanged=True)
    root = ElementTree.fromstring(render_junit(join_single(run(*held, right))))
    (suite,) = root.findall("testsuite")
    assert counts(suite) == (3, 0, 0, 0)
    assert (found(suite)["attnperf.quarantined"], found(suite)["attnperf.unchanged"]) == ("2", "1")
    cases = [found(element) for element in suite.findall("testcase")]
    assert [one.get("attnperf.quarantined") for one in cases] == ["#7 until 2026-02-10"] * 2 + [None]
    assert [one.get("attnperf.unchanged") for one in cases] == [None, None, "yes"]
    (plain,) = ElementTree.fromstring(render_junit(join_single(run(case())))).findall("testsuite")
    assert "attnperf.quarantined" not in found(plain)


def test_figures_are_unrounded_builtins(case: CaseFactory) -> None:
    """Properties hold the verdict and every known figure as plain builtins."""
    found = dict(list_properties(case(median_us=26.123456789)))
    assert found["attnperf.verdict"] == "SLOWER"
    assert type(found["attnperf.verdict"]) is str
    assert found["attnperf.median_us"] == 26.123456789
    assert found["attnperf.ratio_high"] == 1.07
    assert found["attnperf.processes"] == 5
    assert {type(value) for value in found.values()} <= {str, int, float}
    assert json.loads(json.dumps(found)) == found


def test_pairs_and_what_they_were_against(case: CaseFactory) -> None:
    """A case settled by pairs says how many and against what; another has neither property."""
    pairs = (PairSummary(1.061, 24.6, 26.1, 8, "graph"),) * 8
    found = dict(list_properties(case(pairs=pairs, against="main (4f2c1ab)")))
    assert (found["attnperf.pairs"], found["attnperf.against"]) == (8, "main (4f2c1ab)")
    assert {"attnperf.pairs", "attnperf.against"}.isdisjoint(dict(list_properties(case())))


def test_unknown_figures_are_left_out(case: CaseFactory) -> None:
    """What is not known has no property."""
    unknown = case(
        median_us=None, interval=None, figures=None, first=(), second=(), floor_us=None, reproduce="", label=""
    )
    names = {name for name, _ in list_properties(unknown)}
    assert names.isdisjoint(
        f"attnperf.{name}" for name in ("median_us", "ratio_low", "flops", "processes", "floor_us", "reproduce")
    )
    assert "attnperf.verdict" in names
