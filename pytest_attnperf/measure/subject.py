"""One case inside its worker: prove it right, time exactly what was proven, prove the last run right, too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import placements
from pytest_attnperf.measure.memory import PeakMemory, peak_memory
from pytest_attnperf.measure.out_of_memory import free_cached_memory, guarded
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample
from pytest_attnperf.measure.stopping import MIN_BLOCKS, StoppingRule
from pytest_attnperf.measure.timers import choose
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import CheckReport, DeviceInfo, FinalReport, NotProvenRightError, Samples

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.measure.timers.base import Timer
    from pytest_attnperf.workloads.base import Workload

T = TypeVar("T")

_references = References()
"""Shared by the cases of a process: all backends of a workload are held against one reference."""


@dataclass(frozen=True)
class Seeds:
    """Seeds of a case's inputs: `timed` belongs to the workload, `check` and `final` are drawn for every process."""

    timed: int
    check: int
    final: int


def timed_seed(workload: Workload) -> int:
    """32 bits of the SHA-256 of the workload's id: the timed inputs are the same everywhere and at any time."""
    return int.from_bytes(hashlib.sha256(workload.id.encode()).digest()[:4], "big")


class ReplayWrongError(CaseFailedError):
    """Eager calls were right, but what was captured for timing computes something else; `report` shows what."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__("\n".join(report.problems))
        self.report = report


class TorchSubject:
    """The Subject (see `subject_protocol`) of a backend and a workload on a real device.

    The prepared backend owns the inputs: they keep their addresses from `prepare` to `finish`, because a captured
    graph reads them, and other inputs are copied into the same memory.
    """

    def __init__(self, backend: Backend, workload: Workload, device: DeviceInfo, seeds: Seeds) -> None:
        self._backend = backend
        self._workload = workload
        self._device = device
        self._seeds = seeds
        self._prepared: Prepared | None = None
        self._judge: Judge | None = None
        self._timer: Timer | None = None
        self._timer_block_us = 0.0
        self._proven = False
        self._peak = PeakMemory(None, "not measured, because no check passed")

    def unsupported_reasons(self) -> list[str]:
        """What the backend says against this workload on this device."""
        return self._backend.unsupported_reasons(self._workload, self._device)

    def not_timed_reason(self) -> str:
        """Why a time taken here would say nothing; '' when it says something."""
        if self._device.torch_device != "cpu" or self._backend.times_on_cpu:
            return ""
        if self._device.interpreted:
            return "interpreted: Triton runs without compiling here; its time says nothing"
        return f"on a CPU: {self._backend.name} says that its time there says nothing (times_on_cpu is False)"

    def prepare(self) -> None:
        """Make the timed inputs, let the backend build and compile, and call it until it has settled."""
        self._guarded(self._prepare)

    def check(self) -> CheckReport:
        """Judge a call on the timed inputs and one on planted inputs of the check seed; measure peak memory."""
        return self._guarded(self._check)

    def blocks(self, max_blocks: int, block_us: float, budget_us: float) -> Samples:
        """Time the proven call. The first blocks choose and prepare the timer, and prove its replay right.

        Raises NotProvenRightError without a passing check, ReplayWrongError when the replay fails its own, and
        CaseFailedError where the time would say nothing or something compiles in every block.
        """
        if not self._proven:
            raise NotProvenRightError(
                f"{self._name} may not be timed: no check of it has passed in this process; ask for check() first"
            )
        if reason := self.not_timed_reason():
            raise CaseFailedError(f"{self._name} is not timed {reason}")
        return self._guarded(lambda: self._sampled(max_blocks, block_us, budget_us))

    def finish(self) -> FinalReport:
        """Judge one last run of what was timed, on fresh inputs put into the same memory; then free the case."""
        try:
            return self._guarded(self._final_report)
        finally:
            self._release()
            free_cached_memory()

    @property
    def _name(self) -> str:
        return f"{self._backend.name} on {self._workload.id}"

    def _guarded(self, work: Callable[[], T]) -> T:
        return guarded(work, self._name, self._release_everything)

    def _prepare(self) -> None:
        workload, torch_device = self._workload, self._device.torch_device
        inputs = workload.make_inputs(self._seeds.timed, torch_device, planted=False)
        self._prepared = prepared = self._backend.prepare(workload, inputs)
        self._judge = self._judge_of(prepared)
        if not self.not_timed_reason():
            warm_up(prepared.run, torch_device)

    def _check(self) -> CheckReport:
        run = self._ready.run
        self._proven = False
        timed = self._judged("timed inputs", run, self._seeds.timed, planted=False)
        planted = self._judged("planted inputs", run, self._seeds.check, planted=True)
        self._load_timed_inputs(self._ready)
        report = _merged(timed, planted)
        self._proven = report.right
        if not report.right:
            return report
        if reason := self.not_timed_reason():
            self._peak = PeakMemory(None, f"not measured {reason}")
        else:
            self._peak = peak_memory(run, self._device.torch_device)
        return report

    def _sampled(self, max_blocks: int, block_us: float, budget_us: float) -> Samples:
        timer = self._timer_for(block_us)
        if isinstance(timer, GraphTimer) and (plan := placements.plan_for(timer.call_us, max_blocks)) is not None:
            return self._sampled_elsewhere(timer, plan)
        rule = StoppingRule(min(MIN_BLOCKS, max_blocks), max_blocks, budget_us)
        with CompileWatch() as watch:
            return sample(timer, rule, watch)

    def _sampled_elsewhere(self, timer: GraphTimer, plan: placements.Plan) -> Samples:
        """Blocks at several places in memory, each with a graph of its own that is proven right before it counts."""
        others: list[GraphTimer] = []
        kept: list[Prepared] = []
        try:
            for _ in range(plan.places - 1):
                prepared = placements.elsewhere(self._ready)
                kept.append(prepared)
                others.append(timer.twin(prepared.run))
                self._prove_replay(others[-1], self._judge_of(prepared))
                self._load_timed_inputs(prepared)
            return placements.measure([timer, *others], plan.blocks)
        finally:
            for other in others:
                other.close()

    def _judge_of(self, prepared: Prepared) -> Judge:
        return Judge(
            prepared,
            self._workload,
            references=_references,
            tolerance=self._backend.tolerance,
            device=self._device.torch_device,
        )

    def _timer_for(self, block_us: float) -> Timer:
        """The timer of this case, prepared once for each length of a block and proven right if it replays."""
        if self._timer is not None and self._timer_block_us == block_us:
            return self._timer
        self._close_timer()
        run, torch_device = self._ready.run, self._device.torch_device
        warm_device(torch_device)
        warm_up(run, torch_device)
        timer = choose(torch_device, run, block_us, self._workload.cache_state)
        if timer.replays:
            self._prove_replay(timer, self._judge)
            self._load_timed_inputs(self._ready)
        self._timer, self._timer_block_us = timer, block_us
        return timer

    def _prove_replay(self, timer: Timer, judge: Judge | None) -> None:
        """Replay on inputs other than those captured: a value baked in at capture then shows, as does work not done."""
        assert judge is not None, "prepare() comes first"
        report = judge.check_call("replay", timer.run_once, seed=self._seeds.check, planted=True)
        if report.right:
            return
        timer.close()
        self._proven = False
        problems = tuple(f"eager right, replay wrong: {problem}" for problem in report.problems)
        raise ReplayWrongError(replace(report, problems=problems))

    def _final_report(self) -> FinalReport:
        prepared = self._ready
        replays = self._timer is not None and self._timer.replays
        run = prepared.run if self._timer is None else self._timer.run_once
        check = self._judged("last replay" if replays else "last call", run, self._seeds.final, planted=True)
        unknown = {"peak_memory": self._peak.unknown} if self._peak.unknown else {}
        return FinalReport(
            check=check, peak_memory_bytes=self._peak.allocated_bytes, config={**prepared.config, **unknown}
        )

    def _judged(self, check: str, run: Callable[[], object], seed: int, *, planted: bool) -> CheckReport:
        assert self._judge is not None, "prepare() comes first"
        return self._judge.check_call(check, run, seed=seed, planted=planted)

    def _load_timed_inputs(self, prepared: Prepared) -> None:
        import torch

        inputs = self._workload.make_inputs(self._seeds.timed, self._device.torch_device, planted=False)
        with torch.no_grad():
            prepared.load(inputs)

    @property
    def _ready(self) -> Prepared:
        if self._prepared is None:
            raise CaseFailedError(f"{self._name} is not prepared: prepare() comes first, and nothing after finish()")
        return self._prepared

    def _close_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()
        self._timer = None

    def _release(self) -> None:
        """Let go of every tensor and graph; nothing but `unsupported_reasons` may be asked afterwards."""
        self._close_timer()
        self._prepared = self._judge = None
        self._proven = False

    def _release_everything(self) -> None:
        self._release()
        _references.clear()


def _merged(first: CheckReport, second: CheckReport) -> CheckReport:
    return CheckReport(
        figures=first.figures + second.figures,
        problems=first.problems + second.problems,
        tolerance=first.tolerance,
        seconds=first.seconds + second.seconds,
    )
