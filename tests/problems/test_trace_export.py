from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_attnperf.problems.flashinfer_bench import list_problems, write_trace
from pytest_attnperf.records import CaseKey, CheckReport, ErrorFigures, Verdict
from pytest_attnperf.results import CaseResult, Fault, RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from tests.problems_folder import SCALED, make_solution, write_set

WRONG = ErrorFigures(
    "timed inputs", "c", max_error=0.5, max_budget=0.1, rms_error=0.2, rms_budget=0.1, worst_got=1.5, worst_expected=1.0
)


def run_with(*cases: CaseResult) -> RunResult:
    """The sample run with these cases alone."""
    return replace(sample_run(), cases=cases)


def case(verdict: Verdict, **changed: Any) -> CaseResult:
    """A case of the suite above, of the problem `product`."""
    key = CaseKey("published", "gate", "test_solution[product-M5-w1-mine]")
    return CaseResult(key, "test_published.py::x", verdict, "said", **changed)


def lines_of(text: str) -> list[dict[str, Any]]:
    """The lines as JSON, strictly."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_a_right_case_is_a_trace_that_passed(tmp_path: Path) -> None:
    """With the names and the workload of the files, and our median as the latency."""
    problems = list_problems(write_set(tmp_path, make_solution("def run(a, b, alpha):\n    return a @ b.T\n")))
    right = case(Verdict.SAME, median_us=1500.0, checks=(CheckReport(figures=(replace(WRONG, max_error=0.01),)),))
    (line,) = lines_of(write_trace([run_with(right)], problems))
    assert (line["definition"], line["solution"]) == ("product", "mine")
    assert line["workload"] == {"uuid": "w1", "axes": {"M": 5}, "inputs": SCALED}
    evaluation = line["evaluation"]
    assert evaluation["status"] == "PASSED"
    assert evaluation["performance"] == {"latency_ms": 1.5, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    assert evaluation["correctness"]["max_absolute_error"] == 0.01
    assert evaluation["environment"]["hardware"]
    assert evaluation["timestamp"] == sample_run().started


def test_a_wrong_case_has_errors_and_no_latency() -> None:
    """NaN is a word in the format's files; the worst of all checks counts."""
    figures = (WRONG, replace(WRONG, max_error=math.nan, worst_expected=math.inf))
    (line,) = lines_of(write_trace([run_with(case(Verdict.INCORRECT, median_us=3.0, checks=(CheckReport(figures),)))]))
    evaluation = line["evaluation"]
    assert (evaluation["status"], evaluation["performance"]) == ("INCORRECT_NUMERICAL", None)
    assert evaluation["correctness"]["max_absolute_error"] == "NaN"
    assert evaluation["correctness"]["max_relative_error"] == 0.5
    assert evaluation["correctness"]["extra"]["error_of_budget"] == 2.0


def test_errors_have_their_status() -> None:
    """Neither errors nor latency."""
    hang = case(Verdict.ERROR, fault=Fault("hang", "", ""))
    found = [line["evaluation"] for line in lines_of(write_trace([run_with(case(Verdict.ERROR), hang)]))]
    assert [one["status"] for one in found] == ["RUNTIME_ERROR", "TIMEOUT"]
    assert all(one["correctness"] is None and one["performance"] is None for one in found)


def test_what_has_no_status_is_left_out() -> None:
    """Proven and not timed, unsupported, or with a time that is not believed."""
    kept = (case(Verdict.RIGHT), case(Verdict.UNSUPPORTED), case(Verdict.SUSPICIOUS, median_us=1.0))
    assert write_trace([run_with(*kept, case(Verdict.SAME, median_us=math.inf))]) == ""


def test_a_hostile_name_stays_on_its_line() -> None:
    """Cases of other suites are written, too, with no letter that a terminal would obey."""
    hostile = replace(case(Verdict.SAME, median_us=1.0), key=CaseKey("s", "b\x1b[2J", "w\n\u202e"), summary="\x1b[0m\n")
    text = write_trace([run_with(hostile, hostile)])
    assert text.count("\n") == 2
    assert "\\u001b" not in text
    first, second = lines_of(text)
    assert first["workload"] == second["workload"]


def test_every_sample_is_written() -> None:
    """Those of the package's own sample run, with a status each."""
    found = lines_of(write_trace([sample_run()]))
    assert found
    assert {line["evaluation"]["status"] for line in found} <= {
        "PASSED",
        "INCORRECT_NUMERICAL",
        "RUNTIME_ERROR",
        "TIMEOUT",
    }
