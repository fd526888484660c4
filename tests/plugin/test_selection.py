"""Names on the command line that leave tests without a case: said where others have some, refused where none has."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import FakeProject

SUITE = """
import pytest

def marked(label, **backends):
    workloads = ["prefill-b1-s64-h1-d16-f16"]
    return pytest.mark.attnperf(family="prefill", workloads=workloads, label=label, **backends)

@marked("one", backends=["fake.a"])
def test_one(attnperf, backend, workload):
    attnperf.run(backend, workload)

@marked("other", without=["fake.a", "more"])
def test_other(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One test of fake.a, and one of all others but a group."""
    for name in ("fake.a", "fake.b", "fake.c", "more.d", "more.e"):
        attnperf_project.backend(name, time_us=100.0)
    (attnperf_project.path / "suites").mkdir(exist_ok=True)
    (attnperf_project.path / "suites" / "test_prefill.py").write_text(SUITE)
    return attnperf_project


def test_a_name_that_selects_nothing_is_an_error(project: FakeProject) -> None:
    """Exit status 4, and what the selected tests have; of two names the one that selects nothing is meant."""
    for typed in ("more.d", "fake.b,more"):
        result = project.run(f"--attnperf-backend={typed}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        name = typed.partition(",")[2] or typed
        result.stderr.fnmatch_lines(
            [
                f"ERROR: --attnperf-backend={name} selects no case: suites/test_prefill.py::test_one has fake.a; "
                "suites/test_prefill.py::test_other has fake.b, fake.c. Select a test that has it, or a backend of *"
            ]
        )


def test_a_name_that_selects_something_leaves_other_tests_out(project: FakeProject) -> None:
    """They are no item, not skipped, and one line names them."""
    result = project.run("--attnperf-backend=fake.b")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["attnperf: no case is selected of suites/test_prefill.py::test_one"])


def test_all_backends_but_some(project: FakeProject) -> None:
    """`without` leaves the rest of the family, in the order of registration, and a group of it out at once."""
    result = project.run("--collect-only", "-q")
    ids = [line.partition("[")[2].partition("-")[0] for line in result.stdout.lines if "::" in line]
    assert ids == ["fake.a", "fake.b", "fake.c"]


def test_workloads_that_no_selected_test_is_for(project: FakeProject) -> None:
    """A workload of another family is an error, too."""
    result = project.run("--attnperf-workload=softmax-r4-c8-f32")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "ERROR: --attnperf-workload=softmax-r4-c8-f32 selects no case: the selected tests are of prefill. Select *"
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ('backends=["fake.a"], without=["fake.b"]', "the attnperf marker has backends= and without=; give one of them"),
        ('without=["fake.x"]', "unknown backend 'fake.x'; known: fake.a, fake.b, fake.c, more.d, more.e"),
        ('without=["fake", "more"]', "no backend is registered for family 'prefill' that the marker leaves; implement"),
    ],
)
def test_a_marker_that_leaves_nothing_is_an_error(project: FakeProject, chosen: str, said: str) -> None:
    """As are both ways at once, and a name that nobody registered."""
    suite = project.path / "suites" / "test_prefill.py"
    suite.write_text(SUITE.replace('without=["fake.a", "more"]', chosen))
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert said in result.stdout.str()
