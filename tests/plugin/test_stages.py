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
    result.stdout.fnmatch_lines(["*prefill_proven*", "2 cases right, and not timed: their tests have timed=False"])
    whole, stages = (one.split() for one in shown.splitlines() if one.startswith("fake.a "))
    assert whole == ["fake.a", "100.0", "2.00", "812", "3", "3", "98", "%"]
    assert stages == ["fake.a", "40.00", "58.00", "(2)"]
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
        ({"breakdown": True, "timed": False}, "breakdown=True, which times stages, and timed=False; drop one"),
    ],
)
def test_a_marker_that_is_off(settings: dict[str, object], said: str) -> None:
    """Anything but True or False, and a contradiction, is an error that names test, value and what is allowed."""
    marker = pytest.mark.attnperf(family="prefill", workloads=[WORKLOAD], **settings)
    with pytest.raises(UsageError) as caught:
        marker_settings(marker.mark, "test_prefill.py::test_prefill")
    assert str(caught.value) == f"test_prefill.py::test_prefill: the attnperf marker has {said}"


def test_stages_that_could_not_be_timed_are_said(attnperf_project: FakeProject) -> None:
    """A case that loses its breakdown keeps its verdict, and the closing lines name it with the reason."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0, stages=STAGES, fault="stage")
    project.suite([WORKLOAD], ", breakdown=True")
    result = project.run("--attnperf", "--no-attnperf-strict")
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*/fake.a/{WORKLOAD}: stages were not timed: *"])
    assert "where the time goes" not in result.stdout.str()


def test_only_cases_that_may_be_timed_count_for_the_false_alarm_rate(attnperf_project: FakeProject) -> None:
    """Cases of timed=False do not widen the limit of those that are timed."""
    project = attnperf_project
    project.backend("fake.a", time_us=100.0)
    project.suite([WORKLOAD])
    project.run("--update-baselines")
    alone = _threshold(project)
    project.suite([WORKLOAD, "prefill-b1-s64-h2-d16-f16", "prefill-b1-s96-h2-d16-f16"], NOT_TIMED, name="test_more.py")
    assert _threshold(project) == alone


def _threshold(project: FakeProject) -> float:
    """Of the timed case, where the noise alone sets it."""
    project.run(
        "--attnperf", "--no-attnperf-strict", "--attnperf-override=threshold=0.001", "--attnperf-override=floor_us=0"
    )
    (case,) = (case for case in project.results()["cases"] if not case["key"]["label"])
    return float(case["threshold"])
