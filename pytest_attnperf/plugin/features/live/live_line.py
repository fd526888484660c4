"""The live line: formats what a run does at the moment, and draws it below pytest's output on a terminal.

What is drawn may have several lines, as the table of cases has.
"""

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
"""Request to a worker -> text while its answer is awaited; '{}' stands for the worker's name."""

LEAST_NAME = 12
"""Least width, in cells, at which a name is shown."""

UNITS = {Unit.RECORDING: "process", Unit.SECOND_LOOK: "second look, process", Unit.PAIR: "second look, pair"}


@dataclass(frozen=True)
class LiveStatus:
    """What a run does now, and its progress.

    phase       what the run does besides its cases, e.g. 'collecting tests'; '' while it judges cases
    done        number of judged cases out of `total`; `failed` of them failed
    running     names of the cases that have begun and not ended, oldest first
    busy_s      seconds since a case or a phase last began or ended
    compiling   (number of compiled kernels, number of all)
    said        text of the run itself, e.g. on its budget; shown instead of the time left
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
    """Returns 'attnperf: case 3 of 15: second look, process 2 of 3, timing (4 s); about 89 s left; ck-prefill-b4...',
    the text of the live line.

    The text has at most `width` cells. The names of cases come last and are cut first.
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
    """Returns the message for Ctrl-C. `goes_on` says what happens to the results so far; '' if there are none."""
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
"""Clears from the cursor, which is at the end of pytest's text, to the end of the screen."""


def format_drawing(text: str) -> str:
    """Returns what draws the lines of `text` below the cursor: it makes room (scrolls at the end of the screen, keeps
    the column), writes each line, clears what is below, and moves back."""
    lines = text.split("\n")
    room = "\x1bD" * len(lines) + f"\x1b[{len(lines)}A"
    written = "".join(f"\x1b[B\r{line}\x1b[K" for line in lines)
    return f"{room}\x1b7{written}\x1b[J\x1b8"


class LiveLine:
    """Draws what the run does below pytest's output, in a thread, when nothing was printed for `every_s` seconds."""

    def __init__(
        self, terminal: int, says: Callable[[int, int], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`says(width, height)` returns the text: lines at most `width` cells wide, at most `height` of them.
        `terminal` is an open descriptor to draw on, not the one of standard output, which pytest captures; `stop`
        closes it."""
        self.says = says
        self.every_s = EVERY_SECONDS
        self._terminal = terminal
        self._clock = clock
        self._lock = threading.Lock()
        self._printed = clock()
        self._shown = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched: tuple[Any, Any] | None = None

    def start(self, writer: Any) -> None:
        """Starts the thread that draws; the line is cleared whenever pytest's terminal writer writes."""
        self._watched = writer, writer._file
        writer._file = _Cleared(writer._file, self)
        self._thread = threading.Thread(target=self._draw_repeatedly, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops drawing, clears the line and restores pytest's writer; may be called more than once."""
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
        """Clears the line before something else is printed."""
        with self._lock:
            self._printed = self._clock()
            if self._shown:
                self._write_text(CLEAR)
            self._shown = ""

    def draw(self) -> None:
        """Draws once, unless something was printed meanwhile, the text stands there already, or this process is in the
        background."""
        with self._lock:
            if self._clock() - self._printed < self.every_s or not self._in_foreground():
                return
            size = self._terminal_size()
            text = self.says(size.columns - 1, max(1, size.lines - 2))
            if text != self._shown:
                self._write_text(format_drawing(text))
            self._shown = text

    def announce(self, text: str) -> None:
        """Prints `text` at once, on a separate line. Takes no lock: a signal may come while it is held."""
        self._write_text(f"{CLEAR}\n{text}\n")

    def _draw_repeatedly(self) -> None:
        while not self._ended.wait(self.every_s):
            self.draw()

    def _in_foreground(self) -> bool:
        """Returns whether this process is in the foreground; in the background ('&') it must not draw."""
        try:
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # the terminal controls no session: nothing else uses it
            return True

    def _terminal_size(self) -> os.terminal_size:
        try:
            found = os.get_terminal_size(self._terminal)
        except OSError:
            found = os.terminal_size((0, 0))
        return os.terminal_size((found.columns or 80, found.lines or 24))

    def _write_text(self, text: str) -> None:
        try:
            os.write(self._terminal, text.encode(errors="replace"))
        except OSError:  # the terminal was closed
            self._ended.set()


LINE = pytest.StashKey[LiveLine]()
"""Stash key of the session's live line, if it has one."""


class _Cleared:
    """The file of a terminal writer, wrapped so that the live line is cleared before each write."""

    def __init__(self, file: Any, line: LiveLine) -> None:
        self._file, self._line = file, line

    def write(self, text: str) -> int:
        self._line.clear_line()
        count: int = self._file.write(text)
        self._file.flush()  # a buffered text would appear after the next drawn line
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def show_phase(config: pytest.Config, phase: str) -> None:
    """Shows `phase`, a description of the current work, and its duration on the session's live line; starts a live line
    if there is none."""
    began = time.monotonic()

    def render_status(width: int, _height: int) -> str:
        return format_status(LiveStatus(phase, busy_s=time.monotonic() - began), width)

    line = find_line(config)
    if line is None:
        line = config.stash[LINE] = LiveLine(os.dup(sys.stdout.fileno()), render_status)
        line.start(config.get_terminal_writer())
        config.add_cleanup(line.stop)
    line.says = render_status


def end_line(config: pytest.Config) -> None:
    """Ends the session's live line; does nothing if it has none."""
    line = find_line(config)
    if line is not None:
        line.stop()


def find_line(config: pytest.Config) -> LiveLine | None:
    """Returns the session's live line; None if it has none, e.g. in a log."""
    return config.stash.get(LINE, None)
