"""The bench of a run: where processes come from, what is stored, and what is asked of a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from pytest_attnperf.baselines.store import BaselineStore, StoredEntry
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.gate.comparable import reasons_not_comparable
from pytest_attnperf.records import CaseKey, DeviceInfo, Measurement, ProcessSummary
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import mark_disappeared, mark_proven_only, median_us_of, unmeasured_result
from pytest_attnperf.session.interleaved import Against
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import Pool, WorkerPool
from pytest_attnperf.workers.source_tree import Revisions

GATE_PLACE = 0
SECOND_LOOK_PLACES = 1
RECORD_PLACES = 100

UNTIMED = (RunMode.CHECK, RunMode.WARM)
"""Modes in which nothing is timed, so that a process may use a profiler."""

LEFT_OUT = {
    Ending.UNSUPPORTED: "unsupported now",
    Ending.SKIPPED: "skipped now",
    Ending.RIGHT: "not timed any more",
}
"""Endings of cases that are neither right nor wrong, each in a word."""

RECORDING = (RunMode.UPDATE, RunMode.CALIBRATE)


@dataclass(frozen=True)
class RunBench:
    """What a run looks with.

    pool         where fresh processes come from
    store        baselines, read from every root in order
    local_root   where `record_local` writes
    commit       of the working tree, or 'unknown'
    against      the base side that an interleaved look is taken against; None without one
    revisions    with the base revision that the run is a change of; None where none is known
    examined     the (backend, kind of fault) of every second run that looked for a kernel
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

    def __post_init__(self) -> None:
        """Let every side's processes be shared as far as the run's settings allow."""
        for pool in self.pools:
            if isinstance(pool, WorkerPool):
                pool.isolate = self.settings.isolate

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Of every side."""
        return (self.pool,) if self.against is None else (self.pool, self.against.pool)

    def renew_processes(self, case: Case) -> None:
        """Let go of processes that must not serve this case, before anything is asked of one."""
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
    ) -> Look:
        """One look at a case; `fresh` moves the seeds of its checks on to inputs it has not seen in this run.

        pin   the configuration that its backend is to run with; None for the one that the run's settings say

        Raises as `take_look`.
        """
        self.renew_processes(case)
        request, profiled = self.make_request(case, next_key, fresh), case.timed or self.settings.mode in UNTIMED
        request = request if pin is None else replace(request, pin=dict(pin))
        ahead = plausibility.read_ahead
        return take_look(self.pool, place, request, plan, rotate=rotate, stages=stages, profiled=profiled, loaded=ahead)

    def make_request(self, case: Case, next_key: CaseKey | None, fresh: int = 0) -> OpenRequest:
        """What opens a case; with the stored configuration where that was asked for."""
        seed, settings = self.settings.seed + fresh, self.settings
        pin = self._stored_config(case) if settings.pin_config else {}
        return OpenRequest(
            case.key, next_key, seed, seed + 1, settings.case_limit_seconds, settings.determinism_repeats, pin
        )

    def _stored_config(self, case: Case) -> dict[str, str]:
        """What the baseline's processes ran with; empty where nothing is stored."""
        found = self.find_stored(case)
        return {} if found is None else dict(found.entry.config)

    def make_unmeasured_result(self, case: Case, look: Look) -> CaseResult:
        """The result of a look without a time."""
        result, mode = unmeasured_result(case, look), self.settings.mode
        if mode in UNTIMED:
            return result
        if not case.timed:
            result = mark_proven_only(result, recording=mode is RunMode.UPDATE)
        now = LEFT_OUT.get(look.ending, "")
        may_stop = look.ending is Ending.RIGHT and mode is not RunMode.GATE
        return self._mark_if_disappeared(case, result, now) if now and not may_stop else result

    def _mark_if_disappeared(self, case: Case, result: CaseResult, now: str) -> CaseResult:
        """A case that has a stored time, or that the base side times, must not disappear by calling itself so."""
        found = self.find_stored(case)
        if found is not None:
            return mark_disappeared(result, f"{now}, but a baseline is stored in {found.path.name}")
        if case.timed and self.against is not None and self.against.can_time(self.make_request(case, None)):
            return mark_disappeared(result, f"{now}, but {self.against.name} times it")
        return result

    def list_differences(self, look: Look, found: StoredEntry) -> list[str]:
        """Why a look and a stored entry may not be compared; empty when they may."""
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
        """The canary of these processes, by its name."""
        return group_canaries([self.pool.measure_canary(place) for place in places])

    def apply_floor(self, base: CaseResult) -> CaseResult:
        """SUSPICIOUS when faster than the device's floor; a note when so close to it that one should look twice."""
        place = GATE_PLACE if self.settings.mode in (RunMode.CHECK, RunMode.GATE) else RECORD_PLACES
        return plausibility.judge_by_floor(base, spec_for(self.device_at(place)))

    def find_stored(self, case: Case) -> StoredEntry | None:
        """The case's stored entry on this device."""
        device = self.device_at(RECORD_PLACES if self.settings.mode in RECORDING else GATE_PLACE)
        return self.store.find(device.arch, device.product, case.key.suite, case.key.entry)

    def estimate_noise(self, case: Case, stored: Measurement, bound: str) -> NoiseEstimate | None:
        """What unchanged code does between processes, pooled over the suite's stored cases like this one."""
        device = self.device_at()
        model = self.store.noise_model(device.arch, device.product, case.key.suite)
        return model.estimate_noise(case.key.entry, median_us_of(stored.processes), stored.timer, bound)

    def device_at(self, place: int = GATE_PLACE) -> DeviceInfo:
        """What the process in that place runs on."""
        return self.pool.wait_until_ready(place).device


def group_canaries(taken: Sequence[Mapping[str, ProcessSummary]]) -> dict[str, tuple[ProcessSummary, ...]]:
    """The canaries of these processes by what was timed."""
    names = sorted({name for canary in taken for name in canary})
    return {name: tuple(canary[name] for canary in taken if name in canary) for name in names}
