"""What a user types and sees where tests say breakdown=True or timed=False, on the fake device."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.cases import marker_settings
from pytest_attnperf.testing.project import WORKLOAD, FakeProject

STAGES = {"qkv_projection": 40.0, "split": 0.0, "attention.qk_scores": 30.0, "attention.softmax": 28.0}
NOT_TIMED = ", label='proven', timed=False"


def test_the_table_stands_behind_the_suite(attnperf_project: FakeProject) -> None:
    """A breakdown is printed and kept; cases of timed=False are counted, right, and have no time."""
    project = attnperf_project
    project.script["process_sd"] = 0.0
    project.backend("fake.a", time_us=100.0, stages=STAGES, build_ms=812.0)
    project.backend("fake.b", time_us=50.0)
    project.suite([WORKLOAD], ", breakdown=True")
    project.suite([WORKLOAD], NOT_TIMED, name="test_prefill_proven.py")
    result = project.run("--attnperf", "--no-attnperf-strict")
    assert result.ret == 0
    shown = result.stdout.str()
    result.stdout.fnmatch_lines(["where the time goes", WORKLOAD, "backend *call us*first ms*"])
    result.stdout.fnmatch_lines(["*prefill_proven*", "2 cases right, and not timed: their tests say timed=False"])
    (line,) = (one for one in shown.splitlines() if one.startswith("fake.a "))
    assert line.split() == ["fake.a", "100.0", "2.00", "812", "3", "3", "98", "%", "40.00", "58.00", "(2)"]
    assert "RIGHT, not timed" not in shown
    assert "launch nothing here: split" in shown
    assert "no stages of their own: fake.b" in shown
    cases = {(case["key"]["backend"], case["key"]["label"]): case for case in project.results()["cases"]}
    assert [stage["name"] for stage in cases["fake.a", ""]["breakdown"]["stages"]] == list(STAGES)
    assert cases["fake.a", "proven"]["verdict"] == "RIGHT"
    assert cases["fake.a", "proven"]["breakdown"] is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"timed": "no"}, "timed='no'; allowed: True or False (default True)"),
        ({"breakdown": 1}, "breakdown=1; allowed: True or False (default False)"),
        ({"breakdown": True, "timed": False}, "breakdown=True and timed=False; stages are those of a time: drop one"),
    ],
)
def test_a_marker_that_is_off(settings: dict[str, object], said: str) -> None:
    """Anything but True or False, and a contradiction, is an error that names test, value and what is allowed."""
    marker = pytest.mark.attnperf(family="prefill", workloads=[WORKLOAD], **settings)
    with pytest.raises(UsageError) as caught:
        marker_settings(marker.mark, "test_prefill.py::test_prefill")
    assert str(caught.value) == f"test_prefill.py::test_prefill: the attnperf marker has {said}"
