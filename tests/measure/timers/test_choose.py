from __future__ import annotations

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers import choose


def test_cpu_gets_the_hosts_clock() -> None:
    """On a CPU the timer is the host's clock, prepared and without a note."""
    calls: list[int] = []
    timer = choose("cpu", lambda: calls.append(1), 100.0)
    assert (timer.name, timer.note, timer.replays) == ("host", "", False)
    assert timer.calls_per_block > 1
    assert calls


def test_a_cold_workload_is_refused() -> None:
    """No timer provides cold caches here, and a hot time must not pass for a cold one."""
    with pytest.raises(CaseFailedError, match=r"no timer measures with a 'cold' cache; there are timers for: hot"):
        choose("cpu", lambda: None, 100.0, "cold")


@pytest.mark.gpu
def test_a_gpu_gets_a_graph() -> None:
    """On a GPU the timer is a graph where the call can be captured."""
    value = torch.ones(64, device="cuda")
    timer = choose("cuda", lambda: value + 1, 200.0)
    assert (timer.name, timer.note, timer.replays) == ("graph", "", True)
    timer.close()


@pytest.mark.gpu
def test_a_call_that_cannot_be_captured_gets_events_and_the_reason() -> None:
    """A synchronising call falls to events, and the note says why."""
    value = torch.ones(64, device="cuda")
    timer = choose("cuda", lambda: value.sum().item(), 200.0)
    assert timer.name == "event"
    assert timer.note.startswith("graph capture failed: the call synchronises with the host")
    timer.close()
