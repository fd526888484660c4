"""One case inside its worker: prove it right, time exactly what was proven, prove the last run right, too."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.correctness.references import References
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import inspection, placements, trace
from pytest_attnperf.measure.memory import PeakMemory, peak_memory
from pytest_attnperf.measure.out_of_memory import free_cached_memory, guarded
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.rotation import rotate
from pytest_attnperf.measure.sampling import sample
from pytest_attnperf.measure.stopping import MIN_BLOCKS, StoppingRule
from pytest_attnperf.measure.timers import choose
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import CheckReport, DeviceInfo, FinalReport, Launch, NotProvenRightError, Rotation, Samples

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.measure.timers.base import Timer
    from pytest_attnperf.workloads.base import Workload

T = TypeVar("T")

_references = References()
"""Shared by the cases of a process: all backends of a workload are held against one reference."""


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
        self._median_us = 0.0
        self._launches: tuple[Launch, ...] = ()
        self._launches_unknown = ""
        self._unreported = CheckReport()

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

    def check(self, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        """Judge a call on the timed inputs and one on planted inputs of the check seed, and what ran in a third.

        profiled   look at kernels, copies and streams, too: nothing may be timed in this process afterwards
        repeats    call so often on the timed inputs and compare the results bit for bit; 0 does not
        """
        return self._guarded(lambda: self._check(profiled=profiled, repeats=repeats))

    def blocks(self, max_blocks: int, block_us: float, budget_us: float) -> Samples:
        """Time the proven call. The first blocks choose and prepare the timer, and prove its replay right.

        Raises NotProvenRightError without a passing check, ReplayWrongError when the replay fails its own,
        OtherWorkError when it holds other work than the backend declares, and CaseFailedError where the time would say
        nothing or something compiles in every block.
        """
        self._require_proven()
        return self._guarded(lambda: self._sampled(max_blocks, block_us, budget_us))

    def rotated(self, block_us: float) -> Rotation:
        """Time the proven call on inputs that stay and on inputs that change every time. Raises as `blocks` does."""
        self._require_proven()
        return self._guarded(lambda: self._rotated(block_us))

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

    def _require_proven(self) -> None:
        if not self._proven:
            raise NotProvenRightError(
                f"{self._name} may not be timed: no check of it has passed in this process; ask for check() first"
            )
        if trace.spent():
            raise NotProvenRightError(
                f"{self._name} may not be timed: a profiler has been used in this process, and slows what comes after"
            )
        if reason := self.not_timed_reason():
            raise CaseFailedError(f"{self._name} is not timed {reason}")

    def _guarded(self, work: Callable[[], T]) -> T:
        return guarded(work, self._name, self._release_everything)

    def _prepare(self) -> None:
        workload, torch_device = self._workload, self._device.torch_device
        inputs = workload.make_inputs(self._seeds.timed, torch_device, planted=False)
        self._prepared = prepared = self._backend.prepare(workload, inputs)
        self._judge = self._judge_of(prepared)
        if not self.not_timed_reason():
            warm_up(prepared.run, torch_device)

    def _check(self, *, profiled: bool, repeats: int) -> CheckReport:
        run = self._ready.run
        self._proven = False
        assert self._judge is not None, "prepare() comes first"
        self._judge.watch(run())  # a buffer that the backend owns holds a right result by now: it must not survive
        timed = self._judged("timed inputs", run, self._seeds.timed, planted=False)
        planted = self._judged("planted inputs", run, self._seeds.check, planted=True, poisoned=False)
        self._load_timed_inputs(self._ready)
        report = timed.joined(planted)
        if report.right:
            report = report.joined(self._what_ran(profiled=profiled))
        self._proven = report.right
        if not report.right:
            return report
        if repeats:
            report = replace(report, repeats=repeats, bit_equal=self._judge.bit_equal(run, repeats))
        if reason := self.not_timed_reason():
            self._peak = PeakMemory(None, f"not measured {reason}")
        else:
            self._peak = peak_memory(run, self._device.torch_device)
        return report

    def _what_ran(self, *, profiled: bool) -> CheckReport:
        """Judge one more call by what it does. Triton's interpreter runs Python, of which there is nothing to say."""
        if self._device.interpreted and not self._backend.times_on_cpu:
            return CheckReport()
        on_gpu = self._device.torch_device == "cuda"
        look = inspection.of_gpu_work if on_gpu and profiled else inspection.of_operators
        seen = look(self._ready, self._backend.name)
        if not on_gpu or profiled:
            self._launches = seen.launches
        return seen.report

    def _sampled(self, max_blocks: int, block_us: float, budget_us: float) -> Samples:
        timer = self._timer_for(block_us)
        samples = self._samples_of(timer, max_blocks, budget_us)
        self._median_us = statistics.median(samples.block_us)
        return samples

    def _samples_of(self, timer: Timer, max_blocks: int, budget_us: float) -> Samples:
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

    def _rotated(self, block_us: float) -> Rotation:
        return rotate(self._ready, self._device.torch_device, block_us, self._median_us or block_us)

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
            self._prove_replay(timer, self._judge, poisoned=False)
            self._load_timed_inputs(self._ready)
        if isinstance(timer, GraphTimer):
            self._inspect_graph(timer)
        self._timer, self._timer_block_us = timer, block_us
        return timer

    def _inspect_graph(self, timer: GraphTimer) -> None:
        """Judge and remember what is timed. Raises OtherWorkError."""
        seen = inspection.of_graph(timer, self._ready, self._backend.name)
        self._launches, self._launches_unknown = seen.launches, seen.unknown
        self._note_cost(seen.report)
        if seen.report.problems:
            timer.close()
            self._proven = False
            raise inspection.OtherWorkError(seen.report)

    def _prove_replay(self, timer: Timer, judge: Judge | None, *, poisoned: bool = True) -> None:
        """Replay on inputs other than those captured: a value baked in at capture then shows, as does work not done."""
        assert judge is not None, "prepare() comes first"
        run = functools.partial(timer.run_once, poisoned=poisoned)
        report = judge.check_call("replay", run, seed=self._seeds.check, planted=True, poisoned=poisoned)
        if report.right:
            self._note_cost(report)
            return
        timer.close()
        self._proven = False
        problems = tuple(f"eager right, replay wrong: {problem}" for problem in report.problems)
        raise ReplayWrongError(replace(report, problems=problems))

    def _note_cost(self, report: CheckReport) -> None:
        """Keep what a passing proof between check and finish took: the final report says it."""
        self._unreported = self._unreported.joined(CheckReport(seconds=report.seconds, parts=report.parts))

    def _final_report(self) -> FinalReport:
        prepared = self._ready
        replays = self._timer is not None and self._timer.replays
        run = prepared.run if self._timer is None else self._timer.run_once
        check = self._judged("last replay" if replays else "last call", run, self._seeds.final, planted=True)
        if check.right and self._timer is not None and self._timer.name == "event":
            # Without a graph only a profiler tells, and only now may it be used.
            seen = inspection.of_gpu_work(prepared, self._backend.name)
            check, self._launches = check.joined(seen.report), seen.launches
        unknown = {"peak_memory": self._peak.unknown, "launches": self._launches_unknown}
        return FinalReport(
            check=check.joined(self._unreported),
            launches=self._launches,
            spent=trace.spent(),
            peak_memory_bytes=self._peak.allocated_bytes,
            config={**prepared.config, **{key: why for key, why in unknown.items() if why}},
        )

    def _judged(
        self, check: str, run: Callable[[], object], seed: int, *, planted: bool, poisoned: bool = True
    ) -> CheckReport:
        assert self._judge is not None, "prepare() comes first"
        return self._judge.check_call(check, run, seed=seed, planted=planted, poisoned=poisoned)

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
