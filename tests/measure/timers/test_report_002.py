from __future__ import annotations

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers import AUTO, choose_timer, is_gating, timer_names
from pytest_attnperf.measure.timers.report_002 import Report002Timer


class Device:
    """Calls that take 10 us, every tenth 100 us, and waits of 5 us."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.said: list[str] = []

    def clock_ns(self) -> int:
        """The time so far."""
        return self.now_ns

    def call(self) -> int:
        """One call; returns its number."""
        number = self.said.count("call")
        self.said.append("call")
        self.now_ns += 100_000 if number % 10 == 9 else 10_000
        return number

    def wait(self) -> None:
        """Waits for it."""
        self.said.append("wait")
        self.now_ns += 5_000


def test_a_block_is_the_protocol() -> None:
    """10 calls and 100 timed ones, each waited for; the mean of the 100, waiting and slow calls included."""
    device = Device()
    timer = Report002Timer(device.wait, device.clock_ns)
    timer.prepare(device.call, 1.0)
    assert device.said == []
    assert timer.calls_per_block == 100
    assert timer.measure(2) == [5.0 + (90 * 10.0 + 10 * 100.0) / 100] * 2
    assert device.said == ["call", "wait"] * 220
    assert timer.last == 219


def test_one_run_is_waited_for() -> None:
    """What is judged has finished; close lets go of it."""
    device = Device()
    timer = Report002Timer(device.wait, device.clock_ns)
    timer.prepare(device.call, 1.0)
    assert timer.run_once() == 0
    assert device.said == ["call", "wait"]
    timer.close()
    assert (timer._call, timer.last) == (None, None)


def test_it_times_on_a_cpu_by_name_only() -> None:
    """The rule never takes it, a cold workload refuses it, and it is the one timer that gates nothing."""
    calls: list[int] = []
    assert choose_timer("cpu", lambda: calls.append(1), 50.0).name == "host"
    timer = choose_timer("cpu", lambda: calls.append(1), 50.0, asked="report_002")
    calls.clear()
    (per_call_us,) = timer.measure(1)
    assert len(calls) == 110
    assert 0 < per_call_us < 1000
    with pytest.raises(CaseFailedError, match="measures with a hot cache, and this workload is cold"):
        choose_timer("cpu", lambda: None, 50.0, "cold", "report_002")
    assert [name for name in timer_names() if not is_gating(name)] == ["report_002"]
    assert is_gating(AUTO)


@pytest.mark.gpu
def test_on_a_gpu_it_waits_for_every_call() -> None:
    """A call whose kernels take milliseconds is timed until they are done."""
    torch = pytest.importorskip("torch")
    cycles = 2_000_000
    timer = choose_timer("cuda", lambda: torch.cuda._sleep(cycles), 50.0, asked="report_002")
    (per_call_us,) = timer.measure(1)
    assert per_call_us > 500
