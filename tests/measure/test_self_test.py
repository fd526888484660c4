from __future__ import annotations

import functools
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.measure import self_test
from pytest_attnperf.measure.self_test import CASES, copy_call, noise_samples
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.records import Samples


def test_three_calls_are_timed_on_the_cpu() -> None:
    """Every case is timed by the timer that a case on this device gets."""
    found = noise_samples("cpu")
    assert tuple(found) == CASES
    assert {samples.timer for samples in found.values()} == {"host"}
    assert all(len(samples.block_us) == 7 and min(samples.block_us) > 0 for samples in found.values())


def test_the_same_call_at_another_place() -> None:
    """Copies of a call's tensors hold the same values at other addresses."""
    torch = pytest.importorskip("torch")
    call = functools.partial(torch.add, torch.ones(3), torch.arange(3.0))
    other = copy_call(call)
    assert torch.equal(other(), call())
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(call.args, other.args, strict=True))


class PlacesTimer(GraphTimer):
    """A graph timer of a call of 100 us: it knows where its tensors are, as a graph does, and keeps none."""

    def prepare(self, call: Any, block_us: float) -> None:
        """Nothing is captured."""
        self.call_us, self._call = 100.0, [weakref.ref(tensor) for tensor in call.args]

    def make_twin(self, call: Any) -> PlacesTimer:
        """Another, at the place of this call."""
        other = PlacesTimer()
        other.prepare(call, 0.0)
        return other


def test_places_in_memory_are_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a case is timed at several places, its copies are there: a graph only knows where they were."""
    seen: list[int] = []

    def measure(timers: list[PlacesTimer], blocks: int) -> Samples:
        tensors = [reference() for timer in timers for reference in timer._call]
        assert all(tensor is not None for tensor in tensors)
        seen.extend(tensor.data_ptr() for tensor in tensors)
        return Samples((1.0,) * blocks, 1, "graph")

    def choose(_device: str, call: Any, block_us: float, split: int) -> PlacesTimer:
        timer = PlacesTimer()
        timer.prepare(call, block_us)
        return timer

    monkeypatch.setattr(self_test, "choose_timer", choose)
    monkeypatch.setattr(self_test.placements, "measure_places", measure)
    self_test._measure_samples(self_test.SOFTMAX, "cpu")
    assert len(set(seen)) == len(seen) == self_test.placements.MOST


def test_a_device_without_graphs_and_events_has_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rule's own choice fails, the profiler's timer is tried by name, and the first line says why."""

    def choose(_device: str, _call: object, _block_us: float, asked: str = "auto") -> SimpleNamespace:
        if asked == "auto":
            raise RuntimeError("HIP error: operation not supported\nadvice")
        return SimpleNamespace(name=asked)

    monkeypatch.setattr(self_test, "choose_timer", choose)
    monkeypatch.setattr(self_test, "warm_up", lambda *_: None)
    timer, why = self_test._choose_working_timer("cuda", lambda: None)
    assert (timer.name, why) == ("profiler", "HIP error: operation not supported")
    with pytest.raises(RuntimeError, match="HIP error"):
        self_test._choose_working_timer("cpu", lambda: None)
