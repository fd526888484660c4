"""Results of runs as lines of FlashInfer-Bench's trace files: a workload, a solution, and its evaluation.

https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer-trace/trace.mdx. A trace that PASSED has a latency,
and one that did not has none. So cases that were proven and not timed, and those that are unsupported, are left out.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_attnperf.records import TIMED, Verdict
from pytest_attnperf.reports.files.json_results import spell_number
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

if TYPE_CHECKING:
    from pytest_attnperf.problems.flashinfer_bench import TraceProblem

OWN = "pytest-attnperf"
NONE = "none"
"""What a fingerprint says of a library that is not there."""

LIBRARIES = ("torch", "triton", "cuda", "rocm", "aiter")


def write_trace(runs: Iterable[RunResult], problems: Iterable[TraceProblem] = ()) -> str:
    """Returns a line of JSON for each case of `runs` that was timed or failed; '' if there is none.

    problems   those of `list_problems()`: cases of their ids get the names and the workload of the files. Any other
               case is written with its backend as the solution, and its workload's id as the definition

    `latency_ms` is our median. The reference is not timed: its latency and the speedup are 0. `max_relative_error` is
    that of the element nearest to its budget, or furthest beyond it.
    """
    known = {problem.id: problem for problem in problems if problem.definition is not None}
    lines = [line for run in runs for case in run.cases if (line := _make_line(run, case, known)) is not None]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)


def _make_line(run: RunResult, case: CaseResult, known: Mapping[str, TraceProblem]) -> dict[str, Any] | None:
    status = _find_status(case)
    if status is None:
        return None
    evaluation: dict[str, Any] = {
        "status": status,
        "environment": _describe_environment(run, case),
        "timestamp": run.started or "unknown",
        "log": one_line(f"{OWN} {run.version}: {case.verdict.value}: {case.summary}", 2000),
        "correctness": _describe_errors(case) if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
        "performance": None,
    }
    if status == "PASSED":
        assert case.median_us is not None
        evaluation["performance"] = {
            "latency_ms": case.median_us / 1000.0,
            "reference_latency_ms": 0.0,
            "speedup_factor": 0.0,
        }
    return {**_name_case(case, known), "evaluation": evaluation}


def _find_status(case: CaseResult) -> str | None:
    """Returns the format's status of a case; None for one that it has no status for."""
    if case.verdict == Verdict.INCORRECT:
        return "INCORRECT_NUMERICAL"
    if case.verdict == Verdict.ERROR:
        return "TIMEOUT" if case.fault is not None and case.fault.kind == "hang" else "RUNTIME_ERROR"
    timed = case.median_us is not None and math.isfinite(case.median_us) and case.median_us > 0
    return "PASSED" if timed and case.verdict in TIMED else None


def _name_case(case: CaseResult, known: Mapping[str, TraceProblem]) -> dict[str, Any]:
    problem = known.get(case.key.workload.partition("[")[2].removesuffix("]"))
    if problem is not None and problem.definition is not None and problem.workload is not None:
        name = problem.solution.name if problem.solution else problem.backend
        workload = msgspec.to_builtins(problem.workload)
        given = workload["inputs"].items()
        # A source has fields of its own type only; a value of 0 or False is one.
        workload["inputs"] = {key: {k: v for k, v in one.items() if v is not None and v != ""} for key, one in given}
        return {"definition": problem.definition.name, "solution": name, "workload": workload}
    text = one_line(str(case.key), 500)
    own = {"uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, text)), "axes": {}, "inputs": {}}
    return {
        "definition": one_line(case.key.workload, 200),
        "solution": one_line(case.key.backend, 200),
        "workload": own,
    }


def _describe_errors(case: CaseResult) -> dict[str, Any]:
    """Returns the largest errors of all checked calls, and the largest in units of its budget."""
    figures = [one for check in case.checks for one in check.figures]
    relative = [
        abs(one.worst_got - one.worst_expected) / abs(one.worst_expected)
        for one in figures
        if one.worst_expected and math.isfinite(one.worst_expected)
    ]
    budgets = [one.rms_error / one.rms_budget for one in figures if one.rms_budget]
    return {
        "max_relative_error": spell_number(max(relative, default=0.0 if figures else math.nan, key=_rank)),
        "max_absolute_error": spell_number(max((one.max_error for one in figures), default=math.nan, key=_rank)),
        "extra": {"error_of_budget": spell_number(max(budgets, default=0.0, key=_rank)), "judge": OWN},
    }


def _rank(value: float) -> float:
    """Orders NaN behind every number: it is the worst error."""
    return math.inf if math.isnan(value) else value


def _describe_environment(run: RunResult, case: CaseResult) -> dict[str, Any]:
    fingerprint = case.fingerprint or run.fingerprint
    must = fingerprint.must_match if fingerprint else {}
    every = {**must, **(fingerprint.named if fingerprint else {})}
    hardware = must.get("product") or must.get("arch") or "unknown"
    libraries = {name: one_line(every[name]) for name in LIBRARIES if every.get(name, NONE) != NONE}
    return {"hardware": one_line(hardware), "libs": {OWN: run.version, **libraries}}
