"""A run that was written by the plugin is judged anew to what it says: the whole way, on the fake device."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.cli.commands.gate import list_failures, read_results
from pytest_attnperf.reports.run.joined import join_runs
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_all, rejudge_run
from pytest_attnperf.testing.project import WORKLOAD, FakeProject, full_results

BACKENDS: dict[str, dict[str, Any]] = {
    "fake.same": {},
    "fake.slower": {},
    "fake.undecided": {"block_sd": 1e-5},
    "fake.wrong": {},
    "fake.gone": {},
}
CHANGED: dict[str, dict[str, Any]] = {
    "fake.same": {"time_us": 99.5},
    "fake.slower": {"time_us": 110.0},
    "fake.undecided": {"time_us": 100.45, "block_sd": 1e-5},
    "fake.wrong": {"fault": "wrong"},
    "fake.gone": {"supported": ["no such kernel"]},
    "fake.new": {},
}
VERDICTS = {
    "fake.same": "SAME",
    "fake.slower": "SLOWER",
    "fake.undecided": "UNDECIDED",
    "fake.wrong": "INCORRECT",
    "fake.gone": "UNSUPPORTED",
    "fake.new": "NO_BASELINE",
}


@pytest.fixture
def measured(attnperf_project: FakeProject) -> FakeProject:
    """A project of which every kind of verdict has been written: the threshold is below what noise can make."""
    attnperf_project.suite([WORKLOAD], ", threshold=0.2, floor_us=0.01")
    for name, script in BACKENDS.items():
        attnperf_project.backend(name, **script)
    attnperf_project.store_baselines()
    for name, script in CHANGED.items():
        attnperf_project.backend(name, **script)
    attnperf_project.run("--attnperf")
    return attnperf_project


def test_every_verdict_is_judged_to_what_it_was(measured: FakeProject) -> None:
    """Verdict, ratio and consequence of each case are those of the run; and again when the file was tampered with."""
    path = measured.path / ".attnperf" / "results.json"
    store = BaselineStore(measured.path / "baselines")
    ((_, run),) = read_results([path], 10**7)
    assert {case.key.backend: case.verdict.value for case in run.cases} == VERDICTS
    again = rejudge_run(run, store, RejudgeSettings())
    assert [case.verdict for case in again.cases] == [case.verdict for case in run.cases]
    assert [case.fails for case in again.cases] == [case.fails for case in run.cases]
    assert [case.ratio for case in again.cases] == [case.ratio for case in run.cases]
    assert (again.gated, again.selected, again.findings) == (run.gated, run.selected, run.findings)

    forged = full_results(path) | {"schema": 1}
    for case in forged["cases"]:
        case.update(verdict="SAME", summary="fine", fails=False, ratio=1.0, policy={"threshold_percent": 90.0})
    path.write_text(json.dumps(forged))
    judged = rejudge_all(read_results([path], 10**7), store, RejudgeSettings())
    assert {case.key.backend: case.verdict.value for case in judged[0][1].cases} == {
        **VERDICTS,
        "fake.gone": "ERROR",
    }
    assert list_failures(join_runs(judged), strict=False) == ["1 incorrect, 1 error, 1 slower"]


KERNEL = {"name": "attention", "isa_hash": "a" * 40}
OTHER_KERNEL = {"name": "attention", "isa_hash": "b" * 40}
CHOSEN, STORED_CHOICE = {"autotuned.forward": "num_warps: 8"}, {"autotuned.forward": "num_warps: 4"}


@pytest.fixture
def excused(attnperf_project: FakeProject) -> FakeProject:
    """A project whose slow cases are the machine's and an autotuner's."""
    for name in ("fake.moved", "fake.drift"):
        attnperf_project.backend(name, time_us=100.0, kernels=[KERNEL], config=STORED_CHOICE)
    attnperf_project.store_baselines()
    attnperf_project.backend("fake.moved", time_us=110.0, kernels=[KERNEL], config=STORED_CHOICE)
    pinned = {"pin": STORED_CHOICE, "time_us": 100.0, "config": STORED_CHOICE, "kernels": [KERNEL]}
    attnperf_project.backend("fake.drift", time_us=110.0, kernels=[OTHER_KERNEL], config=CHOSEN, pinned=[pinned])
    attnperf_project.run("--attnperf")
    return attnperf_project


def test_excuses_are_judged_anew(excused: FakeProject) -> None:
    """MOVED and DRIFT stay what they are, and count as gated, where the file holds what they rest on."""
    ((_, run),) = read_results([excused.path / ".attnperf" / "results.json"], 10**7)
    assert {case.key.backend: case.verdict.value for case in run.cases} == {
        "fake.moved": "MOVED",
        "fake.drift": "DRIFT",
    }
    again = rejudge_run(run, BaselineStore(excused.path / "baselines"), RejudgeSettings())
    assert [case.verdict for case in again.cases] == [case.verdict for case in run.cases]
    assert [case.summary for case in again.cases] == [case.summary for case in run.cases]
    assert (again.gated, any(case.fails for case in again.cases)) == (2, False)


@pytest.mark.parametrize(
    "forged", [{"source_id": "0" * 16}, {"source_id": ""}, {"pinned": [], "launches": []}, {"config": {"split": "8"}}]
)
def test_an_excuse_without_its_evidence_is_slower(excused: FakeProject, forged: dict[str, Any]) -> None:
    """A verdict is not believed where the sources, the launches, the configuration or the times say otherwise."""
    path = excused.path / ".attnperf" / "results.json"
    content = full_results(path) | {"schema": 1}
    for case in content["cases"]:
        case.update(forged)
    path.write_text(json.dumps(content))
    ((_, run),) = read_results([path], 10**7)
    again = rejudge_run(run, BaselineStore(excused.path / "baselines"), RejudgeSettings())
    assert {case.verdict.value for case in again.cases} == {"SLOWER"}
    assert all(case.fails for case in again.cases)
