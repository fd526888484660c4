"""Jitter: the call again, many times on the same inputs, while a neighbour computes, and with delays between launches.

A kernel that reads what another thread, stream or block has not finished is right as long as that one is quick. A
neighbour takes processors and bandwidth away from some of the call's work, and a delay holds one launch back while the
others go on. Each result is compared with a right one, as in `Judge.check_again`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_attnperf.correctness.repeated_calls import CallRepeats
from pytest_attnperf.measure.flight_recorder import watch_launches, watch_operators
from pytest_attnperf.measure.patching import Patch, Patches
from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.trials import TrialCase, Tried
from pytest_attnperf.records import CheckReport
from pytest_attnperf.records.trials import TrialEnding, TrialResult
from pytest_attnperf.workloads.base import in_place

if TYPE_CHECKING:
    import torch

NAME = "jitter"
NEIGHBOUR, REPLAYED, DELAYS = "neighbour", "neighbour, replayed", "delays"

REPEATS = CallRepeats(calls_least=20, seconds_least=0.0, seconds_most=0.4)
"""Calls of each variant."""

CALL_SECONDS_MOST = REPEATS.seconds_most / REPEATS.calls_least
"""A slower call is left out: too few would be made in that time."""

TIMINGS, HOPELESS = 3, 4.0
"""Calls that are timed until one is quick enough, on a machine on which others compute; one that takes so many times
as long as it may is the last."""


def run_trial(case: TrialCase) -> Iterator[Tried]:
    """Yields a result for each variant: WRONG if some of the calls are wrong."""
    variants = {NEIGHBOUR: _judge_beside, DELAYS: _judge_delayed}
    if case.device != "cpu":
        variants = {NEIGHBOUR: _judge_beside, REPLAYED: _judge_replayed, DELAYS: _judge_delayed}
    for variant, judge in variants.items():
        result = TrialResult(NAME, variant)
        yield case.attempt(result, lambda result=result, judge=judge: _judge_if_quick(case, result, judge))  # type: ignore[misc]


def _judge_if_quick(
    case: TrialCase, result: TrialResult, judge: Callable[[TrialCase, TrialResult], Tried | CheckReport]
) -> Tried | CheckReport:
    slow = _describe_slow(case)
    return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why=slow)) if slow else judge(case, result)


def _describe_slow(case: TrialCase) -> str:
    """Returns why the calls of a case are too slow to be repeated; '' if the quickest of some is not."""
    seconds: list[float] = []
    for _ in range(TIMINGS):
        case.wait()
        started = time.perf_counter()
        case.prepared.run()
        case.wait()
        seconds.append(time.perf_counter() - started)
        if min(seconds) <= CALL_SECONDS_MOST:
            return ""
        if min(seconds) > HOPELESS * CALL_SECONDS_MOST:
            break
    return f"a call takes {min(seconds):.2g} s; calls of up to {CALL_SECONDS_MOST:g} s are repeated"


def _judge_beside(case: TrialCase, result: TrialResult) -> Tried | CheckReport:
    return _judge_calls(case, result, case.prepared.run, _make_neighbour(case).disturb)


def _judge_replayed(case: TrialCase, result: TrialResult) -> Tried | CheckReport:
    import torch

    if in_place(case.workload):
        return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why="the call writes to its inputs"))
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    warm_up_for_capture(case.prepared.run, stream)
    graph, raw = capture_graph(case.prepared.run, 1, stream)

    def replay() -> Any:
        graph.replay()
        return raw

    return _judge_calls(case, result, replay, _make_neighbour(case).disturb)


def _judge_delayed(case: TrialCase, result: TrialResult) -> CheckReport:
    delays = Delays(case.prover.seeds.check, case.device)
    with delays.count_launches():
        case.prepared.run()
    return _judge_calls(case, result, case.prepared.run, delays.delay_some)


def _judge_calls(
    case: TrialCase,
    result: TrialResult,
    run: Callable[[], Any],
    disturb: Callable[[], AbstractContextManager[Any]],
) -> CheckReport:
    """Judges a call of `run`, and then calls inside contexts that `disturb` makes."""
    judge, check = case.make_judge(case.prepared), f"under {result.variant}"
    first = judge.check_call(check, run, seed=case.prover.seeds.check, planted=True)

    def disturbed() -> Any:
        with disturb():
            return run()

    return judge.check_again(check, disturbed, first, repeats=REPEATS)


def _make_neighbour(case: TrialCase) -> CpuNeighbour | GpuNeighbour:
    seed = case.prover.seeds.check
    return CpuNeighbour(seed) if case.device == "cpu" else GpuNeighbour(seed)


LIFETIME_SECONDS = 0.05
"""Threads beside a call end after this, so that they cost a call of many operators no more."""

INTERVALS = (5e-3, 1e-6, 5e-3)
"""Seconds that a thread may keep the interpreter's lock, in turns."""

ELEMENTS = 1 << 18
"""Elements of the copies: more than the private caches of a core hold."""


@dataclass
class CpuNeighbour:
    """Threads of this process that compute and copy while a call runs, in turns with much, little or nothing of the
    interpreter's lock, on all processors or on the one that the call gets, beside operators of few or many threads."""

    seed: int
    _calls: Iterator[int] = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def disturb(self) -> Iterator[None]:
        """Runs the neighbour of the next turn while the context is open. All settings are put back at its end."""
        turn, stop = next(self._calls), threading.Event()
        draw = random.Random(self.seed + turn)
        works = ((_spin, _spin), (_spin, _copy), (_copy, _copy))[turn % 3]
        threads = [threading.Thread(target=work, args=(stop,)) for work in works]
        with _few_threads(draw), _own_processor(draw.random() < 0.5):
            interval = sys.getswitchinterval()
            sys.setswitchinterval(INTERVALS[turn % len(INTERVALS)])
            try:
                for thread in threads:
                    thread.start()
                yield
            finally:
                sys.setswitchinterval(interval)
                stop.set()
                for thread in threads:
                    thread.join()


def _spin(stop: threading.Event) -> None:
    """Computes in Python, which holds the interpreter's lock."""
    end = time.monotonic() + LIFETIME_SECONDS
    while not stop.is_set() and time.monotonic() < end:
        sum(range(1000))


def _copy(stop: threading.Event) -> None:
    """Computes and copies in torch, which holds no lock, and takes bandwidth."""
    import torch

    end = time.monotonic() + LIFETIME_SECONDS
    with torch.no_grad():
        here, there = torch.ones(ELEMENTS), torch.empty(ELEMENTS)
        while not stop.is_set() and time.monotonic() < end:
            there.copy_(here)
            here.mul_(1.0)


@contextlib.contextmanager
def _few_threads(draw: random.Random) -> Iterator[None]:
    """Gives torch's operators fewer threads inside the context, or as many as usual."""
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(draw.randint(1, usual))
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@contextlib.contextmanager
def _own_processor(wanted: bool) -> Iterator[None]:
    """Keeps this thread, and those that it starts, on one processor inside the context, where the system allows it."""
    usual = os.sched_getaffinity(0)
    try:
        if wanted:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {min(usual)})
        yield
    finally:
        if wanted:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, usual)


@dataclass
class GpuNeighbour:
    """Products and copies of changing size on another stream, in turns before and behind the call in the device's order
    of preference, so that a call's blocks start when and where the neighbour's leave room."""

    seed: int
    _calls: Iterator[int] = field(default_factory=itertools.count)
    _streams: list[Any] = field(default_factory=list)
    _tensors: list[torch.Tensor] = field(default_factory=list)

    SIZES = (512, 1024, 2048, 4096)
    """Rows of the square matrices: from a part of the device to several times what it holds at once."""

    LAUNCHES = 12
    """Launches beside each call: some ms on a large device."""

    @contextlib.contextmanager
    def disturb(self) -> Iterator[None]:
        """Starts the neighbour's work; the call runs beside it. The work ends by itself."""
        import torch

        if not self._streams:
            cuda: Any = torch.cuda
            self._streams = [cuda.Stream(priority=priority) for priority in (0, -1)]
            self._tensors = [torch.ones((size, size), dtype=torch.float16, device="cuda") for size in self.SIZES]
        turn = next(self._calls)
        draw, stream = random.Random(self.seed + turn), self._streams[turn % 2]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            for tensor in draw.choices(self._tensors, k=self.LAUNCHES):
                _ = tensor @ tensor if draw.random() < 0.7 else tensor.clone()
        yield


class Delays:
    """Holds back one launch of each call, another one in every call, and some others a little.

    A launch is a kernel of Triton, of Inductor or of a launcher that uses `flight_recorder.launch`, or an operator of
    torch, on any thread that the call starts. Those of other threads and streams than the call's come first, because
    something has to wait for them. In turns the delay is on the device, in the stream of the launch, or on the host; on
    a CPU it is always on the host.
    """

    LONG_SECONDS = 0.03
    """The delay of one launch: longer than a thread of a busy machine waits for its turn."""

    SHORT_SECONDS, SHORT_COUNT = 1e-4, 10
    """The largest delay of other launches, and how many of a call have one, on average."""

    CLOCK_HZ = 1.5e9
    """Cycles of a device's clock in a second, roughly."""

    def __init__(self, seed: int, device: str) -> None:
        self._draw = random.Random(seed)
        self._on_gpu = device != "cpu"
        self._calls = 0
        self._thread = threading.get_ident()
        self._own = self._find_place()
        self._launches: Counter[Place] = Counter()
        self._known: Counter[Place] = Counter()
        self._order: list[tuple[Place, int]] = []
        self._held_back: tuple[Place, int] | None = None

    @contextlib.contextmanager
    def count_launches(self) -> Iterator[None]:
        """Counts the launches inside the context, which is that of one call, and delays none."""
        self._launches.clear()
        with watch_launches(self._count_launch), Patches(THREADS):
            yield
        self._known = self._launches.copy()

    @contextlib.contextmanager
    def delay_some(self) -> Iterator[None]:
        """Delays some of the launches inside the context, which is that of one call."""
        self._launches.clear()
        self._calls += 1
        self._held_back = self._choose_launch()
        with watch_launches(self._delay_launch), Patches(THREADS):
            yield

    def _find_place(self) -> Place:
        """Returns thread and stream of a launch that is due."""
        import torch

        stream = int(torch.cuda.current_stream().cuda_stream) if self._on_gpu else 0
        return Place(threading.get_ident() == self._thread, stream)

    def _choose_launch(self) -> tuple[Place, int] | None:
        """Returns the launch that is held back; each one comes before any does again. None if none was counted."""
        if not self._order:
            every = [(place, number) for place, count in self._known.items() for number in range(count)]
            self._draw.shuffle(every)
            self._order = sorted(every, key=lambda launch: launch[0] != self._own)  # taken from its end
        return self._order.pop() if self._order else None

    @contextlib.contextmanager
    def _count_launch(self, _name: str) -> Iterator[None]:
        self._launches[self._find_place()] += 1
        yield

    @contextlib.contextmanager
    def _delay_launch(self, _name: str) -> Iterator[None]:
        place = self._find_place()
        launch = place, self._launches[place]
        self._launches[place] += 1
        if launch == self._held_back:
            self._wait(self.LONG_SECONDS)
        elif self._draw.random() * self._known.total() < self.SHORT_COUNT:
            self._wait(self._draw.uniform(0.0, self.SHORT_SECONDS))
        yield

    def _wait(self, seconds: float) -> None:
        if self._on_gpu and self._calls % 2:
            import torch

            torch.cuda._sleep(int(seconds * self.CLOCK_HZ))  # type: ignore[no-untyped-call]
        else:
            time.sleep(seconds)


class Place(NamedTuple):
    """Where a launch comes from.

    own      whether it is the thread that makes the call
    stream   the number of the stream; 0 on a CPU
    """

    own: bool
    stream: int


def _watch_thread(previous: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of a thread, with its torch operators seen as launches, as those of the main thread are."""

    def run(self: Any) -> Any:
        with watch_operators():
            return previous(self)

    return run


THREADS: Sequence[Patch] = (
    Patch("threading", "Thread", "run", _watch_thread),
    Patch("concurrent.futures.thread", "_WorkItem", "run", _watch_thread),
)
"""Where a thread begins, and where one of a pool begins a piece of work: torch's modes are those of one thread."""
