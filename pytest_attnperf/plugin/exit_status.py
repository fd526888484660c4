"""Why a run as a whole fails although every test may have passed."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.reports.run.overview import UNRESOLVED, is_unresolved, only_new
from pytest_attnperf.results import RunResult


def failures(run: RunResult, problems: Sequence[str], hidden: Sequence[str], *, strict: bool) -> tuple[str, ...]:
    """A line for each reason; none where the run does not fail, or only by its tests.

    problems   what could not be written
    hidden     cases that fail although their test does not
    """
    reasons = [*problems, *(hidden if run.mode != "check" else ())]
    return tuple(reasons + (_strict_reasons(run) if strict and run.mode == "gate" else []))


def _strict_reasons(run: RunResult) -> list[str]:
    unresolved = [case.verdict for case in run.cases if is_unresolved(case)]
    unresolved += [result.verdict for result in run.code if result.verdict in UNRESOLVED]
    reasons = []
    if unresolved:
        kinds = sorted({verdict.value for verdict in unresolved})
        reasons.append(f"strict: {len(unresolved)} cases are {', '.join(kinds)}")
    if run.findings:
        reasons.append(f"strict: {len(run.findings)} findings")
    judged = len(run.cases) + len(run.code)
    if run.complete and judged < run.selected:
        reasons.append(f"strict: {run.selected - judged} of {run.selected} selected cases have no verdict")
    if run.gated == 0 and not only_new(run):
        reasons.append(f"strict: gated 0 of {run.selected}")
    return reasons
