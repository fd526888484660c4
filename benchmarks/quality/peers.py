"""The usual ways of timing a call, each as its own documentation says, on calls that were prepared in this process.

A function takes case -> call and how the device is waited for, and returns case -> numbers in microseconds.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
Calls = Mapping[str, Call]
Wait = Callable[[], None]


@dataclass(frozen=True)
class Number:
    """What a tool says of one call: microseconds, and for nvbench the relative standard deviation beside it."""

    us: float
    noise: float | None = None


def do_bench(calls: Calls) -> dict[str, Number]:
    """The median of `triton.testing.do_bench` with its defaults: a flushed cache before each call, between events."""
    from triton.testing import do_bench as bench

    return {case: Number(1e3 * float(bench(call, return_mode="median"))) for case, call in calls.items()}


TEST = """
def test_call(benchmark, timed, record):
    benchmark(timed)
    record(benchmark.stats.stats.median)
"""


class _Timed:
    """A plugin of a small pytest: one test of each call, around a call and a wait for the device."""

    def __init__(self, calls: Calls, wait: Wait) -> None:
        self.calls, self.wait = calls, wait
        self.found: dict[str, Number] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One item for each case."""
        functions = [self._function(case) for case in self.calls]
        metafunc.parametrize(("timed", "record"), functions, ids=list(self.calls))

    def _function(self, case: str) -> tuple[Call, Callable[[float], None]]:
        call, wait = self.calls[case], self.wait

        def timed() -> None:
            call()
            wait()

        def record(seconds: float) -> None:
            self.found[case] = Number(1e6 * seconds)

        return timed, record


def pytest_benchmark(calls: Calls, wait: Wait, seconds: float) -> dict[str, Number]:
    """The median of pytest-benchmark itself, of a call and a wait for the device, in rounds of `seconds` together.

    Its own default is a second a case (--benchmark-max-time). Raises RuntimeError with what pytest said.
    """
    import pytest

    plugin, said = _Timed(calls, wait), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said), _without_settings():
        test = Path(folder) / "test_call.py"
        test.write_text(TEST)
        options = ["-p", "no:attnperf", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-q"]
        options += [f"--rootdir={folder}", "-c", os.devnull, "--import-mode=importlib", str(test)]
        options += [f"--benchmark-max-time={seconds}", f"--benchmark-storage=file://{folder}"]
        status = pytest.main(options, plugins=[plugin])
    if status or len(plugin.found) < len(calls):
        raise RuntimeError(f"pytest-benchmark ended with {status}:\n{said.getvalue()}")
    return plugin.found


@contextlib.contextmanager
def _without_settings() -> Any:
    """Hide what the caller's environment says to pytest."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PYTEST_")}
    try:
        yield
    finally:
        os.environ.update(kept)


NVBENCH = "66212f1da71c"
"""The revision of github.com/NVIDIA/nvbench whose rules are followed here (2026-08-12)."""
MIN_SAMPLES = 10
SAMPLES_FOR_NOISE = 5
MAX_NOISE, MIN_TIME_S = 0.005, 0.5
STABLE_WINDOW, STABLE_EVERY, STABLE_SHARE = 64, 16, 0.05


@dataclass
class StdRel:
    """nvbench's default stopping criterion (nvbench/detail/stdrel_criterion.cxx): enough time measured, and the
    relative standard deviation below half a per cent or no longer changing."""

    samples: list[float] = field(default_factory=list)
    _noise: deque[float] = field(default_factory=lambda: deque(maxlen=512))
    _mean: float = 0.0
    _squares: float = 0.0

    def add(self, seconds: float) -> None:
        """One more sample."""
        self.samples.append(seconds)
        count = len(self.samples)
        apart = seconds - self._mean
        self._mean += apart / count
        self._squares += apart * (seconds - self._mean)
        if count >= SAMPLES_FOR_NOISE:
            self._noise.append(math.sqrt(self._squares / (count - 1)) / self._mean)

    def finished(self) -> bool:
        """Whether enough is known."""
        count = len(self.samples)
        if count < MIN_SAMPLES or not self._noise or self._mean * count <= MIN_TIME_S:
            return False
        if self._noise[-1] < MAX_NOISE:
            return True
        if len(self._noise) <= STABLE_WINDOW or count % STABLE_EVERY:
            return False
        return statistics.pstdev(self._noise) < STABLE_SHARE * statistics.fmean(self._noise)

    def number(self) -> Number:
        """Mean and relative standard deviation, as nvbench's summaries give them."""
        mean = statistics.fmean(self.samples)
        return Number(1e6 * mean, statistics.stdev(self.samples) / mean if len(self.samples) > 1 else None)


def nvbench(calls: Calls, sample: Callable[[Call], float], seconds: float) -> dict[str, Number]:
    """nvbench's cold measurement: samples until its criterion is met, or `seconds` have passed (its timeout is 15)."""
    return {case: _cold(call, sample, seconds) for case, call in calls.items()}


def _cold(call: Call, sample: Callable[[Call], float], seconds: float) -> Number:
    criterion, began = StdRel(), time.perf_counter()
    sample(call)
    while not criterion.finished():
        criterion.add(sample(call))
        if time.perf_counter() - began > seconds and len(criterion.samples) > 1:
            break
    return criterion.number()


def sampler(torch_device: str) -> Callable[[Call], float]:
    """How one sample is taken: on a GPU an isolated call between two events behind a flushed cache; else by the host.

    nvbench keeps the stream waiting until both events are enqueued, so that no launch is timed. A spinning kernel does
    that here. A sample for which the host was slower than this kernel is taken again, behind a longer one.
    """
    if torch_device == "cpu":
        return _by_the_host
    import torch

    properties = torch.cuda.get_device_properties(0)
    flush = torch.empty(max(1, properties.L2_cache_size), dtype=torch.uint8, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def attempt(call: Call, spin_s: float) -> tuple[float, float]:
        """(seconds on the device, seconds that the host took to enqueue)."""
        flush.zero_()
        torch.cuda.synchronize()
        began = time.perf_counter()
        torch.cuda._sleep(int(CYCLES_A_SECOND_MOST * spin_s))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        host_s = time.perf_counter() - began
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3, host_s

    return functools.partial(_unexposed, attempt)


CYCLES_A_SECOND_MOST = 2e9
"""Of an H100 or H200; at a lower clock a spin takes longer, which does no harm."""
SPIN_S, SPIN_MOST_S = 2e-4, 0.05


def _unexposed(attempt: Callable[[Call, float], tuple[float, float]], call: Call) -> float:
    """A sample whose launch the spinning has covered. Raises RuntimeError where no spin is long enough."""
    spin_s = SPIN_S
    while spin_s <= SPIN_MOST_S:
        device_s, host_s = attempt(call, spin_s)
        if host_s < spin_s:
            return device_s
        spin_s = 2 * max(spin_s, host_s)
    raise RuntimeError(f"the host needs more than {SPIN_MOST_S} s to enqueue a call, behind which nothing can hide")


def _by_the_host(call: Call) -> float:
    """As nvbench measures work of the CPU (nvbench/detail/measure_cpu_only.cuh)."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
