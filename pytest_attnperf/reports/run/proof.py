"""Lines on how results were proven: what it cost, whose bits repeat, and who is allowed a wider budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pytest_attnperf.records import CheckReport
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

PARTS_SHOWN = 4
NAMED_MOST = 3


def cost_line(run: RunResult) -> str:
    """'proving 126 cases took 14.2 s: reference 6.0, call 3.1, ...'; '' where nothing was checked."""
    checks = [check for case in run.cases for check in case.checks]
    seconds = sum(check.seconds for check in checks)
    if not seconds:
        return ""
    dearest = list(seconds_by_part(checks).items())[:PARTS_SHOWN]
    parts = ", ".join(f"{part} {took:.1f}" for part, took in dearest)
    cases = sum(bool(case.checks) for case in run.cases)
    return f"proving {cases} case{'' if cases == 1 else 's'} took {seconds:.1f} s: {parts}"


def seconds_by_part(checks: Iterable[CheckReport]) -> dict[str, float]:
    """Seconds of checks by what they went to, the dearest first; 'other' is what no part claims."""
    parts: defaultdict[str, float] = defaultdict(float)
    for check in checks:
        for part, seconds in check.parts.items():
            parts[part] += seconds
        parts["other"] += max(0.0, check.seconds - sum(check.parts.values()))
    return dict(sorted(parts.items(), key=lambda pair: -pair[1]))


def determinism_lines(cases: Iterable[CaseResult]) -> list[str]:
    """One line per backend whose bits were compared: in how many cases they repeated, and in which they did not."""
    asked: dict[str, list[tuple[CaseResult, int, bool]]] = {}
    for case in cases:
        compared = [check for check in case.checks if check.bit_equal is not None]
        if compared:
            equal = all(check.bit_equal for check in compared)
            asked.setdefault(case.key.backend, []).append((case, compared[0].repeats, equal))
    return [_determinism_line(backend, found) for backend, found in asked.items()]


def _determinism_line(backend: str, found: list[tuple[CaseResult, int, bool]]) -> str:
    differing = [one_line(case.key.workload) for case, _, equal in found if not equal]
    line = f"determinism: {one_line(backend)} gave the same bits in {found[0][1]} calls in "
    line += f"{len(found) - len(differing)} of {len(found)} cases"
    if not differing:
        return line
    more = f" and {len(differing) - NAMED_MOST} more" if len(differing) > NAMED_MOST else ""
    return f"{line}; not in {', '.join(differing[:NAMED_MOST])}{more}"
