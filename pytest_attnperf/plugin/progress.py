"""A line now and then on a long run: how far, how long, how long still."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_attnperf.code_records import CodeResult
from pytest_attnperf.records import CaseKey
from pytest_attnperf.reports.figures import one_line
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.durations import duration

EVERY_SECONDS = 15.0
WINDOW = 30
"""Latest cases of a suite that say what its next ones take."""

UNUSUAL = 5.0
"""A first case that compiled for minutes says little about the next ones; a second look takes a few times as long."""

FOLLOWS = 0.5
"""How much of what the latest cases say anew about the time left is believed at once."""

UNKNOWN = ""
"""Suite of cases that are planned without being known."""


class TimeLeft:
    """What is left of a run, from what its cases took so far; suites differ, and compiled kernels are cheap."""

    def __init__(self, planned: Mapping[str, int]) -> None:
        """`planned`: cases of each suite."""
        self._left = Counter(planned)
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._said: float | None = None

    def took(self, suite: str, seconds: float) -> None:
        """A case of this suite has ended so long after the one before it."""
        self._left[suite if self._left[suite] > 0 else UNKNOWN] -= 1
        self._took[suite].append(seconds)
        fresh = self._fresh()
        expected = fresh if self._said is None else self._said - seconds
        self._said = max(0.0, expected + FOLLOWS * (fresh - expected))

    def is_none(self) -> None:
        """What was planned as a case of an unknown suite is none."""
        self._left[UNKNOWN] -= 1

    @property
    def seconds(self) -> float:
        """Never negative, 0 after the last case; one case that is unlike the others does not turn it over."""
        return 0.0 if self._said is None or not any(count > 0 for count in self._left.values()) else self._said

    def _fresh(self) -> float:
        """By the latest cases of each suite; by all there were for a suite that has not begun."""
        usual = {suite: _usual(times) for suite, times in self._took.items()}
        unknown = statistics.fmean(usual.values())
        return sum(max(0, count) * usual.get(suite, unknown) for suite, count in self._left.items())


def _usual(times: Sequence[float]) -> float:
    """The mean, in which none counts for more than `UNUSUAL` times the median."""
    most = UNUSUAL * statistics.median(times)
    return statistics.fmean(min(seconds, most) for seconds in times)


class Progress:
    """Prints at most one line per `EVERY_SECONDS`, so that a log file stays readable."""

    def __init__(self, config: pytest.Config, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._total = total
        self._clock = clock
        self._started = self._last = self._ended = clock()
        self._done = self._failed = 0
        self._left: TimeLeft | None = None

    def expect(self, total: int) -> None:
        """So many tests are dealt out to workers of xdist now; which of them are cases is seen when they end.

        Cases of several workers end one behind the other, so that the time between two ends is a worker's share.
        """
        self._total = total
        self._last = self._ended = self._clock()

    def passed_by(self) -> None:
        """A test that was expected as a case is none."""
        self._total = max(self._done, self._total - 1)
        if self._left is not None:
            self._left.is_none()

    def before(self, key: CaseKey) -> None:
        """A case begins; what came before the first one is not counted as its time."""
        if self._done == 0:
            self._last = self._ended = self._clock()

    def after(self, result: CaseResult | CodeResult) -> None:
        """A case has ended."""
        self._done += 1
        self._failed += result.fails
        now = self._clock()
        left = self._time_left()
        left.took(result.key.suite, now - self._ended)
        self._ended = now
        if now - self._last < EVERY_SECONDS or self._done >= self._total:
            return
        self._last = now
        elapsed = now - self._started
        self._write(progress_line(self._done, self._total, elapsed, left.seconds, self._failed, result))

    def say(self, text: str) -> None:
        """How far what comes before a case's verdict is; as rarely as everything else."""
        now = self._clock()
        if now - self._last >= EVERY_SECONDS:
            self._last = now
            self._write(f"attnperf: {text}")

    def _time_left(self) -> TimeLeft:
        if self._left is None:
            self._left = TimeLeft(_planned(self._config, self._total))
        return self._left

    def _write(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._config.get_verbosity() >= 0:
            reporter.ensure_newline()
            reporter.write_line(line)


def progress_line(
    done: int, total: int, seconds: float, left: float, failed: int, result: CaseResult | CodeResult
) -> str:
    """'attnperf: 34 of 126 cases in 41 s, about 110 s left, 2 failed; last: prefill/... SAME'."""
    said = f", {failed} failed" if failed else ""
    return (
        f"attnperf: {done} of {total} cases in {duration(seconds)}, about {duration(left)} left{said}; "
        f"last: {one_line(str(result.key))} {result.verdict.value}"
    )


def _planned(config: pytest.Config, total: int) -> dict[str, int]:
    """Cases of each suite among the items that pytest runs; those that it does not know of count as one suite."""
    from pytest_attnperf.plugin.cases import case_key
    from pytest_attnperf.plugin.code_items import build_key

    session: Any = config.pluginmanager.get_plugin("session")
    items = getattr(session, "items", [])
    keys = [case_key(item) or build_key(item) for item in items]
    found = Counter(key.suite for key in keys if key is not None)
    return {**found, UNKNOWN: max(0, total - found.total())}
