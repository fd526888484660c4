"""The line below what pytest has printed: drawn on a terminal, and gone before anything else is printed."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.plugin.features.live.live_line import CLEAR, DRAW, LiveLine
from pytest_attnperf.testing.project import FakeProject

READ_LIMIT_S = 60.0
"""A terminal that is silent for so long fails the test: a loaded machine starts a worker in ten seconds."""


@dataclass
class Terminal:
    """A pseudo terminal, its line, and pytest's writer; `now` is what the line's clock says."""

    now: float = 100.0
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ours, self.theirs = os.openpty()
        file: Any = SimpleNamespace(write=self.write, flush=lambda: None, encoding="utf-8")
        self.writer = SimpleNamespace(_file=file)
        self.line = LiveLine(os.dup(self.theirs), lambda width: "attnperf: working"[:width], lambda: self.now)

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
    monkeypatch.setattr("pytest_attnperf.plugin.features.live.live_line.EVERY_SECONDS", 1.0)
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
    assert terminal.screen() == DRAW.format("attnperf: working")
    terminal.writer._file.write("s")
    terminal.writer._file.write("s")
    assert terminal.screen() == f"{CLEAR}ss"


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


def _until(fd: int, text: str, so_far: str = "") -> str:
    """What a terminal shows up to this text."""
    os.set_blocking(fd, False)
    until = time.monotonic() + READ_LIMIT_S
    while text not in so_far:
        assert time.monotonic() < until, so_far
        try:
            so_far += os.read(fd, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            pytest.fail(f"ended without {text!r}: {so_far}")
    return so_far


def _on_terminal(project: FakeProject, *args: str) -> tuple[int, int]:
    """(process id, terminal) of a pytest that somebody watches."""
    argv = [sys.executable, "-m", "pytest", "-p", "pytest_attnperf.plugin.main", "-p", "no:randomly", *args]
    pid, fd = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(project.path)
        os.execve(sys.executable, argv, {**os.environ, "TERM": "xterm", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    return pid, fd


def test_a_run_on_a_terminal(attnperf_project: FakeProject) -> None:
    """It says what it does while a case takes long; Ctrl-C is answered at once, with what becomes of the results."""
    attnperf_project.backend("fake.a", fault="hang")
    pid, fd = _on_terminal(attnperf_project, "--attnperf", "--color=no")
    try:
        assert "case 1 of 1" in _until(fd, "compiling and proving (")
        os.write(fd, b"\x03")
        asked = time.monotonic()
        said = _until(fd, "attnperf: interrupted; ending 1 worker; results so far go to .attnperf/results.json")
        assert time.monotonic() - asked < 5.0
        assert said.count("attnperf: interrupted") == 1
        _until(fd, "no tests ran in", said)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == pytest.ExitCode.INTERRUPTED
    finally:
        os.close(fd)  # hangs up, which ends what still runs


def test_a_log_has_no_such_line(attnperf_project: FakeProject) -> None:
    """Where nobody watches nothing is drawn, whatever a case takes."""
    attnperf_project.backend("fake.a", fault="stuck")
    result = attnperf_project.run("--attnperf", "--attnperf-case-limit=2")
    assert "\x1b" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*case 1 of*")
