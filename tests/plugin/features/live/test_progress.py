"""How far a run is and how long it still takes, by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live.progress import EVERY_SECONDS, Progress
from pytest_attnperf.plugin.keys import BUILD, CASE
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CODE_SUITE
from pytest_attnperf.results import CaseResult

KEY = CaseKey("prefill", "fake.a", "prefill-b1-s64")


class Reporter:
    """What pytest's terminal reporter is to us."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None:
        """Nothing is printed beside."""

    def flush(self) -> None:
        """Nothing is kept back."""

    def write_line(self, line: str) -> None:
        """Keep it."""
        self.lines.append(line)


class Run:
    """A run of so many cases, whose clock goes on by what each takes."""

    def __init__(self, total: int, verbosity: int = 0, timed: Collection[CaseKey] = ()) -> None:
        self.now = 100.0
        self.compiling: tuple[int, int] | None = None
        self.uncompiled: int | None = None
        self.items: list[Any] = []
        self.reporter = Reporter()
        plugins = {"terminalreporter": self.reporter, "session": self}
        config: Any = SimpleNamespace(
            pluginmanager=SimpleNamespace(get_plugin=plugins.get), get_verbosity=lambda: verbosity, stash=pytest.Stash()
        )
        self.progress = Progress(
            config, total, lambda: self.compiling, lambda: self.now, timed=timed, uncompiled=lambda: self.uncompiled
        )

    def case(self, seconds: float, *, fails: bool = False, backend: str = "fake.a") -> None:
        """One case that takes so long."""
        key = CaseKey("prefill", backend, "prefill-b1-s64")
        verdict = Verdict.SLOWER if fails else Verdict.SAME
        self.progress.before_case()
        self.now += seconds
        self.progress.after_case(CaseResult(key, "test.py::test", verdict, "", fails=fails))


def test_a_line_now_and_then() -> None:
    """At most one line per 15 s, with done, time, time left, failures, and the last case; none after the last."""
    run = Run(40)
    for number in range(40):
        run.case(2.0, fails=number in (3, 20))
    assert run.reporter.lines[0] == (
        "attnperf: 8 of 40 cases in 16 s, about 64 s left, 1 failed; last: prefill/fake.a/prefill-b1-s64 SAME"
    )
    assert len(run.reporter.lines) == 80 / (8 * 2) - 1
    assert ", 2 failed; last" in run.reporter.lines[-1]


def test_what_came_before_the_first_case_is_not_its_time() -> None:
    """Collecting and starting workers for two minutes does not make every case two minutes long."""
    run = Run(1000)
    run.now += 120.0
    run.case(EVERY_SECONDS)
    assert "time left unknown" in run.reporter.lines[0]
    run.case(EVERY_SECONDS)
    assert "about 4.2 h left" in run.reporter.lines[1]


def test_cases_that_are_only_proven_are_told_apart() -> None:
    """They are expected to take less than timed ones before any of them has ended, and compiled kernels nothing."""
    timed = [CaseKey("prefill", backend, "prefill-b1-s64") for backend in ("fake.a", "fake.b")]
    run = Run(26, timed=timed)
    proven = CaseKey("prefill", "fake.c", "prefill-b1-s64")
    run.items = [SimpleNamespace(stash={CASE: key}) for key in (*timed, *[proven] * 4)]
    run.items += [SimpleNamespace(stash={BUILD: CaseKey(CODE_SUITE, "k", str(number))}) for number in range(20)]
    for key in timed:
        run.case(20.0, backend=key.backend)
    assert "about 22 s left" in run.reporter.lines[-1]
    run.uncompiled = 5
    run.case(16.0, backend="fake.c")
    assert "about 52 s left" in run.reporter.lines[-1]


def test_quiet_runs_have_no_progress() -> None:
    """-q prints none of it."""
    run = Run(40, verbosity=-1)
    for _ in range(30):
        run.case(10.0)
    assert run.reporter.lines == []


def test_hostile_names() -> None:
    """A backend's name does not paint the terminal."""
    run = Run(40)
    run.case(20.0, backend="a\x1b[2J\n")
    assert "\x1b" not in run.reporter.lines[0]
    assert "\n" not in run.reporter.lines[0]


def test_what_comes_before_a_verdict_is_said_as_rarely() -> None:
    """Of first looks at hundreds of cases a line every 15 s is printed, and none with -q."""
    run = Run(40)
    run.progress.before_case()
    for number in range(1, 21):
        run.now += 2.0
        run.progress.report_step(f"first looks {number} of 400, 3 min of the budget left")
    assert run.reporter.lines == [f"attnperf: first looks {n} of 400, 3 min of the budget left" for n in (8, 16)]
    quiet = Run(40, verbosity=-1)
    quiet.now += 100.0
    quiet.progress.report_step("first looks 1 of 400")
    assert quiet.reporter.lines == []


def test_a_controller_of_xdist_knows_what_was_dealt_out() -> None:
    """Tests are cases until they end as something else; what comes before the first is not counted as its time."""
    run = Run(0)
    run.progress.enter_phase("starting workers of xdist")
    assert run.progress.format_status(80) == "attnperf: starting workers of xdist (0 s)"
    run.now += 50
    run.progress.expect(42)
    run.progress.pytest_runtest_logstart("test_a.py::test_a[x]")
    assert run.progress.format_status(80) == "attnperf: case 1 of 42 (0 s); time left unknown; x"
    run.progress.pytest_runtest_logfinish("test_a.py::test_a[x]")
    for _ in range(2):
        run.progress.drop_expected()
    for _ in range(8):
        run.now += 2
        run.progress.after_case(CaseResult(KEY, "test.py::test", Verdict.SAME, ""))
    assert run.reporter.lines == [
        "attnperf: 8 of 40 cases in 66 s, about 64 s left; last: prefill/fake.a/prefill-b1-s64 SAME"
    ]
    for _ in range(32):
        run.progress.drop_expected()
    assert run.progress.format_status(80) == "attnperf: ending the run (0 s)"


def test_the_line_of_a_terminal() -> None:
    """It says what is compiled before the first case, which case is under way, for how long, and what is left."""
    run = Run(3)
    run.progress.pytest_runtest_logstart("suites/test_a.py::test_a[fake.a-prefill-b1-s64]")
    run.compiling = (3, 12)
    run.now += 4.0
    begun = "attnperf: case 1 of 3: compiled 3 of 12 kernels (4 s); time left unknown; fake.a-prefill-b1-s64"
    assert run.progress.format_status(120) == begun
    run.compiling = None
    for seconds in (20.0, 20.0):
        run.case(seconds, fails=True)
    run.now += 5.0
    assert run.progress.format_status(70) == "attnperf: case 3 of 3 (5 s); about 15 s left; 2 failed; fake.a...1-s64"
    run.progress.pytest_runtest_logfinish("suites/test_a.py::test_a[fake.a-prefill-b1-s64]")
    run.progress.enter_phase("writing results")
    run.now += 2.0
    assert run.progress.format_status(120) == "attnperf: writing results (2 s)"
