"""How far a run is and how long it still takes, by a clock that the test turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.progress import EVERY_SECONDS, Progress, TimeLeft
from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.results import CaseResult

KEY = CaseKey("prefill", "fake.a", "prefill-b1-s64")


class Reporter:
    """What pytest's terminal reporter is to us."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None:
        """Nothing is printed beside."""

    def write_line(self, line: str) -> None:
        """Keep it."""
        self.lines.append(line)


class Run:
    """A run of so many cases, whose clock goes on by what each takes."""

    def __init__(self, total: int, verbosity: int = 0) -> None:
        self.now = 100.0
        self.reporter = Reporter()
        plugins = {"terminalreporter": self.reporter}
        config: Any = SimpleNamespace(
            pluginmanager=SimpleNamespace(get_plugin=plugins.get), get_verbosity=lambda: verbosity
        )
        self.progress = Progress(config, total, lambda: self.now)

    def case(self, seconds: float, *, fails: bool = False, backend: str = "fake.a") -> None:
        """One case that takes so long."""
        key = CaseKey("prefill", backend, "prefill-b1-s64")
        verdict = Verdict.SLOWER if fails else Verdict.SAME
        self.progress.before(key)
        self.now += seconds
        self.progress.after(CaseResult(key, "test.py::test", verdict, "", fails=fails))


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
    assert "about 4.2 h left" in run.reporter.lines[0]


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


def test_suites_are_told_apart() -> None:
    """Cheap kernels first say little about the cases behind them; once these have begun the estimate is theirs."""
    left = TimeLeft({"code_objects": 100, "prefill": 50})
    for _ in range(100):
        left.took("code_objects", 0.1)
    assert left.seconds == pytest.approx(50 * 0.1)
    for _ in range(10):
        left.took("prefill", 6.0)
    assert left.seconds == pytest.approx(40 * 6.0, rel=0.05)


def test_even_cases_count_down() -> None:
    """Where every case takes as long, what is left falls by that each time, to 0."""
    left = TimeLeft({"prefill": 20})
    seen = []
    for _ in range(20):
        left.took("prefill", 3.0)
        seen.append(left.seconds)
    assert seen == pytest.approx([3.0 * (19 - index) for index in range(20)])


def test_a_slow_case_does_not_turn_it_over() -> None:
    """A first case that compiles for two minutes is soon forgotten, and a second look moves little."""
    left = TimeLeft({"prefill": 100})
    left.took("prefill", 120.0)
    for _ in range(14):
        left.took("prefill", 2.0)
    assert left.seconds < 85 * 2.0 * 1.4
    for _ in range(30):
        left.took("prefill", 2.0)
    before = left.seconds
    left.took("prefill", 60.0)
    assert abs(left.seconds - before) < 40.0


def test_never_negative() -> None:
    """More cases than planned, suites that nobody planned, and nothing at all leave 0 seconds at the least."""
    left = TimeLeft({"prefill": 2, "": 1})
    assert left.seconds == 0.0
    for suite in ("prefill", "other", "prefill", "other", "prefill"):
        left.took(suite, 100.0)
        assert left.seconds >= 0.0
    assert left.seconds == 0.0


def test_what_comes_before_a_verdict_is_said_as_rarely() -> None:
    """Of first looks at hundreds of cases a line every 15 s is printed, and none with -q."""
    run = Run(40)
    run.progress.before(KEY)
    for number in range(1, 21):
        run.now += 2.0
        run.progress.say(f"first looks {number} of 400, 3 min of the budget left")
    assert run.reporter.lines == [f"attnperf: first looks {n} of 400, 3 min of the budget left" for n in (8, 16)]
    quiet = Run(40, verbosity=-1)
    quiet.now += 100.0
    quiet.progress.say("first looks 1 of 400")
    assert quiet.reporter.lines == []


def test_a_controller_of_xdist_knows_what_was_dealt_out() -> None:
    """Tests are cases until they end as something else; what comes before the first is not counted as its time."""
    run = Run(0)
    run.now += 50
    run.progress.expect(42)
    for _ in range(2):
        run.progress.passed_by()
    for _ in range(8):
        run.now += 2
        run.progress.after(CaseResult(KEY, "test.py::test", Verdict.SAME, ""))
    assert run.reporter.lines == [
        "attnperf: 8 of 40 cases in 66 s, about 64 s left; last: prefill/fake.a/prefill-b1-s64 SAME"
    ]
    for _ in range(32):
        run.progress.passed_by()
    assert run.progress._left is not None
    assert run.progress._left.seconds == 0
