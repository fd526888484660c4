from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.records import CaseKey, CheckReport, Verdict
from pytest_attnperf.reports.run.proof import cost_line, determinism_lines, seconds_by_part
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult


def case(backend: str, workload: str, *checks: CheckReport) -> CaseResult:
    """A case that passed with these checks."""
    return CaseResult(CaseKey("prefill", backend, workload), "nodeid", Verdict.SAME, "", checks=checks)


def run_of(*cases: CaseResult) -> RunResult:
    """A gating run."""
    return RunResult(RESULTS_SCHEMA, "0", "gate", "", "", "", None, None, cases)


CHECK = CheckReport(seconds=2.0, parts={"reference": 1.0, "call": 0.25})


def test_the_cost_is_said_with_its_largest_parts() -> None:
    """Seconds are added over cases, dearest part first; what no part claims is 'other'."""
    line = cost_line(run_of(case("a", "w1", CHECK), case("a", "w2", CHECK)))
    assert line == "proving 2 cases took 4.0 s: reference 2.0, other 1.5, call 0.5"
    assert cost_line(run_of(case("a", "w1", CHECK))).startswith("proving 1 case took 2.0 s")


def test_a_run_that_checked_nothing_has_no_cost() -> None:
    """Skipped cases cost nothing, and nothing is said."""
    assert cost_line(run_of(case("a", "w1"))) == ""


def test_parts_are_added() -> None:
    """By name, over all checks."""
    assert seconds_by_part([CHECK, CHECK]) == {"reference": 2.0, "call": 0.5, "other": 1.5}


def test_determinism_is_said_per_backend() -> None:
    """How many cases repeated their bits, and which did not; who was not asked is not mentioned."""
    equal, differing = replace(CHECK, repeats=5, bit_equal=True), replace(CHECK, repeats=5, bit_equal=False)
    cases = [case("a", "w1", equal), case("a", "w2", equal), case("b", "w1", equal, differing), case("c", "w1", CHECK)]
    assert determinism_lines(cases) == [
        "determinism: a gave the same bits in 5 calls in 2 of 2 cases",
        "determinism: b gave the same bits in 5 calls in 0 of 1 cases; not in w1",
    ]


def test_a_long_list_of_differing_cases_is_cut() -> None:
    """Three are named."""
    differing = replace(CHECK, repeats=2, bit_equal=False)
    (line,) = determinism_lines([case("a", f"w{number}", differing) for number in range(5)])
    assert line.endswith("in 0 of 5 cases; not in w0, w1, w2 and 2 more")
