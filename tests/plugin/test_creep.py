"""The creep guard through pytest: slowdowns that were recorded one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.testing.project import FakeProject

_CREPT: list[bytes] = []
"""The baseline of `crept`, once it was made: it takes three recordings of seven processes."""


@pytest.fixture
def crept(attnperf_project: FakeProject) -> FakeProject:
    """A case recorded at 100 us, again at 103, and again at 106.5."""
    attnperf_project.script["process_sd"] = 0.001
    if _CREPT:
        attnperf_project.backend("fake.a", time_us=106.5)
        attnperf_project.baseline().parent.mkdir(parents=True)
        attnperf_project.baseline().write_bytes(_CREPT[0])
        return attnperf_project
    attnperf_project.backend("fake.a", time_us=100.0)
    attnperf_project.store_baselines()
    for recorded_us in (103.0, 106.5):
        attnperf_project.backend("fake.a", time_us=recorded_us)
        result = attnperf_project.run("--update-baselines")
        assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["finding: prefill/fake.a/*crept: *--attnperf-accept=*"])
    _CREPT.append(attnperf_project.baseline().read_bytes())
    return attnperf_project


def anchor(project: FakeProject) -> dict[str, Any]:
    """The anchor of the only stored entry."""
    (entry,) = json.loads(project.baseline().read_text())["entries"].values()
    stored: dict[str, Any] = entry["anchor"]
    return stored


def test_recorded_slowdowns_are_found_until_accepted(crept: FakeProject) -> None:
    """The gate passes with a finding, strict fails by it, and an accepted recording clears it and keeps the reason."""
    assert anchor(crept)["median_us"] == pytest.approx(100, rel=0.002)
    result = crept.run("--attnperf")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["finding: prefill/fake.a/*crept: 106.* us against * us on *: +6.* % since then, more than the 5 % allowed,*"]
    )
    assert crept.verdicts() == {"fake.a": "SAME"}

    strict = crept.run("--attnperf", "--attnperf-strict")
    assert strict.ret == 1
    strict.stdout.fnmatch_lines(["exit status 1: strict: 1 findings"])

    accepted = crept.run("--update-baselines", "--attnperf-accept=wanted: exact softmax")
    assert accepted.ret == 0, accepted.stdout.str()
    assert anchor(crept)["acknowledged"] == "wanted: exact softmax"
    assert anchor(crept)["median_us"] == pytest.approx(106.5, rel=0.002)
    cleared = crept.run("--attnperf", "--attnperf-strict")
    assert cleared.ret == 0, cleared.stdout.str()
    cleared.stdout.no_fnmatch_line("*crept*")


def test_how_much_may_creep_is_a_setting(crept: FakeProject) -> None:
    """creep=8 allows 6.5 %, and says itself that this lets more through than what was stored."""
    result = crept.run("--attnperf", "--attnperf-override=creep=8")
    result.stdout.no_fnmatch_line("*crept:*")
    result.stdout.fnmatch_lines(["finding: *policy loosened since the baseline: creep_percent 5 -> 8"])
