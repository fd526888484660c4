"""Lines on the device of a run, on the cost of its second looks, and on how its results were proven."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.trials import INVARIANCE, TrialEnding, TrialResult
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
        for result in (result for check in case.checks for result in check.trials if result.trial != INVARIANCE):
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
    """Returns lines on bits that were compared: a line per backend whose calls were repeated, one per backend of which
    several processes were compared, and one per backend whose rows were compared with themselves elsewhere."""
    by_backend: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for case in cases:
        by_backend[case.key.backend].append(case)
    makers = (_calls_line, _processes_line, _invariance_line)
    lines = (make(backend, found) for make in makers for backend, found in by_backend.items())
    return [line for line in lines if line]


def _calls_line(backend: str, cases: Sequence[CaseResult]) -> str:
    asked = [(case, [check for check in case.checks if check.bit_equal is not None]) for case in cases]
    asked = [(case, compared) for case, compared in asked if compared]
    if not asked:
        return ""
    unlike = [one_line(case.key.workload) for case, found in asked if not all(check.bit_equal for check in found)]
    return _same_bits("determinism", backend, f"{asked[0][1][0].repeats} calls", len(asked), unlike)


def _processes_line(backend: str, cases: Sequence[CaseResult]) -> str:
    asked = [(case, [check for check in case.checks if check.bits]) for case in cases]
    asked = [(case, taken) for case, taken in asked if len(taken) > 1]
    if not asked:
        return ""
    unlike = [
        one_line(case.key.workload) + (" (from card to card)" if _differs_by_card(taken) else "")
        for case, taken in asked
        if len({check.bits for check in taken}) > 1
    ]
    cards = max(len({check.card for check in taken}) for _, taken in asked)
    among = f"{max(len(taken) for _, taken in asked)} processes" + (f" on {cards} cards" if cards > 1 else "")
    return _same_bits("determinism", backend, among, len(asked), unlike)


def _differs_by_card(taken: Iterable[CheckReport]) -> bool:
    """Returns whether processes on one card agree, of several that do not all agree."""
    by_card: defaultdict[str, set[str]] = defaultdict(set)
    for check in taken:
        by_card[check.card].add(check.bits)
    return all(len(bits) == 1 for bits in by_card.values())


def _invariance_line(backend: str, cases: Sequence[CaseResult]) -> str:
    tried = [
        (case, [one for check in case.checks for one in check.trials if one.trial == INVARIANCE]) for case in cases
    ]
    compared = [(case, [one for one in found if one.ulps is not None]) for case, found in tried]
    compared = [(case, found) for case, found in compared if found]
    left_out = [one for _, found in tried for one in found if one.ulps is None]
    if not compared and not left_out:
        return ""
    unlike = [told for case, found in compared if (told := _describe_ulps(case, found))]
    line = _same_bits("invariance", backend, "all parts of a batch", len(compared), unlike)
    if not compared:
        line = f"invariance: {one_line(backend)} was not tried"
    if not left_out:
        return line
    which = f"{left_out[0].variant}: " if left_out[0].variant else ""
    count = "1 part was" if len(left_out) == 1 else f"{len(left_out)} parts were"
    return f"{line}; {count} not compared ({which}{one_line(left_out[0].why)})"


def _describe_ulps(case: CaseResult, compared: Sequence[TrialResult]) -> str:
    """Returns e.g. 'decode-b8-... (within 3 ulp: alone, half)'; '' if all bits are the same."""
    unlike = [one for one in compared if one.ulps]
    if not unlike:
        return ""
    ulps = max(one.ulps or 0.0 for one in unlike)
    return f"{one_line(case.key.workload)} (within {ulps:g} ulp: {', '.join(one.variant for one in unlike)})"


def _same_bits(what: str, backend: str, among: str, cases: int, unlike: Sequence[str]) -> str:
    """Returns the line that a backend gave the same bits among so many calls or processes in all cases but these."""
    line = f"{what}: {one_line(backend)} gave the same bits in {among} in {cases - len(unlike)} of {cases} cases"
    more = f" and {len(unlike) - NAMED_MOST} more" if len(unlike) > NAMED_MOST else ""
    return f"{line}; not in {', '.join(unlike[:NAMED_MOST])}{more}" if unlike else line
