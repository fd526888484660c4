"""Lines on the device of a run, on the cost of its second looks, and on how its results were proven."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.trials import TrialEnding, TrialResult
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

SHOWN = ("sm_clock_mhz", "temperature_c", "power_w", "load_per_core")
"""Readings that the text shows; results.json holds all of them."""

THROTTLED_LEAST_S = 0.05
"""Seconds of throttling in a run below which it is not shown: every ramp of the power cap causes some."""

PARTS_SHOWN = 4
NAMED_MOST = 3


def condition_lines(run: RunResult) -> list[str]:
    """Returns lines on the device during the run: other processes, throttling, notes, readings before and after; only
    those that are known."""
    state = run.device_state
    if state is None:
        return []
    lines = [f"another compute process was on the device: {one_line(process)}" for process in state.other_processes]
    throttled = {reason: s for reason, s in state.throttled_s.items() if s >= THROTTLED_LEAST_S}
    if throttled:
        listed = ", ".join(f"{reason} {seconds:.1f} s" for reason, seconds in sorted(throttled.items()))
        lines.append(f"the device was throttled during the run: {listed}")
    lines += [f"device: {one_line(note)}" for note in state.notes]
    shown = [
        f"{name} {state.before[name]} -> {state.after[name]}"
        for name in SHOWN
        if name in state.before and name in state.after
    ]
    return [*lines, f"device before -> after: {', '.join(shown)}"] if shown else lines


def interleaved_line(run: RunResult) -> str:
    """Returns one line: how many cases were settled by pairs, with how many pairs, and their seconds; '' for none."""
    settled = [case for case in run.cases if case.pairs]
    if not settled:
        return ""
    turns = sum(pair.seconds for case in settled for pair in case.pairs)
    wall = sum(case.seconds for case in settled)
    pairs = max(len(case.pairs) for case in settled)
    return (
        f"{len(settled)} cases settled by A B B A against {one_line(run.against)} in {pairs} pairs of fresh processes: "
        f"{turns:.1f} s of turns, {wall:.1f} s in all"
    )


def cost_line(run: RunResult) -> str:
    """Returns the time of all proofs: 'proving 126 cases took 14.2 s: reference 6.0, call 3.1'; '' without checks."""
    checks = [check for case in run.cases for check in case.checks]
    seconds = sum(check.seconds for check in checks)
    if not seconds:
        return ""
    dearest = list(seconds_by_part(checks).items())[:PARTS_SHOWN]
    parts = ", ".join(f"{part} {took:.1f}" for part, took in dearest)
    cases = sum(bool(case.checks) for case in run.cases)
    return f"proving {cases} case{'' if cases == 1 else 's'} took {seconds:.1f} s: {parts}"


def seconds_by_part(checks: Iterable[CheckReport]) -> dict[str, float]:
    """Returns part -> seconds over all checks, the longest first; 'other' is time that no part accounts for."""
    parts: defaultdict[str, float] = defaultdict(float)
    for check in checks:
        for part, seconds in check.parts.items():
            parts[part] += seconds
        parts["other"] += max(0.0, check.seconds - sum(check.parts.values()))
    return dict(sorted(parts.items(), key=lambda pair: -pair[1]))


def trial_lines(cases: Iterable[CaseResult]) -> list[str]:
    """Returns a line per trial of which a result needs one: how many ended how, and who refused what. None where all
    are right, because those of every run would be told in each."""
    found: dict[str, list[tuple[CaseResult, TrialResult]]] = {}
    for case in cases:
        for result in (result for check in case.checks for result in check.trials):
            found.setdefault(result.trial, []).append((case, result))
    return [_trial_line(trial, results) for trial, results in found.items() if _needs_line(trial, results)]


def _needs_line(trial: str, results: list[tuple[CaseResult, TrialResult]]) -> bool:
    return any(result.ending is not TrialEnding.RIGHT for _, result in results) or bool(results[0][1].variant)


def _trial_line(trial: str, results: list[tuple[CaseResult, TrialResult]]) -> str:
    counts = Counter(result.ending for _, result in results)
    said = ", ".join(f"{counts[ending]} {ending.value}" for ending in TrialEnding if counts[ending])
    line = f"{one_line(trial)} of {len({case.key for case, _ in results})} cases: {said}"
    refused = dict.fromkeys(
        f"{one_line(case.key.backend)} {one_line(result.variant or result.trial)} ({one_line(result.why)})"
        for case, result in results
        if result.ending is TrialEnding.REFUSED
    )
    more = f" and {len(refused) - NAMED_MOST} more" if len(refused) > NAMED_MOST else ""
    return f"{line}; refused: {', '.join(list(refused)[:NAMED_MOST])}{more}" if refused else line


def determinism_lines(cases: Iterable[CaseResult]) -> list[str]:
    """Returns a line per backend whose repeated calls were compared bit by bit: in how many cases they were equal."""
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
