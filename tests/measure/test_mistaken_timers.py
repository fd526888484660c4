"""Timers with a mistake, as somebody adds one: each costs its case, with a sentence that names the timer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import timers, timing
from pytest_attnperf.measure.sampling import measure_pairs, require_reachable
from pytest_attnperf.measure.seeds import Seeds
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.measure.timers import TIMERS
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.records import DeviceInfo, Samples
from pytest_attnperf.workloads.adhoc import AdHoc, CallableBackend

CPU = DeviceInfo(kind="cpu", arch="cpu-x86_64", product="test")
SIZE = 32


class MistakenTimer(HostTimer):
    """Returns what `made` makes of the right times."""

    name = "mistaken"
    made: Callable[[list[float]], Any] = staticmethod(lambda times: times)

    def measure(self, pairs: int) -> list[float]:
        """Has a mistake."""
        wrong: list[float] = type(self).made(super().measure(pairs))
        return wrong


class ForgetfulTimer(MistakenTimer):
    """Forgets the `return`."""

    def run_once(self, *, poisoned: bool = True) -> None:
        """Makes the call."""
        super().run_once(poisoned=poisoned)


def subject_of(kind: type[HostTimer], monkeypatch: pytest.MonkeyPatch) -> TorchSubject:
    """A product that is proven, where this timer is listed."""

    def make_inputs(seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator("cpu").manual_seed(seed)
        return tuple(torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))

    monkeypatch.setattr(timers, "TIMERS", (*TIMERS, kind))
    backend = CallableBackend("test.product", torch.matmul)
    subject = TorchSubject(backend, AdHoc("product", make_inputs, torch.matmul), CPU, Seeds(0, 1, 2))
    subject.prepare()
    assert subject.check().problems == ()
    return subject


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda times: times[0], "float; return a list of microseconds per call, one per pair"),
        (lambda times: None, "NoneType; return a list"),
        (lambda times: ["fast"], "a list of str; return a list"),
        (lambda times: times * 2, "2 times; return a list of microseconds per call, one per pair"),
        (lambda times: [0.0002], "0.0002 us per call, less than any device needs for a call; return a list"),
        (lambda times: [float("nan")], "nan us per call, less than any device needs for a call; return a list"),
        (
            lambda times: [us * 1e3 for us in times],
            ".* us for all calls of its blocks, but it took only .* us; return a",
        ),
    ],
)
def test_what_is_no_list_of_microseconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[list[float]], Any], said: str
) -> None:
    """The timer is named, with what it returned and what it must return."""
    monkeypatch.setattr(MistakenTimer, "made", staticmethod(made))
    timer = MistakenTimer()
    timer.prepare(lambda: sum(range(100)), 1000.0)
    with pytest.raises(CaseFailedError, match=rf"^timer 'mistaken': measure\(1\) returned {said}"):
        measure_pairs(timer, 1)


def test_a_timer_in_milliseconds_costs_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is so much faster than it was before."""
    subject = subject_of(MistakenTimer, monkeypatch)
    monkeypatch.setattr(MistakenTimer, "made", staticmethod(lambda times: [max(us / 1e3, 2e-3) for us in times]))
    with pytest.raises(CaseFailedError, match=r"^timer 'mistaken' reports .* us per call, but the fastest call before"):
        subject.measure_blocks(1, 200.0, 1e9, "mistaken")


def test_right_times_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same timer without its mistake."""
    subject = subject_of(MistakenTimer, monkeypatch)
    assert subject.measure_blocks(3, 200.0, 1e9, "mistaken").timer == "mistaken"
    assert subject.finish().check.right


def test_a_timer_that_loses_the_result_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the backend, whose call has returned tensors before."""
    subject = subject_of(ForgetfulTimer, monkeypatch)
    subject.measure_blocks(1, 200.0, 1e9, "mistaken")
    place = rf"^{re.escape(__file__)}:\d+: timer 'mistaken': run_once\(\) returned NoneType, but the backend's call"
    with pytest.raises(CaseFailedError, match=place):
        subject.finish()


def test_a_call_that_works_in_place_may_return_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not made again to see whether it returns tensors."""
    subject = subject_of(ForgetfulTimer, monkeypatch)
    subject.measure_blocks(1, 200.0, 1e9, "mistaken")
    monkeypatch.setattr(timing, "written_in_place", lambda prepared, workload: prepared.tensors)
    monkeypatch.setattr(subject._ready, "run", None)
    assert subject._ready_timing.run_once() is None


def test_short_blocks_are_not_judged_by_their_length() -> None:
    """A clock of coarse steps, or one that stood still, is no unit."""

    class Scripted(HostTimer):
        """Says 0.09 s at once, then 0.11 s."""

        times = iter((90_000.0, 110_000.0))

        def measure(self, pairs: int) -> list[float]:
            """The next."""
            return [next(self.times)]

    assert measure_pairs(Scripted(), 1) == [90_000.0]
    with pytest.raises(CaseFailedError, match=r"returned 1\.1e\+05 us per call, 1\.1e\+05 us for all calls"):
        measure_pairs(Scripted(), 1)


@pytest.mark.parametrize(("direct_us", "refused"), [(0.0, False), (999.0, False), (1001.0, True)])
def test_a_call_is_not_a_hundred_times_faster_when_it_is_timed(direct_us: float, refused: bool) -> None:
    """More is an error of units; 0 is not known."""
    samples = Samples((10.0, 12.0), calls_per_block=1, timer="host", cache_state="hot")
    if not refused:
        return require_reachable(samples, direct_us)
    with pytest.raises(
        CaseFailedError, match="timer 'host' reports 10 us per call, but the fastest call before took 1e"
    ):
        require_reachable(samples, direct_us)
    return None
