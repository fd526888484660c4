"""A bench without a device: scripted times, a bias per process, noise, failures, and a clock that it advances.

    FakeBench({"BLOCK=64": 100.0, "BLOCK=32": 80.0}, process_sd=0.0055)

A process draws one bias for everything it times (clock) and one per candidate and workload (placement), from its number
and `seed`: trials repeated in one process agree within `noise`, two processes differ by `process_sd`, and a test gets
the same numbers every time. No device, no torch.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.tuning_records import Candidate, Trial

Times = Mapping[str, float] | Callable[[Candidate, str], float]


class FakeClock:
    """A clock that tests advance: call it for the time, add to `now`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Returns `now`, in seconds, which only tests and trials advance."""
        return self.now


@dataclass
class FakeBench:
    """Implements `tuner.trial_bench.Bench`.

    times        microseconds by candidate id, the same on all workloads, or a function of candidate and workload
    process_sd   relative standard deviation between processes, of a candidate on a workload
    shared_sd    the same for the bias that all trials of a process share
    noise        between two trials of one process
    drift        relative change from one trial of a process to the next
    failures     text by candidate id, or by 'id@workload': such a trial fails with it
    deaths       by candidate id: how many of its first trials end their worker
    seconds      of a trial on `clock`
    dies_after   after this many trials nothing can be measured any more
    interrupt    called before every trial: raise in it to kill the tuner there
    calls        every trial: (lane, process, candidate id, workload)
    """

    times: Times
    lanes: int = 1
    process_sd: float = 0.0
    shared_sd: float = 0.0
    noise: float = 0.0
    drift: float = 0.0
    seed: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    clock: FakeClock = field(default_factory=FakeClock)
    dies_after: int | None = None
    interrupt: Callable[[int], None] | None = None
    calls: list[tuple[int, int, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._guard = threading.Lock()
        self._in_process: dict[int, int] = {}

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """Records a call and returns the trial: a scripted time in microseconds, or the scripted failure as text.
        Raises WorkerError after `dies_after` trials."""
        with self._guard:
            if self.interrupt is not None:
                self.interrupt(len(self.calls))
            if self.dies_after is not None and len(self.calls) >= self.dies_after:
                raise WorkerError("no worker can be started any more")
            self.calls.append((lane, process, candidate.id, workload))
            self.clock.now += self.seconds
            count = self._in_process[process] = self._in_process.get(process, -1) + 1
            failure = self.failures.get(candidate.id, self.failures.get(f"{candidate.id}@{workload}", ""))
            if not failure and self.deaths.get(candidate.id, 0) > 0:
                self.deaths[candidate.id] -= 1
                failure = "died: the worker ended with signal 9"
        if failure:
            return Trial(candidate, workload, process, None, failure)
        return Trial(candidate, workload, process, self._scripted_time(process, candidate, workload, count))

    def _scripted_time(self, process: int, candidate: Candidate, workload: str, count: int) -> float:
        true = self.times(candidate, workload) if callable(self.times) else self.times[candidate.id]
        bias = self._draw_noise(self.process_sd, process, candidate.id, workload)
        bias += self._draw_noise(self.shared_sd, process)
        bias += self._draw_noise(self.noise, process, candidate.id, workload, count)
        return true * (1 + bias) * (1 + self.drift * count)

    def _draw_noise(self, sd: float, *names: object) -> float:
        return random.Random(f"{self.seed}:{names}").gauss(0, sd) if sd else 0.0
