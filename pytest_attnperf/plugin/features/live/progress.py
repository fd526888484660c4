"""Progress of a run: on a terminal a line that is always up to date, in a log a line from time to time."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.plugin.config import is_xdist_controller
from pytest_attnperf.plugin.features.feature import ENDING, Feature
from pytest_attnperf.plugin.features.live.live_line import LINE, LiveStatus, format_status
from pytest_attnperf.plugin.gathered import CASE, CODE, Gathered
from pytest_attnperf.plugin.keys import build_key, case_key
from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CODE_SUITE, CodeResult
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.time_left import (
    COMPILED_S,
    PROVEN_S,
    Left,
    Took,
    estimate_time_left,
    format_duration,
    format_time_left,
)
from pytest_attnperf.workers.doing import DOING

if TYPE_CHECKING:
    from pytest_attnperf.plugin.features.on import FeatureContext

EVERY_SECONDS = 15.0

REMEMBERED = 500
"""Number of latest cases from which the time left is estimated."""

UNKNOWN = ""
"""Kind of planned cases that are not known yet."""

ONLY_PROVEN = " only proven"
"""Appended to the name of a suite: the kind of its cases that are only proven, not timed."""


class Progress(Feature):
    """The progress of one run. In a log it prints at most one line per `EVERY_SECONDS`.

    compiling   returns (number of compiled kernels, number of all); None while none is compiled
    timed       all cases of the run that may be timed; others take less time
    uncompiled  returns how many kernels wait to be compiled; None while no compiler runs
    """

    def __init__(
        self,
        config: pytest.Config,
        total: int,
        compiling: Callable[[], tuple[int, int] | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        *,
        timed: Collection[CaseKey] = (),
        uncompiled: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._config = config
        self._timed = frozenset(timed)
        self._uncompiled = uncompiled
        self._priors = {CODE_SUITE: COMPILED_S} if self._timed else {}
        self._total = total
        self._compiling = compiling
        self._clock = clock
        self._started = self._last = self._ended = self._busy = clock()
        self._done = self._failed = 0
        self._left: Counter[str] | None = None
        self._took: deque[Took] = deque(maxlen=REMEMBERED)
        self._running: dict[str, None] = {}
        self._phase = self._said = ""

    def follow(self) -> None:
        """Makes the live line, if there is one, show this progress; in xdist's controller sets the first phase."""
        line = self._config.stash.get(LINE, None)
        if line is not None:
            line.says = lambda width, _height: self.format_status(width)
            self._config.pluginmanager.register(self, "attnperf-progress")
        if is_xdist_controller(self._config):
            self.enter_phase("starting workers of xdist")

    def after_run(self, _ended: object) -> None:
        """Shows as the last phase that the run, or in xdist's controller its workers, are being ended."""
        self.enter_phase("ending workers of xdist" if is_xdist_controller(self._config) else ENDING)

    def expect(self, total: int) -> None:
        """Starts counting `total` tests that xdist distributes; which of them are cases is known only from their
        reports.

        Workers run cases in parallel, so the time between the ends of two cases is a case's time divided by their
        number.
        """
        self._total, self._left = total, None
        self._last = self._ended = self._clock()
        self.enter_phase("")

    def drop_expected(self) -> None:
        """Lowers the total by one, because a test of xdist turned out to be no case."""
        self._total = max(self._done, self._total - 1)
        if self._left is not None:
            self._left[UNKNOWN] -= 1

    def enter_phase(self, phase: str) -> None:
        """Sets the phase that is shown, and restarts its clock; '' while cases are judged."""
        self._phase, self._busy = phase, self._clock()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Adds a test that has begun, here or in a worker of xdist, to those shown as running."""
        self._running[nodeid] = None
        self._busy = self._clock()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Removes a test that has ended from those shown as running."""
        self._running.pop(nodeid, None)

    def before_case(self) -> None:
        """Starts the clock at the first case, so that what came before is not counted as its time."""
        if self._done == 0:
            self._last = self._ended = self._clock()

    def after_case(self, result: CaseResult | CodeResult) -> None:
        """Counts a case that has ended; in a log prints a line if the last one is EVERY_SECONDS old."""
        self._done += 1
        self._failed += result.fails
        now = self._clock()
        left, suite = self._count_planned_left(), self._kind_of(result.key)
        left[suite if left[suite] > 0 else UNKNOWN] -= 1
        twice = isinstance(result, CaseResult) and bool(result.second or result.pairs)
        self._took.append(Took(suite, now - self._ended, twice))
        self._ended = self._busy = now
        if now - self._last >= EVERY_SECONDS and self._done < self._total:
            self._last = now
            said = format_time_left(self._estimate_time_left())
            self._write_line(format_progress(self._done, self._total, now - self._started, said, self._failed, result))

    def report_step(self, text: str) -> None:
        """Shows `text`, a step of the run, on the live line in place of the time left; in a log prints it if the last
        line is EVERY_SECONDS old."""
        now = self._clock()
        self._said, self._busy = text, now
        if now - self._last >= EVERY_SECONDS:
            self._last = now
            self._write_line(f"attnperf: {text}")

    @property
    def phase(self) -> str:
        """What the run does besides judging cases, e.g. that it ends; '' while it judges them."""
        return self._phase or (ENDING if self._done >= self._total and not self._running else "")

    def format_status(self, width: int) -> str:
        """Returns what the run does now and the time left, in at most `width` cells."""
        return format_status(
            LiveStatus(
                phase=self.phase,
                done=self._done,
                total=max(self._total, self._done + bool(self._running)),
                failed=self._failed,
                running=[_shorten_test_id(test) for test in tuple(self._running)],
                busy_s=self._clock() - self._busy,
                step=DOING.step,
                waits=DOING.waits,
                compiling=self._compiling(),
                left=self._estimate_time_left(),
                said=self._said,
            ),
            width,
        )

    def _estimate_time_left(self) -> Left | None:
        step, now = DOING.step, self._clock()
        step_left = None if step is None else step.left_s(DOING.clock())
        planned, uncompiled = self._count_planned_left(), self._uncompiled()
        if uncompiled is not None:  # judging a compiled kernel takes almost no time
            planned = Counter({**planned, CODE_SUITE: min(planned[CODE_SUITE], uncompiled)})
        return estimate_time_left(tuple(self._took), planned, now - self._ended, step_left, self._priors)

    def _kind_of(self, key: CaseKey) -> str:
        """Returns the kind of a case, for estimates of its duration: its suite, with ONLY_PROVEN appended for an
        untimed case in a run that times others."""
        if not self._timed or key in self._timed or key.suite == CODE_SUITE:
            return key.suite
        kind = f"{key.suite}{ONLY_PROVEN}"
        self._priors[kind] = PROVEN_S
        return kind

    def _count_planned_left(self) -> Counter[str]:
        if self._left is None:
            self._left = Counter(_count_planned(self._config, self._total, self._kind_of))
        return self._left

    def _write_line(self, line: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or self._config.get_verbosity() < 0 or self._config.stash.get(LINE, None) is not None:
            return
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()


def format_progress(
    done: int, total: int, seconds: float, left: str, failed: int, result: CaseResult | CodeResult
) -> str:
    """Returns 'attnperf: 34 of 126 cases in 41 s, about 110 s left, 2 failed; last: prefill/... SAME'."""
    said = f", {failed} failed" if failed else ""
    return (
        f"attnperf: {done} of {total} cases in {format_duration(seconds)}, {left}{said}; "
        f"last: {one_line(str(result.key))} {result.verdict.value}"
    )


def _shorten_test_id(test: str) -> str:
    """Returns the parameters in a test's id, 'ck-prefill-b4-...', or the function's name if it has no parameters."""
    function, _, parameters = test.rpartition("::")[2].partition("[")
    return parameters.removesuffix("]") or function


def _count_planned(config: pytest.Config, total: int, kind: Callable[[CaseKey], str]) -> dict[str, int]:
    """Returns kind -> number of planned cases; UNKNOWN -> those of `total` that are not among this session's items."""
    session: Any = config.pluginmanager.get_plugin("session")
    items = getattr(session, "items", [])
    keys = [case_key(item) or build_key(item) for item in items]
    found = Counter(kind(key) for key in keys if key is not None)
    return {**found, UNKNOWN: max(0, total - found.total())}


class Dealt:
    """Plugin object of xdist's controller that updates `gathered.dealt`, the number of unfinished tests."""

    def __init__(self, gathered: Gathered, progress: Progress | None) -> None:
        self._gathered, self._progress = gathered, progress
        self._open: set[str] = set()
        self._ended: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Sets the tests that are still to run from the ids that a worker of xdist collected, without those that have
        ended: a worker that replaces a dead one reports all ids again."""
        self._open = set(ids) - self._ended
        self._gathered.dealt = len(self._open)
        if not self._ended and self._progress is not None:
            self._progress.expect(len(ids))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts a test of xdist as ended once it has a verdict or its teardown is over; one without a verdict is no
        case, and lowers the total."""
        judged = getattr(report, CASE, None) or getattr(report, CODE, None)
        if report.nodeid not in self._open or not (judged or report.when == "teardown"):
            return
        self._open.discard(report.nodeid)
        self._ended.add(report.nodeid)
        self._gathered.dealt = len(self._open)
        if not judged and self._progress is not None:
            self._progress.drop_expected()


def make_feature(given: FeatureContext) -> Progress | None:
    """Returns the feature that shows progress; None with -q. In xdist's controller also registers `Dealt`."""
    code = given.code
    if given.config.get_verbosity() >= 0:
        given.progress = Progress(
            given.config,
            given.gathered.selected,
            (lambda: None) if code is None else (lambda: code.compile_counts),
            timed=given.timed_keys,
            uncompiled=(lambda: None) if code is None else (lambda: code.uncompiled_count),
        )
        given.progress.follow()
    if is_xdist_controller(given.config):
        given.config.pluginmanager.register(Dealt(given.gathered, given.progress), "attnperf-dealt")
    return given.progress
