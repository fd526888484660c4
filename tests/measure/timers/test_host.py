from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from pytest_attnperf.measure.clocks import TwoClocks
from pytest_attnperf.measure.timers import host
from pytest_attnperf.measure.timers.host import RUN_CALLS_LEAST, RUNS, HostTimer, Waited
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS

COUNTED = Path("/proc/thread-self/schedstat").exists()
SPIN_NS = 20_000_000


class FakeClock:
    """Nanoseconds that pass only when a call says so."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_007
        self.readings = 0

    def __call__(self) -> int:
        """The time now, and one more reading."""
        self.readings += 1
        return self.now_ns


class ScriptedCall:
    """A call that takes `call_ns`, or whatever is scripted for its n-th call."""

    def __init__(self, clock: FakeClock, call_ns: int) -> None:
        self.clock = clock
        self.call_ns = call_ns
        self.calls = 0
        self.first_ns = 0
        self.raw = object()

    def __call__(self) -> object:
        """Let the call's time pass."""
        self.calls += 1
        self.clock.now_ns += self.first_ns if self.calls <= WARM_UP_CALLS else self.call_ns
        return self.raw


def test_block_length_comes_from_the_calls_own_time() -> None:
    """The number of calls fills the block with the time per call found after warm-up, not the warm-up's."""
    clock = FakeClock()
    call = ScriptedCall(clock, 10_000)
    call.first_ns = 900_000_000
    timer = HostTimer(clock)
    timer.prepare(call, 1000.0)
    assert timer.calls_per_block == 100


def test_a_call_longer_than_the_block_is_timed_alone() -> None:
    """A slow call is warmed up and estimated by one call each, and its block is one call."""
    clock = FakeClock()
    call = ScriptedCall(clock, 5_000_000)
    timer = HostTimer(clock)
    timer.prepare(call, 1000.0)
    assert (timer.calls_per_block, call.calls) == (1, WARM_UP_CALLS + 1)


def test_unmeasured_blocks_are_not_in_the_time() -> None:
    """To the nanosecond: each measured block excludes set-up and the unmeasured block that ran right before it."""
    clock = FakeClock()
    call = ScriptedCall(clock, 10_000)
    timer = HostTimer(clock)
    timer.prepare(call, 50.0)
    calls = timer.calls_per_block
    assert calls == 5
    begun = call.calls

    def scripted() -> object:
        measured = ((call.calls - begun) // calls) % (1 + RUNS) > 0
        call.call_ns = 10_003 if measured else 77_777
        return call()

    timer._call = scripted
    assert timer.measure(3) == [10.003, 10.003, 10.003]
    assert call.calls - begun == 3 * (1 + RUNS) * calls


@pytest.fixture(autouse=True)
def no_more_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one more before a block, so that calls can be counted."""
    monkeypatch.setattr(host, "one_or_none", lambda: 0)


@pytest.mark.parametrize(("disturbed", "us"), [(0, 10.0), (RUNS - 1, 10.0), (RUNS, 20.0)])
def test_the_fastest_run_of_a_block_counts(disturbed: int, us: float) -> None:
    """What another program does to some runs of a block is not in its time; what every run shows is."""
    clock = FakeClock()
    call = ScriptedCall(clock, 10_000)
    timer = HostTimer(clock)
    timer.prepare(call, 10.0 * RUN_CALLS_LEAST)
    assert timer.calls_per_block == RUN_CALLS_LEAST
    calls, begun = timer.calls_per_block, call.calls

    def scripted() -> object:
        call.call_ns = 20_000 if (call.calls - begun) // calls in range(1, 1 + disturbed) else 10_000
        return call()

    timer._call = scripted
    assert timer.measure(1) == [us]


@pytest.mark.parametrize("call_us", [30, 100, 400])
def test_every_second_call_that_is_slow_is_in_the_time(call_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a run holds one call, the fastest run would be the fast call alone; a twin without slow calls is as fast as
    it is."""

    def measured(slow: float) -> float:
        clock = FakeClock()
        call = ScriptedCall(clock, 1000 * call_us)
        timer = HostTimer(clock)

        def scripted() -> object:
            call.call_ns = int(1000 * call_us * (slow if call.calls % 2 else 1.0))
            return call()

        timer.prepare(scripted, 1000.0)
        return median(timer.measure(31)) / call_us

    draw = random.Random(1)
    monkeypatch.setattr(host, "one_or_none", lambda: draw.getrandbits(1))
    assert measured(1.0) == 1.0
    assert measured(3.0) == pytest.approx(2.0, rel=0.05)


def test_a_long_run_is_measured_once() -> None:
    """Calls of 5 ms are not made four times as often."""
    clock = FakeClock()
    call = ScriptedCall(clock, 5_000_000)
    timer = HostTimer(clock)
    timer.prepare(call, 1000.0)
    begun = call.calls
    timer.measure(3)
    assert call.calls - begun == 3 * 2


def test_two_readings_per_run() -> None:
    """The clock is read once before and once after a run, never between its calls."""
    clock = FakeClock()
    timer = HostTimer(clock, lambda: clock.now_ns)
    timer.prepare(ScriptedCall(clock, 10_000), 100.0)
    clock.readings = 0
    timer.measure(2)
    assert clock.readings == 2 * 2 * (1 + RUNS)


def test_run_once_gives_the_raw_result() -> None:
    """One unmeasured run is one call, whose result comes back as it is."""
    clock = FakeClock()
    call = ScriptedCall(clock, 10_000)
    timer = HostTimer(clock)
    timer.prepare(call, 100.0)
    before = call.calls
    assert timer.run_once() is call.raw
    assert call.calls == before + 1


def test_the_last_result_of_a_block_is_kept_until_the_next() -> None:
    """What the last call returned can be judged; while a block runs, nothing is held that its calls do not hold."""
    clock, held = FakeClock(), []
    call = ScriptedCall(clock, 10_000)
    timer = HostTimer(clock)
    timer.prepare(call, 100.0)
    assert timer.last is call.raw
    timer._call = lambda: held.append(timer.last) or call()  # type: ignore[func-returns-value]
    timer.measure(1)
    assert set(held) == {None}
    timer.close()
    assert timer.last is None


def test_a_block_takes_none_of_a_suite_s_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's generator is where it was, so that a seeded test draws what it would without being timed."""
    monkeypatch.undo()
    clock = FakeClock()
    timer = HostTimer(clock)
    timer.prepare(ScriptedCall(clock, 10_000), 100.0)
    state = random.getstate()
    timer.measure(20)
    assert random.getstate() == state


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
    monkeypatch.setattr(host, "_read", lambda file, size, at: b"1 7000 3\n")
    monkeypatch.setattr(host, "_process_ns", lambda: 9000)
    monkeypatch.setattr(host, "_thread_ns", lambda: 4000)
    assert Waited()() == (2000 if COUNTED else 0)


def test_where_nobody_counts_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file, or with one that says something else, no time is taken off."""
    for said in (b"", b"x y z", b"5"):
        monkeypatch.setattr(host, "_read", lambda file, size, at, said=said: said)
        assert Waited()() == 0
    monkeypatch.setattr(os, "open", lambda *given: (_ for _ in ()).throw(FileNotFoundError()))
    assert Waited()() == 0
