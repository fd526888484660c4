"""Fresh processes, forked from one that has imported everything and touched no device: each measures all cases.

The parent must never initialise the device, nor import `kernels`: each child imports those of its own tree.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.quality import peers
from benchmarks.quality.forks import LIMIT_S, answered, end, fork, received
from pytest_attnperf.backends import Around, Registry
from pytest_attnperf.measure.seeds import timed_seed
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.torch_device import TorchDevice
from pytest_attnperf.measure.warm_up import warm_device
from pytest_attnperf.records import CaseKey, DeviceInfo, ProcessSummary
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import BlockPlan, Conversation, OpenRequest
from pytest_attnperf.workers.interleave import InterleavePlan, PairSide, take_pair
from pytest_attnperf.workers.local import LocalPool
from pytest_attnperf.workers.look import take_look
from pytest_attnperf.workloads.families import parse_workload

SEED_MOST = 2**31


@dataclass(frozen=True)
class Case:
    """A backend on a workload; `edit` names what slows it: one of `slowdowns.EDITS`, or SPIN."""

    backend: str
    workload: str
    edit: str

    @property
    def name(self) -> str:
        """'backend/workload'."""
        return f"{self.backend}/{self.workload}"

    @property
    def key(self) -> CaseKey:
        """As workers name it."""
        return CaseKey("gate_quality", self.backend, self.workload, "")


END = "end"

SPIN = "spin"
"""Slows a case on a CPU: after each call the host spins for a known time."""


@dataclass(frozen=True)
class Variant:
    """One state of the code: a tree that holds `kernels`, and nanoseconds that calls of a case spin for."""

    tree: Path
    spin_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Spun(Around):
    """A backend whose calls spin for `spin_ns` nanoseconds more."""

    spin_ns: int = 0

    def prepare(self, workload: Any, inputs: Any) -> Any:
        """The call, and then nothing for a while."""
        prepared = self.backend.prepare(workload, inputs)

        def slowed(*tensors: Any) -> Any:
            result = prepared.call(*tensors)
            until = time.perf_counter_ns() + self.spin_ns
            while time.perf_counter_ns() < until:
                pass
            return result

        return replace(prepared, call=slowed)


def backend_of(variant: Variant, case: Case) -> Any:
    """The backend of a case from this variant's tree, whatever tree was used before in this process."""
    if sys.path[0] != str(variant.tree):
        for name in [name for name in sys.modules if name == "kernels" or name.startswith("kernels.")]:
            del sys.modules[name]
        sys.path.insert(0, str(variant.tree))
    import kernels

    if Path(kernels.__file__).resolve().parents[1] != variant.tree.resolve():
        raise RuntimeError(f"kernels come from {kernels.__file__}, wanted {variant.tree}")
    registry = Registry()
    kernels.register(registry)
    backend = registry.get(case.backend)
    spin_ns = variant.spin_ns.get(case.name, 0)
    return Spun(backend, spin_ns) if spin_ns else backend


class Served:
    """A fresh process that measures in turns with another one: a Pool of one place, for `take_pair`."""

    def __init__(self, variant: Variant, device: str) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        ours = self._pipe
        self._pid = fork(lambda: (ours.close(), _serve(theirs, variant, device)))
        theirs.close()
        self._ready: Ready | None = None

    def wait_until_ready(self, place: int) -> Ready:
        """What it runs on."""
        self._ready = self._ready or self.asked("ready")
        return self._ready

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """A conversation about a case."""
        self.asked("case", request)
        yield _Remote(self)  # type: ignore[misc]

    def asked(self, method: str, *arguments: Any, **named: Any) -> Any:
        """The answer to one question. Raises RuntimeError with the traceback that the process had."""
        self._pipe.send((method, arguments, named))
        return received(self._pipe, LIMIT_S)

    def close(self) -> None:
        """End it. It is told so: a process that was forked later holds a copy of this pipe, and keeps it open."""
        self._pipe.send((END, (), {}))
        self._pipe.close()
        end(self._pid)


class _Remote:
    """A Conversation whose questions are answered by a `Served` process."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments, **named: self._served.asked(method, *arguments, **named)


def _serve(pipe: Connection, variant: Variant, device: str) -> None:
    pool, case = LocalPool(TorchDevice.open(device, interpreted=False)), None
    while True:
        method, arguments, named = pipe.recv()
        if method == END:
            return
        if method == "ready":
            pipe.send(answered(lambda: pool.wait_until_ready(0)))
        elif method == "case":
            request = arguments[0]

            def opened(request: OpenRequest = request) -> None:
                nonlocal case
                key = request.key
                backend = backend_of(variant, Case(key.backend, key.workload, ""))
                pool.bound = (backend, parse_workload(key.workload))
                case = pool.case_at(0, request).__enter__()

            pipe.send(answered(opened))
        else:
            pipe.send(answered(lambda: getattr(case, method)(*arguments, **named)))  # noqa: B023


@dataclass(frozen=True)
class Measured:
    """What one process measured: method -> case -> number; the summaries of ours; seconds that each method took."""

    numbers: Mapping[str, Mapping[str, peers.Number]]
    ours: Mapping[str, ProcessSummary]
    seconds: Mapping[str, float]
    failed: tuple[str, ...] = ()


OURS, DO_BENCH, PYTEST_BENCHMARK, NVBENCH = METHODS = ("attnperf", "do_bench", "pytest_benchmark", "nvbench")


def measure_process(
    variant: Variant, device: str, cases: Sequence[Case], first: int, peer_seconds: float, methods: Sequence[str]
) -> Measured:
    """All methods on all cases in this process, one after another; `first` says which begins, so that it changes.

    Ours comes last: proving and watching calls leave the host slower, which replays of graphs do not notice and calls
    do.

    peer_seconds    for one case by pytest-benchmark, and by nvbench

    Runs in a child. A case that failed is named, and has no numbers.
    """
    opened = TorchDevice.open(device, interpreted=False)
    pool = LocalPool(opened)
    others = [method for method in methods if method != OURS]
    start = first % max(1, len(others))
    order = [*others[start:], *others[:start], *(method for method in methods if method == OURS)]
    numbers: dict[str, dict[str, peers.Number]] = {}
    ours: dict[str, ProcessSummary] = {}
    seconds, failed = {}, []
    calls: dict[str, Callable[[], Any]] = {}
    for method in order:
        gc.collect()
        began = time.perf_counter()
        if method == OURS:
            for case in cases:
                answer = answered(lambda: our_summary(variant, pool, case))  # noqa: B023
                if answer[0]:
                    ours[case.name] = answer[1]
                else:
                    failed.append(f"{case.name}: {answer[1].strip().splitlines()[-1]}")
        else:
            calls = calls or plain_calls(variant, opened.device, cases)
            numbers[method] = _by_peer(method, calls, opened.device, peer_seconds)
        seconds[method] = time.perf_counter() - began
    return Measured(numbers, ours, seconds, tuple(failed))


def _by_peer(method: str, calls: peers.Calls, device: DeviceInfo, seconds: float) -> dict[str, peers.Number]:
    if method == DO_BENCH:
        return peers.do_bench(calls)
    if method == PYTEST_BENCHMARK:
        return peers.pytest_benchmark(calls, waiting(device), seconds)
    return peers.nvbench(calls, peers.sampler(device.torch_device), seconds)


def waiting(device: DeviceInfo) -> Callable[[], None]:
    """A function that waits for the device."""
    if device.torch_device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def our_summary(variant: Variant, pool: LocalPool, case: Case) -> ProcessSummary:
    """One look as a worker takes it: proven, blocks, proven again. Raises RuntimeError for a case that is not right."""
    pool.bound = (backend_of(variant, case), parse_workload(case.workload))
    look = take_look(pool, 0, request_of(case), BlockPlan(), profiled=False)
    if look.summary is None:
        raise RuntimeError(f"{look.ending.value}: {'; '.join(look.reasons) or look.note}")
    return replace(look.summary, process=f"pid {os.getpid()}")


def request_of(case: Case) -> OpenRequest:
    """A case with fresh seeds of its checks."""
    chance = random.SystemRandom()
    return OpenRequest(case.key, None, chance.randrange(SEED_MOST), chance.randrange(SEED_MOST))


def plain_calls(variant: Variant, device: DeviceInfo, cases: Sequence[Case]) -> dict[str, Callable[[], Any]]:
    """Case -> its call with inputs bound, called once; cases that are not supported are left out."""
    calls = {}
    for case in cases:
        backend, workload = backend_of(variant, case), parse_workload(case.workload)
        if backend.unsupported_reasons(workload, device):
            continue
        inputs = workload.make_inputs(timed_seed(workload), device.torch_device, planted=False)
        prepared = backend.prepare(workload, inputs)
        prepared.run()
        calls[case.name] = prepared.run
    waiting(device)()
    return calls


def compiled(variant: Variant, device: str, cases: Sequence[Case]) -> int:
    """Compile every case of a variant by calling it once; runs in a child, where nothing is timed."""
    return len(plain_calls(variant, TorchDevice.open(device, interpreted=False).device, cases))


QUADS, SIZE_BLOCK_US = 12, 1000.0


def ratios(
    base: Variant, variants: Sequence[Variant], device: str, cases: Sequence[Case]
) -> list[dict[str, tuple[float, float]]]:
    """Of each variant: case -> (new over base, base microseconds), A B B A in this one process, on the same inputs.

    Runs in a child, apart from everything that the gate decides by. Each side's graph is captured as soon as its kernel
    is loaded; replays run no Python, so that no tree can load anything of another one.
    """
    opened = TorchDevice.open(device, interpreted=False).device
    warm_device(opened.torch_device)
    found: list[dict[str, tuple[float, float]]] = [{} for _ in variants]
    for case in cases:
        workload = parse_workload(case.workload)
        inputs = workload.make_inputs(timed_seed(workload), opened.torch_device, planted=False)
        timers, kept = [], []  # a graph reads what was there when it was captured: it must stay as long
        for variant in (base, *variants):
            backend = backend_of(variant, case)
            prepared = backend.prepare(workload, inputs)
            kept.append((backend, prepared, prepared.run()))
            timers.append(choose_timer(opened.torch_device, prepared.run, SIZE_BLOCK_US))
        for index, timer in enumerate(timers[1:]):
            found[index][case.name] = _ratio(timers[0], timer)
        for timer in timers:
            timer.close()
        kept.clear()
    return found


def _ratio(base: Any, new: Any) -> tuple[float, float]:
    found, base_us = [], []
    for quad in range(QUADS):
        outer, inner = (base, new) if quad % 2 == 0 else (new, base)
        first, second, third, fourth = (timer.measure(1)[0] for timer in (outer, inner, inner, outer))
        own, other = first + fourth, second + third
        found.append(other / own if outer is base else own / other)
        base_us.append((own if outer is base else other) / 2)
    return statistics.median(found), statistics.median(base_us)


def measure_pair(
    base: Variant, new: Variant, device: str, cases: Sequence[Case], place: int, plan: InterleavePlan
) -> tuple[dict[str, PairSummary], list[str]]:
    """Two fresh processes that take turns, as the gate's: case -> pair, and why a case has none."""
    sides = [Served(base, device), Served(new, device)]
    found, failed = {}, []
    try:
        base_side, new_side = PairSide(sides[0], "base"), PairSide(sides[1], "candidate")  # type: ignore[arg-type]
        for case in cases:
            good, look = answered(
                lambda: take_pair(base_side, new_side, place, request_of(case), plan, at_once=False)  # noqa: B023
            )
            if good and look.pair is not None:
                found[case.name] = look.pair
            else:
                why = (
                    (*look.problems, *look.base.reasons, *look.new.reasons) if good else look.strip().splitlines()[-1:]
                )
                failed.append(f"{case.name}: {'; '.join(why)}")
    finally:
        for side in sides:
            side.close()
    return found, failed
