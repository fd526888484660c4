"""`--attnperf-isolate=none`: the case runs in the pytest process itself, where a debugger reaches it. Never gates."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.records import CheckReport, FinalReport, ProcessSummary, Role, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import BlockPlan, Closed, Conversation, Opened, OpenRequest
from pytest_attnperf.workers.device import Device, prepare_or_reasons

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.measure.subject_protocol import Subject
    from pytest_attnperf.workloads.base import Workload


@dataclass
class LocalPool:
    """A Pool of one: this process. `bound` is the case whose body is running."""

    device: Device | None = None
    bound: tuple[Backend, Workload] | None = None
    _known: Ready | None = None

    def case_at(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """The case that is running."""
        return self._make_case(request)

    @contextlib.contextmanager
    def _make_case(self, request: OpenRequest) -> Iterator[Conversation]:
        assert self.device is not None
        assert self.bound is not None
        backend, workload = self.bound
        seeds = (request.check_seed, request.final_seed)
        yield LocalCase(self.device.subject(backend, workload, seeds), workload, request.repeats)

    def wait_until_ready(self, place: int) -> Ready:
        """This process."""
        if self._known is None:
            assert self.device is not None
            info = self.device.info()
            role = Role.DEVICE if info.kind != "cpu" else Role.INTERPRET
            self._known = Ready(os.getpid(), role, info, self.device.fingerprint(), ())
        return self._known

    def last_ready(self) -> Ready | None:
        """This process, once it has been asked."""
        return self._known

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Not measured: a run in this process never gates."""
        return {}

    def start(self, places: Sequence[int]) -> None:
        """Nothing to start."""

    def shutdown(self) -> None:
        """Nothing to end."""


@dataclass
class LocalCase:
    """A Conversation that calls the subject directly; what it raises arrives with its own traceback."""

    subject: Subject
    workload: Workload
    repeats: int = 0

    def open(self) -> Opened:
        """Build and compile when supported."""
        reasons = prepare_or_reasons(self.subject)
        workload = self.workload
        figures = WorkloadFigures(
            workload.flops, workload.bytes_min, workload.dtype, workload.cache_state, workload.definition()
        )
        if reasons:
            return Opened("open", tuple(reasons), figures=figures)
        return Opened("open", (), self.subject.not_timed_reason(), figures, self.subject.list_kernel_objects())

    def check(self, *, profiled: bool = False) -> CheckReport:
        """Prove the case right."""
        return self.subject.check(profiled=profiled, repeats=self.repeats)

    def measure_rotation(self, block_us: float) -> Rotation:
        """Measure on inputs that change before every call."""
        return self.subject.measure_rotation(block_us)

    def measure_blocks(self, plan: BlockPlan) -> Samples:
        """Measure."""
        with _wrong_as_timed():
            return self.subject.measure_blocks(plan.max_blocks, plan.block_us, plan.budget_us, plan.timer)

    def measure_stages(self, block_us: float) -> Breakdown:
        """Measure the stages of the call."""
        with _wrong_as_timed():
            return self.subject.measure_stages(block_us)

    def profile(self) -> CaseProfile:
        """Profile the call."""
        return self.subject.profile()

    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan:
        """Make ready for turns."""
        with _wrong_as_timed():
            return self.subject.prepare_turns(block_us, timer)

    def measure_turn(self, place: int) -> Turn:
        """Measure one turn."""
        return self.subject.measure_turn(place)

    def finish(self) -> FinalReport:
        """Check the last replay."""
        return self.subject.finish()

    def close(self) -> Closed:
        """The body goes on after the rendezvous."""
        return Closed("passed")


@contextlib.contextmanager
def _wrong_as_timed() -> Iterator[None]:
    """A case's own error with a report becomes what a worker's answer with one does."""
    try:
        yield
    except CaseFailedError as error:
        report = getattr(error, "report", None)
        if report is None:
            raise
        raise WrongAsTimedError(error.summary, report) from error


class LocalServer:
    """What the `attnperf` fixture talks to in this process."""

    def __init__(self, pool: LocalPool, judge: Callable[[], None]) -> None:
        self._pool = pool
        self._judge = judge
        self._met = False

    def serve_case(self, backend: Backend, workload: Workload) -> None:
        """Judge the case where it stands. Raises UsageError on a second call in one test."""
        if self._met:
            raise UsageError("attnperf.run() or attnperf.gate() was called twice in one test; a test is one case")
        self._met = True
        self._pool.bound = (backend, workload)
        self._judge()
