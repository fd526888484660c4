"""How a run ends early: Ctrl-C, and the SIGTERM of a CI system that has run out of patience.

Both end it the same way: the case that is measured is given up, workers are ended, results are written. CI systems send
one after the other, or one of them twice, and kill what is left some seconds later; so a signal that comes while the
run is ending changes nothing. Each is answered at once, because ending workers may take seconds.
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
from pytest_attnperf.plugin.features.base import ENDING, Feature
from pytest_attnperf.plugin.features.live.live_line import LINE, format_ending
from pytest_attnperf.session.looking import UNTIMED
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.workers.doing import DOING

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

PATIENCE_S = 30.0
"""A run that still has not ended so long after the first signal obeys the next one at once."""


class Interrupts(Feature):
    """Plugin object of a run: turns the first SIGINT or SIGTERM into a KeyboardInterrupt of the main thread."""

    def __init__(
        self,
        resume_command: Callable[[], str],
        answer: Callable[[], str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`resume_command` gives what to type to go on, '' where nothing would be taken over; `answer` what the first
        signal is answered with, and `tell` says it, also while pytest captures what is printed.
        """
        self._resume_command, self._answer, self._tell, self._clock = resume_command, answer, tell, clock
        self._first: float | None = None
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over that nobody else has; nothing outside the main thread, where Python forbids it."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._handle_signal)

    def restore(self) -> None:
        """Give the signals back as they were."""
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
        """What to type to go on."""
        command = self._resume_command()
        if command:
            reporter.ensure_newline()
            reporter.write_line(f"not finished; go on with: {command}")


def make_feature(given: FeatureContext) -> Interrupts:
    """Take the signals over until the session ends; progress says what is done from the first one on."""
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
    """What becomes of the results so far when the run is interrupted; '' where none are kept."""
    if mode in UNTIMED:
        return ""
    kept = f"results so far go to {shown_path(asked, results_path(asked))}"
    return f"{kept}, and no baseline is written" if mode is RunMode.UPDATE else kept


def _make_teller(config: pytest.Config) -> Callable[[str], None]:
    """Writes past every stream, whose buffer may be what was interrupted, and past pytest, which captures."""
    line = config.stash.get(LINE, None)
    if line is not None:
        return line.announce
    error = os.dup(2)
    config.add_cleanup(lambda: os.close(error))

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(error, f"\n{text}\n".encode())

    return tell
