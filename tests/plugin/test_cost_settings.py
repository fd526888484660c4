"""Costs that a whole project gates, typed as a user types them."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

STORED = {"peak_bytes": 1000.0, "allocations": 2.0, "host_us": 10.0}
MORE = {"peak_bytes": 3000.0, "allocations": 2.0, "host_us": 10.0}


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """A case that costs the same in every process."""
    attnperf_project.backend("fake.a", time_us=100.0, costs=STORED)
    return attnperf_project


def gated(project: FakeProject, *typed: str) -> dict[str, str]:
    """The verdicts of a gate."""
    result = project.run("--attnperf", *typed)
    assert result.ret in (0, 1), result.stdout.str() + result.stderr.str()
    return project.verdicts()


def test_the_ini_file_gates_costs_of_every_case(project: FakeProject) -> None:
    """`attnperf_costs` is measured, stored and gated where no test says anything; a marker's None takes one out, and
    that is noted as loosened."""
    project.pytester.makeini("[pytest]\nattnperf_costs = peak_bytes=0, allocations=5\n")
    project.store_baselines()
    assert gated(project) == {"fake.a": "SAME"}
    (case,) = project.results()["cases"]
    assert case["cost_limits"] == {"peak_bytes": 0.0, "allocations": 5.0}
    project.backend("fake.a", time_us=100.0, costs=MORE)
    assert gated(project) == {"fake.a": "GREW"}
    project.suite([WORKLOAD], ', costs={"peak_bytes": None}')
    assert gated(project) == {"fake.a": "SAME"}
    assert any("cost peak_bytes 0 % -> not gated" in finding for finding in project.results()["findings"])


def test_the_order_of_settings(project: FakeProject) -> None:
    """The command line replaces the ini file, a marker both, and --attnperf-override all of them."""
    project.pytester.makeini("[pytest]\nattnperf_costs = peak_bytes=0\n")
    project.store_baselines()
    project.backend("fake.a", time_us=100.0, costs=MORE)
    assert gated(project, "--attnperf-costs=peak_bytes=500") == {"fake.a": "SAME"}
    project.suite([WORKLOAD], ', costs={"peak_bytes": 1}')
    assert gated(project, "--attnperf-costs=peak_bytes=500") == {"fake.a": "GREW"}
    assert gated(project, "--attnperf-override=costs=peak_bytes=300") == {"fake.a": "SAME"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "--attnperf-costs=peak_byte=0",
            "--attnperf-costs: costs has 'peak_byte', which is not measured; did you mean",
        ),
        ("--attnperf-costs=peak_bytes", "--attnperf-costs: 'peak_bytes' is no COST=PERCENT"),
        ("--attnperf-override=costs=host_us=x", "--attnperf-override: costs['host_us'] is 'x'; expected the growth"),
    ],
)
def test_other_values_are_refused(project: FakeProject, typed: str, said: str) -> None:
    """A misspelt cost and a percentage that is none end the run before anything is measured."""
    result = project.run("--attnperf", typed)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


@pytest.mark.parametrize(("cost", "alone"), [("first_call_ms", True), ("compile_ms", True), ("host_us", False)])
def test_first_calls_are_those_of_processes_that_did_nothing_else(
    attnperf_project: FakeProject, cost: str, alone: bool
) -> None:
    """Two cases whose first call is gated are served by a process each; with another cost they share one."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100.0, costs={cost: 5.0, "host_loop_us": 500.0})
    attnperf_project.suite([WORKLOAD], f', costs={{"{cost}": 20}}')
    attnperf_project.store_baselines()
    assert gated(attnperf_project) == {"fake.a": "SAME", "fake.b": "SAME"}
    pids = {case["first"][0]["process"] for case in attnperf_project.results()["cases"]}
    assert len(pids) == (2 if alone else 1)
    assert gated(attnperf_project, "-k", "fake.b") == {"fake.b": "SAME"}


def test_a_test_cannot_run_another_backend_or_workload(attnperf_project: FakeProject) -> None:
    """A body that passes on another backend or workload than its own is an ERROR that names both."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100.0)
    attnperf_project.suite([WORKLOAD])
    attnperf_project.store_baselines()
    file = attnperf_project.path / "suites/test_prefill.py"
    text = file.read_text()
    swapped = "type(backend)('fake.b')"
    file.write_text(text.replace("run(backend, workload)", f"run({swapped}, workload)"))
    assert gated(attnperf_project) == {"fake.a": "ERROR", "fake.b": "SAME"}
    said = str([case["summary"] for case in attnperf_project.results()["cases"]])
    assert "attnperf.run() got the backend 'fake.b' in the test of 'fake.a'" in said
    shorter = "__import__('dataclasses').replace(workload, seq_q=32, seq_kv=32)"
    file.write_text(text.replace("run(backend, workload)", f"run(backend, {shorter})"))
    assert gated(attnperf_project) == {"fake.a": "ERROR", "fake.b": "ERROR"}
