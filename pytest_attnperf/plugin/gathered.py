"""The results of a run, from the items of this process, or from the reports of xdist's workers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files.junit_xml import list_properties
from pytest_attnperf.reports.files.noted import from_values, to_values
from pytest_attnperf.results import CaseResult

Result = CaseResult | CodeResult

NAMED_MOST = 10
"""Cases without a verdict that findings name."""

CASE = "attnperf_result"
"""Attribute of a report with the case's result as builtin types, which xdist can send."""

CODE = "attnperf_code_result"
"""The same for the result of a compiled kernel."""

SELECTED = "attnperf_selected"
"""The same for the number of selected cases; xdist's controller collects none and needs it."""

RESULT = pytest.StashKey[Result]()
"""Stash key of an item's result."""


def add_junit_properties(item: pytest.Item) -> None:
    """Appends the JUnit properties of the item's result to `item.user_properties`; nothing if it has no result."""
    result = item.stash.get(RESULT, None)
    if isinstance(result, CaseResult):
        item.user_properties.extend(list_properties(result))
    elif result is not None:
        from pytest_attnperf.reports.run.code_objects import list_code_properties

        item.user_properties.extend(list_code_properties(result))


def encode_result(item: pytest.Item) -> dict[str, Any]:
    """Returns {CASE or CODE: the item's result as builtin types}, attributes for its report; {} if it has no result."""
    result = item.stash.get(RESULT, None)
    return {} if result is None else {CASE if isinstance(result, CaseResult) else CODE: to_values(result)}


@dataclass
class Gathered:
    """Results of a run, and its start and counts.

    selected   number of cases and kernels to judge
    hidden     a line for each case that fails although a marker or hook keeps its test from failing
    dealt      number of tests that xdist's workers have not finished yet
    planned    the cases of this process that are to be judged; xdist's controller knows none
    """

    selected: int
    started: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    cases: dict[CaseKey, CaseResult] = field(default_factory=dict)
    code: dict[CaseKey, CodeResult] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    dealt: int = 0
    planned: tuple[CaseKey, ...] = ()

    def list_unjudged(self) -> list[str]:
        """Returns a finding for each case that has no verdict in a run that went to its end; of many the first ones and
        their number."""
        lacking = [key for key in self.planned if key not in self.cases]
        found = [f"{key} has no verdict: a hook or a plugin ended its test before it" for key in lacking[:NAMED_MOST]]
        more = len(lacking) - NAMED_MOST
        return [*found, f"{more} more cases have no verdict"] if more > 0 else found

    def take_result(self, report: Any) -> Result | None:
        """Stores and returns the result that a test's report holds; None if it holds none. Notes in `hidden` a failure
        that does not fail its test."""
        self.selected = max(self.selected, getattr(report, SELECTED, 0))
        if report.when != "call":
            return None
        result: Result
        if (case := getattr(report, CASE, None)) is not None:
            result = from_values(case, CaseResult)
            self.cases[result.key] = result
        elif (code := getattr(report, CODE, None)) is not None:
            result = from_values(code, CodeResult)
            self.code[result.key] = result
        else:
            return None
        if result.fails and not report.failed:
            way = "expected to fail" if hasattr(report, "wasxfail") else "reported otherwise"
            self.hidden.append(f"{result.key} is {result.verdict.value}, but its test is {way}: skip or fix it")
        return result
