"""Ends a run early on Ctrl-C, or on the SIGTERM of a CI system.

Both have the same effect: the current case is given up, workers are ended, results are written. CI systems often send
several signals and kill the process some seconds later, so a further signal does not disturb the ending. A message
answers each signal at once, because ending workers may take seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin.config import RunConfig, count_xdist_workers, is_xdist_controller, run_config
from pytest_attnperf.plugin.ending import results_path, shown_path
from pytest_attnperf.plugin.features.feature import ENDING, Feature
from pytest_attnperf.plugin.features.live.live_line import LINE, format_ending
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.workers.doing import DOING

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

PATIENCE_S = 30.0
"""Seconds after the first signal, after which a further signal takes effect at once."""


class Interrupts(Feature):
    """Turns the first SIGINT or SIGTERM of a run into a KeyboardInterrupt; ignores others for PATIENCE_S seconds."""

    def __init__(
        self,
        resume_command: Callable[[], str],
        answer: Callable[[], str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`resume_command` returns the command that continues the run, '' if it cannot be resumed. `answer` returns the
        message that is printed at the first signal, by `tell`, even while pytest captures output."""
        self._resume_command, self._answer, self._tell, self._clock = resume_command, answer, tell, clock
        self._first: float | None = None
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Installs handlers for SIGINT and SIGTERM if these have the default ones; only in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._handle_signal)

    def restore(self) -> None:
        """Restores the handlers that `install` replaced."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._first = self._first, self._clock() if self._first is None else self._first
        if first is None:
            name = signal.Signals(number).name
            self._tell(self._answer())
            raise KeyboardInterrupt(*([f"terminated by {name}"] if number == signal.SIGTERM else []))
        if self._clock() - first < PATIENCE_S:
            self._tell("attnperf: still ending the run")
            return
        self.restore()
        signal.raise_signal(number)

    def print_at_end(self, reporter: Any) -> None:
        """Prints the command that continues an unfinished run; nothing if it cannot be continued."""
        command = self._resume_command()
        if command:
            reporter.ensure_newline()
            reporter.write_line(f"not finished; go on with: {command}")


def make_feature(given: FeatureContext) -> Interrupts:
    """Returns the feature that handles SIGINT and SIGTERM until the session ends. At the first signal it also shows
    that the run is ending."""
    config, mode = given.config, given.mode

    def compose_answer() -> str:
        if given.progress is not None:
            given.progress.enter_phase(ENDING)
        of_xdist = count_xdist_workers(config) if is_xdist_controller(config) else 0
        return format_ending(of_xdist or len(DOING.workers), describe_interruption(run_config(config), mode))

    resume_command = (lambda: "") if given.journal is None else given.journal.resume_command
    interrupts = Interrupts(resume_command, compose_answer, _make_teller(config))
    interrupts.install()
    config.add_cleanup(interrupts.restore)
    return interrupts


def describe_interruption(asked: RunConfig, mode: RunMode) -> str:
    """Returns what happens to the results so far if the run is interrupted; '' if the run times nothing."""
    if mode in UNTIMED:
        return ""
    kept = f"results so far go to {shown_path(asked, results_path(asked))}"
    return f"{kept}, and no baseline is written" if mode is RunMode.UPDATE else kept


def _make_teller(config: pytest.Config) -> Callable[[str], None]:
    """Returns a function that prints a line at once, past Python's streams and pytest's capture."""
    line = config.stash.get(LINE, None)
    if line is not None:
        return line.announce
    error = os.dup(2)
    config.add_cleanup(lambda: os.close(error))

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):  # the reader has closed it
            os.write(error, f"\n{text}\n".encode())

    return tell
