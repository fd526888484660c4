"""Cases that a mark, a fixture or a conftest skips."""

from __future__ import annotations

import pytest

from pytest_attnperf.testing.project import WORKLOAD, FakeProject

OTHER = "prefill-b1-s128-h1-d16-f16"
SUITE = """
import pytest

{mark}
@pytest.mark.attnperf(family="prefill", workloads=["{workload}"])
def test_prefill(attnperf, backend, workload):
    {body}attnperf.run(backend, workload)
"""
MARK = "@pytest.mark.skipif(True, reason='no fp8 here')"
SKIP = "pytest.skip('no fp8 here')"
FIXTURE = f"import pytest\n@pytest.fixture(autouse=True)\ndef needs():\n    {SKIP}\n"
HOOK = f"import pytest\ndef pytest_runtest_setup(item):\n    {SKIP}\n"


def skip(project: FakeProject, *, mark: str = "", body: str = "", conftest: str = "") -> None:
    """Write a suite whose one case is skipped, or a conftest that skips every case."""
    text = SUITE.format(mark=mark, body=body, workload=WORKLOAD)
    (project.path / "suites/test_prefill.py").write_text(text)
    project.conftest(conftest)


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One backend."""
    attnperf_project.backend("fake.a", time_us=100)
    return attnperf_project


def verdicts(project: FakeProject) -> dict[str, tuple[str, str, bool]]:
    """Suite -> verdict, why it was skipped, whether it fails."""
    cases = project.results()["cases"]
    return {case["key"]["suite"]: (case["verdict"], case["skipped"], case["fails"]) for case in cases}


def test_a_mark_is_named_and_leaves_the_run_whole(project: FakeProject) -> None:
    """The case is UNSUPPORTED with the mark's reason, one line names it, and the run is complete, so that what has gone
    from another suite is still found."""
    project.suite([OTHER, WORKLOAD], name="test_more.py")
    (project.path / "suites/test_prefill.py").unlink()
    project.store_baselines()
    project.suite([OTHER], name="test_more.py")
    skip(project, mark=MARK)
    result = project.run("--attnperf", "-rs")
    assert verdicts(project)["prefill"] == ("UNSUPPORTED", "no fp8 here", False)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * suites/test_prefill.py:*: no fp8 here"])
    result.stdout.fnmatch_lines([f"skipped by a mark, * (no fp8 here): prefill/fake.a/{WORKLOAD}"])
    result.stdout.fnmatch_lines([f"finding: more/fake.a/{WORKLOAD} has a baseline but no case: *"])
    result.stdout.no_fnmatch_line("*incomplete*")
    assert project.results()["complete"]


@pytest.mark.parametrize(
    "how",
    [{"mark": MARK}, {"body": f"{SKIP}; "}, {"conftest": FIXTURE}, {"conftest": HOOK}],
    ids=["mark", "body", "autouse fixture", "hook"],
)
def test_a_timed_case_is_not_skipped_unseen(project: FakeProject, how: dict[str, str]) -> None:
    """Where a baseline is stored a skipped case fails, as one that calls itself unsupported, however it is skipped."""
    project.store_baselines()
    skip(project, **how)
    result = project.run("--attnperf")
    result.assert_outcomes(failed=1)
    assert verdicts(project)["prefill"] == ("UNSUPPORTED", "no fp8 here", True)
    result.stdout.fnmatch_lines(["*skipped now, but a baseline is stored in prefill.json: no fp8 here*"])


@pytest.mark.parametrize("how", [{"body": "pytest.skip(); "}, {"mark": "@pytest.mark.skip"}])
def test_a_skip_without_a_word(project: FakeProject, how: dict[str, str]) -> None:
    """It is a skip all the same, and says that it has no reason."""
    skip(project, **how)
    result = project.run("--attnperf")
    result.assert_outcomes(skipped=1)
    assert verdicts(project)["prefill"][1] in ("no reason given", "unconditional skip")


def test_a_proof_skips_as_pytest_does(project: FakeProject) -> None:
    """Without --attnperf a mark skips, and nothing is asked of baselines."""
    project.store_baselines()
    skip(project, mark=MARK)
    project.run().assert_outcomes(skipped=1)


def test_in_the_pytest_process(project: FakeProject) -> None:
    """With --attnperf-isolate=none a mark skips as well, and the body does not run."""
    skip(project, mark=MARK, body="raise SystemExit; ")
    project.run("--attnperf", "--attnperf-isolate=none").assert_outcomes(skipped=1)
