from __future__ import annotations

import pytest
import torch

from pytest_attnperf.measure.timers import event
from pytest_attnperf.measure.timers.event import MAX_QUEUED_CALLS, EventTimer
from pytest_attnperf.measure.warm_up import warm_device


def test_the_note_says_why_not_a_graph_and_what_was_exposed() -> None:
    """The reason is kept word for word; blocks whose launches were not hidden are counted."""
    timer = EventTimer("graph capture failed: it synchronises")
    assert timer.note == "graph capture failed: it synchronises"
    timer._blocks, timer._exposed_blocks = 30, 4
    assert timer.note == (
        "graph capture failed: it synchronises; launches may be timed with the kernels in 4 of 30 blocks"
    )


def test_stamps_stand_around_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but calls stands between the unmeasured block, the start event, the measured block and the end event."""
    queued: list[str] = []

    class Queued:
        """An event, or stamps, under a name."""

        def __init__(self, name: str) -> None:
            self.record = self.take = lambda: queued.append(name)
            self.query = lambda: False
            self.discard = lambda: queued.append("discard")
            self.read_clocks_mhz = lambda: [1500.0 + queued.count("stamp")]

    monkeypatch.setattr(event, "event_pair", lambda: (Queued("start"), Queued("end")))
    monkeypatch.setattr(event, "hold_stream", lambda launch_us: queued.append("hold"))
    monkeypatch.setattr(event, "elapsed_us", lambda start, end: 8.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: queued.append("wait"))
    timer = EventTimer("why", Queued("stamp"))
    timer._call, timer.calls_per_block = lambda: queued.append("call"), 2
    assert timer.measure(2) == [4.0, 4.0]
    calls = ["call", "call"]
    pair = ["discard", "hold", "stamp", *calls, "start", *calls, "end", "stamp", "wait"]
    assert queued == pair * 2
    assert timer.clock_mhz == (1502.0, 1504.0)


@pytest.mark.gpu
def test_kernels_are_timed_without_their_launches() -> None:
    """A tiny kernel is reported far below what launching it takes, with nothing exposed."""
    value = torch.ones(1024, device="cuda")
    warm_device("cuda")
    timer = EventTimer()
    timer.prepare(lambda: value * 2, 1000.0)
    times = [timer.measure(1)[0] for _ in range(9)]
    assert timer.calls_per_block == MAX_QUEUED_CALLS
    assert sorted(times)[4] < 6
    assert timer.note == ""


@pytest.mark.gpu
def test_a_synchronising_call_is_timed_and_said() -> None:
    """A call that waits for the GPU is timed with its launches, and the note says so."""
    value = torch.ones(1024, device="cuda")
    timer = EventTimer("why")
    timer.prepare(lambda: value.sum().item(), 200.0)
    assert timer.measure(1)[0] > 1
    assert timer.note.startswith("why; launches may be timed with the kernels in 1 of 1 blocks")
