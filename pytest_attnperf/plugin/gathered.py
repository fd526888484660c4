"""What a run has been told: by the items of this process, and by reports from here and from xdist's workers alike."""

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

CASE = "attnperf_result"
"""Attribute of a report that carries the case's result as plain builtins, so that xdist can send it."""

CODE = "attnperf_code_result"
"""The same for a compiled kernel."""

SELECTED = "attnperf_selected"
"""The same of how many cases were selected, which the controller of xdist, who collects none, knows from there."""

RESULT = pytest.StashKey[Result]()
"""The result of an item."""


def add_junit_properties(item: pytest.Item) -> None:
    """Give JUnit the properties of the item's result."""
    result = item.stash.get(RESULT, None)
    if isinstance(result, CaseResult):
        item.user_properties.extend(list_properties(result))
    elif result is not None:
        from pytest_attnperf.reports.run.code_objects import list_code_properties

        item.user_properties.extend(list_code_properties(result))


def encode_result(item: pytest.Item) -> dict[str, Any]:
    """Attribute of its report -> the item's result as builtins; nothing where it has none."""
    result = item.stash.get(RESULT, None)
    return {} if result is None else {CASE if isinstance(result, CaseResult) else CODE: to_values(result)}


@dataclass
class Gathered:
    """Results, and what else a run's record is made of.

    selected   how many cases and kernels there are to judge
    hidden     what fails although its test does not: a mark or a hook may say what pytest shows, not what a gate does
    dealt      tests that workers of xdist have not ended yet
    """

    selected: int
    started: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    cases: dict[CaseKey, CaseResult] = field(default_factory=dict)
    code: dict[CaseKey, CodeResult] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    dealt: int = 0

    def take_result(self, report: Any) -> Result | None:
        """Take the result that a report carries, if any."""
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
            self.hidden.append(f"{result.key} is {result.verdict.value}, and its test is {way}: skip it, or mend it")
        return result
