"""What a run does at the moment, in one line: its words, and on a terminal the line below what pytest has printed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_attnperf.records import Role
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.text_width import cut_text, display_width
from pytest_attnperf.session.time_left import Left, format_duration, format_time_left
from pytest_attnperf.workers.doing import Unit, UnitStep, Waiting

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
class LiveStatus:
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
    step: UnitStep | None = None
    waits: Sequence[Waiting] = ()
    compiling: tuple[int, int] | None = None
    left: Left | None = None
    said: str = ""


def format_status(now: LiveStatus, width: int) -> str:
    """'attnperf: case 3 of 15: second look, process 2 of 3, timing (4 s); about 89 s left; ck-prefill-b4...'.

    At most `width` cells. What does not fit is left out of the names of cases, which come last.
    """
    doing = _format_work(now)
    if now.phase:
        return cut_text(f"attnperf: {now.phase}{f', {doing}' if doing else ''} ({format_duration(now.busy_s)})", width)
    count = f"case {now.done + 1} of {now.total}"
    if len(now.running) > 1:
        count = f"{now.done} of {now.total} cases, {len(now.running)} under way"
    parts = [f"attnperf: {count}{f': {doing}' if doing else ''} ({format_duration(now.busy_s)})"]
    parts.append(now.said or format_time_left(now.left))
    parts += [f"{now.failed} failed"] if now.failed else []
    text = "; ".join(parts)
    room = width - display_width(text) - len("; ")
    named = one_line(", ".join(now.running))
    return f"{text}; {cut_text(named, room)}" if named and room >= LEAST_NAME else cut_text(text, width)


def format_ending(workers: int, goes_on: str) -> str:
    """The answer to Ctrl-C. `goes_on` is what becomes of the results so far, '' where there are none."""
    ends = f"ending {workers} worker{'s' * (workers != 1)}" if workers else "ending the run"
    return f"attnperf: interrupted; {ends}{f'; {goes_on}' if goes_on else ''}"


def _format_work(now: LiveStatus) -> str:
    if now.compiling is not None:
        done, of = now.compiling
        return f"compiled {done} of {of} kernels"
    step = f"{UNITS[now.step.unit]} {now.step.number} of {now.step.of}" if now.step is not None else ""
    asked = [wait for wait in now.waits if wait.role is not Role.COMPILE]
    names = {wait.operation: wait.worker for wait in reversed(asked)}
    said = [_format_operation(operation, asked, name) for operation, name in list(names.items())[-1:]]
    return ", ".join(filter(None, [step, *said]))


def _format_operation(operation: str, asked: Sequence[Waiting], name: str) -> str:
    many = sum(wait.operation == operation for wait in asked)
    return OPERATIONS.get(operation, operation).format(f"{many} workers" if many > 1 else name)


EVERY_SECONDS = 1.0

CLEAR = "\x1b[J"
"""From the cursor, which stands where pytest's text ends, to the end of the screen."""

DRAW = "\x1bD\x1b[A\x1b7\x1b[B\r{}\x1b[K\x1b8"
"""Make room below (which scrolls at the end of the screen, and keeps the column), write there, and come back."""


class LiveLine:
    """Draws what `says` gives, every second in which nothing else is printed. A thread of its own does so."""

    def __init__(self, terminal: int, says: Callable[[int], str], clock: Callable[[], float] = time.monotonic) -> None:
        """`says` gives a text of at most so many cells. `terminal` is a descriptor of its own, because pytest captures
        that of standard output; this closes it.
        """
        self.says = says
        self._terminal = terminal
        self._clock = clock
        self._lock = threading.Lock()
        self._printed = clock()
        self._shown = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched: tuple[Any, Any] | None = None

    def start(self, writer: Any) -> None:
        """Begin, and clear the line whenever pytest's terminal writer writes."""
        self._watched = writer, writer._file
        writer._file = _Cleared(writer._file, self)
        self._thread = threading.Thread(target=self._draw_repeatedly, args=(EVERY_SECONDS,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the terminal as if it had never been there; more than once does no harm."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._watched is not None:
            writer, file = self._watched
            writer._file = file
            self._watched = None
            self.clear_line()
            os.close(self._terminal)

    def clear_line(self) -> None:
        """Something else is printed now."""
        with self._lock:
            self._printed = self._clock()
            if self._shown:
                self._write_text(CLEAR)
            self._shown = False

    def draw(self) -> None:
        """Write the line, unless something was printed just now."""
        with self._lock:
            if self._clock() - self._printed < EVERY_SECONDS or not self._in_foreground():
                return
            self._write_text(DRAW.format(self.says(self._terminal_width() - 1)))
            self._shown = True

    def announce(self, text: str) -> None:
        """Print a line of its own at once. Takes no lock: a signal may have come while it is held."""
        self._write_text(f"{CLEAR}\n{text}\n")

    def _draw_repeatedly(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            self.draw()

    def _in_foreground(self) -> bool:
        """Whether the terminal is ours now: behind an '&' it shows what somebody types."""
        try:
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # it controls no session, and nobody types there
            return True

    def _terminal_width(self) -> int:
        try:
            return os.get_terminal_size(self._terminal).columns or 80
        except OSError:
            return 80

    def _write_text(self, text: str) -> None:
        try:
            os.write(self._terminal, text.encode(errors="replace"))
        except OSError:  # the terminal was closed
            self._ended.set()


LINE = pytest.StashKey[LiveLine]()
"""The session's line on its terminal, where it has one."""


class _Cleared:
    """The file of a terminal writer; before it is written to, the line is cleared."""

    def __init__(self, file: Any, line: LiveLine) -> None:
        self._file, self._line = file, line

    def write(self, text: str) -> int:
        self._line.clear_line()
        count: int = self._file.write(text)
        self._file.flush()  # in a buffer it would come out behind the next line that is drawn
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def show_phase(config: pytest.Config, phase: str) -> None:
    """Say on the session's line what is done, for how long by now."""
    began = time.monotonic()

    def render_status(width: int) -> str:
        return format_status(LiveStatus(phase, busy_s=time.monotonic() - began), width)

    line = find_line(config)
    if line is None:
        line = config.stash[LINE] = LiveLine(os.dup(sys.stdout.fileno()), render_status)
        line.start(config.get_terminal_writer())
        config.add_cleanup(line.stop)
    line.says = render_status


def end_line(config: pytest.Config) -> None:
    """End the session's line, where it has one: its tests are none of ours."""
    line = find_line(config)
    if line is not None:
        line.stop()


def find_line(config: pytest.Config) -> LiveLine | None:
    """The session's line, where it has one."""
    return config.stash.get(LINE, None)
