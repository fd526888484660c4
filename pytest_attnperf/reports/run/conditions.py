"""What a run says of the device it ran on and of what its second looks took."""

from __future__ import annotations

from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import RunResult

SHOWN = ("sm_clock_mhz", "temperature_c", "power_w", "load_per_core")
"""Readings worth a glance; results.json holds all of them."""

THROTTLED_LEAST_S = 0.05
"""Throttling shorter than this over a run is not worth a line: every ramp of the power cap shows some."""


def condition_lines(run: RunResult) -> list[str]:
    """Other jobs, throttling and notes of the device; readings before and after; '' lines are never given."""
    state = run.device_state
    if state is None:
        return []
    lines = [f"another compute process was on the device: {one_line(process)}" for process in state.other_processes]
    throttled = {reason: s for reason, s in state.throttled_s.items() if s >= THROTTLED_LEAST_S}
    if throttled:
        listed = ", ".join(f"{reason} {seconds:.1f} s" for reason, seconds in sorted(throttled.items()))
        lines.append(f"the device was held back during the run: {listed}")
    lines += [f"device: {one_line(note)}" for note in state.notes]
    shown = [
        f"{name} {state.before[name]} -> {state.after[name]}"
        for name in SHOWN
        if name in state.before and name in state.after
    ]
    return [*lines, f"device before -> after: {', '.join(shown)}"] if shown else lines


def interleaved_line(run: RunResult) -> str:
    """How many cases were settled by pairs, and what that took; '' where none was."""
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
