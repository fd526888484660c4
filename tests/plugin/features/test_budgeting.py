"""`pytest --attnperf --attnperf-budget=TIME`: what is refused, and runs on the fake device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.plugin.config import RUN_CONFIG, RunConfig
from pytest_attnperf.plugin.controller_session import ControllerSession
from pytest_attnperf.plugin.features.budgeting import budget_seconds
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.testing.project import FakeProject


def asked(typed: str | None = "10m", stored: str = "", **values: Any) -> RunConfig:
    """What the command line and the ini file ask for."""
    given = {} if typed is None else {"budget": typed}
    return RunConfig(budget=stored if typed is None else typed, typed=given, **values)


def test_seconds() -> None:
    """Typed or of the ini file, in a gating run; an ini file's says nothing of other runs, an empty one is none."""
    for settings, mode, seconds in (
        (asked(), RunMode.GATE, 600.0),
        (asked(None, "90s"), RunMode.GATE, 90.0),
        (asked(None, "90s"), RunMode.CHECK, None),
        (asked("", "90s"), RunMode.GATE, None),
        (asked(None), RunMode.GATE, None),
    ):
        assert budget_seconds(settings, mode, distributed=False) == seconds


@pytest.mark.parametrize("mode", [RunMode.CHECK, RunMode.UPDATE, RunMode.CALIBRATE, RunMode.WARM])
def test_other_runs_have_no_budget(mode: RunMode) -> None:
    """What is typed and would not be heeded is refused, with what it is for."""
    with pytest.raises(UsageError, match="--attnperf-budget=10m is for runs that gate"):
        budget_seconds(asked(), mode, distributed=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"typed": "soon"}, "--attnperf-budget 'soon' must be a time above 0"),
        ({"distributed": True}, "with -n: each worker of xdist sees only some cases"),
        ({"isolate": "none"}, "drop --attnperf-isolate=none"),
        ({"record_local": True}, "with --attnperf-record-local: recording cannot be limited in time"),
        ({"profile": True}, "with --attnperf-profile: every case is also profiled"),
    ],
)
def test_what_has_no_place_beside_a_budget(values: dict[str, Any], said: str) -> None:
    """Each is refused with its reason."""
    with pytest.raises(UsageError, match=said):
        distributed = values.pop("distributed", False)
        budget_seconds(asked(**values), RunMode.GATE, distributed=distributed)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"typed": None, "warm": True}, "--attnperf-warm with -n"),
        ({"gate": True}, "--attnperf-budget=10m with -n"),
        ({"typed": None, "stored": "10m", "gate": True}, "--attnperf-budget=10m with -n"),
        ({}, "--attnperf-budget=10m is for runs that gate"),
    ],
)
def test_xdist_is_refused_by_its_controller(values: dict[str, Any], said: str) -> None:
    """The process that spreads the cases refuses, before any of its workers has collected one."""
    given: Any = SimpleNamespace(
        getoption=lambda name, default=None: {"dist": "load"}.get(name, default),
        get_verbosity=lambda: -1,
        stash=pytest.Stash(),
        pluginmanager=SimpleNamespace(get_plugin=lambda name: None),
    )
    given.stash[RUN_CONFIG] = asked(**values)
    cases = SimpleNamespace(on_gpu=False)
    collectors: Any = SimpleNamespace(register_all=lambda: None, has_registered=True, cases=cases)
    with pytest.raises(pytest.UsageError, match=said):
        ControllerSession(given, collectors).pytest_collection()


SKIPPED = """
import pytest

@pytest.mark.skipif(True, reason="not today")
@pytest.mark.attnperf(family="prefill", workloads=["prefill-b1-s64-h1-d16-f16"], label="skipped")
def test_skipped(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """Two cases of 100 us; and two that a mark skips."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100.0)
    (attnperf_project.path / "suites" / "test_skipped.py").write_text(SKIPPED)
    return attnperf_project


def test_verdicts_are_raised_by_their_items(project: FakeProject) -> None:
    """All cases are judged when the first is due, so that under -x, too, each has its verdict in the results; the line
    of the budget says what it went to, and what a mark skips is not measured."""
    project.store_baselines()
    project.backend("fake.a", time_us=110.0)
    ran = project.run("--attnperf", "--attnperf-budget=1h", "-x")
    assert ran.ret == 1
    ran.assert_outcomes(failed=1)
    assert project.verdicts() == {"fake.a": "SLOWER", "fake.b": "SAME"}
    ran.stdout.fnmatch_lines(["budget 60 min, * s spent: first looks of 2 cases * s, 1 suspect got 3 processes"])
    assert f'pytest --attnperf "{project.results()["cases"][0]["nodeid"]}"' in ran.stdout.str()


def test_a_budget_that_is_spent(project: FakeProject) -> None:
    """Without time for any look every case is UNDECIDED, which no run calls passed; nothing was gated."""
    ran = project.run("--attnperf", "--attnperf-budget=0.001s")
    said = {(case["key"]["label"], case["verdict"]) for case in project.results()["cases"]}
    assert said == {("", "UNDECIDED"), ("skipped", "UNSUPPORTED")}
    assert ran.ret == 0
    ran.assert_outcomes(skipped=2)
    ran.stdout.fnmatch_lines(
        ["*ended before the case was measured: nothing is proven", "*, 2 cases not measured", "gated 0 of 4*"]
    )
