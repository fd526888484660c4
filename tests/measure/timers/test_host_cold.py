from __future__ import annotations

from pytest_attnperf.measure.timers.host_cold import HostColdTimer


class Copies:
    """Calls on copies 0 ... count - 1 that take 10 us each and are remembered."""

    def __init__(self, count: int) -> None:
        self.now_ns = 0
        self.made: list[int] = []
        self.calls = [lambda number=number: self._make(number) for number in range(count)]

    def clock_ns(self) -> int:
        """The time that calls have taken."""
        return self.now_ns

    def _make(self, number: int) -> int:
        self.made.append(number)
        self.now_ns += 10_000
        return number


def test_no_copy_comes_again_before_all_others() -> None:
    """Warm-up, estimate and blocks of any length go round; a block goes on where the one before it stopped."""
    copies = Copies(7)
    timer = HostColdTimer(copies.calls[:-1], clock_ns=copies.clock_ns)
    timer.prepare(copies.calls[-1], 50.0)
    assert timer.calls_per_block == 5
    assert timer.measure(3) == [10.0, 10.0, 10.0]
    assert copies.made == [number % 7 for number in range(len(copies.made))]


def test_what_is_judged_is_the_cases_own_call() -> None:
    """One unmeasured run reads the case's own inputs, wherever the round stands."""
    copies = Copies(3)
    timer = HostColdTimer(copies.calls[:-1], note="assumed", clock_ns=copies.clock_ns)
    timer.prepare(copies.calls[-1], 20.0)
    assert (timer.run_once(), timer.run_once()) == (2, 2)
    assert (timer.name, timer.cache_state, timer.note, timer.replays) == ("host_cold", "cold", "assumed", False)


def test_close_lets_go_of_every_copy() -> None:
    """Nothing keeps the inputs alive."""
    copies = Copies(3)
    timer = HostColdTimer(copies.calls[:-1], clock_ns=copies.clock_ns)
    timer.prepare(copies.calls[-1], 20.0)
    timer.close()
    assert (timer._others, timer._own, timer._call) == ((), None, None)
