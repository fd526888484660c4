"""Tests how one process times on this device: which timer a call gets, and how long fixed work takes.

All calls use the timers of the cases, so the results also hold for cases. No code under test runs. On a large card a
row softmax of about 10 us, causal attention of about 50 us and a GEMM of about 200 us represent typical suites.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure import placements
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import MAX_BLOCKS, StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.capture import first_line
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.profiler import ProfilerTimer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import Samples

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.measure.timers.timer import Timer

SOFTMAX, ATTENTION, GEMM = "softmax", "attention", "gemm"

BLOCK_US = 1000.0
TRIED_BLOCKS = 7
SEED = 20_240_229

_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "cuda": {SOFTMAX: (4096, 1024), ATTENTION: (4, 16, 1024, 128), GEMM: (4096, 4096)},
    "cpu": {SOFTMAX: (64, 256), ATTENTION: (1, 2, 64, 32), GEMM: (128, 128)},
}
"""Shape that all inputs of a case have: rows and columns; batch, heads, length and head size; a square matrix."""

_INPUTS = {SOFTMAX: 1, ATTENTION: 3, GEMM: 2}

CASES = tuple(_INPUTS)
"""Shortest first."""


@dataclass(frozen=True)
class TimerTest:
    """The results of timing a tiny call as a case is timed.

    timer        'graph', 'event', 'profiler' or 'host': the timer of a capturable call here
    why          why it is no graph; '' if it is one, and on a CPU
    right        whether the timed work gives right results on inputs that changed after it was captured
    empty_us     microseconds of a call of one almost empty kernel
    graph_us, event_us   microseconds of one GEMM by both timers; None without a graph
    stamps       whether kernels can read the clock; `stamps_why` says why not
    """

    timer: str
    why: str
    right: bool
    empty_us: float
    graph_us: float | None
    event_us: float | None
    stamps: bool
    stamps_why: str
    torch: str
    device: str


def timer_test(torch_device: str) -> TimerTest:
    """Chooses a timer for a tiny call on 'cuda' (both vendors) or 'cpu', proves what it replays, and times with it.
    Raises torch's errors if the device cannot be used, CaseFailedError if no timer works."""
    import torch

    stamps_why = _stamps_why(torch_device)  # made before warming: a GPU cools while they are compiled
    warm_device(torch_device)
    values = torch.arange(4096, device=torch_device, dtype=torch.float32)
    timer, why = _choose_working_timer(torch_device, lambda: values * 2 + 1)
    try:
        changed = torch.arange(4096, device=torch_device, dtype=torch.float32).flip(0)
        values.copy_(changed)
        right = bool(torch.equal(timer.run_once(), changed * 2 + 1))
    finally:
        timer.close()
    one = torch.zeros(1, device=torch_device)
    empty_us = _median_us(torch_device, lambda: one.add_(1), timer.name)
    graph_us = event_us = None
    if timer.name == GraphTimer.name:
        call = _make_call(GEMM, torch_device)
        graph_us, event_us = (_median_us(torch_device, call, name) for name in (GraphTimer.name, EventTimer.name))
    name = "CPU" if torch_device == "cpu" else torch.cuda.get_device_name()
    return TimerTest(
        timer=timer.name,
        why=why,
        right=right,
        empty_us=empty_us,
        graph_us=graph_us,
        event_us=event_us,
        stamps=not stamps_why,
        stamps_why=stamps_why,
        torch=torch.__version__,
        device=name,
    )


def noise_samples(torch_device: str) -> dict[str, Samples]:
    """Times softmax, attention and GEMM in this process, as cases are timed; returns the blocks of each by name.

    On a GPU short calls run at several places in memory. Raises CaseFailedError if a call cannot be timed, and torch's
    errors.
    """
    _stamps_why(torch_device)
    warm_device(torch_device)
    return {case: _measure_samples(case, torch_device) for case in CASES}


def _measure_samples(case: str, torch_device: str) -> Samples:
    call = _make_call(case, torch_device)
    warm_up(call, torch_device)
    timer = choose_timer(torch_device, call, BLOCK_US, split=placements.SPLIT)
    timers: list[Timer] = [timer]
    copies = []  # kept as long as the graphs that read them; else all copies would get the same address
    try:
        if not isinstance(timer, GraphTimer):
            with CompileWatch() as watch:
                return sample_blocks(timer, StoppingRule(TRIED_BLOCKS, TRIED_BLOCKS), watch)
        plan, places = placements.make_placement_plan(timer.call_us, MAX_BLOCKS), [timer]
        for _ in range(plan.places - 1):
            copies.append(copy_call(call))
            places.append(timer.make_twin(copies[-1]))
            timers.append(places[-1])
        return placements.measure_places(places, plan.blocks)
    finally:
        for each in timers:
            each.close()


def copy_call(call: functools.partial[Any]) -> functools.partial[Any]:
    """Returns `call` with its tensors copied to other addresses."""
    return functools.partial(call.func, *(tensor.clone() for tensor in call.args))


def _make_call(case: str, torch_device: str) -> functools.partial[Any]:
    """Makes the call 'softmax', 'attention' or 'gemm' on random numbers, bfloat16 on a GPU and float32 on a CPU."""
    import torch

    generator = torch.Generator(torch_device).manual_seed(SEED)
    dtype = torch.float32 if torch_device == "cpu" else torch.bfloat16
    shape = _SIZES[torch_device][case]
    tensors = [torch.randn(shape, generator=generator, device=torch_device, dtype=dtype) for _ in range(_INPUTS[case])]
    functions: dict[str, Callable[..., torch.Tensor]] = {
        SOFTMAX: lambda rows: torch.softmax(rows, dim=-1),
        ATTENTION: lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        GEMM: torch.matmul,
    }
    return functools.partial(functions[case], *tensors)


def _choose_working_timer(torch_device: str, call: Callable[[], Any]) -> tuple[Timer, str]:
    """Returns (the timer that a case with this call would get, why that does not replay a graph, or '').
    It is the profiler's timer if neither a graph nor events work on this GPU."""
    warm_up(call, torch_device)
    try:
        timer = choose_timer(torch_device, call, BLOCK_US)
    except (AttnperfError, RuntimeError) as error:
        if torch_device == "cpu":
            raise
        return choose_timer(torch_device, call, BLOCK_US, asked=ProfilerTimer.name), first_line(error)
    return timer, timer.note


def _median_us(torch_device: str, call: Callable[[], Any], name: str) -> float:
    warm_up(call, torch_device)
    timer = choose_timer(torch_device, call, BLOCK_US, asked=name)
    try:
        if torch_device != "cpu":
            time.sleep(placements.REST_SECONDS)  # both timers of a GEMM begin at the clock of a rested GPU
        with CompileWatch() as watch:
            return statistics.median(sample_blocks(timer, StoppingRule(TRIED_BLOCKS, TRIED_BLOCKS), watch).block_us)
    finally:
        timer.close()


def _stamps_why(torch_device: str) -> str:
    from pytest_attnperf.measure.clock_stamps import open_clock_stamps

    return open_clock_stamps(torch_device)[1]
