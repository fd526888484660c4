"""The bench of a run: its process pools, its stored baselines, and the requests that it sends for a case."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.gate.comparable import reasons_not_comparable
from pytest_attnperf.records import CaseKey, DeviceInfo, Measurement, ProcessSummary
from pytest_attnperf.records.trials import DECLARED
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import mark_disappeared, mark_proven_only, median_us_of, unmeasured_result
from pytest_attnperf.session.interleaved import Against
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.workers.controller import UsedProcessError
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import Pool, WorkerPool
from pytest_attnperf.workers.source_tree import Revisions

GATE_PLACE = 0
SECOND_LOOK_PLACES = 1
RECORD_PLACES = 100

UNTIMED = (RunMode.CHECK, RunMode.WARM)
"""Modes that time nothing, so that a process may use a profiler."""

LEFT_OUT = {
    Ending.UNSUPPORTED: "unsupported now",
    Ending.SKIPPED: "skipped now",
    Ending.RIGHT: "not timed any more",
}
"""Short text for each ending that is neither timed nor wrong."""

RECORDING = (RunMode.UPDATE, RunMode.CALIBRATE)


@dataclass(frozen=True)
class RunBench:
    """Everything that a run's looks need.

    pool         gives fresh processes
    store        baselines, read from every root in order
    local_root   where `record_locally` writes
    commit       of the working tree, or 'unknown'
    against      the base side of interleaved looks; None without one
    revisions    with the base revision that the run is a change of; None where none is known
    examined     the (backend, kind of fault) of every second run that searched for a kernel
    alone        the cases whose costs are measured only in a process that has served no other
    """

    settings: RunSettings
    pool: Pool
    store: BaselineStore
    local_root: Path
    commit: str = "unknown"
    against: Against | None = None
    revisions: Revisions | None = None
    clock: Callable[[], float] = time.monotonic
    today: Callable[[], date] = date.today
    examined: list[tuple[str, str]] = field(default_factory=list)
    alone: set[CaseKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Passes `settings.isolate`, which says which cases may share a process, to both sides' worker pools."""
        for pool in self.pools:
            if isinstance(pool, WorkerPool):
                pool.isolate = self.settings.isolate

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Returns the worker pools: the candidate's, then the base side's if there is one."""
        return (self.pool,) if self.against is None else (self.pool, self.against.pool)

    def renew_processes(self, case: Case) -> None:
        """Ends the worker processes that must not serve this case because `settings.isolate` gives it fresh ones."""
        if isinstance(self.pool, WorkerPool):
            self.pool.renew(case.key)

    def look(
        self,
        place: int,
        case: Case,
        plan: BlockPlan | None,
        next_key: CaseKey | None,
        *,
        fresh: int = 0,
        rotate: bool = False,
        stages: bool = False,
        pin: Mapping[str, str] | None = None,
        trials: bool = False,
        unused: bool = False,
    ) -> Look:
        """Measures a case once in process number `place` and returns what it found.

        plan      blocks to time; None times nothing
        next_key  the case that the process gets next, to prepare
        fresh     shifts the seeds of its checks, for inputs new in this run
        rotate    also times calls on changing inputs; `stages` also the stages of a call
        pin       the configuration that its backend must run with; None for the one of the run's settings
        trials    at its end the case goes through the run's trials
        unused    first replaces a process that has served a case

        Raises WorkerError if a worker fails, and CaseFailedError if the case raises there.
        """
        self.renew_processes(case)
        request, profiled = self.make_request(case, next_key, fresh), case.timed or self.settings.mode in UNTIMED
        request = request if pin is None else replace(request, pin=dict(pin))
        request = replace(request, trials=(*self.settings.trials, DECLARED)) if trials else request
        request = request if plan is None else replace(request, costs=case.costs)
        take = functools.partial(
            take_look, self.pool, place, request, plan, rotate=rotate, stages=stages, profiled=profiled,
            loaded=plausibility.read_ahead,
        )  # fmt: skip
        if unused or (plan is not None and case.key in self.alone):
            self._replace_used(place)
        try:
            return take()
        except UsedProcessError:
            self.alone.add(case.key)
            self._replace_used(place)
            return take()

    def _replace_used(self, place: int) -> None:
        """Ends process number `place` if it has served a case; a fresh one starts when needed."""
        if isinstance(self.pool, WorkerPool):
            self.pool.replace_used(place)

    def make_request(self, case: Case, next_key: CaseKey | None, fresh: int = 0) -> OpenRequest:
        """Returns the request that opens a case, with its seeds, limit and repeats, and the stored configuration if the
        run pins it. `fresh` shifts the seeds."""
        seed, settings = self.settings.seed + fresh, self.settings
        pin = self._stored_config(case) if settings.pin_config else {}
        return OpenRequest(
            case.key, next_key, seed, seed + 1, settings.case_limit_seconds, settings.determinism_repeats, pin
        )

    def _stored_config(self, case: Case) -> dict[str, str]:
        """Returns the configuration that the baseline was recorded with; {} if nothing is stored."""
        found = self.find_stored(case)
        return {} if found is None else dict(found.entry.config)

    def make_unmeasured_result(self, case: Case, look: Look) -> CaseResult:
        """Returns the result of a case that was not timed. It fails if it was timed before, or is on the base side."""
        result, mode = unmeasured_result(case, look), self.settings.mode
        if mode in UNTIMED:
            return result
        if not case.timed:
            result = mark_proven_only(result, recording=mode is RunMode.UPDATE)
        now = LEFT_OUT.get(look.ending, "")
        may_stop = look.ending is Ending.RIGHT and mode is not RunMode.GATE
        return self._mark_if_disappeared(case, result, now) if now and not may_stop else result

    def _mark_if_disappeared(self, case: Case, result: CaseResult, now: str) -> CaseResult:
        """Returns the result as failing if a time of it is stored or the base side can time it; else unchanged. `now`
        says why it is not timed here."""
        found = self.find_stored(case)
        if found is not None:
            return mark_disappeared(result, f"{now}, but a baseline is stored in {found.path.name}")
        if case.timed and self.against is not None and self.against.can_time(self.make_request(case, None)):
            return mark_disappeared(result, f"{now}, but {self.against.name} times it")
        return result

    def list_differences(self, look: Look, found: StoredEntry) -> list[str]:
        """Returns why the measurement and the stored entry may not be compared, e.g. another driver; [] if they may."""
        assert look.fingerprint is not None
        assert look.figures is not None
        assert look.summary is not None
        return reasons_not_comparable(
            found.entry,
            found.fingerprint,
            look.fingerprint,
            timer=look.summary.timer,
            definition=look.figures.definition,
            settings=look.summary.settings,
            checks=(look.report,),
        )

    def collect_canaries(self, places: Iterable[int]) -> dict[str, tuple[ProcessSummary, ...]]:
        """Returns 'gemm' and 'copy' -> the fixed measurement's times in these processes."""
        return group_canaries([self.pool.measure_canary(place) for place in places])

    def apply_floor(self, base: CaseResult) -> CaseResult:
        """Returns the result as SUSPICIOUS if faster than possible on this device, with a note if close to that."""
        place = GATE_PLACE if self.settings.mode in (RunMode.CHECK, RunMode.GATE) else RECORD_PLACES
        return plausibility.judge_by_floor(base, spec_for(self.device_at(place)))

    def find_stored(self, case: Case) -> StoredEntry | None:
        """Returns the case's baseline entry for the product of this run's device; None if there is none."""
        device = self.device_at(RECORD_PLACES if self.settings.mode in RECORDING else GATE_PLACE)
        return self.store.find(device.arch, device.product, case.key.suite, case.key.entry)

    def estimate_noise(self, case: Case, stored: Measurement, bound: str) -> NoiseEstimate | None:
        """Returns the noise between processes of unchanged code, pooled over similar stored cases of the suite; None if
        none of them tells it."""
        device = self.device_at()
        model = self.store.noise_model(device.arch, device.product, case.key.suite)
        return model.estimate_noise(case.key.entry, median_us_of(stored.processes), stored.timer, bound)

    def device_at(self, place: int = GATE_PLACE) -> DeviceInfo:
        """Returns the device of process number `place`; waits until the process is ready."""
        return self.pool.wait_until_ready(place).device


def group_canaries(taken: Sequence[Mapping[str, ProcessSummary]]) -> dict[str, tuple[ProcessSummary, ...]]:
    """Returns canary name ('gemm', 'copy') -> its times in all processes, from one dict per process."""
    names = sorted({name for canary in taken for name in canary})
    return {name: tuple(canary[name] for canary in taken if name in canary) for name in names}
