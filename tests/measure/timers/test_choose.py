from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.backends import Prepared
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import timers
from pytest_attnperf.measure.copies import Copies
from pytest_attnperf.measure.timers import choose_timer, timer_names
from pytest_attnperf.measure.timers.capture import CaptureFailedError
from pytest_attnperf.measure.timers.timer import CopiesMaker


def one_copy() -> Copies:
    """Of a call that does nothing."""
    other = Prepared(call=lambda: None, tensors=(), convert=lambda new: new, outputs=lambda raw: {})
    return Copies((other,), "a note")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Timers of a GPU that are prepared without one; calling the fixture's value makes captures fail for a reason."""
    failing: list[str] = []

    def capturing(timer: Any, call: Any, block_us: float) -> None:
        if failing:
            raise CaptureFailedError(failing[0])

    monkeypatch.setattr(timers, "stamps_of", lambda torch_device: None)
    for kind in (timers.GraphTimer, timers.GraphColdTimer):
        monkeypatch.setattr(kind, "prepare", capturing)
    for eager in (timers.EventTimer, timers.ProfilerTimer):
        monkeypatch.setattr(eager, "prepare", lambda timer, call, block_us: None)
    return failing.append


def test_cpu_gets_the_hosts_clock() -> None:
    """On a CPU the timer is the host's clock, prepared and without a note."""
    calls: list[int] = []
    timer = choose_timer("cpu", lambda: calls.append(1), 100.0)
    assert (timer.name, timer.note, timer.replays) == ("host", "", False)
    assert timer.calls_per_block > 1
    assert calls


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("torch_device", "cache_state", "asked", "name"),
    [
        ("cpu", "hot", "auto", "host"),
        ("cpu", "hot", "host", "host"),
        ("cpu", "cold", "auto", "host_cold"),
        ("cpu", "cold", "host_cold", "host_cold"),
        ("cuda", "hot", "auto", "graph"),
        ("cuda", "hot", "graph", "graph"),
        ("cuda", "hot", "event", "event"),
        ("cuda", "hot", "profiler", "profiler"),
        ("cuda", "cold", "auto", "graph_cold"),
        ("cuda", "cold", "graph_cold", "graph_cold"),
    ],
)
def test_the_rule_and_what_was_asked_for(torch_device: str, cache_state: str, asked: str, name: str) -> None:
    """Device and cache state choose; a name that fits both is used. The cache state is the one wanted."""
    timer = choose_timer(torch_device, lambda: None, 50.0, cache_state, asked, one_copy)
    assert (timer.name, timer.cache_state) == (name, cache_state)
    if cache_state == "cold":
        assert timer.note == "a note"


def test_events_that_were_asked_for_say_so(gpu: Callable[[str], None]) -> None:
    """The note of an event timer always says why it is not a graph."""
    assert choose_timer("cuda", lambda: None, 50.0, asked="event").note == "asked for by name"


def test_an_unknown_cache_state_is_refused() -> None:
    """A state that no timer provides is named with those that exist."""
    with pytest.raises(CaseFailedError, match=r"with a 'lukewarm' cache; there are timers for: cold, hot"):
        choose_timer("cpu", lambda: None, 100.0, "lukewarm")


def test_a_cold_time_needs_copies() -> None:
    """A plain call, whose inputs nobody can copy, is not timed cold, and not hot instead."""
    with pytest.raises(CaseFailedError, match=r"cold time needs copies of a call's inputs, .* or time it hot"):
        choose_timer("cpu", lambda: None, 100.0, "cold")


@pytest.mark.parametrize(
    ("torch_device", "cache_state", "asked", "message"),
    [
        ("cpu", "hot", "sundial", f"unknown timer 'sundial'; there are: {', '.join(timer_names())}"),
        (
            "cpu",
            "hot",
            "graph",
            "'graph' was requested on 'cpu', but it needs a GPU; use one of: auto, host",
        ),
        ("cuda", "hot", "host", "'host' was requested on 'cuda', but a GPU's work goes on after a call has returned"),
        ("cuda", "cold", "graph", "'graph' measures with a hot cache, and this workload is cold; use --attnperf-timer"),
        ("cuda", "cold", "profiler", "'profiler' measures with a hot cache, and this workload is cold"),
        ("cuda", "hot", "graph_cold", "'graph_cold' measures with a cold cache, and this workload is hot"),
    ],
)
def test_a_timer_that_cannot_be_used_is_not_replaced(
    torch_device: str, cache_state: str, asked: str, message: str
) -> None:
    """Whatever was asked for is used, or refused with the reason."""
    with pytest.raises(CaseFailedError) as caught:
        choose_timer(torch_device, lambda: None, 50.0, cache_state, asked, one_copy)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("cache_state", "asked", "copies", "message"),
    [
        ("hot", "graph", None, "it synchronises; the timer 'graph' was requested, and no other replaces it"),
        ("cold", "auto", one_copy, "it synchronises; cold calls are timed by the 'graph_cold' timer only, because a"),
        ("cold", "graph_cold", one_copy, "it synchronises; cold calls are timed by the 'graph_cold' timer only"),
    ],
)
def test_a_failed_capture_falls_to_events_only_by_the_rule(
    gpu: Callable[[str], None], cache_state: str, asked: str, copies: CopiesMaker | None, message: str
) -> None:
    """A hot call of no named timer gets events and the reason; every other is refused with it."""
    gpu("it synchronises")
    timer = choose_timer("cuda", lambda: None, 50.0)
    assert (timer.name, timer.note) == ("event", "graph capture failed: it synchronises")
    with pytest.raises(CaseFailedError) as caught:
        choose_timer("cuda", lambda: None, 50.0, cache_state, asked, copies)
    assert message in str(caught.value)


@pytest.mark.gpu
def test_a_gpu_gets_a_graph() -> None:
    """On a GPU the timer is a graph where the call can be captured, and it knows the clock of every pair."""
    value = torch.ones(64, device="cuda")
    timer = choose_timer("cuda", lambda: value + 1, 200.0)
    assert (timer.name, timer.note, timer.replays) == ("graph", "", True)
    timer.measure(3)
    if timers.stamps_of("cuda") is not None:
        assert len(timer.clock_mhz) == 3
        assert all(100 < mhz < 5000 for mhz in timer.clock_mhz)
    timer.close()


@pytest.mark.gpu
@pytest.mark.parametrize("asked", ["graph", "event", "profiler"])
def test_a_gpu_times_with_what_was_asked_for(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives a time of the same product, within a factor of two of the others'."""
    monkeypatch.setattr("pytest_attnperf.measure.trace._used", [])
    matrix = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    timer = choose_timer("cuda", lambda: matrix @ matrix, 600.0, asked=asked)
    assert timer.name == asked
    per_call_us = sorted(timer.measure(3))[1]
    timer.close()
    assert 10 < per_call_us < 200


@pytest.mark.gpu
def test_a_call_that_cannot_be_captured_gets_events_and_the_reason() -> None:
    """A synchronising call falls to events, and the note says why; asked for a graph, it is not timed."""
    value = torch.ones(64, device="cuda")
    timer = choose_timer("cuda", lambda: value.sum().item(), 200.0)
    assert timer.name == "event"
    assert timer.note.startswith("graph capture failed: the call synchronises with the host")
    timer.close()
    with pytest.raises(CaseFailedError, match=r"synchronises with the host.*no other replaces it"):
        choose_timer("cuda", lambda: value.sum().item(), 200.0, asked="graph")
