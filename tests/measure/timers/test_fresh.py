from __future__ import annotations

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.event_fresh import EventFreshTimer
from pytest_attnperf.measure.timers.graph_fresh import GraphFreshTimer
from pytest_attnperf.measure.timers.host_fresh import FRESH_MOST, HostFreshTimer
from pytest_attnperf.measure.timers.timer import CallParts


class Clock:
    """Advances when it is told to, in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        """The time."""
        return self.now_ns

    def take(self, us: float) -> None:
        """Let time pass."""
        self.now_ns += int(us * 1000)


def fresh_timer(clock: Clock, setup_us: float, call_us: float) -> HostFreshTimer:
    """A timer of calls of `call_us` behind setups of `setup_us`."""
    seen: list[int] = []

    def setup() -> tuple[int]:
        clock.take(setup_us)
        seen.append(len(seen))
        return (seen[-1],)

    def work(number: int) -> int:
        clock.take(call_us)
        assert number not in done, "a call got inputs that another has had"
        done.append(number)
        return number

    done: list[int] = []
    timer = HostFreshTimer(setup, work, clock_ns=clock)
    timer.prepare(lambda: work(*setup()), 1000.0)
    return timer


def test_setups_are_not_timed_and_every_call_gets_its_own() -> None:
    """Setups ten times as long as the calls change nothing in the time per call."""
    timer = fresh_timer(Clock(), setup_us=500.0, call_us=50.0)
    assert timer.calls_per_block == 20
    assert timer.measure(3) == [50.0] * 3


def test_no_more_inputs_are_ready_at_once_than_memory_is_meant_for() -> None:
    """Blocks of short calls are shorter than asked for."""
    assert fresh_timer(Clock(), setup_us=1.0, call_us=1.0).calls_per_block == FRESH_MOST


@pytest.mark.parametrize(("parts", "usual"), [(CallParts(tuple, int), "host_fresh"), (None, "host")])
def test_the_rule_chooses_by_whether_calls_get_their_own(parts: CallParts | None, usual: str) -> None:
    """On a CPU; and a timer of the other kind is refused by name."""
    assert choose_timer("cpu", lambda: 1, 100.0, parts=parts).name == usual
    other = "host" if parts else "host_fresh"
    with pytest.raises(CaseFailedError, match=f"the timer '{other}' was requested, but this case .*or {usual}"):
        choose_timer("cpu", lambda: 1, 100.0, asked=other, parts=parts)


class Graph:
    """Notes when it is replayed."""

    def __init__(self, name: str, replayed: list[str]) -> None:
        self.name, self.replayed = name, replayed

    def replay(self) -> None:
        """Nothing but the note."""
        self.replayed.append(self.name)


def test_a_block_is_proven_on_inputs_made_ready_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that is judged replays what makes the inputs ready first, or it would judge those of an earlier one."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer, replayed = GraphFreshTimer(tuple, int), list[str]()
    monkeypatch.setattr(timer, "_before", Graph("setup", replayed))
    monkeypatch.setattr(timer, "_graph", Graph("calls", replayed))
    timer.run_once()
    assert replayed == ["setup", "calls"]


@pytest.mark.gpu
def test_a_graph_of_calls_that_overwrite_their_inputs() -> None:
    """Every replay finds the inputs restored, and takes the time of the call without the copies."""
    x = torch.ones(2**22, device="cuda")

    def setup() -> tuple[torch.Tensor]:
        return (x.clone(),)

    def work(own: torch.Tensor) -> torch.Tensor:
        return own.add_(1)

    timer, alone = GraphFreshTimer(setup, work), choose_timer("cuda", lambda: x.add(1), 200.0)
    timer.prepare(lambda: work(*setup()), 200.0)
    for _ in range(3):
        assert torch.equal(timer.run_once(), torch.full_like(x, 2.0))
    fresh_us, alone_us = min(timer.measure(5)), min(alone.measure(5))
    assert 0.3 * alone_us < fresh_us < 3 * alone_us
    x.fill_(5)
    assert torch.equal(timer.run_once(), torch.full_like(x, 6.0))
    events = EventFreshTimer(setup, work)
    events.prepare(lambda: work(*setup()), 200.0)
    assert 0.3 * alone_us < min(events.measure(5)) < 10 * alone_us
    for each in (timer, alone, events):
        each.close()


@pytest.mark.gpu
def test_a_graph_of_backward_passes() -> None:
    """The forward pass is replayed in front, untimed, and its results reach the backward pass at every replay."""
    a, b = (torch.randn(1024, 1024, device="cuda") for _ in range(2))

    def setup() -> tuple[torch.Tensor, torch.Tensor]:
        leaf = a.detach().requires_grad_()
        return leaf, (leaf @ b).tanh()

    def work(leaf: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(out, leaf, torch.ones_like(out))
        return gradient

    timer = GraphFreshTimer(setup, work)
    timer.prepare(lambda: work(*setup()), 200.0)
    for scale in (1.0, 0.1):
        a.mul_(scale)
        torch.testing.assert_close(timer.run_once(), work(*setup()))
    assert min(timer.measure(3)) > 0
    timer.close()


@pytest.mark.gpu
def test_calls_that_wait_for_the_device_are_timed_by_the_host() -> None:
    """`host_sync` sees launches and waiting; nothing else is asked for it."""
    x = torch.ones(2**20, device="cuda")
    timer = choose_timer(
        "cuda", lambda: x.sum().item(), 200.0, parts=CallParts(lambda: (x,), lambda x: x.sum().item(), True)
    )
    assert timer.name == "host_sync"
    assert "waits for the device" in timer.note
    assert min(timer.measure(3)) > 1.0
