"""What a run does at the moment, in one line. Pure: the line is drawn by `live_line`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Role
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.text_width import cut, display_width
from pytest_attnperf.session.durations import duration
from pytest_attnperf.session.time_left import Left, left_text
from pytest_attnperf.workers.doing import Step, Unit, Waiting

OPERATIONS = {
    "start": "starting {}, importing torch",
    "canary": "timing the canary",
    "list": "listing cases",
    "open": "building",
    "check": "compiling and proving",
    "block": "timing",
    "rotate": "timing with changing inputs",
    "stages": "timing its stages",
    "profile": "profiling",
    "turns": "preparing turns",
    "turn": "timing in turns",
    "finish": "proving again",
    "close": "closing the case",
    "end": "ending {}",
}
"""What is done while a worker's answer is waited for; '{}' stands for the worker."""

LEAST_NAME = 12
"""Cells of a name that still say something."""

UNITS = {Unit.RECORDING: "process", Unit.SECOND_LOOK: "second look, process", Unit.PAIR: "second look, pair"}


@dataclass(frozen=True)
class Standing:
    """How far a run is.

    phase       what it does beside its cases, e.g. 'collecting tests'; '' while it judges them
    done        of `total` cases, `failed` of them
    running     what has begun and not ended, the first begun first: names of cases
    busy_s      seconds since something last began or ended
    compiling   kernels that are compiled, and of how many
    said        what the run says of itself, e.g. of its budget; it takes the place of the time left
    """

    phase: str = ""
    done: int = 0
    total: int = 0
    failed: int = 0
    running: Sequence[str] = ()
    busy_s: float = 0.0
    step: Step | None = None
    waits: Sequence[Waiting] = ()
    compiling: tuple[int, int] | None = None
    left: Left | None = None
    said: str = ""


def status_text(now: Standing, width: int) -> str:
    """'attnperf: case 3 of 15: second look, process 2 of 3, timing (4 s); about 89 s left; ck-prefill-b4...'.

    At most `width` cells. What does not fit is left out of the names of cases, which come last.
    """
    doing = _doing(now)
    if now.phase:
        return cut(f"attnperf: {now.phase}{f', {doing}' if doing else ''} ({duration(now.busy_s)})", width)
    count = f"case {now.done + 1} of {now.total}"
    if len(now.running) > 1:
        count = f"{now.done} of {now.total} cases, {len(now.running)} under way"
    parts = [f"attnperf: {count}{f': {doing}' if doing else ''} ({duration(now.busy_s)})"]
    parts.append(now.said or left_text(now.left))
    parts += [f"{now.failed} failed"] if now.failed else []
    text = "; ".join(parts)
    room = width - display_width(text) - len("; ")
    named = one_line(", ".join(now.running))
    return f"{text}; {cut(named, room)}" if named and room >= LEAST_NAME else cut(text, width)


def ending_text(workers: int, goes_on: str) -> str:
    """The answer to Ctrl-C. `goes_on` is what becomes of the results so far, '' where there are none."""
    ends = f"ending {workers} worker{'s' * (workers != 1)}" if workers else "ending the run"
    return f"attnperf: interrupted; {ends}{f'; {goes_on}' if goes_on else ''}"


def _doing(now: Standing) -> str:
    if now.compiling is not None:
        done, of = now.compiling
        return f"compiled {done} of {of} kernels"
    step = f"{UNITS[now.step.unit]} {now.step.number} of {now.step.of}" if now.step is not None else ""
    asked = [wait for wait in now.waits if wait.role is not Role.COMPILE]
    names = {wait.operation: wait.worker for wait in reversed(asked)}
    said = [_operation(operation, asked, name) for operation, name in list(names.items())[-1:]]
    return ", ".join(filter(None, [step, *said]))


def _operation(operation: str, asked: Sequence[Waiting], name: str) -> str:
    many = sum(wait.operation == operation for wait in asked)
    return OPERATIONS.get(operation, operation).format(f"{many} workers" if many > 1 else name)
