"""Mistakes in an attnperf marker, and backends without a limit for a CPU."""

from __future__ import annotations

import re

import pytest

from pytest_attnperf.testing.project import FakeProject

NODE = r"suites/test_prefill\.py::test_prefill: "
SUITE = """
import pytest
from dataclasses import dataclass
from pytest_attnperf.workloads.prefill import Prefill

class Wrong(Prefill):
    {member} = {value}

PREFILL = [{kind}.parse_line("s=64,h=1,d=16")]

@pytest.mark.attnperf({marker})
def test_prefill(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One backend."""
    attnperf_project.backend("fake.a")
    return attnperf_project


def run_suite(
    project: FakeProject, marker: str, *, kind: str = "Prefill", member: str = "other", value: str = "0"
) -> str:
    """The line in which the only item of a suite with this marker fails."""
    suite = SUITE.format(marker=marker, kind=kind, member=member, value=value)
    (project.path / "suites" / "test_prefill.py").write_text(suite)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str() + result.stderr.str()
    (line,) = {line.removeprefix("E   ") for line in result.outlines if "test_prefill: " in line}
    return line


MARKERS = {
    "unknown_family": (
        "family='prefil', workloads=PREFILL",
        r"unknown family 'prefil'; known: prefill, .*",
    ),
    "text": (
        "family='prefill', workloads='PREFILL'",
        r"the attnperf marker has workloads='PREFILL', a text; give a list: workloads=\[\.\.\.\]",
    ),
    "text_of_backends": (
        "family='prefill', workloads=PREFILL, backends='fake.a'",
        r"the attnperf marker has backends='fake\.a', a text; give a list: backends=\[\.\.\.\]",
    ),
    "misspelled_backend": (
        "family='prefill', workloads=PREFILL, backends=['fake.aa']",
        r"unknown backend 'fake\.aa'; known: fake\.a",
    ),
    "no_workload": (
        "family='prefill', workloads=[7]",
        r"workloads=\[\.\.\.\] of the attnperf marker has 7; give workloads, or their ids",
    ),
    "malformed": ("family='prefill', workloads=['prefill-b1']", r"prefill workload 'prefill-b1' does not give .*"),
}


@pytest.mark.parametrize("name", MARKERS)
def test_a_value_that_names_nothing_is_said_with_its_test(name: str, project: FakeProject) -> None:
    """The test's id, the value, and what there is."""
    marker, says = MARKERS[name]
    line = run_suite(project, marker)
    assert re.fullmatch(NODE + says, line), line


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("cache_state", "'warm'", r"Wrong\.cache_state is 'warm'; return 'hot' or 'cold'; there is no other"),
        ("bytes_min", "'12'", r"Wrong\.bytes_min is '12'; return a number, or None where it is unknown"),
        ("flops", "property(lambda self: 1 / 0)", r"Wrong\.flops raised: \S+\.py:7: ZeroDivisionError: .*"),
    ],
)
def test_a_figure_that_cannot_be_used_is_said_with_its_class(
    member: str, value: str, says: str, project: FakeProject
) -> None:
    """File and line, the value, and what to return."""
    line = run_suite(project, "family='prefill', workloads=PREFILL", kind="Wrong", member=member, value=value)
    assert re.fullmatch(rf"{NODE}\S+ {says}", line), line


LIMITED = """
def pytest_attnperf_register_backends(registry):
    from pytest_attnperf.testing.fake.backends import FakeBackend

    registry.add(*(FakeBackend(f"fake.{name}", cpu_flops_max=0.0) for name in "bcde"))
    registry.add(FakeBackend("fake.f", cpu_flops_max=1.0))
"""


def test_backends_without_a_limit_for_a_cpu_are_counted_apart(project: FakeProject) -> None:
    """By name, at most three of them; a single case is one case."""
    project.conftest(LIMITED)
    result = project.run("--attnperf-device=cpu")
    result.assert_outcomes(passed=1, deselected=5)
    result.stdout.fnmatch_lines(
        [
            "attnperf: 1 case deselected as too large for a CPU (--attnperf-device=cpu); a GPU runs them all",
            "attnperf: 4 cases deselected of backends without a limit for a CPU (cpu_flops_max is 0, its default): "
            "fake.b, fake.c, fake.d and 1 more (--attnperf-device=cpu); a GPU runs them all, *",
        ]
    )


def test_the_other_tests_of_the_file_run(project: FakeProject) -> None:
    """One misspelt family is one error beside the results of the others."""
    suite = project.path / "suites" / "test_prefill.py"
    right = SUITE.format(marker="family='prefill', workloads=PREFILL", kind="Prefill", member="other", value="0")
    wrong = right.partition("@pytest")[2].replace("'prefill'", "'prefil'").replace("test_prefill", "test_wrong")
    suite.write_text(f"{right}\n@pytest{wrong}")
    result = project.run()
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_collecting_alone_still_ends_at_it(project: FakeProject) -> None:
    """Where no item runs, none could fail: `--collect-only` does, and so do commands that collect the suites."""
    suite = SUITE.format(marker="family='prefil', workloads=PREFILL", kind="Prefill", member="other", value="0")
    (project.path / "suites" / "test_prefill.py").write_text(suite)
    result = project.run("--collect-only")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert re.search(f"{NODE}unknown family 'prefil'; known: prefill, ", result.stdout.str())


@pytest.mark.parametrize("option", ["--fixtures", "--fixtures-per-test"])
def test_fixtures_are_listed_without_a_registered_backend(option: str, project: FakeProject) -> None:
    """Nothing is parametrised for a list of fixtures, which has ours."""
    result = project.run(option)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["attnperf -- *", "*One case: call `attnperf.run(backend, workload)` or *"])
    result.stdout.no_fnmatch_line("*ERROR*")
