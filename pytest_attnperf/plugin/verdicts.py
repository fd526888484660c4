"""Turns a verdict into the outcome of its test: failed, skipped, or passed with a status word of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin.config import RunConfig, run_config
from pytest_attnperf.plugin.gathered import CASE, CODE
from pytest_attnperf.records import Verdict

if TYPE_CHECKING:
    from pytest_attnperf.records.code import CodeResult
    from pytest_attnperf.results import CaseResult

STATUS: dict[Verdict, tuple[str, str, str]] = {
    Verdict.SAME: ("passed", ".", "SAME"),
    Verdict.FASTER: ("passed", ".", "FASTER"),
    # These pass only if `fail_on` does not include them.
    Verdict.SLOWER: ("slower", "S", "SLOWER"),
    Verdict.GREW: ("grew", "G", "GREW"),
    Verdict.INCORRECT: ("incorrect", "I", "INCORRECT"),
    Verdict.WORSE: ("worse", "W", "WORSE"),
    Verdict.SUSPICIOUS: ("suspicious", "!", "SUSPICIOUS"),
    Verdict.ERROR: ("broken", "X", "ERROR"),
    Verdict.UNDECIDED: ("undecided", "?", "UNDECIDED"),
    Verdict.NO_BASELINE: ("no baseline", "b", "NO_BASELINE"),
    Verdict.INCOMPARABLE: ("incomparable", "i", "INCOMPARABLE"),
    Verdict.ENVIRONMENT: ("environment", "e", "ENVIRONMENT"),
    Verdict.MOVED: ("moved", "m", "MOVED"),
    Verdict.DRIFT: ("drift", "d", "DRIFT"),
    Verdict.STALE: ("stale", "t", "STALE"),
    Verdict.RECORDED: ("recorded", "r", "RECORDED"),
}
USUAL_RESULTS = os.path.join(".attnperf", "results.json")
QUARANTINED = ("quarantined", "q", "QUARANTINED")
UNCHANGED = ("unchanged", "u", "UNCHANGED")
NEW = ("new", "n", "NEW")


def explain_letters(categories: Iterable[str]) -> str:
    """Returns what the letters of these categories mean, in one line: 'letters: b no baseline, ? undecided'; '' if
    pytest explains all of them."""
    known = {category: letter for category, letter, _ in (*STATUS.values(), QUARANTINED, UNCHANGED, NEW)}
    shown = [f"{known[category]} {category}" for category in categories if known.get(category, ".") != "."]
    return f"letters: {', '.join(shown)}" if shown else ""


def status_of(report: Any) -> tuple[str, str, str] | None:
    """Returns (category, letter, word) to show for a passed test with a verdict; None leaves the report to pytest."""
    case = getattr(report, CASE, None)
    encoded = case or getattr(report, CODE, None)
    if encoded is None or report.when != "call" or not report.passed:
        return None
    if case and case.get("quarantined"):
        return QUARANTINED
    if case and case.get("new") and case["verdict"] == Verdict.NO_BASELINE.value:
        return NEW
    return UNCHANGED if case and case.get("unchanged") else STATUS.get(Verdict(encoded["verdict"]))


def raise_verdict(result: CaseResult, config: pytest.Config) -> None:
    """Fails the running test if its case's verdict does, skips it for UNSUPPORTED, else does nothing. The settings in
    `config` say where the run's results will be, from which the failure is explained."""
    if result.fails:
        from pytest_attnperf.reports.run.terminal import failure_text

        pytest.fail(failure_text(result, own=True, results=_name_results(run_config(config))), pytrace=False)
    if result.verdict is Verdict.UNSUPPORTED:
        raise pytest.skip.Exception("; ".join(result.reasons) or result.summary, _use_item_location=True)


def _name_results(asked: RunConfig) -> str | None:
    """Returns the results file as it is typed in this folder; '' for the usual one, None if the run writes none."""
    if not (asked.gate or asked.is_recording or asked.together or asked.profile):
        return None
    path = os.path.relpath(asked.root / asked.results)
    return "" if path == USUAL_RESULTS else path


def raise_code_verdict(result: CodeResult) -> None:
    """Fails the running test if its code object's verdict does, skips it for UNSUPPORTED, else does nothing."""
    if result.fails:
        from pytest_attnperf.reports.run.code_objects import code_failure_text

        pytest.fail(code_failure_text(result, own=True), pytrace=False)
    if result.verdict is Verdict.UNSUPPORTED:
        raise pytest.skip.Exception(result.summary, _use_item_location=True)
