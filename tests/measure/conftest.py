"""Timers that replay, without a GPU: what a graph would hold is called again instead."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.correctness import references
from pytest_attnperf.measure import placements, timing
from pytest_attnperf.measure.copies import Copies
from pytest_attnperf.measure.graph_nodes import GraphContent, UnreadableGraphError
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.graph_cold import GraphColdTimer
from pytest_attnperf.measure.timers.timer import CallParts

Spoil = Callable[[int, Any], Any]
"""(which timer, counted from 0; a right result) -> what its replay leaves."""


class Eager:
    """The parts that need a GPU, replaced. Blocks take `call_us` per call, and ran at 1900 MHz."""

    calls_per_block: int
    clock_mhz: tuple[float, ...]

    def _setup(self, made: list[Any], call_us: float, spoil: Spoil) -> None:
        self.made, self.call_us, self.spoil = made, call_us, spoil
        self.place = len(made)
        self.measured = 0
        self.closed = False
        made.append(self)

    def measure(self, pairs: int) -> list[float]:
        """`call_us`, and a little more at every place that was made later."""
        self.measured += pairs
        self.clock_mhz = (1900.0,) * pairs
        return [self.call_us + self.place] * pairs

    def read_graph_content(self) -> GraphContent:
        """There is no graph."""
        raise UnreadableGraphError("nothing was captured")

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class EagerGraph(Eager, GraphTimer):
    """A hot timer."""

    def prepare(self, call: Callable[[], Any], block_us: float) -> None:
        """Keep the call."""
        self._call = call

    def make_twin(self, call: Callable[[], Any]) -> EagerGraph:
        """Another one, on other inputs."""
        other = EagerGraph()
        other._setup(self.made, self.call_us, self.spoil)
        other.prepare(call, 0.0)
        return other

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Call again."""
        return self.spoil(self.place, self._call())


class EagerCold(Eager, GraphColdTimer):
    """A cold timer; `spoil` is told 0 for the first call of a round and 1 for the last."""

    def prepare(self, call: Callable[[], Any], block_us: float) -> None:
        """Keep the calls."""
        self._calls = (*self._others, call)
        self.calls_per_block = len(self._calls)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """A whole round."""
        results = [call() for call in self._calls]
        self._first = self.spoil(0, results[0])
        return self.spoil(1, results[-1])

    def close(self) -> None:
        """Let go of the copies, as a timer that nobody holds does."""
        super().close()
        self._calls = self._others = ()


class EagerGpu:
    """Makes these timers for whatever is timed next; `timers` are those made so far, twins included."""

    def __init__(self) -> None:
        self.timers: list[Any] = []
        self.call_us = 100.0
        self.spoil: Spoil = lambda place, right: right

    def choose(
        self,
        torch_device: str,
        call: Any,
        block_us: float,
        cache_state: str,
        asked: str,
        copies: Callable[[], Copies],
        parts: CallParts | None,
        split: int,
    ) -> Any:
        """In place of the rule, for calls that are timed as a whole."""
        assert parts is None
        timer: Any = EagerCold(copies().calls) if cache_state == "cold" else EagerGraph()
        timer._setup(self.timers, self.call_us, lambda place, right: self.spoil(place, right))
        timer.prepare(call, block_us)
        return timer


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of small problems are taken over 8 draws, not 64: what is tested here is what comes after a check."""
    monkeypatch.setattr(references, "DRAWS_MAX", 8)


@pytest.fixture
def eager_gpu(monkeypatch: pytest.MonkeyPatch) -> EagerGpu:
    """Cases of a CPU are timed as if by replays, at once."""
    gpu = EagerGpu()
    monkeypatch.setattr(timing, "choose_timer", gpu.choose)
    monkeypatch.setattr(placements, "REST_SECONDS", 0.0)
    monkeypatch.setattr(placements, "idle_stream", lambda _: None)
    monkeypatch.setattr(placements, "_allocate_fill", lambda: SimpleNamespace(zero_=lambda: None))
    return gpu
