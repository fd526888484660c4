"""Serves one case inside its worker: proves it right, times exactly what was proven, and proves the last run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pytest_attnperf.correctness import left_behind
from pytest_attnperf.correctness.budget import LAST_CALL, LAST_REPLAY, PLANTED, TIMED
from pytest_attnperf.correctness.judge import Judge
from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import inspection, interpreting, proving, trace
from pytest_attnperf.measure.autotuners import record_choices
from pytest_attnperf.measure.call_costs import PeakMemory, measure_costs, measure_peak_memory, run_and_wait
from pytest_attnperf.measure.inspection import OtherWorkError
from pytest_attnperf.measure.live_profile import profile_case
from pytest_attnperf.measure.not_interpreted import translate_errors
from pytest_attnperf.measure.out_of_memory import run_guarded
from pytest_attnperf.measure.proving import Prover, TimedWrongError, forget_references, free_idle_memory
from pytest_attnperf.measure.ran_code import RanCode
from pytest_attnperf.measure.ran_code import record_code as recording_code
from pytest_attnperf.measure.returned_types import require_inputs, require_prepared, require_reasons
from pytest_attnperf.measure.stage_timing import Stages
from pytest_attnperf.measure.timers import AUTO
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.profiler import ProfilerTimer
from pytest_attnperf.measure.timing import Timing
from pytest_attnperf.measure.trials import TrialCase, run_trials
from pytest_attnperf.measure.warm_up import warm_up
from pytest_attnperf.records import CheckReport, DeviceInfo, Launch, NotProvenRightError, Rotation, Samples
from pytest_attnperf.records.code import KernelObject
from pytest_attnperf.records.costs import COMPILE_MS, FIRST_CALL_MS, NO_COSTS, PEAK_BYTES, GatedCosts
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.records.profiles import CaseProfile
from pytest_attnperf.records.stages import Breakdown

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.measure.seeds import Seeds
    from pytest_attnperf.measure.timers.replay import ReplayTimer
    from pytest_attnperf.workloads.base import Workload

T = TypeVar("T")


class TorchSubject:
    """The Subject (see `subject_protocol`) of a backend and a workload on a real device.

    The prepared backend owns the inputs. They keep their addresses from `prepare` to `finish`, because a captured graph
    reads them; other inputs are copied into the same memory.
    """

    def __init__(self, backend: Backend, workload: Workload, device: DeviceInfo, seeds: Seeds) -> None:
        self._backend = backend
        self._workload = workload
        self._device = device
        self._seeds = seeds
        self._prover = Prover(backend, workload, device, seeds)
        self._prepared: Prepared | None = None
        self._judge: Judge | None = None
        self._timing: Timing | None = None
        self._proven = False
        self._peak = PeakMemory(None, "not measured, because no check passed")
        self._launches: tuple[Launch, ...] = ()
        self._launches_unknown = ""
        self._ran = RanCode()
        self._interpreted = interpreting.Interpreted()
        self._chosen: dict[str, str] = {}
        self._left: list[left_behind.LeftBehind] = []
        self._build_ms = self._first_call_ms = 0.0

    def unsupported_reasons(self) -> list[str]:
        """Returns why the backend cannot run this workload on this device; empty if it can."""
        return require_reasons(self._backend, self._backend.unsupported_reasons(self._workload, self._device))

    def not_timed_reason(self) -> str:
        """Returns why a time measured here would be meaningless; '' if it is meaningful."""
        if self._interpreted.seen:
            return interpreting.NOT_TIMED
        if self._device.torch_device != "cpu" or self._backend.times_on_cpu:
            return ""
        if self._device.interpreted:
            return interpreting.NOT_TIMED
        return f"on a CPU: {self._backend.name} says that its time there says nothing (times_on_cpu is False)"

    def prepare(self) -> None:
        """Makes the timed inputs, lets the backend build and compile, and calls it until nothing compiles any more."""
        with self._watching_state():
            self._run_guarded(self._prepare_case)

    def list_kernel_objects(self) -> tuple[KernelObject, ...]:
        """Lists the compiled kernels that preparing the case launched."""
        return self._ran.list_kernel_objects()

    def check(self, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        """Judges one call on the timed inputs, one on inputs of the check seed, and what runs in a third call.

        Returns problems and error figures; only after a report without problems may the case be timed. The second
        inputs are planted: some of their elements change the result visibly if a kernel loses them.

        profiled   examine kernels, copies and streams, too: nothing may be timed in this process afterwards
        repeats    number of calls on the timed inputs whose results are compared bit for bit; 0 for none
        """
        with recording_code(self._ran), self._watching_state():
            report = self._run_guarded(lambda: self._check_case(profiled=profiled, repeats=repeats))
        return self._with_left_behind(report)

    def measure_blocks(self, max_blocks: int, block_us: float, budget_us: float, timer: str = AUTO) -> Samples:
        """Times the proven call. The first use chooses and prepares the timer, and proves its replay right.

        timer   AUTO, or the name of the only timer that may be used

        Raises NotProvenRightError without a passing check, TimedWrongError if the replay fails its own, OtherWorkError
        if it holds other work than the backend declares, and CaseFailedError if the time would be meaningless, the
        timer cannot be used, or something compiles in every block.
        """
        self._require_proven(timer)
        with self._watching_state():
            return self._run_timing(lambda timing: timing.measure_blocks(max_blocks, block_us, budget_us, timer))

    def measure_rotation(self, block_us: float) -> Rotation:
        """Times the proven call on constant and on changing inputs. Raises as `measure_blocks` does."""
        # Both times are measured now: if the case was timed with a profiler, this slows both.
        self._require_proven(self._timing.asked if self._timing is not None else AUTO)
        return self._run_timing(lambda timing: timing.measure_rotation(block_us))

    def measure_stages(self, block_us: float) -> Breakdown:
        """Times the stages of the proven call alone, and the call in turns with them.

        Raises as `measure_blocks` does. Raises CaseFailedError before `measure_blocks`, or if memory does not suffice
        for all values of a call beside it; the case itself stays as it was.
        """
        self._require_proven(self._ready_timing.asked)
        try:
            return run_guarded(lambda: self._measure_breakdown(block_us), f"the stages of {self._name}", lambda: None)
        except (TimedWrongError, OtherWorkError):
            self._proven = False
            raise

    def profile(self) -> CaseProfile:
        """Profiles some proven calls with torch's profiler, then frees the case.

        Nothing may be timed in this process afterwards.

        Raises NotProvenRightError without a passing check, and CaseFailedError if a time would be meaningless, or the
        profiler sees nothing.
        """
        self._require_proven(ProfilerTimer.name)
        try:
            found = self._run_guarded(lambda: profile_case(self._prover, self._ready))
        finally:  # the process waits for the next case while others are timed, which may need all of the memory
            self._release()
            free_idle_memory(self._prover.device.memory_bytes)
        return replace(found, build_ms=self._build_ms, first_call_ms=self._first_call_ms)

    def prepare_turns(self, block_us: float, timer: str = AUTO) -> TurnPlan:
        """Prepares the case for `measure_turn` at places in memory; returns their plan. Raises as `measure_blocks`."""
        self._require_proven(timer)
        with self._watching_state():
            return self._run_timing(lambda timing: timing.prepare_turns(block_us, timer))

    def measure_turn(self, place: int) -> Turn:
        """Times one block at a place in memory of `prepare_turns` (from 0), after an unmeasured block.

        Raises NotProvenRightError without a passing check. Raises CaseFailedError before `prepare_turns`, for a place
        that it did not make, and if something compiles in every block.
        """
        self._require_proven(self._timing.asked if self._timing is not None else AUTO)
        return self._run_timing(lambda timing: timing.measure_turn(place))

    def finish(self, costs: GatedCosts = NO_COSTS, trials: Sequence[str] = ()) -> FinalReport:
        """Judges a last run on fresh inputs in the same memory; also reports what ran, memory, and `costs` of a case
        that was timed. A right case is then proven again by `trials` (see `measure.trials`). Frees the case."""
        try:
            with self._watching_state():
                final = self._run_guarded(lambda: self._make_final_report(costs))
                if final.check.right and trials:
                    final = replace(final, check=final.check.merge_with(self._run_trials(trials)))
            return replace(final, check=self._with_left_behind(final.check))
        finally:
            self._release()
            free_idle_memory(self._prover.device.memory_bytes)

    @property
    def _name(self) -> str:
        return self._prover.case

    def _require_proven(self, timer: str) -> None:
        if trace.was_profiler_used() and timer != ProfilerTimer.name:
            raise NotProvenRightError(
                f"{self._name} may not be timed: a profiler has been used in this process; time it in a new process"
            )
        if not self._proven:
            raise NotProvenRightError(
                f"{self._name} may not be timed: no check of it has passed in this process; call check() first"
            )
        self._require_meaning()

    def _require_meaning(self) -> None:
        if reason := self.not_timed_reason():
            raise CaseFailedError(f"{self._name} is not timed {reason}")

    def _run_guarded(self, work: Callable[[], T]) -> T:
        with translate_errors(self._device.interpreted):
            return run_guarded(work, self._name, self._release_everything)

    def _watching_state(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that notes process settings left changed by the backend; the next report lists them."""
        return left_behind.watch_settings(self._left, self._device.torch_device)

    def _with_left_behind(self, report: CheckReport) -> CheckReport:
        """Adds process settings that the backend left changed as problems; with any the case may not be timed."""
        left, self._left[:] = tuple(map(str, self._left)), []
        if not left:
            return report
        self._proven = False
        return report.merge_with(CheckReport(problems=left))

    def _watch_interpreter(self, run: Callable[[], T]) -> Callable[[], T]:
        """Wraps the call to note whether it runs an interpreted kernel; kernels of its reference do not count."""

        def run_watched() -> T:
            with interpreting.watch_kernels(self._interpreted):
                return run()

        return run_watched

    def _run_timing(self, work: Callable[[Timing], T]) -> T:
        """Returns what `work` returns; after a TimedWrongError or OtherWorkError the case may not be timed any more."""
        try:
            return self._run_guarded(lambda: work(self._ready_timing))
        except (TimedWrongError, OtherWorkError):
            self._proven = False
            raise

    def _prepare_case(self) -> None:
        workload, torch_device = self._workload, self._device.torch_device
        inputs = workload.make_inputs(self._seeds.timed, torch_device, planted=False)
        require_inputs(workload.id, inputs)
        with record_choices() as chosen, recording_code(self._ran):
            prepared, self._build_ms = run_and_wait(lambda: self._backend.prepare(workload, inputs), torch_device)
            require_prepared(self._backend, prepared)
            self._prepared = prepared
            self._prover.watch_outside(inputs)
            if not self.not_timed_reason():
                _, self._first_call_ms = run_and_wait(self._watch_interpreter(prepared.run), torch_device)
            if not self.not_timed_reason():
                warm_up(prepared.run, torch_device)
        self._chosen = chosen.build_config_entries()
        self._judge = judge = self._prover.make_judge(prepared)
        self._timing = Timing(self._prover, prepared, judge, lambda timer: self._inspect_graph(timer))

    def _measure_breakdown(self, block_us: float) -> Breakdown:
        timer, prepared = self._ready_timing.timer, self._ready
        if timer is None:
            raise CaseFailedError(f"{self._name} is not ready for measure_stages(): call measure_blocks() first")
        stages = Stages(self._prover, prepared, timer)
        try:
            found = stages.time_stages(block_us)
        finally:
            stages.close()
            self._prover.load_timed_inputs(prepared)
        return replace(found, build_ms=self._build_ms, first_call_ms=self._first_call_ms)

    def _check_case(self, *, profiled: bool, repeats: int) -> CheckReport:
        run = self._watch_interpreter(self._ready.run)
        self._proven = False
        assert self._judge is not None, "prepare() comes first"
        self._judge.watch(run())  # fills a buffer of the backend's own, which now holds a right result, with NaN
        timed = self._judge_run(TIMED, run, self._seeds.timed, planted=False)
        planted = self._judge_run(PLANTED, run, self._seeds.check, planted=True, poisoned=False)
        planted = self._judge.check_again(PLANTED, run, planted)
        self._prover.load_timed_inputs(self._ready)
        report = proving.with_autocast_named(timed.merge_with(planted))
        if report.right and (beside := getattr(self._workload, "proven_with", None)) is not None:
            report = report.merge_with(self._prover.check_beside(beside))
        if report.right:
            report = report.merge_with(self._prover.check_apart(self._ready, self._judge))
        if report.right:
            report = report.merge_with(self._check_what_ran(profiled=profiled))
        report = self._prover.with_outside(report, self._ready)
        self._proven = report.right
        if not report.right:
            return report
        report = self._prover.with_input_notes(report)
        if not self._interpreted.seen:  # interpreting runs millions of Python's functions
            report = self._prover.with_warning(report, self._ready)
        if repeats:
            report = report.merge_with(self._judge.compare_repeats(run, repeats))
            report = replace(report, card=self._device.device_id)
        if reason := self.not_timed_reason():
            self._peak = PeakMemory(None, f"not measured {reason}")
        else:
            self._peak = measure_peak_memory(run, self._device.torch_device)
            if self._timing is not None:
                self._timing.call_bytes = self._peak.allocated_bytes or 0
        return report

    def _check_what_ran(self, *, profiled: bool) -> CheckReport:
        """Judges the operators, or profiled GPU work, of one more call; an empty report if the call is interpreted."""
        if self._interpreted.seen or (self._device.interpreted and not self._backend.times_on_cpu):
            return CheckReport()
        on_gpu = self._device.torch_device == "cuda"
        if on_gpu and profiled:
            seen = inspection.inspect_gpu_work(self._ready, self._backend.name, self._ran)
        else:
            seen = inspection.inspect_operators(self._ready, self._backend.name)
        if not on_gpu or profiled:
            self._launches = seen.launches
        return seen.report

    def _inspect_graph(self, timer: ReplayTimer) -> None:
        """Stores the launches of the timed graph. Raises OtherWorkError if they are not what the backend declares."""
        seen = inspection.inspect_graph(timer, self._ready, self._backend.name, self._ran)
        self._launches, self._launches_unknown = seen.launches, seen.unknown
        if seen.report.problems:
            raise OtherWorkError(seen.report)
        self._prover.note_cost(seen.report)

    def _make_final_report(self, costs: GatedCosts) -> FinalReport:
        prepared, timer = self._ready, self._ready_timing.timer
        name = LAST_REPLAY if timer is not None and timer.replays else LAST_CALL
        run = self._watch_interpreter(prepared.run if timer is None else self._ready_timing.run_once)
        check = self._judge_run(name, run, self._seeds.final, planted=True)
        if self._judge is not None:
            single = self._watch_interpreter(prepared.run) if name == LAST_REPLAY else None
            check = self._judge.check_again(name, run, check, single=single)
        check = self._prover.with_outside(check, prepared)
        if timer is not None:
            self._require_meaning()
        values: dict[str, float] = {}
        if check.right and timer is not None and costs.limits:
            known: dict[str, float | None] = {FIRST_CALL_MS: self._first_call_ms, COMPILE_MS: self._build_ms}
            known[PEAK_BYTES] = self._peak.allocated_bytes
            values = measure_costs(costs, prepared, self._device.torch_device, known)
        if check.right and isinstance(timer, (EventTimer, ProfilerTimer)):
            # Without a graph only a profiler shows what ran, and it may only be used now.
            seen = inspection.inspect_gpu_work(prepared, self._backend.name, self._ran)
            check, self._launches = check.merge_with(seen.report), seen.launches
        unknown = {"peak_memory": self._peak.unknown, "launches": self._launches_unknown}
        unknown |= self._ran.build_unknown_entry(self._launches)
        return FinalReport(
            check=check.merge_with(self._prover.cost),
            launches=self._launches,
            spent=trace.was_profiler_used(),
            peak_memory_bytes=self._peak.allocated_bytes,
            config={**prepared.config, **self._chosen, **{key: why for key, why in unknown.items() if why}},
            code=self._ran.encode_objects(self._launches),
            matrix=prepared.declares.matrix,
            costs=values,
        )

    def _run_trials(self, names: Sequence[str]) -> CheckReport:
        """Proves the case again under changed circumstances; nothing may be timed in it afterwards."""
        self._ready_timing.close()
        case = TrialCase(self._prover, self._ready)
        return self._run_guarded(lambda: run_trials(names, case))

    def _judge_run(
        self, check: str, run: Callable[[], object], seed: int, *, planted: bool, poisoned: bool = True
    ) -> CheckReport:
        assert self._judge is not None, "prepare() comes first"
        return self._judge.check_call(check, run, seed=seed, planted=planted, poisoned=poisoned)

    @property
    def _ready(self) -> Prepared:
        if self._prepared is None:
            raise self._not_prepared
        return self._prepared

    @property
    def _ready_timing(self) -> Timing:
        if self._timing is None:
            raise self._not_prepared
        return self._timing

    @property
    def _not_prepared(self) -> CaseFailedError:
        return CaseFailedError(f"{self._name} is not prepared: call prepare() first, and nothing after finish()")

    def _release(self) -> None:
        """Drops every tensor and graph; only `unsupported_reasons` may be called afterwards."""
        if self._timing is not None:
            self._timing.close()
        self._prepared = self._judge = self._timing = None
        self._proven = False

    def _release_everything(self) -> None:
        self._release()
        forget_references()
