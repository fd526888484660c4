"""What a block of replays queues, in which order, with everything of the GPU replaced."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_attnperf.measure.timers import replay
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import GraphColdTimer
from pytest_attnperf.measure.timers.replay import ReplayTimer, is_long_enough


class Stream:
    """Everything queued, in order."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.held_us: list[float] = []

    def event_pair(self) -> tuple[Any, Any]:
        """Two events that are queued under their names."""
        return Event(self, "start"), Event(self, "end")

    def hold(self, launch_us: float) -> None:
        """Remember for how long."""
        self.held_us.append(launch_us)
        self.queued.append("hold")

    def replay(self) -> None:
        """As a graph."""
        self.queued.append("replay")

    def reset(self) -> None:
        """As a graph."""
        self.queued.append("reset")

    def take(self) -> None:
        """As stamps."""
        self.queued.append("stamp")

    def read_clocks_mhz(self) -> list[float]:
        """As stamps: 1000, 1001, ... MHz between those taken."""
        return [1000.0 + number for number in range(self.queued.count("stamp") - 1)]

    def discard(self) -> None:
        """As stamps."""
        self.queued.append("discard")


class Event:
    """Half of an event pair."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream, self._name = stream, name

    def record(self) -> None:
        """Queue it."""
        self._stream.queued.append(self._name)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """In place of the GPU's; every pair of events lies 600 us apart."""
    stream = Stream()
    monkeypatch.setattr(replay, "event_pair", stream.event_pair)
    monkeypatch.setattr(replay, "hold_stream", stream.hold)
    monkeypatch.setattr(replay, "elapsed_us", lambda start, end: 600.0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: stream.queued.append("wait"))
    return stream


def captured(timer: ReplayTimer, stream: Stream, result: Any = None) -> ReplayTimer:
    """As if a graph of 20 calls had been captured."""
    timer.calls_per_block = 20
    timer._graph = stream  # type: ignore[assignment]
    timer._result = result
    timer._replay_host_us = 7.0
    return timer


BLOCKS = ["replay", "start", "replay", "end"]


def test_nothing_stands_between_the_blocks_of_a_pair_and_their_events(stream: Stream) -> None:
    """Without stamps a hold, then per pair an unmeasured block, start, a measured block, end; one wait for all."""
    timer = captured(GraphTimer(), stream)
    assert timer.measure(2) == [30.0, 30.0]
    assert stream.queued == ["hold", *BLOCKS, *BLOCKS, "wait"]
    assert stream.held_us == [2 * 2 * 7.0]
    assert timer.clock_mhz == ()


def test_an_interrupted_host_does_not_shorten_blocks(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device idled in one of three replays: the least time of a call counts, not their mean."""
    seen_us = iter([600.0, 9000.0, 640.0])
    monkeypatch.setattr(replay, "elapsed_us", lambda start, end: next(seen_us))
    timer = captured(GraphTimer(), stream)
    assert timer._estimate_us() == 30.0
    assert stream.queued[:4] == ["replay", "wait", "replay", "wait"]
    assert stream.queued[4:] == [*["hold", *BLOCKS, "wait"] * 3]


def test_stamps_stand_around_pairs(stream: Stream) -> None:
    """One before each pair and one behind it; each pair has its own clock, not that of the gap in front of it."""
    timer = captured(GraphTimer(stream), stream)
    assert timer.measure(2) == [30.0, 30.0]
    assert stream.queued == ["discard", "hold", *(["stamp", *BLOCKS, "stamp"] * 2), "wait"]
    assert timer.clock_mhz == (1000.0, 1002.0)
    stream.queued.clear()
    timer.measure(1)
    assert timer.clock_mhz == (1000.0,)
    assert stream.held_us[1] > 2 * 7.0  # the host also queues stamps meanwhile


def test_what_comes_before_a_pair_is_neither_timed_nor_stamped(stream: Stream) -> None:
    """It stands in front of the stamp, the unmeasured block and the first event."""
    timer = captured(GraphTimer(stream), stream)
    timer.before_pair = lambda: stream.queued.append("before")
    timer.measure(2)
    assert stream.queued == ["discard", "hold", *(["before", "stamp", *BLOCKS, "stamp"] * 2), "wait"]


def test_results_are_poisoned_before_a_replay(stream: Stream) -> None:
    """A replay that writes nothing leaves NaN, unless an earlier result is to stay."""
    timer = captured(GraphTimer(), stream, torch.ones(3))
    assert timer.run_once(poisoned=False).tolist() == [1.0] * 3
    assert bool(timer.run_once().isnan().all())
    assert stream.queued == ["replay", "wait"] * 2


def test_both_ends_of_a_cold_block_are_poisoned(stream: Stream) -> None:
    """A cold block keeps the first result beside the last, and both show whether they are written."""
    timer = GraphColdTimer([lambda: None])
    captured(timer, stream, torch.ones(3))
    timer._first = first = torch.ones(2)
    assert timer.run_first(poisoned=False) is first
    assert bool(timer.run_first().isnan().all())
    assert bool(timer.run_once(poisoned=False).isnan().all())


def test_close_frees_the_graph_and_the_results(stream: Stream) -> None:
    """Afterwards nothing is held, and closing again does nothing."""
    timer = GraphColdTimer([lambda: None])
    captured(timer, stream, torch.ones(3))
    timer._first = torch.ones(3)
    timer.close()
    timer.close()
    assert (timer._graph, timer._result, timer._first) == (None, None, None)
    assert stream.queued == ["reset"]


@pytest.mark.parametrize(
    ("wanted", "calls", "enough"), [(100, 100, True), (80, 100, True), (79, 100, False), (5, 4, True), (2, 1, False)]
)
def test_a_block_within_a_quarter_is_long_enough(wanted: int, calls: int, enough: bool) -> None:
    """Between 0.8 and 1.25 times the calls that it holds."""
    assert is_long_enough(wanted, calls) is enough
