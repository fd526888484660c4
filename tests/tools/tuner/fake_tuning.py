"""Tuning without a device: a backend with a space, and pools whose times depend on the pinned candidate.

    surface = Surface({"BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64)}, default={"BLOCK_M": 128, "BLOCK_N": 64})
    surface.us = lambda values, workload: 100.0 if values["BLOCK_M"] == 64 else 130.0
    pool = FakeTuningPool(surface, process_sd=0.005)

Every place of a pool is a process of its own, whose placement scales its times by one factor per candidate and
workload, drawn from the pool's seed. `surface.fault` breaks candidates: it returns a fault of `testing.fake_device`,
'died' for a candidate that ends its process, or 'ignores' for a backend that runs with its default.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.kernel_builds import KernelBuild
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, ProcessSummary, Role
from pytest_attnperf.testing.fake.backends import FakeTunableBackend
from pytest_attnperf.testing.fake.device import FakeSubject
from pytest_attnperf.tuning_records import Candidate, TuningSpace, Value
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.local import LocalCase
from pytest_attnperf.workloads.base import Workload
from pytest_attnperf.workloads.prefill import Prefill

DEVICE = DeviceInfo("cpu", "fake", "fake1", device_id="fake-0")
NAME = "fake.tunable"

Values = Mapping[str, Value]


def served_workload(seq: int) -> Prefill:
    """Returns a prefill workload of sequence length `seq` with one head of 16 elements."""
    return Prefill(batch=1, seq_q=seq, heads=1, head_dim=16)


@dataclass
class Surface:
    """A space, the time of every candidate on every workload (by sequence length), and the faults of some.

    serves   returns whether the tuned rule serves a workload of this length
    """

    values: Mapping[str, tuple[Value, ...]]
    default: Values
    us: Callable[[Values, int], float] = lambda values, seq: 100.0
    fault: Callable[[Values, int], str] = lambda values, seq: ""
    serves: Callable[[int], bool] = lambda seq: True
    builds: Callable[[Values], Sequence[KernelBuild]] = lambda values: ()

    def read_values(self, pin: Mapping[str, str]) -> Values:
        """Returns {parameter: value} of the candidate that a pin holds as texts. Raises KeyError for a missing
        parameter, StopIteration for an unknown value."""
        return {name: next(v for v in known if str(v) == pin[name]) for name, known in self.values.items()}


@dataclass(frozen=True)
class FakeTunable(FakeTunableBackend):
    """A Tunable over a surface."""

    surface: Surface = field(kw_only=True, compare=False)

    def tuning_space(
        self, workloads: Sequence[Workload], arch: str, *, kernel: str = "", when: Mapping[str, Value] | None = None
    ) -> TuningSpace:
        """Returns the values and the default of `surface` as a space to tune."""
        return TuningSpace("fake_kernel", self.surface.values, Candidate(dict(self.surface.default)))

    def tuning_serves(
        self, workload: Workload, space: TuningSpace, arch: str, when: Mapping[str, Value] | None = None
    ) -> bool:
        """Returns whether `surface.serves` takes the workload's sequence length."""
        assert isinstance(workload, Prefill)
        return self.surface.serves(workload.seq_q)

    def tuning_builds(
        self, candidate: Candidate, space: TuningSpace, workload: Workload, arch: str
    ) -> Sequence[KernelBuild]:
        """Returns what `surface.builds` returns for the candidate's values: () by default."""
        return self.surface.builds(candidate.values)


@dataclass
class FakeTuningPool:
    """A Pool without processes.

    opened   (place, workload, pin) of every case, in order; `ended` counts calls of `shutdown`
    script   replaces entries of the fake device's script; `config` those of the reported configuration
    """

    surface: Surface
    process_sd: float = 0.0
    seed: str = ""
    starts: bool = True
    role: Role = Role.INTERPRET
    cases: tuple[CaseKey, ...] = ()
    opened: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)
    ended: int = 0
    on_case: Callable[[OpenRequest], None] = lambda request: None
    script: dict[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """Yields a conversation with a case whose time and fault are those that `surface` gives for the pinned
        candidate; appends (place, workload, pin) to `opened`. Raises WorkerError for the fault 'died'."""
        self.on_case(request)
        self.opened.append((place, request.key.workload, dict(request.pin)))
        seq = int(request.key.workload.partition("-s")[2].partition("-")[0])
        fault = self.surface.fault(self.surface.read_values(request.pin), seq)
        if fault == "died":
            raise WorkerError("worker 0 died during 'check': killed by SIGSEGV")
        pin = {name: str(value) for name, value in self.surface.default.items()} if fault == "ignores" else request.pin
        draw = random.Random(f"{self.seed}-{place}-{sorted(request.pin.items())}-{request.key}")
        script = {"time_us": self.surface.us(self.surface.read_values(pin), seq), "fault": fault, **self.script}
        seeds = (request.check_seed, request.final_seed)
        subject = FakeSubject(script, 1 + draw.gauss(0, self.process_sd), seeds, pin={**pin, **self.config})
        try:
            yield LocalCase(subject, served_workload(seq), request.repeats)
        except RuntimeError as error:  # as a worker would report it
            raise CaseFailedError(f"{type(error).__name__}: {error}") from error

    def wait_until_ready(self, place: int) -> Ready:
        """Returns the identity of the process at a place, 1000 + `place` as its number. Raises WorkerError if `starts`
        is False."""
        if not self.starts:
            raise WorkerError(f"worker {place} could not start: no suite")
        return Ready(1000 + place, self.role, DEVICE, Fingerprint({"arch": "fake"}, {}), self.cases)

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Returns {}, because this pool measures no canaries."""
        return {}

    def start(self, places: Sequence[int]) -> None:
        """Does nothing: there are no processes."""

    def last_ready(self) -> Ready | None:
        """Returns what `wait_until_ready` returns for place 0, never None."""
        return self.wait_until_ready(0)

    def shutdown(self) -> None:
        """Counts the call in `ended`."""
        self.ended += 1


def key_of(seq: int) -> CaseKey:
    """Returns the case key of the tunable backend on the workload of sequence length `seq`."""
    return CaseKey("prefill", NAME, served_workload(seq).id)
