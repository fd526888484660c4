"""How a run ends early: Ctrl-C, and the SIGTERM of a CI system that has run out of patience.

Both end it the same way: the case that is measured is given up, workers are ended, results are written. CI systems send
one after the other, or one of them twice, and kill what is left some seconds later; so a signal that comes while the
run is ending changes nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

PATIENCE_S = 30.0
"""A run that still has not ended so long after the first signal obeys the next one at once."""


class Interrupts:
    """Plugin object of a timed run: turns the first SIGINT or SIGTERM into a KeyboardInterrupt of the main thread."""

    def __init__(self, resume_command: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        """`resume_command` gives what to type to go on, '' where nothing would be taken over."""
        self._resume_command, self._clock = resume_command, clock
        self._first: float | None = None
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over that nobody else has; nothing outside the main thread, where Python forbids it."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Give the signals back as they were."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self._first = self._first, self._clock() if self._first is None else self._first
        if first is None:
            name = signal.Signals(number).name
            raise KeyboardInterrupt(*([f"terminated by {name}"] if number == signal.SIGTERM else []))
        if self._clock() - first < PATIENCE_S:
            os.write(2, b"attnperf: still ending the run\n")  # a stream's own buffer may be what was interrupted
            return
        self.restore()
        signal.raise_signal(number)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What to type to go on."""
        command = self._resume_command()
        if command:
            terminalreporter.ensure_newline()
            terminalreporter.write_line(f"not finished; go on with: {command}")


def watch(config: pytest.Config, resume_command: Callable[[], str]) -> None:
    """Take the signals over until the session ends."""
    interrupts = Interrupts(resume_command)
    interrupts.install()
    config.add_cleanup(interrupts.restore)
    config.pluginmanager.register(interrupts, "attnperf-interrupts")
