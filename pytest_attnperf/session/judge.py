"""The judge of a run: takes looks, compares, takes second looks, and says a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_attnperf.baselines.record import new_entry
from pytest_attnperf.baselines.store import BaselineStore, Found
from pytest_attnperf.environment.device_specs import spec_for
from pytest_attnperf.errors import BaselineError, CaseFailedError, WorkerError
from pytest_attnperf.gate.canary import canary_shift
from pytest_attnperf.gate.comparable import comparable
from pytest_attnperf.gate.decide import first_look, second_look
from pytest_attnperf.records import CaseKey, DeviceInfo, Measurement, NotProvenRightError, ProcessSummary, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    calibrated,
    case_result,
    decided,
    disappeared,
    first_line,
    from_another_tree,
    from_look,
    joined_measurement,
    median_us_of,
    not_measured,
    not_to_be_timed,
    of_mixed_paths,
    over_stored,
    recorded_over,
    with_creep,
    with_figures,
    with_notes,
    with_path,
    with_stored,
)
from pytest_attnperf.session.interleaved import Against, supported_there
from pytest_attnperf.session.profiling import with_profile
from pytest_attnperf.session.settings import Case, Mode, RunSettings
from pytest_attnperf.stats.noise import NoiseEstimate, NoiseModel
from pytest_attnperf.workers.conversation import BlockPlan, OpenRequest
from pytest_attnperf.workers.interleave import SideFailedError
from pytest_attnperf.workers.look import Ending, Look, take_look
from pytest_attnperf.workers.pool import Pool

LOCAL = "baseline under .attnperf/local,"
"""Begins a note that the run counts: such a baseline was made on this machine and is not under version control."""

GATE_PLACE = 0
SECOND_LOOK_PLACES = 1
RECORD_PLACES = 100


@dataclass
class Session:
    """Judges cases one at a time.

    pool         where fresh processes come from
    store        baselines, read from every root in order
    local_root   where `record_local` writes
    commit       of the working tree, or 'unknown'
    against      the base side that an interleaved look is taken against; None without one
    """

    settings: RunSettings
    pool: Pool
    store: BaselineStore
    local_root: Path
    commit: str = "unknown"
    against: Against | None = None
    clock: Callable[[], float] = time.monotonic

    def judge(self, case: Case) -> CaseResult:
        """The verdict of one case, with everything it was made from. A case that breaks is an ERROR, never a crash."""
        started = self.clock()
        try:
            result = self._by_mode(case)
        except (WorkerError, CaseFailedError, NotProvenRightError, BaselineError) as error:
            result = case_result(case, Verdict.ERROR, first_line(error), reasons=(str(error),))
            if isinstance(error, WorkerError):
                result = replace(result, reasons=(error.summary,), log=error.log_tail)
        if self.settings.profile and case.timed:
            result = with_profile(result, self.pool, lambda: self._request(case, None), self.store)
        fails = result.fails or result.verdict in case.policy.fail_on
        result = replace(result, seconds=self.clock() - started, fails=fails)
        return replace(result, reproduce=self._reproduce(result))

    def shutdown(self) -> None:
        """End every process of every side."""
        for pool in (self.pool, *([self.against.pool] if self.against is not None else [])):
            pool.shutdown()

    def _by_mode(self, case: Case) -> CaseResult:
        if not case.timed and self.settings.mode is not Mode.CHECK:
            return self._proven_only(case)
        if self.settings.mode is Mode.UPDATE:
            return self._record(case)
        if self.settings.mode is Mode.CALIBRATE:
            return calibrated(self._record(case))
        plan = None if self.settings.mode is Mode.CHECK else self.settings.plan
        stages = case.breakdown and self.settings.mode is Mode.GATE
        look = self._look(GATE_PLACE, case, plan, case.next_key, stages=stages)
        if look.ending is not Ending.MEASURED:
            return self._not_measured(case, look)
        return self._gate(case, look)

    def _proven_only(self, case: Case) -> CaseResult:
        """Of a test that says timed=False; it fails where a time is stored, which would never be looked at again."""
        place = GATE_PLACE if self.settings.mode is Mode.GATE else RECORD_PLACES
        result = self._not_measured(case, self._look(place, case, None, case.next_key))
        result = not_to_be_timed(result, recording=self.settings.mode is Mode.UPDATE)
        found = self._find(case) if self.settings.mode is Mode.GATE and result.verdict is Verdict.RIGHT else None
        what = "not timed any more, but a baseline is stored in"
        return result if found is None else disappeared(result, f"{what} {found.path.name}")

    def _look(
        self,
        place: int,
        case: Case,
        plan: BlockPlan | None,
        next_key: CaseKey | None,
        *,
        fresh: int = 0,
        rotate: bool = False,
        stages: bool = False,
    ) -> Look:
        """`fresh` moves the seeds of the checks on to inputs that the case has not seen in this run."""
        request, profiled = self._request(case, next_key, fresh), case.timed or self.settings.mode is Mode.CHECK
        return take_look(self.pool, place, request, plan, rotate=rotate, stages=stages, profiled=profiled)

    def _request(self, case: Case, next_key: CaseKey | None, fresh: int = 0) -> OpenRequest:
        seed, settings = self.settings.seed + fresh, self.settings
        pin = self._stored_config(case) if settings.pin_config else {}
        return OpenRequest(
            case.key, next_key, seed, seed + 1, settings.case_limit_seconds, settings.determinism_repeats, pin
        )

    def _stored_config(self, case: Case) -> dict[str, str]:
        """What the baseline's processes ran with; empty where nothing is stored."""
        found = self._find(case)
        return {} if found is None else dict(found.entry.config)

    def _not_measured(self, case: Case, look: Look) -> CaseResult:
        """The result of a look without a time."""
        result = not_measured(case, look)
        if look.ending is Ending.UNSUPPORTED and self.settings.mode is not Mode.CHECK:
            return self._was_supported(case, result)
        return result

    def _was_supported(self, case: Case, result: CaseResult) -> CaseResult:
        """A case that the baseline holds a time for, or the base side runs, must not disappear by calling itself so."""
        found = self._find(case)
        if found is not None:
            return disappeared(result, f"unsupported now, but a baseline is stored in {found.path.name}")
        if self.against is not None and self.against.supports(self._request(case, None)):
            return disappeared(result, f"unsupported now, but {self.against.name} runs it")
        return result

    def _gate(self, case: Case, look: Look) -> CaseResult:
        measurement = joined_measurement([look])
        base = with_figures(from_look(case, Verdict.SAME, "", look), self._device())
        base = replace(
            base,
            first=measurement.processes,
            median_us=measurement.medians_us[0],
            canary=self._canary([GATE_PLACE]) if self.settings.gates else {},
        )
        base = self._plausible(base)
        if base.verdict is Verdict.SUSPICIOUS:
            return base
        if not self.settings.gates:
            return replace(base, verdict=Verdict.RIGHT, summary="measured in the pytest process, which never gates")
        foreign = from_another_tree(base, [look])
        if foreign is not None:
            return foreign
        found, notes = self._baseline_for(case, look)
        if isinstance(found, CaseResult):
            return found
        base = replace(base, notes=base.notes + notes)
        if found is None:
            return self._interleaved(case, base) or self._without_baseline(case, base)
        if self.against is not None and self.against.everything:
            settled = self._interleaved(case, with_notes(base, case, found))
            if settled is not None:
                return settled if self._differences(look, found) else with_creep(settled, case, found)
        return self._held_against(case, base, look, found)

    def _baseline_for(self, case: Case, look: Look) -> tuple[Found | CaseResult | None, tuple[str, ...]]:
        """The stored entry; recorded first under .attnperf/local where that was asked for and none exists."""
        found = self._find(case)
        if found is not None or not self.settings.record_local:
            return found, ()
        recorded = self._record(case)
        if recorded.verdict is not Verdict.RECORDED:
            return recorded, ()
        device = self._device()
        self.store.merge(
            self.local_root,
            device.arch,
            device.product,
            case.key.suite,
            {case.key.entry: new_entry(recorded, self.commit)},
        )
        note = f"{LOCAL} recorded in this run, in {len(recorded.first)} other processes"
        return self._find(case), (note,)

    def _held_against(self, case: Case, base: CaseResult, look: Look, found: Found) -> CaseResult:
        entry = found.entry
        differences = self._differences(look, found)
        base = over_stored(base, found)
        if found.path.is_relative_to(self.local_root) and not any(note.startswith(LOCAL) for note in base.notes):
            base = replace(base, notes=(*base.notes, f"{LOCAL} recorded {entry.recorded}"))
        if differences:
            unlike = replace(
                base,
                verdict=Verdict.INCOMPARABLE,
                summary=f"not comparable: {differences[0]}",
                reasons=tuple(differences),
            )
            settled = self._interleaved(case, replace(base, notes=(*base.notes, f"stored baseline: {unlike.summary}")))
            return settled or unlike
        stored, new = entry.measurement(), joined_measurement([look])
        noise = self._noise(case, stored, base.floor_bound)
        decision = first_look(stored, new, noise, case.policy, self.settings.cases)
        base = with_notes(base, case, found)
        if not decision.needs_second_look:
            base = plausibility.with_changes(decided(base, decision), entry.launches)
            base = with_stored(base, case, found)
            if base.verdict is Verdict.INCOMPARABLE:
                return self._interleaved(case, base) or base
            return self._recheck_jump(case, base) if plausibility.is_jump(base) else base
        settled = self._interleaved(case, plausibility.with_changes(base, entry.launches), decision.ratio)
        if settled is not None:
            return with_creep(settled, case, found)
        return self._second(case, base, look, found, noise)

    def _differences(self, look: Look, found: Found) -> list[str]:
        """Why a look and a stored entry may not be compared; empty when they may."""
        assert look.fingerprint is not None
        assert look.figures is not None
        assert look.summary is not None
        timer, definition = look.summary.timer, look.figures.definition
        return comparable(found.entry, found.fingerprint, look.fingerprint, timer=timer, definition=definition)

    def _second(
        self, case: Case, base: CaseResult, look: Look, found: Found, noise: NoiseEstimate | None
    ) -> CaseResult:
        """Settle against the stored processes, by fresh ones."""
        assert look.fingerprint is not None
        stored, new = found.entry.measurement(), joined_measurement([look])
        looks = self._second_look(case)
        wrong = next((again for again in looks if again.ending is not Ending.MEASURED), None)
        if wrong is not None:
            return replace(self._not_measured(case, wrong), first=base.first)
        foreign = from_another_tree(base, looks)
        if foreign is not None:
            return foreign
        second = joined_measurement(looks)
        changes = look.fingerprint.changes(found.fingerprint)
        canary = self._canary(self._second_places())
        decision = second_look(
            stored,
            new,
            second,
            noise,
            case.policy,
            self.settings.cases,
            changes,
            canary=canary_shift(canary, found.canary),
            bound=base.floor_bound,
        )
        settled = plausibility.with_changes(decided(base, decision), found.entry.launches)
        settled = replace(settled, second=second.processes, median_us=median_us_of(second.processes), canary=canary)
        return with_stored(settled, case, found, looks)

    def _interleaved(self, case: Case, base: CaseResult, first_ratio: float | None = None) -> CaseResult | None:
        """The verdict against the base side; None where there is none, or where only this side has the case."""
        against = self.against
        if against is None or not against.has(case.key):
            return None
        try:
            bytes_min = 0.0 if base.figures is None else base.figures.bytes_min or 0.0
            looks = against.look(self.pool, self._request(case, None), bytes_min)
        except SideFailedError as error:
            if error.side == against.name:
                return against.failed(base, error)
            raise
        if not supported_there(looks):
            return None
        wrong = next((look.new for look in looks if look.new.ending is not Ending.RIGHT), None)
        if wrong is not None:
            return replace(self._not_measured(case, wrong), first=base.first)
        return against.settle(case, base, looks, self.settings.cases, first_ratio)

    def _canary(self, places: Iterable[int]) -> dict[str, tuple[ProcessSummary, ...]]:
        """The canary of these processes, by its name."""
        taken = [self.pool.canary(place) for place in places]
        names = sorted({name for canary in taken for name in canary})
        return {name: tuple(canary[name] for canary in taken if name in canary) for name in names}

    def _second_places(self) -> range:
        return range(SECOND_LOOK_PLACES, SECOND_LOOK_PLACES + self.settings.second_look)

    def _second_look(self, case: Case) -> list[Look]:
        """Fresh processes, none of which made the first look; started once and kept for the run's other suspects."""
        places = self._second_places()
        self.pool.start(places)
        return [self._look(place, case, self.settings.plan, None) for place in places]

    def _record(self, case: Case) -> CaseResult:
        """Measure in `processes` fresh processes; RECORDED only if every one was right and ran this tree's code."""
        places = range(RECORD_PLACES, RECORD_PLACES + self.settings.processes)
        self.pool.start(places)
        following = case.next_key if self.settings.mode in (Mode.UPDATE, Mode.CALIBRATE) else None
        looks = []
        canary = self._canary(places)
        for place in places:
            # Once is enough to see whether a kernel remembers its results.
            look = self._look(place, case, self.settings.plan, following, rotate=place == RECORD_PLACES)
            if look.ending is not Ending.MEASURED:
                return self._not_measured(case, look)
            looks.append(look)
        measurement = joined_measurement(looks)
        base = with_figures(from_look(case, Verdict.RECORDED, "", looks[0]), self._device(RECORD_PLACES))
        centre = median_us_of(measurement.processes)
        base = replace(
            base,
            first=measurement.processes,
            median_us=centre,
            checks=measurement.proof,
            peak_memory_bytes=measurement.peak_memory_bytes,
            canary=canary,
        )
        foreign = from_another_tree(base, looks) or of_mixed_paths(base, looks)
        if foreign is not None:
            return replace(foreign, fails=self.settings.mode is Mode.UPDATE)
        base = plausibility.by_rotation(self._plausible(base), looks[0].rotation)
        if base.verdict is Verdict.SUSPICIOUS:
            return base
        return recorded_over(base, case, self._find(case), accepted=bool(self.settings.accepted))

    def _plausible(self, base: CaseResult) -> CaseResult:
        """SUSPICIOUS when faster than the device's floor; a note when so close to it that one should look twice."""
        place = GATE_PLACE if self.settings.mode in (Mode.CHECK, Mode.GATE) else RECORD_PLACES
        return plausibility.by_floor(base, spec_for(self._device(place)))

    def _recheck_jump(self, case: Case, base: CaseResult) -> CaseResult:
        """Several times faster than stored: right on new inputs in a fresh process, and as fast when inputs change?"""
        self.pool.start([SECOND_LOOK_PLACES])
        look = self._look(SECOND_LOOK_PLACES, case, self.settings.plan, None, fresh=2, rotate=True)
        if look.ending is not Ending.MEASURED:
            return replace(self._not_measured(case, look), first=base.first)
        sides = [(base.config, look.final.config)]
        return with_path(plausibility.by_jump(base, look.rotation), sides, name="in the first look")

    def _without_baseline(self, case: Case, base: CaseResult) -> CaseResult:
        device = self._device()
        others = [p for p in self.store.products(device.arch, case.key.suite) if p != device.product]
        if others:
            text = f"a baseline is stored for {device.arch}/{', '.join(others)}, this is {device.arch}/{device.product}"
            return replace(base, verdict=Verdict.INCOMPARABLE, summary=text, reasons=(text,))
        text = (
            f"no baseline for {case.key} on {device.arch}/{device.product}; "
            f'store one with: pytest --update-baselines "{case.nodeid}"'
        )
        return replace(base, verdict=Verdict.NO_BASELINE, summary=text, reasons=(text,))

    def _find(self, case: Case) -> Found | None:
        device = self._device(RECORD_PLACES if self.settings.mode in (Mode.UPDATE, Mode.CALIBRATE) else GATE_PLACE)
        return self.store.find(device.arch, device.product, case.key.suite, case.key.entry)

    def _noise(self, case: Case, stored: Measurement, bound: str) -> NoiseEstimate | None:
        """What unchanged code does between processes, pooled over the suite's stored cases like this one."""
        device = self._device()
        entries = self.store.load(device.arch, device.product, case.key.suite)
        model = NoiseModel.from_processes(
            {key: found.entry.processes for key, found in entries.items()},
            bounds={key: found.entry.bound for key, found in entries.items()},
        )
        return model.sd(case.key.entry, median_us_of(stored.processes), stored.timer, bound)

    def _device(self, place: int = GATE_PLACE) -> DeviceInfo:
        return self.pool.ready(place).device

    def _reproduce(self, result: CaseResult) -> str:
        seed = f" --attnperf-seed={self.settings.seed}" if result.verdict is Verdict.INCORRECT else ""
        flag = "" if self.settings.mode is Mode.CHECK else " --attnperf"
        given = "".join(f" {option}" for option in self.settings.given_options)
        return f'pytest{flag}{seed}{given} "{result.nodeid}"'
