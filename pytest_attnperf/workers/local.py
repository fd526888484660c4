"""`--attnperf-isolate=none`: runs cases in the pytest process itself, for debugging. Such a run never gates."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.errors import CaseFailedError, UsageError
from pytest_attnperf.records import CheckReport, ProcessSummary, Role, Rotation, Samples, WorkloadFigures
from pytest_attnperf.records.costs import NO_COSTS, GatedCosts
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import BlockPlan, Closed, Conversation, Opened, OpenRequest
from pytest_attnperf.workers.device_protocol import Device, prepare_or_reasons

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.measure.subject_protocol import Subject
    from pytest_attnperf.workloads.base import Workload


@dataclass
class LocalPool:
    """A Pool whose only process is this one. `bound` is the (backend, workload) of the test whose body is running."""

    device: Device | None = None
    bound: tuple[Backend, Workload] | None = None
    _known: Ready | None = None

    def case_at(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """Returns a context manager of a conversation with the running test's case; `place` does not matter."""
        return self._make_case(request)

    @contextlib.contextmanager
    def _make_case(self, request: OpenRequest) -> Iterator[Conversation]:
        assert self.device is not None
        assert self.bound is not None
        backend, workload = self.bound
        seeds = (request.check_seed, request.final_seed)
        yield LocalCase(self.device.subject(backend, workload, seeds), workload, request.repeats, request.trials)

    def wait_until_ready(self, place: int) -> Ready:
        """Returns the device, fingerprint and id of this process; they are read at the first call only."""
        if self._known is None:
            assert self.device is not None
            info = self.device.info()
            role = Role.DEVICE if info.kind != "cpu" else Role.INTERPRET
            self._known = Ready(os.getpid(), role, info, self.device.fingerprint(), ())
        return self._known

    def last_ready(self) -> Ready | None:
        """Returns what `wait_until_ready` returned, or None before its first call."""
        return self._known

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Returns an empty dict: a run in this process never gates, so it needs no reference times."""
        return {}

    def start(self, places: Sequence[int]) -> None:
        """Does nothing: there are no processes to start."""

    def shutdown(self) -> None:
        """Does nothing: there are no processes to end."""


@dataclass
class LocalCase:
    """A Conversation that calls the subject directly, so that its errors keep their traceback."""

    subject: Subject
    workload: Workload
    repeats: int = 0
    trials: tuple[str, ...] = ()

    def open(self) -> Opened:
        """Builds and compiles the case; returns its figures, and the reasons if it is unsupported."""
        reasons = prepare_or_reasons(self.subject)
        workload = self.workload
        figures = WorkloadFigures(
            workload.flops, workload.bytes_min, workload.dtype, workload.cache_state, workload.definition()
        )
        if reasons:
            return Opened("open", tuple(reasons), figures=figures)
        return Opened("open", (), self.subject.not_timed_reason(), figures, self.subject.list_kernel_objects())

    def check(self, *, profiled: bool = False) -> CheckReport:
        """Checks the case's results against the reference before it is timed; returns the report, also of a wrong
        result. `profiled` also watches the call with a profiler."""
        return self.subject.check(profiled=profiled, repeats=self.repeats)

    def measure_rotation(self, block_us: float) -> Rotation:
        """Returns times of calls on constant inputs and on inputs that change before every call, both in blocks of
        `block_us` microseconds."""
        return self.subject.measure_rotation(block_us)

    def measure_blocks(self, plan: BlockPlan) -> Samples:
        """Measures blocks of calls within `plan`. Raises WrongAsTimedError if a replayed call is wrong."""
        with _wrong_as_timed():
            return self.subject.measure_blocks(plan.max_blocks, plan.block_us, plan.budget_us, plan.timer)

    def measure_stages(self, block_us: float) -> Breakdown:
        """Returns times of the call's stages (steps that can run alone), in blocks of `block_us` microseconds. Raises
        WrongAsTimedError if a replayed call is wrong."""
        with _wrong_as_timed():
            return self.subject.measure_stages(block_us)

    def profile(self) -> CaseProfile:
        """Returns the profile of the call."""
        return self.subject.profile()

    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan:
        """Prepares turns (a timed block of calls after an untimed one) of `block_us` microseconds; returns how they are
        timed. Raises WrongAsTimedError if a replayed call is wrong."""
        with _wrong_as_timed():
            return self.subject.prepare_turns(block_us, timer)

    def measure_turn(self, place: int) -> Turn:
        """Measures one turn (a block after an unmeasured one), with the inputs in memory placement `place`."""
        return self.subject.measure_turn(place)

    def finish(self) -> FinalReport:
        """Checks the last timed call (replay of the captured graph) on new inputs, and frees the case."""
        return self.subject.finish(trials=self.trials)

    def close(self) -> Closed:
        """Returns the outcome 'passed' without ending anything: the test body continues in this process."""
        return Closed("passed")


@contextlib.contextmanager
def _wrong_as_timed() -> Iterator[None]:
    """Turns a CaseFailedError of the block into WrongAsTimedError if it has a check report, as a worker does."""
    try:
        yield
    except CaseFailedError as error:
        report = getattr(error, "report", None)
        if report is None:
            raise
        raise WrongAsTimedError(error.summary, report) from error


class LocalServer:
    """What the `attnperf` fixture calls if cases run in this process instead of a worker."""

    def __init__(self, pool: LocalPool, judge: Callable[[], None]) -> None:
        self._pool = pool
        self._judge = judge
        self._met = False

    def serve_case(self, backend: Backend, workload: Workload, costs: GatedCosts = NO_COSTS) -> None:
        """Judges this backend on this workload in this process, by the function that the server was made with. Ignores
        `costs`, because nothing is gated here. Raises UsageError on a second call in one test."""
        if self._met:
            raise UsageError("attnperf.run() or attnperf.gate() was called twice in one test; write a second test")
        self._met = True
        self._pool.bound = (backend, workload)
        self._judge()
