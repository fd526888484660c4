"""A line now and then on a long run: how far, how long, how long still."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.code_records import CodeResult
from pytest_attnperf.records import CaseKey
from pytest_attnperf.results import CaseResult

EVERY_SECONDS = 15.0


class Progress:
    """Prints at most one line per `EVERY_SECONDS`, so that a log file stays readable."""

    def __init__(self, config: pytest.Config, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._total = total
        self._clock = clock
        self._started = self._last = clock()
        self._done = 0

    def before(self, key: CaseKey) -> None:
        """A case begins; a first case that compiles for minutes is announced."""
        if self._done == 0:
            self._last = self._clock()

    def after(self, result: CaseResult | CodeResult) -> None:
        """A case has ended."""
        self._done += 1
        now = self._clock()
        if now - self._last < EVERY_SECONDS or self._done >= self._total:
            return
        self._last = now
        self._write(progress_line(self._done, self._total, now - self._started, result))

    def _write(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._config.get_verbosity() >= 0:
            reporter.ensure_newline()
            reporter.write_line(line)


def progress_line(done: int, total: int, seconds: float, result: CaseResult | CodeResult) -> str:
    """'attnperf: 34 of 126 cases in 41 s, about 110 s left; last: prefill/... SAME'."""
    left = seconds / done * (total - done)
    return (
        f"attnperf: {done} of {total} cases in {seconds:.0f} s, about {left:.0f} s left; "
        f"last: {result.key} {result.verdict.value}"
    )
