"""What a run does, in one line of a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live.live_line import (
    CLEAR,
    OPERATIONS,
    LiveLine,
    LiveStatus,
    format_drawing,
    format_ending,
    format_status,
)
from pytest_attnperf.records import Role
from pytest_attnperf.session.time_left import Left
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.doing import Unit, UnitStep, Waiting
from pytest_attnperf.workers.protocol import ALLOWED
from tests.plugin.features.live.watched_runs import read_until, start_on_terminal


def waiting(operation: str, worker: str = "worker0-1", role: Role = Role.DEVICE) -> Waiting:
    """For an answer of a worker."""
    return Waiting(worker, role, operation)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (LiveStatus("collecting tests", busy_s=12.0), "collecting tests (12 s)"),
        (
            LiveStatus("ending the run", waits=[waiting("end")]),
            "ending the run, ending worker0-1 (0 s)",
        ),
        (
            LiveStatus(total=15, busy_s=48.0, waits=[waiting("start")]),
            "case 1 of 15: starting worker0-1, importing torch (48 s); time left unknown",
        ),
        (
            LiveStatus(
                done=2, total=40, step=UnitStep(Unit.SECOND_LOOK, 3, 7, 0.0), waits=[waiting("block")], failed=1
            ),
            "case 3 of 40: second look, process 3 of 7, timing (0 s); time left unknown; 1 failed",
        ),
        (
            LiveStatus(done=2, total=40, waits=[waiting("check"), waiting("check", "base0-1")], left=Left(89.0)),
            "case 3 of 40: compiling and proving (0 s); about 89 s left",
        ),
        (
            LiveStatus(total=12, compiling=(3, 12), waits=[waiting("open", "compile0-1", Role.COMPILE)]),
            "case 1 of 12: compiled 3 of 12 kernels (0 s); time left unknown",
        ),
        (
            LiveStatus(done=2, total=40, running=["a-b1", "a-b2"], left=Left(89.0)),
            "2 of 40 cases, 2 under way (0 s); about 89 s left; a-b1, a-b2",
        ),
        (
            LiveStatus(total=40, said="first looks 3 of 40, 3 min of the budget left"),
            "case 1 of 40 (0 s); first looks 3 of 40, 3 min of the budget left",
        ),
    ],
)
def test_what_is_done_is_named(now: LiveStatus, text: str) -> None:
    """The phase, or the case with its step and what its worker was asked for; for how long; and what is left."""
    assert format_status(now, 120) == f"attnperf: {text}"


def test_two_workers_that_start_are_counted() -> None:
    """What several workers do at once is said once."""
    now = LiveStatus(total=2, waits=[waiting("start"), waiting("start", "base0-1")])
    assert "starting 2 workers, importing torch" in format_status(now, 120)


def test_a_narrow_terminal() -> None:
    """A name is cut before anything else, left out where nothing of it would fit, and never paints the terminal."""
    now = LiveStatus(done=2, total=40, running=["hip.flash-prefill-b4-s512-h8\x1b[2J"], left=Left(89.0))
    assert format_status(now, 70) == "attnperf: case 3 of 40 (0 s); about 89 s left; hip.flash-...512-h8 [2J"
    assert format_status(now, 50) == "attnperf: case 3 of 40 (0 s); about 89 s left"
    assert [len(format_status(now, width)) <= width for width in range(1, 60)] == [True] * 59


def test_every_operation_has_words() -> None:
    """Whatever a worker can be asked for is said in words."""
    asked = {operation for allowed in ALLOWED.values() for operation in allowed} - {"exit", "ping"}
    assert asked <= OPERATIONS.keys()


def test_the_answer_to_ctrl_c() -> None:
    """It says what is ended, and what becomes of the results so far."""
    assert format_ending(2, "results so far go to .attnperf/results.json") == (
        "attnperf: interrupted; ending 2 workers; results so far go to .attnperf/results.json"
    )
    assert format_ending(1, "") == "attnperf: interrupted; ending 1 worker"
    assert format_ending(0, "") == "attnperf: interrupted; ending the run"


@dataclass
class Terminal:
    """A pseudo terminal, its line, and pytest's writer; `now` is what the line's clock says."""

    now: float = 100.0
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ours, self.theirs = os.openpty()
        file: Any = SimpleNamespace(write=self.write, flush=lambda: None, encoding="utf-8")
        self.writer = SimpleNamespace(_file=file)
        self.line = LiveLine(os.dup(self.theirs), lambda width, _height: "attnperf: working"[:width], lambda: self.now)

    def write(self, text: str) -> int:
        """What pytest prints."""
        return os.write(self.theirs, text.encode())

    def screen(self) -> str:
        """What came since the last look, up to a zero byte: the kernel hands over what is written piece by piece."""
        os.write(self.theirs, b"\0")
        came = b""
        while not came.endswith(b"\0"):
            came += os.read(self.ours, 4096)
        return came[:-1].decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Whose thread never draws: the test does."""
    monkeypatch.setattr("pytest_attnperf.plugin.features.live.live_line.EVERY_SECONDS", 3600.0)
    made = Terminal()
    made.line.start(made.writer)
    made.line.every_s = 1.0
    yield made
    made.line.stop()
    os.close(made.theirs)
    os.close(made.ours)


def test_it_is_drawn_when_nothing_is_printed(terminal: Terminal) -> None:
    """Nothing within a second of what pytest prints; then the line; and it is cleared before the next output."""
    terminal.writer._file.write("suites/test_a.py .")
    terminal.now += 0.5
    terminal.line.draw()
    assert terminal.screen() == "suites/test_a.py ."
    terminal.now += 1.0
    terminal.line.draw()
    assert terminal.screen() == format_drawing("attnperf: working")
    terminal.writer._file.write("s")
    terminal.writer._file.write("s")
    assert terminal.screen() == f"{CLEAR}ss"


def test_several_lines_are_drawn_once(terminal: Terminal) -> None:
    """Room for all of them is made below, they stand below each other, and are not written again while they stay."""
    terminal.line.says = lambda width, height: f"{width} cells\n{height} lines"
    terminal.now += 2.0
    terminal.line.draw()
    drawn = "\x1bD\x1bD\x1b[2A\x1b7\x1b[B\r79 cells\x1b[K\x1b[B\r22 lines\x1b[K\x1b[J\x1b8"
    assert terminal.screen() == drawn
    terminal.line.draw()
    assert terminal.screen() == ""
    terminal.line.clear_line()
    terminal.now += 2.0
    terminal.line.draw()
    assert terminal.screen() == f"{CLEAR}{drawn}"


def test_it_leaves_nothing_behind(terminal: Terminal) -> None:
    """At the end the line is cleared, the writer has its own file again, and stopping once more does no harm."""
    file = terminal.writer._file
    assert file.encoding == "utf-8"
    terminal.now += 2.0
    terminal.line.draw()
    terminal.screen()
    terminal.line.stop()
    terminal.line.stop()
    assert terminal.writer._file is not file
    assert terminal.screen() == CLEAR


def test_an_interrupt_is_answered_while_it_draws(terminal: Terminal) -> None:
    """A signal that comes while the line is held is answered nevertheless."""
    with terminal.line._lock:
        terminal.line.announce("attnperf: interrupted")
    assert terminal.screen() == f"{CLEAR}\r\nattnperf: interrupted\r\n"


def test_a_run_on_a_terminal(attnperf_project: FakeProject) -> None:
    """It says what it does while a case takes long; Ctrl-C is answered at once, with what becomes of the results."""
    attnperf_project.backend("fake.a", fault="hang")
    pid, fd = start_on_terminal(attnperf_project, "--attnperf", "--color=no")
    try:
        assert "case 1 of 1" in read_until(fd, "compiling and proving (")
        os.write(fd, b"\x03")
        asked = time.monotonic()
        said = read_until(fd, "attnperf: interrupted; ending 1 worker; results so far go to .attnperf/results.json")
        assert time.monotonic() - asked < 5.0
        assert said.count("attnperf: interrupted") == 1
        read_until(fd, "no tests ran in", said)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == pytest.ExitCode.INTERRUPTED
    finally:
        os.close(fd)  # hangs up, which ends what still runs


def test_a_log_has_no_such_line(attnperf_project: FakeProject) -> None:
    """Where nobody watches nothing is drawn, whatever a case takes."""
    attnperf_project.backend("fake.a", fault="stuck")
    result = attnperf_project.run("--attnperf", "--attnperf-case-limit=2")
    assert "\x1b" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*case 1 of*")
