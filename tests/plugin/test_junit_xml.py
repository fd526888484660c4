"""pytest's own `--junitxml`, and the file that is made from the results of the same run."""

from __future__ import annotations

import re
from typing import TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from pytest_attnperf.reports.files.json_results import decode
from pytest_attnperf.reports.files.junit_xml import render_junit
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

Told: TypeAlias = tuple[str, dict[str, str]]


@pytest.fixture
def mixed(attnperf_project: FakeProject) -> FakeProject:
    """Cases that are INCORRECT, UNSUPPORTED, and without a baseline."""
    attnperf_project.backend("fake.wrong", time_us=100.0, fault="wrong")
    attnperf_project.backend("fake.cannot", time_us=100.0, supported=["head_dim 16 is not supported"])
    attnperf_project.backend("fake.new", time_us=100.0)
    return attnperf_project


@pytest.fixture
def with_slower(mixed: FakeProject) -> FakeProject:
    """And one that is SLOWER."""
    others = mixed.script["backends"]
    mixed.script["backends"] = {}
    mixed.backend("fake.slower", time_us=100.0)
    mixed.store_baselines()
    mixed.script["backends"] = dict(others)
    mixed.backend("fake.slower", time_us=120.0)
    return mixed


def told(root: Element) -> dict[tuple[str, str], Told]:
    """(classname, name) -> what became of the test, and its properties."""
    return {
        (str(test.get("classname")), str(test.get("name"))): (
            next((kind for kind in ("failure", "error", "skipped") if test.find(kind) is not None), "passed"),
            {str(one.get("name")): str(one.get("value")) for one in test.iter("property")},
        )
        for test in root.iter("testcase")
    }


def from_results(project: FakeProject) -> Element:
    """The file that `attnperf report --junit` makes."""
    path = project.path / ".attnperf" / "results.json"
    return ElementTree.fromstring(render_junit(join_single(decode(path.read_bytes(), str(path)))))


def test_both_files_say_the_same(with_slower: FakeProject) -> None:
    """Of each case both have the class, the name, what became of it, every property and the same text."""
    with_slower.run("--attnperf", "--junitxml=out.xml")
    pytests, ours = ElementTree.parse(with_slower.path / "out.xml").getroot(), from_results(with_slower)
    assert told(ours) == told(pytests)
    became = {name: (kind, values["attnperf.verdict"]) for (_, name), (kind, values) in told(ours).items()}
    assert became == {
        f"test_prefill[fake.{name}-{WORKLOAD}]": how
        for name, how in {
            "slower": ("failure", "SLOWER"),
            "wrong": ("failure", "INCORRECT"),
            "cannot": ("skipped", "UNSUPPORTED"),
            "new": ("passed", "NO_BASELINE"),
        }.items()
    }
    assert [one.text for one in ours.iter("failure")] == [one.text for one in pytests.iter("failure")]
    assert [one.get("message") for one in ours.iter("skipped")] == [
        one.get("message") for one in pytests.iter("skipped")
    ]
    for name in ("tests", "failures", "errors", "skipped"):
        assert ours.get(name) == pytests[0].get(name)
    _, values = told(pytests)["suites.test_prefill", f"test_prefill[fake.slower-{WORKLOAD}]"]
    low, ratio, high = (float(values[f"attnperf.{name}"]) for name in ("ratio_low", "ratio", "ratio_high"))
    assert 1.1 < low < ratio < high < 1.3
    assert 1.0 < float(values["attnperf.threshold"]) < 1.1
    assert re.fullmatch(r'pytest --attnperf ".*test_prefill\[fake\.slower-.*\]"', values["attnperf.reproduce"])


def test_xdist_changes_nothing(mixed: FakeProject, other_plugins: None) -> None:
    """Results that travel from xdist's worker give the same file."""
    mixed.run("--attnperf", "--junitxml=out.xml", "-n1", "-k", "fake.wrong")
    pytests = told(ElementTree.parse(mixed.path / "out.xml").getroot())
    assert {kind for kind, _ in pytests.values()} == {"failure"}
    assert told(from_results(mixed)) == pytests
