"""Kernel time from events written by hand, and from a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.timers import profiler
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.profiler import ProfilerTimer, sum_measured_us


def event(ts: float, dur: float, name: str = "flash", cat: str = "kernel") -> dict[str, Any]:
    """A piece of work as Kineto exports it."""
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}


def hold(ts: float) -> dict[str, Any]:
    """What keeps the stream busy before a block."""
    return event(ts, 500.0, "at::cuda::(anonymous namespace)::spin_kernel(long)")


def test_only_what_runs_behind_the_second_hold_counts() -> None:
    """Kernels, copies and sets of the measured block, in whatever order they are listed, without the gaps."""
    events = [
        event(1000, 7.0, "Memset (Device)", "gpu_memset"),
        event(900, 1.5),
        hold(0),
        event(600, 99.0),
        hold(700),
        event(950, 2.25, "Memcpy DtoD", "gpu_memcpy"),
        event(910, 1000.0, "aten::mm", "cpu_op"),
        event(905, 1000.0, "some range", "gpu_user_annotation"),
    ]
    assert sum_measured_us(events) == 1.5 + 2.25 + 7.0


@pytest.mark.parametrize("holds", [0, 1, 3])
def test_a_profile_that_lost_its_marks_is_refused(holds: int) -> None:
    """Without both holds nobody knows where the measured block begins."""
    events = [*(hold(10.0 * number) for number in range(holds)), event(1000, 1.0)]
    with pytest.raises(CaseFailedError, match=rf"saw {holds} of the 2 kernels named 'spin_kernel'.*use another timer"):
        sum_measured_us(events)


def test_a_block_without_work_is_refused() -> None:
    """A time of zero is no time."""
    with pytest.raises(CaseFailedError, match="saw no kernel, copy or memory set in a whole block of calls"):
        sum_measured_us([hold(0), event(5, 1.0), hold(10)])


def test_a_block_is_as_long_as_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each profile holds two blocks behind a hold each; the first hold of all, which calibrates, is in none of them."""
    done: list[str] = []

    def profiled(work: Callable[[], None]) -> list[dict[str, Any]]:
        done.append("profile")
        before = len(done)
        work()
        times = enumerate(done[before:])
        return [hold(1000.0 * at) if what == "hold" else event(1000.0 * at, 20.0) for at, what in times]

    monkeypatch.setattr(profiler, "hold_stream", lambda launch_us: done.append("hold"))
    monkeypatch.setattr(trace, "profile_events", profiled)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer = ProfilerTimer()
    timer.prepare(lambda: done.append("call"), 150.0)
    assert done.index("hold") < done.index("profile")
    assert timer.calls_per_block == 8
    done.clear()
    assert timer.measure(2) == [20.0, 20.0]
    assert done == ["profile", *(["hold"] + ["call"] * 8) * 2] * 2


@pytest.mark.gpu
def test_kernel_time_is_not_more_than_a_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small kernels take less in kernels alone than with the gaps between them; the process is spent."""
    monkeypatch.setattr(trace, "_used", [])
    value = torch.ones(1 << 16, device="cuda")

    def call() -> torch.Tensor:
        out = value
        for _ in range(10):
            out = out * 1.5
        return out

    graph, kernels = GraphTimer(), ProfilerTimer()
    graph.prepare(call, 600.0)
    graph_us = sorted(graph.measure(9))[4]
    graph.close()
    assert not trace.was_profiler_used()
    kernels.prepare(call, 600.0)
    assert kernels.calls_per_block > 5
    kernels_us = sorted(kernels.measure(3))[1]
    assert trace.was_profiler_used()
    assert 0.2 * graph_us < kernels_us < 1.1 * graph_us
    assert bool((kernels.run_once() > 1).all())
    kernels.close()
