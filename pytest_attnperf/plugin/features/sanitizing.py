"""`--attnperf-sanitize` in the user's pytest: proves every case in processes of its own under a vendor's sanitizer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_attnperf.plugin.features.feature import Feature
from pytest_attnperf.plugin.keys import PLANNED
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.sanitizers import SanitizerReport
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.case_judge import BROKEN, Session
from pytest_attnperf.session.case_records import case_result, first_line, unmeasured_result
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import WorkerPool
from pytest_attnperf.workers.sanitizers import Sanitizer, find_sanitizer, read_tools

if TYPE_CHECKING:
    import pytest

    from pytest_attnperf.plugin.features.on import FeatureContext

SLOWER = 20.0
"""How many times longer a case may take than without a tool."""

SHOWN = 8
"""Findings of a case that its reasons tell."""


@dataclass(eq=False)
class Sanitizing(Feature):
    """Judges cases by their proof under each tool, and by what the tool says; times nothing."""

    session: Session
    sanitizers: Sequence[Sanitizer]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def judge_case(self, item: pytest.Item, _key: CaseKey) -> CaseResult:
        """Returns the result under the first tool by which the case does not pass, else that under the last one."""
        case, started = item.stash[PLANNED], time.monotonic()
        reports: list[SanitizerReport] = []
        for sanitizer in self.sanitizers:
            result = self._judge_under(sanitizer, case, reports)
            if result.verdict is not Verdict.RIGHT:
                break
        result = replace(result, sanitized=tuple(reports))
        return self.session.finish_result(case, result, time.monotonic() - started)

    def _judge_under(self, sanitizer: Sanitizer, case: Case, reports: list[SanitizerReport]) -> CaseResult:
        """Proves the case in a fresh process under a tool, and appends the tool's report to `reports`."""
        bench = self.session.bench
        assert isinstance(bench.pool, WorkerPool)
        assert isinstance(bench.pool.plan, LaunchPlan)
        name = f"{sanitizer.tool}-{next(self._numbers)}"
        log = bench.pool.plan.scratch / f"{name}.log"
        pool = WorkerPool(sanitizer.wrap(bench.pool.plan, log), gpus=bench.pool.gpus, prefix=f"{name}-worker")
        request = bench.make_request(case, None)
        request = replace(request, limit_seconds=request.limit_seconds * SLOWER, repeats=0)
        look, error, obstacle = None, None, ""
        try:
            obstacle = sanitizer.find_obstacle(pool.wait_until_ready(0))
            look = take_look(pool, 0, request, None, profiled=False)
        except BROKEN as broken:
            error = broken
        finally:
            pool.shutdown()
        report = sanitizer.read_report(log)
        report = replace(report, failures=tuple(filter(None, (obstacle, *report.failures))))
        reports.append(report)
        return judge_report(case, report, look, error)


def judge_report(case: Case, report: SanitizerReport, look: Look | None, error: Exception | None) -> CaseResult:
    """Returns the result of a case under a tool.

    INCORRECT with findings, whatever became of the process. ERROR if the process broke, or if the tool's word cannot be
    relied on. Else as the case's own proof ended; RIGHT needs a tool that saw the case and found nothing.
    """
    tool = report.tool
    if report.findings:
        said = [finding.sentence for finding in report.findings]
        more = [f"{len(said) - SHOWN} more findings; all are in {report.log}"] if len(said) > SHOWN else []
        broke = [f"the process broke, too: {first_line(error)}"] if error is not None else []
        reasons = tuple(f"{tool}: {text}" for text in (*said[:SHOWN], *more, *broke))
        result = case_result(case, Verdict.INCORRECT, reasons[0], reasons=reasons)
        return replace(result, log=read_end(report.log), fingerprint=None if look is None else look.fingerprint)
    if error is not None:
        reason = f"under {tool}: {getattr(error, 'summary', error)}"
        log = getattr(error, "log_tail", "") or read_end(report.log)
        return case_result(case, Verdict.ERROR, reason.splitlines()[0], reasons=(reason,), log=log)
    assert look is not None
    if look.ending is not Ending.RIGHT:
        return unmeasured_result(case, look)
    if report.failures:
        reasons = tuple(f"{tool} proves nothing: {failure}" for failure in report.failures)
        return case_result(case, Verdict.ERROR, reasons[0], reasons=reasons, log=read_end(report.log))
    result = unmeasured_result(case, look)
    notes = (*result.notes, *(f"{tool}: {warning}" for warning in report.warnings))
    return replace(result, summary=f"right, and {tool} found nothing", notes=notes)


def read_end(path: str) -> str:
    """Returns the last 2,000 characters of a tool's log; '' if there is none."""
    try:
        return Path(path).read_text(errors="replace")[-2000:]
    except OSError:
        return ""


def make_feature(given: FeatureContext) -> Sanitizing:
    """Returns the feature that proves every case under the tools of the option."""
    tools = read_tools(given.asked.name_of("sanitize"), given.asked.sanitize)
    return Sanitizing(given.session, [find_sanitizer(tool) for tool in tools])
