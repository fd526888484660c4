from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_attnperf.measure import waiting
from pytest_attnperf.measure.clocks import TwoClocks
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.waiting import Waited

COUNTED = Path("/proc/thread-self/schedstat").exists()
SPIN_NS = 20_000_000


def spin() -> None:
    """20 ms of this thread's own computing."""
    until = time.thread_time_ns() + SPIN_NS
    while time.thread_time_ns() < until:
        pass


@pytest.fixture
def beside_a_busy_program() -> Iterator[None]:
    """This thread shares one core with a program that never rests."""
    before = os.sched_getaffinity(0)
    core = min(before)
    busy = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile 1: pass"])
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        busy.kill()
        busy.wait()


@pytest.mark.skipif(not COUNTED, reason="this kernel does not count what threads wait for")
@pytest.mark.usefixtures("beside_a_busy_program")
def test_another_program_adds_nothing_to_a_time() -> None:
    """A call of 20 ms on a core that it shares takes twice as long by the clock, and 20 ms by the timer."""
    timer, started = HostTimer(), time.perf_counter()
    timer.prepare(spin, 1000.0)
    blocks_us = timer.measure(7)
    by_the_clock_us = (time.perf_counter() - started) * 1e6 / 18  # 3 + 1 calls to prepare, 14 in blocks
    assert sorted(blocks_us)[3] == pytest.approx(SPIN_NS / 1000, rel=0.25)
    assert by_the_clock_us > 1.4 * SPIN_NS / 1000


@pytest.mark.parametrize(
    ("span_ns", "waited_ns", "asking_ns", "us"),
    [
        (1_000_000, 0, 0, 1000.0),
        (1_000_000, 600_000, 0, 400.0),
        (1_000_000, 600_000, 500_000, 900.0),
        (1_000_000, 600_000, 900_000, 1000.0),
        (1_000_000, -50_000, 0, 1000.0),
        (1_000_000, 1_000_000, 0, 0.001),
    ],
)
def test_what_was_waited_is_taken_off(span_ns: int, waited_ns: int, asking_ns: int, us: float) -> None:
    """Less what may have been waited while it was asked for; nothing is negative, and nothing is added."""
    now = [0]
    asked = iter((0, waited_ns))

    def waited() -> int:
        now[0] += asking_ns // 2
        return next(asked)

    clocks = TwoClocks(lambda: now[0], None, waited)
    clocks.begin()
    now[0] += span_ns
    assert clocks.end() == pytest.approx(us)


def test_threads_of_its_own_are_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other threads of the process computed meanwhile is taken for the kernel's work, and stays in its time."""
    monkeypatch.setattr(waiting, "_read", lambda file, size, at: b"1 7000 3\n")
    monkeypatch.setattr(waiting, "_process_ns", lambda: 9000)
    monkeypatch.setattr(waiting, "_thread_ns", lambda: 4000)
    assert Waited()() == (2000 if COUNTED else 0)


def test_where_nobody_counts_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file, or with one that says something else, no time is taken off."""
    for said in (b"", b"x y z", b"5"):
        monkeypatch.setattr(waiting, "_read", lambda file, size, at, said=said: said)
        assert Waited()() == 0
    monkeypatch.setattr(os, "open", lambda *given: (_ for _ in ()).throw(FileNotFoundError()))
    assert Waited()() == 0
