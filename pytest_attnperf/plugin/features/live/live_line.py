"""One line below what pytest has printed, on a terminal only, that says what is being done while nothing is printed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live import LINE
from pytest_attnperf.plugin.features.live.status_text import Standing, status_text

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
        self._thread = threading.Thread(target=self._work, args=(EVERY_SECONDS,), daemon=True)
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
            self.make_way()
            os.close(self._terminal)

    def make_way(self) -> None:
        """Something else is printed now."""
        with self._lock:
            self._printed = self._clock()
            if self._shown:
                self._write(CLEAR)
            self._shown = False

    def draw(self) -> None:
        """Write the line, unless something was printed just now."""
        with self._lock:
            if self._clock() - self._printed < EVERY_SECONDS or not self._in_foreground():
                return
            self._write(DRAW.format(self.says(self._width() - 1)))
            self._shown = True

    def announce(self, text: str) -> None:
        """Print a line of its own at once. Takes no lock: a signal may have come while it is held."""
        self._write(f"{CLEAR}\n{text}\n")

    def _work(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            self.draw()

    def _in_foreground(self) -> bool:
        """Whether the terminal is ours now: behind an '&' it shows what somebody types."""
        try:
            return os.tcgetpgrp(self._terminal) == os.getpgrp()
        except OSError:  # it controls no session, and nobody types there
            return True

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._terminal).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        try:
            os.write(self._terminal, text.encode(errors="replace"))
        except OSError:  # the terminal was closed
            self._ended.set()


class _Cleared:
    """The file of a terminal writer; before it is written to, the line is cleared."""

    def __init__(self, file: Any, line: LiveLine) -> None:
        self._file, self._line = file, line

    def write(self, text: str) -> int:
        self._line.make_way()
        count: int = self._file.write(text)
        self._file.flush()  # in a buffer it would come out behind the next line that is drawn
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def show(config: pytest.Config, phase: str) -> None:
    """Say on the session's line what is done, for how long by now."""
    began = time.monotonic()

    def says(width: int) -> str:
        return status_text(Standing(phase, busy_s=time.monotonic() - began), width)

    line = of(config)
    if line is None:
        line = config.stash[LINE] = LiveLine(os.dup(sys.stdout.fileno()), says)
        line.start(config.get_terminal_writer())
        config.add_cleanup(line.stop)
    line.says = says


def end(config: pytest.Config) -> None:
    """End the session's line, where it has one: its tests are none of ours."""
    line = of(config)
    if line is not None:
        line.stop()


def of(config: pytest.Config) -> LiveLine | None:
    """The session's line, where it has one."""
    return config.stash.get(LINE, None)
